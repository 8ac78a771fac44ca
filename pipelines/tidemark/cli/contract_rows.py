"""A row for each asset of what `pipelines status` tells: its contract, how it stands, what is due and what ran last.

Belongs here: from an instance to rows, and what rows say together. Does not belong here: how they are shown
(`cli.contract_table`), and how a contract stands (`planner.contract_status`).
"""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import dagster as dg
from dagster import DagsterInstance

from pipelines.tidemark.asset_graph.build import AnyGraph
from pipelines.tidemark.engine import engine
from pipelines.tidemark.engine.overview import overview
from pipelines.tidemark.errors import Terminal
from pipelines.tidemark.event_log import adapter, deployed
from pipelines.tidemark.event_log.observations import QUARANTINE
from pipelines.tidemark.planner.code_changes import not_loaded
from pipelines.tidemark.planner.contract_status import is_set_aside, told
from pipelines.tidemark.planner.contracts import FreshnessStatus
from pipelines.tidemark.planner.decisions import Decision, Plan, Standing
from pipelines.tidemark.planner.graph import Node
from pipelines.tidemark.planner.wording import name, names
from pipelines.tidemark.sensors.contracts import CHECK

_DAY = 86_400.0
SET_ASIDE = "set aside"


@dataclass(frozen=True)
class ContractRow:
    """An asset. Times in Unix seconds.

    Args:
        contract: In words; empty where there is none.
        state: met, at risk, breached or not judged; where there is no contract set aside, or empty.
        lag: Seconds since the oldest data arrived that it does not contain; 0 where none is pending.
        pending: How many of its partitions have something pending.
        due: When the next run of it is asked for.
        reason: Why it stands so, or what it waits for.
        last_run: Status of the run that built it last, and when that was.
        last_built: When it was built last.
        within: Share of the last day (or of the time since it was first judged) it was not breached, 0 to 1.
        set_aside: What of it nobody looks after, each with the reason.
        source: Its data comes from outside. Sources have a row only where something of them is set aside or refused.
        files_rejected: Some of the files that its feed has in the quarantine as a whole and nobody has waived.
        rows_rejected: How many rows beside them.
        asap: It runs as soon as anything is pending, by its tag.
        not_loaded: What of its code in this folder the platform has not loaded yet; empty: nothing.
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
    within: float | None
    set_aside: tuple[str, ...] = ()
    source: bool = False
    files_rejected: tuple[str, ...] = ()
    rows_rejected: int = 0
    asap: bool = False
    not_loaded: str = ""

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


class NoSuchAsset(Terminal):
    """An asset was named that the code location does not have."""


def rows(instance: DagsterInstance, assets: AnyGraph, only: str | None = None) -> list[ContractRow]:
    """A row for each asset the planner looks after, or should (or for one), in the order of the graph.

    Raises:
        NoSuchAsset: there is none of that name.
    """
    plan, standings = overview(instance, assets, wait=True)
    graph = engine.engine_for(instance, assets).graph
    nodes = graph.nodes
    refused = {key for key, node in nodes.items() if node.source and _in_quarantine(instance, node)[1]}
    looked_after = {key for key, node in nodes.items() if node.automated or node.left_out or node.contract}
    shown = [key for key in nodes if key in looked_after or key in refused or plan.aside(key)]
    wanted = [key for key in shown if only in (None, key)]
    if not wanted:
        known = ", ".join(shown)
        raise NoSuchAsset(f"there is no asset {only!r}; there are {known}")
    contracts = {key: told(node.contract) for key, node in nodes.items() if node.contract is not None}
    built = _last_built(instance, wanted)
    edited = not_loaded(deployed.kept(instance, graph), graph)
    return [
        replace(
            _row(instance, nodes[key], plan, contracts.get(key, ""), standings.get(key), built.get(key, (None, None))),
            not_loaded=edited.get(key, ""),
        )
        for key in wanted
    ]


def breached(found: Iterable[ContractRow]) -> list[str]:
    """The assets whose contract is broken."""
    return [row.asset for row in found if row.state == FreshnessStatus.BREACHED]


def set_aside(found: Iterable[ContractRow]) -> list[str]:
    """The assets that nobody looks after as a whole."""
    return [row.asset for row in found if row.state in (FreshnessStatus.NOT_JUDGED, SET_ASIDE)]


def quarantined(found: Iterable[ContractRow]) -> list[str]:
    """The assets that lack what lies in their files, because files could not be taken."""
    return [row.asset for row in found if row.files_rejected]


def share_within(results: Sequence[tuple[float, bool]], now: float) -> float | None:
    """The share of the last day that was not breached, from the check's results (when, and whether), newest first.

    A state lasts until the next result. Before the first result nothing was judged; None if there is none.
    """
    begin, until, good, judged = now - _DAY, now, 0.0, 0.0
    for at, passed in results:
        lasted = max(0.0, until - max(at, begin))
        judged += lasted
        good += lasted if passed else 0.0
        until = max(at, begin)
    return good / judged if judged else None


def _row(
    instance: DagsterInstance,
    node: Node,
    plan: Plan,
    contract: str,
    standing: Standing | None,
    built: tuple[str | None, float | None],
) -> ContractRow:
    decisions = plan.of(node.key)
    aside = is_set_aside(node, plan)
    state = str(standing.verdict) if standing is not None else ""
    files_rejected, rows_rejected = _in_quarantine(instance, node)
    return ContractRow(
        asset=node.key,
        contract=contract,
        state=state or (SET_ASIDE if aside else ""),
        lag=max((decision.lag(plan.now) for decision in decisions), default=0.0),
        pending=len(decisions),
        due=min((decision.due_at for decision in decisions if decision.due_at is not None), default=None),
        reason=_reason(node, plan, standing, decisions),
        last_run=built[0],
        last_built=built[1],
        within=None if standing is None else _within(instance, node.key, plan.now),
        set_aside=_aside(node, plan, standing),
        source=node.source or not (node.automated or node.left_out),
        files_rejected=files_rejected,
        rows_rejected=rows_rejected,
        asap=node.asap,
    )


def _in_quarantine(instance: DagsterInstance, node: Node) -> tuple[tuple[str, ...], int]:
    """The files and the number of rows that the check of a loaded table names."""
    key = dg.AssetCheckKey(dg.AssetKey.from_user_string(node.key), QUARANTINE)
    said = adapter.latest_check_metadata(instance, key) or {}
    files, count = said.get("files", []), said.get("rows", 0)
    known = tuple(str(file) for file in files) if isinstance(files, list) else ()
    return known, count if isinstance(count, int) else 0


def _aside(node: Node, plan: Plan, standing: Standing | None) -> tuple[str, ...]:
    own = (f"{name((node.key, partition))}: {why}" for partition, why in plan.aside(node.key).items())
    return tuple(sorted({*own, *(standing.set_aside if standing is not None else ())}))


def _reason(node: Node, plan: Plan, standing: Standing | None, decisions: Sequence[Decision]) -> str:
    if standing is not None and (
        standing.partition is not None or standing.set_aside or standing.verdict is FreshnessStatus.NOT_JUDGED
    ):
        return standing.reason
    if standing is None and plan.aside(node.key):
        return f"set aside: {is_set_aside(node, plan) or names(_aside(node, plan, None))}"
    first = min(decisions, key=lambda decision: decision.due_at or float("inf"), default=None)
    if first is None:
        return ""
    return f"{first.partition or ''} {first.state}: {first.reason}".strip()


def _within(instance: DagsterInstance, key: str, now: float) -> float | None:
    return share_within(adapter.check_results(instance, key, CHECK, now - _DAY), now)


def _last_built(instance: DagsterInstance, assets: Sequence[str]) -> dict[str, tuple[str | None, float | None]]:
    """Of each asset that was ever built: how the run ended that did it last, and when that was."""
    records = instance.get_asset_records([dg.AssetKey.from_user_string(asset) for asset in assets])
    last = {r.asset_entry.asset_key.to_user_string(): r.asset_entry.last_materialization_record for r in records}
    run_ids = [record.run_id for record in last.values() if record is not None and record.run_id]
    runs = {run.run_id: run.status for run in instance.get_runs(dg.RunsFilter(run_ids=run_ids))} if run_ids else {}
    return {
        asset: (runs[record.run_id].value.lower() if record.run_id in runs else None, record.timestamp)
        for asset, record in last.items()
        if record is not None
    }
