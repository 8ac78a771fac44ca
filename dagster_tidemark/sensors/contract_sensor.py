"""The check `contract`: reports in the UI if an asset keeps its freshness promise.

The check needs no run. The sensor `contracts` writes a result when the state changes and after each materialization,
because the UI shows only a result of the latest materialization. Users can also execute the check. Does not
belong here: the verdict on a contract (`planner.contract_status`), and the check `stream`, whose results the sensor
writes as well (`engine.stream_rows`).

The check also fails in two other states, because the promise may be broken. In the state "not judged", the asset is set
aside, so that no sensor evaluates it. In the state "unknown", a sensor or a shift has not reported for a while, or a
service cannot be reached.
"""

import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any
from zlib import crc32

import dagster as dg

from dagster_tidemark.dagster_internals import freshness
from dagster_tidemark.dagster_internals.asset_graph import AnyGraph, graph_of_definitions
from dagster_tidemark.engine import engine
from dagster_tidemark.engine.doubts import CONTRACTS, Doubts, Looked, Watched, doubts, note_look
from dagster_tidemark.engine.override_store import end_finished
from dagster_tidemark.engine.overview import doubted, judged, overview
from dagster_tidemark.engine.saved_overview import CHECK, Kept, StandingRow, keep, kept, standing_rows
from dagster_tidemark.engine.stream_rows import StreamRow, stream_rows
from dagster_tidemark.engine.unkept import UnkeptContracts
from dagster_tidemark.event_log.deployed import code_of
from dagster_tidemark.incidents.contents import ContentReader
from dagster_tidemark.incidents.expected import ExpectedArrival
from dagster_tidemark.incidents.incident import Book
from dagster_tidemark.incidents.look import Look, note_incidents
from dagster_tidemark.incidents.routing import Route
from dagster_tidemark.planner.contracts import FreshnessStatus
from dagster_tidemark.planner.decisions import ContractStatus
from dagster_tidemark.planner.wording import names
from dagster_tidemark.sensors.arrival_check import changed_arrivals
from dagster_tidemark.sensors.cursors import cursor_of
from dagster_tidemark.sensors.reachable import unreachable
from dagster_tidemark.sensors.reported_check import ReportedBySensor
from dagster_tidemark.sensors.scope import WHOLE_LOCATION, LocationScope, assets_of
from dagster_tidemark.settings import Settings
from dagster_tidemark.streams.checks import STREAM, state_result

_IN_DAGSTERS_PANEL: Mapping[FreshnessStatus, freshness.Freshness] = {
    FreshnessStatus.MET: "PASS",
    FreshnessStatus.AT_RISK: "WARN",
    FreshnessStatus.BREACHED: "FAIL",
    FreshnessStatus.NOT_JUDGED: "UNKNOWN",
    FreshnessStatus.UNKNOWN: "UNKNOWN",
}
STATE = "state"
_DESCRIPTION = (
    "Fails if the asset lacks arrived data that its freshness policy promises. While Dagster's daemon or the code "
    "server is stopped, no sensor can write a result, and the last one stays here: see Deployment > Daemons and Code "
    "locations. `tidemark status` and `/healthz` then report `unknown`."
)
_ASKED_AGAIN = 2.0  # seconds until an unreachable service is probed again, because a short pause is not a fault
_FIGURES_EVERY = 600.0  # seconds; a stream at work writes six results an hour


def contract_checks(
    assets: Iterable[Any], settings: Settings | None = None, others: Iterable[Any] = ()
) -> list[dg.AssetChecksDefinition]:
    """Return a check for each asset with a freshness policy.

    Args:
        settings: The settings of the code location; see `LocationScope`.
        others: All other assets of the code location, which the assets may read.
    """
    every = list(assets)
    specs = (spec for found in every if isinstance(found, dg.AssetsDefinition) for spec in found.specs)
    graph = cache(lambda: graph_of_definitions([*every, *others]))
    return [_check(spec.key, graph, settings) for spec in specs if spec.freshness_policy is not None]


