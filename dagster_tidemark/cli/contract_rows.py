"""The rows of `tidemark status`, one per asset: contract, state, next run and last run.

Belongs here: making rows from an instance, and selecting rows. Does not belong here: printing rows
(`cli.status_view`), and the state of a contract (`planner.contract_status`).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import dagster as dg
from dagster import DagsterInstance

from dagster_tidemark.dagster_internals import event_storage
from dagster_tidemark.engine.doubts import CONTRACTS, Cause, Doubts, brief, doubts, since_look
from dagster_tidemark.engine.override_store import OverrideStore
from dagster_tidemark.engine.saved_overview import SET_ASIDE, Kept, StandingRow, standing_rows
from dagster_tidemark.engine.stream_rows import StreamRow, stream_rows
from dagster_tidemark.errors import Terminal
from dagster_tidemark.event_log.observations import QUARANTINE
from dagster_tidemark.planner.contracts import FreshnessStatus
from dagster_tidemark.planner.overrides import Override

if TYPE_CHECKING:
    from dagster_tidemark.dagster_internals.asset_graph import AnyGraph
    from dagster_tidemark.settings import Settings


@dataclass(frozen=True)
class ContractRow:
    """One asset in `tidemark status`. Times are Unix seconds.

    Args:
        contract: Description of the contract; empty if the asset has none.
        state: Met, at risk, unknown, breached or not judged. Without a contract: set aside, or empty.
        lag: Seconds since the arrival of the oldest data that the asset does not contain; 0 if no data is pending.
        pending: Number of partitions with pending work.
        due: Time of the asset's next run request.
        reason: Reason for the state, or for waiting.
        last_run: Status of the last run that built the asset.
        last_built: Time of the last build.
        set_aside: Parts of the asset that the automation ignores, each with the reason.
        source: True for a source. A source has a row only if the automation ignores a part of it or data was rejected.
        files_rejected: Some of the feed's files that are in quarantine as a whole and are not waived.
        rows_rejected: Number of rejected rows in other files.
        asap: True if the asset's tag makes it run as soon as any data is pending.
        not_loaded: Edited code in this folder that the platform has not loaded yet; empty if none.
        stream: State of the stream that fills the asset, if any.
        infeasible: Why the contract cannot be kept even if nothing fails; empty if it can.
        overrides: Pauses, skips and rebuilds that people have asked for, and that apply to the asset.
        causes: The causes that make the state unknown, each with a remedy. `reason` has only the causes' names.
    """

    asset: str
    contract: str
    state: str
    lag: float
    pending: int
    due: float | None
    reason: str
    last_run: str | None
    last_built: float | None
    set_aside: tuple[str, ...] = ()
    source: bool = False
    files_rejected: tuple[str, ...] = ()
    rows_rejected: int = 0
    asap: bool = False
    not_loaded: str = ""
    stream: StreamRow | None = None
    infeasible: str = ""
    causes: tuple[Cause, ...] = ()
    overrides: tuple[Override, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """Return the row for JSON."""
        return asdict(self)


class NoSuchAsset(Terminal):
    """The code location has no asset of the given name."""


def rows(
    instance: DagsterInstance, assets: "AnyGraph", only: str | None = None, settings: "Settings | None" = None
) -> list[ContractRow]:
    """Return a row for each asset that the planner automates or ignores, in the order of the graph.

    Args:
        only: Key of the only asset to return; None returns all.

    Raises:
        NoSuchAsset: no asset has this name.
    """
    # Imported here, because it takes a second, and a status from stored rows needs neither the planner nor the graph.
    from dagster_tidemark.engine import engine
    from dagster_tidemark.engine.overview import judged, watched_of
    from dagster_tidemark.engine.unkept import UnkeptContracts
    from dagster_tidemark.event_log import deployed
    from dagster_tidemark.planner.code_changes import not_loaded

    plan, standings = judged(instance, assets, settings, wait=True, read_only=True)
    planner = engine.engine_for(instance, assets, settings).planner
    graph = planner.graph
    edited = not_loaded(deployed.kept(instance, graph), graph)
    found = doubts(instance, watched_of(instance, settings), plan.now)
    not_kept = UnkeptContracts().look(assets, graph, planner.history.durations, planner.slots, plan.now)
    judged_rows = standing_rows(graph, plan, standings, not_kept)
    return _filled(instance, judged_rows, only, now=plan.now, edited=edited, doubts=found)


def kept_rows(
    instance: DagsterInstance, kept: Kept, only: str | None, now: float, edited: Mapping[str, str]
) -> list[ContractRow]:
    """Return the rows that the sensor `contracts` stored at its last tick, updated with reasons for unknown states.

    Args:
        edited: By asset, edited code that the platform has not loaded yet.

    Raises:
        NoSuchAsset: no asset has this name.
    """
    found = since_look(doubts(instance, kept.watched, now), kept.at, now)
    streams = {row.asset: row for row in stream_rows(instance, kept.watched, found, now)}
    return _filled(instance, kept.rows, only, now=now, edited=edited, doubts=found, streams=streams)


def not_looked_yet(found: Iterable[ContractRow]) -> list[ContractRow]:
    """Return the rows of an instance whose sensor `contracts` has not run yet: contracts are unknown instead of met."""
    kept, state = (FreshnessStatus.MET, FreshnessStatus.AT_RISK), str(FreshnessStatus.UNKNOWN)
    reason = f"sensor {CONTRACTS} has not run yet"
    return [replace(row, state=state, reason=reason) if row.state in kept else row for row in found]


def causes(found: Iterable[ContractRow]) -> dict[Cause, list[str]]:
    """Return the assets that each cause affects. The cause with the most assets comes first."""
    concerned: dict[Cause, list[str]] = {}
    for row in found:
        for cause in row.causes:
            concerned.setdefault(cause, []).append(row.asset)
    return dict(sorted(concerned.items(), key=lambda each: -len(each[1])))


def _in_doubt(row: ContractRow, causes: tuple[Cause, ...]) -> ContractRow:
    if not causes or not row.contract or row.state == FreshnessStatus.NOT_JUDGED:
        return row
    state, reason = brief(row.state, row.reason, causes)
    return replace(row, state=state, reason=reason, causes=causes)


def _filled(
    instance: DagsterInstance,
    found: Sequence[StandingRow],
    only: str | None,
    *,
    now: float,
    edited: Mapping[str, str],
    doubts: Doubts,
    streams: Mapping[str, StreamRow] = MappingProxyType({}),
) -> list[ContractRow]:
    """Return the rows with each asset's facts from the event log added, and the causes that affect the asset."""
    refused = {row.asset: _in_quarantine(instance, row.asset) for row in found}
    shown = [row for row in found if row.shown or row.asset in streams or (row.source and refused[row.asset][1])]
    wanted = [row for row in shown if only in (None, row.asset)]
    if not wanted:
        known = ", ".join(row.asset for row in shown)
        raise NoSuchAsset(f"there is no asset {only!r}; known assets: {known}")
    built = _last_built(instance, [row.asset for row in wanted])
    lasting = [each for each in OverrideStore(instance).read() if each.lasts(now)]
    complete = [
        ContractRow(
            asset=row.asset,
            contract=row.contract,
            state=row.state,
            lag=0.0 if row.oldest is None else max(0.0, now - row.oldest),
            pending=row.pending,
            due=row.due,
            reason=row.reason,
            last_run=built.get(row.asset, (None, None))[0],
            last_built=built.get(row.asset, (None, None))[1],
            set_aside=row.set_aside,
            source=row.source,
            files_rejected=refused[row.asset][0],
            rows_rejected=refused[row.asset][1],
            asap=row.asap,
            not_loaded=edited.get(row.asset, ""),
            stream=streams.get(row.asset),
            infeasible=row.infeasible,
            overrides=tuple(each for each in lasting if row.asset in each.assets),
        )
        for row in wanted
    ]
    return [
        _in_doubt(row, doubts.about(of.asset, of.sensor, of.sources)) for row, of in zip(complete, wanted, strict=True)
    ]


