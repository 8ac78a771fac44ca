"""Reports of things set aside: in the log of a sensor, and as a warning when the code location loads.

The planner sets aside an event, a partition or an asset that it cannot handle. Does not belong here: the reasons
(`asset_graph.planner_graph`, `planner.history`), and the effect on contracts (`planner.contract_status`).
"""

from collections.abc import Iterable
from logging import Logger
from typing import Any, Protocol

import dagster as dg

from dagster_tidemark.asset_graph.planner_graph import graph_of
from dagster_tidemark.dagster_internals.asset_graph import graph_of_definitions
from dagster_tidemark.discovery import is_leaving_out
from dagster_tidemark.engine.engine import Engine
from dagster_tidemark.planner.decisions import Plan
from dagster_tidemark.planner.graph import Graph
from dagster_tidemark.planner.wording import name

_LOGGED = 20


class Context(Protocol):
    """Context of a sensor or a condition."""

    @property
    def log(self) -> Logger: ...


def log_new(context: Context, engine: Engine, plan: Plan, instance: dg.DagsterInstance) -> None:
    """Log warnings about former partitions, loops, unloaded code, and targets set aside since the last call."""
    # The log is accessed only if there is a line: the access alone creates a log file for the tick.
    new = sorted((name(target), reason) for target, reason in engine.untold(plan).items())
    for what, reason in new[:_LOGGED]:
        context.log.warning(f"set aside: {what}: {reason}")
    if len(new) > _LOGGED:
        context.log.warning(f"set aside: {len(new) - _LOGGED} more")
    for asset, keys in engine.newly_former(instance).items():
        reach = keys[0] if len(keys) == 1 else f"{keys[0]} to {keys[-1]}"
        context.log.warning(f"{asset}: {len(keys)} former partitions ({reach}) no longer exist and are forgotten")
    for loop in engine.new_loops(plan):
        context.log.warning(f"{loop}. Its runs are up to an hour apart. Write to a place that the source does not read")
    for asset, version in engine.newly_not_loaded().items():
        context.log.warning(f"{asset} was built by code {version}, which is not loaded here: reload the code location")


def planned(assets: Iterable[Any], others: Iterable[Any] = ()) -> Graph:
    """Return the planner's graph of a code location while it loads, and warn of each refused asset.

    `dagster definitions validate` shows the warnings. If Dagster itself refuses the location, the graph is empty.

    Args:
        assets: The assets that the planner automates.
        others: All other assets of the location, because the inputs of an asset are checked too.
    """
    log = dg.get_dagster_logger("automation")  # `dagster definitions validate` does not show Python's own warnings
    try:
        graph = graph_of(graph_of_definitions([*assets, *others]))
    except Exception as error:  # Dagster itself refuses a faulty location, with its own message
        if not is_leaving_out():  # `leaving_out` records the cause
            log.warning(f"the assets cannot be planned: {type(error).__name__}: {error}")
        return Graph({})
    for node in graph.nodes.values():
        if node.refused and (node.automated or not others):
            log.warning(f"set aside: {node.key}: {node.refused}")
    return graph
