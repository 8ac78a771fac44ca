"""Log lines of a tick: about the runs it requests, and about what the planner sets aside.

The planner sets aside an event, a partition or an asset that it cannot handle. Does not belong here: the reasons
(`engine.ui_reasons`, `asset_graph.planner_graph`, `planner.history`), and the effect on contracts
(`planner.contract_status`).
"""

from collections.abc import Iterable, Sequence
from typing import Any

import dagster as dg

from dagster_tidemark.engine.engine import Engine
from dagster_tidemark.engine.ui_reasons import urgency, why
from dagster_tidemark.planner.decisions import Plan, Request
from dagster_tidemark.planner.graph import Target
from dagster_tidemark.planner.wording import name
from dagster_tidemark.sources.feed import Partition

_LOGGED = 20


def line(request: Request, plan: Plan) -> str:
    """Return the line about a request of the planner.

    `core/orders, marts/sales_hourly, 2026-10-01-00:00 to 2026-10-01-09:00 (10 partitions): due Thu 01 Oct 10:05; ...`
    """
    first, last, count = request.partitions[0], request.partitions[-1], len(request.partitions)
    where = first if count == 1 else f"{first} to {last} ({count} partitions)"
    return _line(request.assets, where, request.targets, plan)


def line_of_run(run: dg.RunRequest, plan: Plan) -> str:
    """Return the line about a run that an automation condition requests. The planner may not know its partitions."""
    assets = [key.to_user_string() for key in run.asset_selection or ()]
    checks = [key.to_user_string() for key in run.asset_check_keys or ()]
    reach = run.partition_key_range
    where = run.partition_key if reach is None else f"{reach.start} to {reach.end}"
    return _line(sorted(assets or checks), where, [(asset, run.partition_key) for asset in assets], plan)


def _line(names: Sequence[str], where: Partition, targets: Iterable[Target], plan: Plan) -> str:
    known = [plan.decisions[target] for target in targets if target in plan.decisions]
    # The most urgent target is the reason for a run now; the others join it.
    reason = why(min(known, key=urgency)) if known else "its own condition is true"
    return ", ".join([*names, *([where] if where else [])]) + f": {reason}"


def log_new(
    context: dg.SensorEvaluationContext | dg.AutomationContext[Any],
    engine: Engine,
    plan: Plan,
    instance: dg.DagsterInstance,
) -> None:
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