def behind(found: Iterable[ContractRow]) -> list[str]:
    """Return the streams with a backlog and no commit for a minute, and the streams that no shift reads."""
    streams = [row.stream for row in found if row.stream is not None]
    return [stream.stream for stream in streams if stream.is_behind or stream.is_unread]


def unknown(found: Iterable[ContractRow]) -> list[str]:
    """Return the assets whose contract's state is unknown."""
    return [row.asset for row in found if row.state == FreshnessStatus.UNKNOWN]


def breached(found: Iterable[ContractRow]) -> list[str]:
    """Return the assets whose contract is breached."""
    return [row.asset for row in found if row.state == FreshnessStatus.BREACHED]


def set_aside(found: Iterable[ContractRow]) -> list[str]:
    """Return the assets that the automation ignores as a whole."""
    return [row.asset for row in found if row.state in (FreshnessStatus.NOT_JUDGED, SET_ASIDE)]


def quarantined(found: Iterable[ContractRow]) -> list[str]:
    """Return the assets whose tables lack the rows of rejected files."""
    return [row.asset for row in found if row.files_rejected]


def _in_quarantine(instance: DagsterInstance, asset: str) -> tuple[tuple[str, ...], int]:
    """Return the files and the number of rows in quarantine, from the latest result of the asset's check."""
    key = dg.AssetCheckKey(dg.AssetKey.from_user_string(asset), QUARANTINE)
    said = event_storage.latest_check_metadata(instance, key) or {}
    files, count = said.get("files", []), said.get("rows", 0)
    known = tuple(str(file) for file in files) if isinstance(files, list) else ()
    return known, count if isinstance(count, int) else 0


def _last_built(instance: DagsterInstance, assets: Sequence[str]) -> dict[str, tuple[str | None, float | None]]:
    """Return the status of the last run and the time of the last build, for each asset that was ever built."""
    records = instance.get_asset_records([dg.AssetKey.from_user_string(asset) for asset in assets])
    last = {r.asset_entry.asset_key.to_user_string(): r.asset_entry.last_materialization_record for r in records}
    run_ids = [record.run_id for record in last.values() if record is not None and record.run_id]
    runs = {run.run_id: run.status for run in instance.get_runs(dg.RunsFilter(run_ids=run_ids))} if run_ids else {}
    return {
        asset: (runs[record.run_id].value.lower() if record.run_id in runs else None, record.timestamp)
        for asset, record in last.items()
        if record is not None
    }