def contract_sensor(
    watched: Watched | None = None,
    *,
    scope: LocationScope = WHOLE_LOCATION,
    routes: Sequence[Route] = (),
    expected: Sequence[ExpectedArrival] = (),
) -> dg.SensorDefinition:
    """Return the sensor that reports the state of the contracts, and finds incidents.

    Args:
        watched: Feeds and streams, whose sources are outside the event log. Requires the settings in `scope`.
        routes: The channels that get messages about incidents.
        expected: Expected arrivals of sources.
    """
    world, unkept = _World(), UnkeptContracts()

    @dg.sensor(
        name=scope.named(CONTRACTS),
        description="Reports the check `contract` and Dagster's freshness state of each asset whose contract status "
        "changed, or that was materialized again.",
        asset_selection=scope.assets,
        minimum_interval_seconds=10,
        default_status=dg.DefaultSensorStatus.RUNNING,
    )
    def contracts(context: dg.SensorEvaluationContext) -> dg.SensorResult | dg.SkipReason:
        instance, settings, assets = context.instance, scope.settings, assets_of(context)
        built = _last_built(instance, assets)  # later builds count at the next tick
        planner = engine.engine_for(instance, assets, settings).planner
        plan, every = judged(instance, assets, settings)
        if plan.catching_up:
            return dg.SkipReason(plan.catching_up)
        graph = planner.graph
        not_kept = unkept.look(assets, graph, planner.history.durations, planner.slots, plan.now)
        for line in unkept.news():
            context.log.warning(line)
        standings = {asset: found for asset, found in every.items() if scope.has([dg.AssetKey.from_user_string(asset)])}
        at_home = watched or Watched()
        if watched is not None and settings is not None:
            world.look(instance, settings, watched.location, plan.now)
            rows = tuple(_only_ours(row, scope) for row in standing_rows(graph, plan, standings, not_kept))
            before, origin = kept(instance, watched.location), context.code_location_origin
            at_home = replace(watched, home=origin.location_name if origin is not None else "")
            keep(instance, watched.location, Kept(plan.now, code_of(settings), at_home, rows, dict(plan.left)))
            planned = {asset for asset in graph.nodes if None not in plan.aside(asset)}
            end_finished(instance, settings.code_location, plan.left.keys(), plan.now, planned)
        doubt, book = doubts(instance, at_home, plan.now), Book()
        if watched is not None and settings is not None:
            look = Look(
                plan,
                standings,
                doubt,
                before.at if before is not None else None,
                lambda asset: scope.has([dg.AssetKey.from_user_string(asset)]),
                with_landing=bool(watched.feeds),
                expected=expected,
                contents=world.contents(instance),
                warn=context.log.warning,
            )
            book = note_incidents(instance, assets, settings, look, routes)
        standings = doubted(standings, graph, doubt)
        told = cursor_of(context, _told_in, dict[str, Any](), "each check is written again")
        states = {asset: _state(standing, built.get(asset)) for asset, standing in standings.items()}
        of_streams, stream_states = changed_streams(instance, watched or Watched(), doubt, plan.now, told)
        changed = [standing for asset, standing in standings.items() if told.get(asset) != states[asset]]
        of_sources, arrival_states = changed_arrivals(book.arrivals, told)
        if not changed and not of_streams and not of_sources:
            return dg.SkipReason(_summary(list(standings.values())))
        events = [*(_evaluation(standing, plan.now) for standing in changed), *of_streams, *of_sources]
        shown = {standing.asset: _IN_DAGSTERS_PANEL[standing.verdict] for standing in changed}
        freshness.report_freshness(context.instance, shown, plan.now)
        return dg.SensorResult(asset_events=events, cursor=json.dumps(states | stream_states | arrival_states))

    return contracts


def _told_in(said: Any) -> dict[str, Any]:
    return dict(said.items())


def _only_ours(row: StandingRow, scope: LocationScope) -> StandingRow:
    """Return the row. Mark it as hidden if its asset is outside the scope."""
    return row if scope.has([dg.AssetKey.from_user_string(row.asset)]) else replace(row, shown=False)


class _World:
    """The services that runs need, probed at each tick. A fault is recorded if it lasts for some seconds."""

    def __init__(self) -> None:
        self._faulty: set[str] = set()
        self._contents: ContentReader | None = None

    def contents(self, instance: dg.DagsterInstance) -> ContentReader:
        """Return the reader of files, which remembers what it has read while the instance is the same."""
        if self._contents is None or self._contents.instance is not instance:
            self._contents = ContentReader(instance)
        return self._contents

    def look(self, instance: dg.DagsterInstance, settings: Settings, location: str, now: float) -> None:
        found = unreachable(settings)
        if {name for name, why in found.items() if why} - self._faulty:
            time.sleep(_ASKED_AGAIN)
            found = unreachable(settings)
        self._faulty = {name for name, why in found.items() if why}
        for name, why in found.items():
            note_look(instance, location, name, Looked(now, why))


