"""Every contract of an instance as it stands now: the plan, beside what the event log holds.

Belongs here: from an instance and its asset graph to standings. Does not belong here: how a contract stands
(`automation.standing`), and who is told (`checks.contract`, `automation.status`).
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

import dagster as dg
from dagster import DagsterInstance

from pipelines.automation import adapter, engine
from pipelines.automation.asset_graph import AnyGraph
from pipelines.automation.decisions import Plan, Standing
from pipelines.automation.graph import Graph
from pipelines.automation.standing import standings
from pipelines.sources.feed import Partition

_LAST_WINDOWS = 4


def overview(instance: DagsterInstance, assets: AnyGraph, *, wait: bool = False) -> tuple[Plan, dict[str, Standing]]:
    """The plan of now, and how each asset with a contract stands; none while the event log is still being read.

    Args:
        wait: Until the event log has been read to its end.
    """
    found = engine.engine_for(instance, assets)
    plan = found.look(adapter.now(), instance)
    while wait and plan.catching_up:
        plan = found.look(adapter.now(), instance)
    if plan.catching_up:
        return plan, {}
    latest = _latest(assets, found.graph, plan.now)
    return plan, standings(found.graph, found.planner.history, plan, latest)


def _latest(assets: AnyGraph, graph: Graph, now: float) -> Mapping[str, Sequence[Partition]]:
    """The last windows of every asset with a contract, the newest first."""
    found: dict[str, Sequence[Partition]] = {}
    at = datetime.fromtimestamp(now, UTC)
    for key, node in graph.nodes.items():
        by = assets.get(dg.AssetKey.from_user_string(key)).partitions_def
        if node.contract is not None and isinstance(by, dg.TimeWindowPartitionsDefinition):
            found[key] = list(reversed(by.get_partition_keys(current_time=at)[-_LAST_WINDOWS:]))
    return found
