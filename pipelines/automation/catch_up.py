"""The sensors that ask for runs: one for single partitions, one for ranges."""

import dagster as dg
from dagster._core.storage.tags import ASSET_PARTITION_RANGE_END_TAG, ASSET_PARTITION_RANGE_START_TAG

from pipelines.automation import adapter
from pipelines.automation.engine import engine_for
from pipelines.automation.planner import Plan, Request

_TOLD = 10


def automation_sensor() -> dg.SensorDefinition:
    """Runs for what the planner finds due, one a partition."""
    return dg.AutomationConditionSensorDefinition(
        name="automation",
        target=dg.AssetSelection.all(),
        use_user_code_server=True,  # custom conditions are evaluated where they are defined
        minimum_interval_seconds=1,
        emit_backfills=False,  # a backfill would start up to 30 s later
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
        repository = context.repository_def
        if repository is None:
            raise dg.DagsterInvariantViolationError("catch_up needs the code location it belongs to")
        engine = engine_for(context.instance, repository.asset_graph)
        requests, plan = engine.request(context.instance, adapter.now(), ranges=True)
        if not requests:
            return dg.SkipReason("; ".join(["nothing is due over more than a few partitions", *_waits(plan)]))
        return dg.SensorResult(run_requests=[_run_request(request) for request in requests])

    return catch_up


def _waits(plan: Plan) -> list[str]:
    """What is pending and not asked for, with the reason: newest first, as many as a tick can show."""
    held = sorted(plan.waiting.items(), key=lambda wait: str(wait[0][1]), reverse=True)
    told = [f"{key} {partition or ''}: {reason}" for (key, partition), reason in held[:_TOLD]]
    return [*told, f"and {len(held) - _TOLD} more"] if len(held) > _TOLD else told


def _run_request(request: Request) -> dg.RunRequest:
    first, last = str(request.partitions[0]), str(request.partitions[-1])
    return dg.RunRequest(
        asset_selection=[dg.AssetKey.from_user_string(asset) for asset in request.assets],
        tags={ASSET_PARTITION_RANGE_START_TAG: first, ASSET_PARTITION_RANGE_END_TAG: last},
    )
