"""How people hear of what is set aside: in the log of a sensor, and as a warning when the code location loads.

What is set aside is what the planner cannot look after: an event, a partition or an asset. Does not belong here: why
(`asset_graph.planner_graph`, `planner.history`), and how a contract then stands (`planner.contract_status`).
"""

from collections.abc import Iterable
from logging import Logger
from typing import Any, Protocol

import dagster as dg

from dagster_tidemark.asset_graph.planner_graph import graph_of, loaded
from dagster_tidemark.discovery import is_leaving_out
from dagster_tidemark.engine.engine import Engine
from dagster_tidemark.planner.decisions import Plan
from dagster_tidemark.planner.graph import Graph
from dagster_tidemark.planner.wording import name

_LOGGED = 20


class Context(Protocol):
    """A sensor's or a condition's."""

    @property
    def log(self) -> Logger: ...


def log_new(context: Context, engine: Engine, plan: Plan, instance: dg.DagsterInstance) -> None:
    """Warn of what is set aside since the last time, each once."""
    # The log is asked for only where there is a line: that alone makes a file of the tick.
    new = sorted((name(target), reason) for target, reason in engine.untold(plan).items())
    for what, reason in new[:_LOGGED]:
        context.log.warning(f"set aside: {what}: {reason}")
    if len(new) > _LOGGED:
        context.log.warning(f"set aside: {len(new) - _LOGGED} more")
    for asset, keys in engine.newly_former(instance).items():
        reach = keys[0] if len(keys) == 1 else f"{keys[0]} to {keys[-1]}"
        context.log.warning(f"{asset}: {len(keys)} of its former partitions ({reach}) are none any more: forgotten")
    for loop in engine.new_loops(plan):
        context.log.warning(f"{loop}. Its runs are up to an hour apart. Write where the source does not look")
    for asset, version in engine.newly_not_loaded().items():
        context.log.warning(f"{asset} was built by code {version}, which is not loaded here: reload the code location")


def planned(assets: Iterable[Any], others: Iterable[Any] = ()) -> Graph:
    """The planner's graph of a code location as it loads; warns of each asset that is refused.

    `dagster definitions validate` shows the warnings. Where Dagster itself refuses the location the graph is empty.

    Args:
        assets: The assets that the planner looks after.
        others: All others of the location: what an asset reads is part of what is looked at.
    """
    log = dg.get_dagster_logger("automation")  # Python's own warnings, `dagster definitions validate` shows nobody
    try:
        graph = graph_of(loaded([*assets, *others]))
    except Exception as error:  # what is wrong with the location is Dagster's to refuse, in its own words
        if not is_leaving_out():  # there the cause is named
            log.warning(f"the assets cannot be planned: {type(error).__name__}: {error}")
        return Graph({})
    for node in graph.nodes.values():
        if node.refused and (node.automated or not others):
            log.warning(f"set aside: {node.key}: {node.refused}")
    return graph
