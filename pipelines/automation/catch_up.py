"""The sensors that ask for runs: one for single partitions, one for ranges."""

from typing import Any

import dagster as dg
from dagster._core.storage.tags import ASSET_PARTITION_RANGE_END_TAG, ASSET_PARTITION_RANGE_START_TAG, PRIORITY_TAG

from pipelines.automation import adapter
from pipelines.automation.asset_graph import AnyGraph
from pipelines.automation.decisions import Plan, Request
from pipelines.automation.engine import Engine, engine_for

_TOLD = 10
_TAGS = {adapter.BY_PLANNER: "planner"}


def automation_sensor() -> dg.SensorDefinition:
    """Runs for what the planner finds due, one a partition."""
    return dg.AutomationConditionSensorDefinition(
        name="automation",
        target=dg.AssetSelection.all(),
        use_user_code_server=True,  # custom conditions are evaluated where they are defined
        minimum_interval_seconds=1,
        emit_backfills=False,  # a backfill would start up to 30 s later
        run_tags=_TAGS,
        default_status=dg.DefaultSensorStatus.RUNNING,
    )


def catch_up_sensor() -> dg.SensorDefinition:
    """Runs over ranges, where many partitions are due: a first load, or the end of an outage."""

    @dg.sensor(
        name="catch_up",
        # Not `target`: that would need one partitions definition for all.
        asset_selection=dg.AssetSelection.all(),
        minimum_interval_seconds=1,
        default_status=dg.DefaultSensorStatus.RUNNING,
    )
    def catch_up(context: dg.SensorEvaluationContext) -> dg.SensorResult | dg.SkipReason:
        """One run for each range of due partitions, all its assets together."""
        requests, plan = _engine(context).request(context.instance, adapter.now(), ranges=True)
        if not requests:
            return dg.SkipReason("; ".join(["nothing is due over more than a few partitions", *_waits(plan)]))
        return dg.SensorResult(run_requests=[_run_request(context, request) for request in requests])

    return catch_up


def _waits(plan: Plan) -> list[str]:
    """What is pending and not asked for, with the reason: newest first, as many as a tick can show."""
    held = sorted(plan.waiting.items(), key=lambda wait: str(wait[0][1]), reverse=True)
    told = [f"{key} {partition or ''}: {reason}" for (key, partition), reason in held[:_TOLD]]
    return [*told, f"and {len(held) - _TOLD} more"] if len(held) > _TOLD else told


def due_now(context: dg.SensorEvaluationContext) -> list[dg.RunRequest]:
    """Runs for what is due, for a sensor that knows of news: the next tick of the others may be 5 s away."""
    requests, _ = _engine(context).request(context.instance, adapter.now(), ranges=False)
    return [
        dg.RunRequest(partition_key=partition, tags=_TAGS, **_selection(context, request))
        for request in requests
        if not request.conditional
        for partition in request.partitions
    ]


def _engine(context: dg.SensorEvaluationContext) -> Engine:
    return engine_for(context.instance, _assets(context))


def _assets(context: dg.SensorEvaluationContext) -> AnyGraph:
    repository = context.repository_def
    if repository is None:
        raise dg.DagsterInvariantViolationError("a sensor on the planner needs the code location it belongs to")
    return repository.asset_graph


def _run_request(context: dg.SensorEvaluationContext, request: Request) -> dg.RunRequest:
    first, last = str(request.partitions[0]), str(request.partitions[-1])
    over = {ASSET_PARTITION_RANGE_START_TAG: first, ASSET_PARTITION_RANGE_END_TAG: last}
    tags = _TAGS | (over if request.partitions != (None,) else {})
    if request.rebuild:
        tags |= {adapter.REBUILD: "true", PRIORITY_TAG: "-10"}
    return dg.RunRequest(tags=tags, **_selection(context, request))


def _selection(context: dg.SensorEvaluationContext, request: Request) -> dict[str, Any]:
    """The assets of a run, and those of their checks that are no business of somebody else."""
    assets = _assets(context)
    keys = [dg.AssetKey.from_user_string(asset) for asset in request.assets]
    checks = assets.get_check_keys_for_assets(set(keys))
    own = [check for check in sorted(checks) if assets.get(check).automation_condition is None]
    return {"asset_selection": keys, "asset_check_keys": own}
