"""Log lines of a tick about the runs it requests: tables, partitions and reason of each.

Does not belong here: the reasons (`engine.labels`), and targets set aside (`engine.set_aside`).
"""

from collections.abc import Iterable, Sequence

import dagster as dg

from dagster_tidemark.engine.labels import urgency, why
from dagster_tidemark.planner.decisions import Plan, Request
from dagster_tidemark.planner.graph import Target
from dagster_tidemark.sources.feed import Partition


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
