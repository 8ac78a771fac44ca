"""The sensors that ask for runs: those for single partitions, and one for ranges.

Does not belong here: what is asked for (`planner.requests`), and whether Dagster could make a run of it
(`engine.run_requests`).
"""

import dagster as dg

from pipelines.tidemark.asset_graph.build import AnyGraph
from pipelines.tidemark.engine.engine import engine_of
from pipelines.tidemark.engine.run_requests import run_requests
from pipelines.tidemark.engine.set_aside import log_new
from pipelines.tidemark.engine.tick_log import line
from pipelines.tidemark.event_log import adapter
from pipelines.tidemark.planner.decisions import RANGES, Plan
from pipelines.tidemark.sensors.automation import automation_sensor, automation_sensors

__all__ = ["automation_sensor", "automation_sensors", "catch_up_sensor", "due_now"]

_TOLD = 10


def catch_up_sensor() -> dg.SensorDefinition:
    """Runs over ranges, where many partitions are due: a first load, or the end of an outage."""

    @dg.sensor(
        name=RANGES,
        description="One run for each range of due partitions, all its assets together. Its ticks say which, and why.",
        # Not `target`: that would need one partitions definition for all.
        asset_selection=dg.AssetSelection.all(),
        minimum_interval_seconds=1,
        default_status=dg.DefaultSensorStatus.RUNNING,
    )
    def catch_up(context: dg.SensorEvaluationContext) -> dg.SensorResult | dg.SkipReason:
        asked, plan = _ask(context, ranges=True)
        if not asked:
            return dg.SkipReason("; ".join(["nothing is due over more than a few partitions", *_waits(plan)]))
        return dg.SensorResult(run_requests=asked)

    return catch_up


def due_now(context: dg.SensorEvaluationContext) -> list[dg.RunRequest]:
    """Runs for what is due, for a sensor that knows of news: the next tick of the others may be 5 s away."""
    return _ask(context, ranges=False)[0]


def _ask(context: dg.SensorEvaluationContext, *, ranges: bool) -> tuple[list[dg.RunRequest], Plan]:
    assets = _assets(context)
    engine = engine_of(context, assets)
    requests, plan = engine.request(context.instance, adapter.now(), ranges=ranges)
    log_new(context, engine, plan)
    if not ranges:
        requests = [request for request in requests if not request.conditional]  # their own conditions ask for these
    asked: list[dg.RunRequest] = []
    for request in requests:
        for run in run_requests([request], assets, engine, context, plan.now):
            context.log.info(line(request, plan))
            asked.append(run)
    return asked, plan


def _waits(plan: Plan) -> list[str]:
    """What is pending and not asked for, with the reason: newest first, as many as a tick can show."""
    held = sorted(plan.waiting.items(), key=lambda wait: str(wait[0][1]), reverse=True)
    told = [f"{key} {partition or ''}: {reason}" for (key, partition), reason in held[:_TOLD]]
    return [*told, f"and {len(held) - _TOLD} more"] if len(held) > _TOLD else told


def _assets(context: dg.SensorEvaluationContext) -> AnyGraph:
    repository = context.repository_def
    if repository is None:
        raise dg.DagsterInvariantViolationError("a sensor on the planner needs the code location it belongs to")
    return repository.asset_graph