def _state(standing: ContractStatus, built: int | None) -> list[Any]:
    """Return the values that a result depends on. A new result is written when a value changes."""
    # Not Python's hash(): for strings it differs from process to process.
    aside = [crc32("\n".join(standing.set_aside).encode())] if standing.set_aside else []
    overridden = [crc32("\n".join(("overridden", *standing.overridden)).encode())] if standing.overridden else []
    return [standing.verdict, built, *aside, *overridden]


def _last_built(instance: dg.DagsterInstance, assets: AnyGraph) -> dict[str, int | None]:
    """Return the storage id of each asset's last materialization."""
    records = instance.get_asset_records(sorted(assets.materializable_asset_keys))
    entries = [record.asset_entry for record in records]
    return {entry.asset_key.to_user_string(): entry.last_materialization_storage_id for entry in entries}


def _check(key: dg.AssetKey, graph: Callable[[], AnyGraph], settings: Settings | None) -> dg.AssetChecksDefinition:
    @dg.asset_check(
        asset=key,
        name=CHECK,
        description=_DESCRIPTION,
        automation_condition=ReportedBySensor(),
    )
    def contract(context: dg.AssetCheckExecutionContext) -> dg.AssetCheckResult:
        plan, standings = overview(context.instance, graph(), settings, wait=True)
        standing = standings[key.to_user_string()]
        return dg.AssetCheckResult(**_result(standing, plan.now))

    return contract


def _evaluation(standing: ContractStatus, now: float) -> dg.AssetCheckEvaluation:
    key = dg.AssetKey.from_user_string(standing.asset)
    result = _result(standing, now)
    return dg.AssetCheckEvaluation(asset_key=key, check_name=CHECK, **result)


def _result(standing: ContractStatus, now: float) -> dict[str, Any]:
    metadata: dict[str, Any] = {
        STATE: str(standing.verdict),
        "lag (seconds)": round(standing.lag, 1),
        "reason": standing.reason,
        "judged at": dg.MetadataValue.timestamp(now),
    }
    unknown = standing.verdict is FreshnessStatus.UNKNOWN  # the reason begins with this word
    if standing.promised_lag is not None:
        metadata["lag, promised (seconds)"] = standing.promised_lag
    if standing.partition is not None:
        metadata["partition"] = standing.partition
    if standing.set_aside:
        metadata["set aside"] = names(standing.set_aside)
    if standing.deadline is not None:
        metadata["promised for"] = dg.MetadataValue.timestamp(standing.deadline)
    return {
        # If the contract is at risk, nothing is late yet.
        "passed": standing.verdict in (FreshnessStatus.MET, FreshnessStatus.AT_RISK),
        "severity": dg.AssetCheckSeverity.ERROR,
        "description": standing.reason if unknown else f"{standing.verdict}: {standing.reason}",
        "metadata": metadata,
    }


def _summary(standings: Sequence[ContractStatus]) -> str:
    counted = {verdict: sum(standing.verdict is verdict for standing in standings) for verdict in FreshnessStatus}
    return ", ".join(f"{count} {verdict}" for verdict, count in counted.items() if count) or "no contract"


def changed_streams(
    instance: dg.DagsterInstance, watched: Watched, found: Doubts, now: float, told: Mapping[str, Any]
) -> tuple[list[dg.AssetCheckEvaluation], dict[str, list[Any]]]:
    """Return results for the streams whose state has changed since the last report, and the states of all streams."""
    rows = stream_rows(instance, watched, found, now)
    states = {f"stream {row.stream}": _stream_state(row) for row in rows}
    changed = [row for row in rows if told.get(f"stream {row.stream}") != states[f"stream {row.stream}"]]
    return [_stream_result(row, now) for row in changed], states


def _stream_state(row: StreamRow) -> list[Any]:
    """Return the values whose change causes a new result. A hindrance's text is left out: it changes at each tick."""
    return [row.is_behind, bool(row.hindrance), (row.committed_at or 0.0) // _FIGURES_EVERY]


def _stream_result(row: StreamRow, now: float) -> dg.AssetCheckEvaluation:
    key = dg.AssetKey.from_user_string(row.asset)
    return dg.AssetCheckEvaluation(asset_key=key, check_name=STREAM, **state_result(row, now))
