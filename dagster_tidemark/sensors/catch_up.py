"""The sensors that request runs: several for single partitions, and one for ranges.

Does not belong here: the choice of work (`planner.grouping`), and its translation into Dagster's run requests
(`engine.run_requests`).
"""

import time

import dagster as dg

from dagster_tidemark.dagster_internals import event_time
from dagster_tidemark.dagster_internals.sensor_states import longest_tick
from dagster_tidemark.engine.engine import Engine, engine_of
from dagster_tidemark.engine.run_requests import check_run, run_requests
from dagster_tidemark.engine.tick_log import line, log_new
from dagster_tidemark.event_log.standby import reason_to_stand_by
from dagster_tidemark.planner.decisions import RANGES, Plan
from dagster_tidemark.sensors.scope import WHOLE_LOCATION, LocationScope, assets_of
from dagster_tidemark.settings import Settings
from dagster_tidemark.tags import CHECK

_TOLD = 10
_ANSWER_SECONDS = 10.0  # before the end of a tick's time: its result has to reach the daemon


def catch_up_sensor(scope: LocationScope = WHOLE_LOCATION) -> dg.SensorDefinition:
    """Return the sensor that requests runs over ranges of due partitions, as in a first load or after an outage."""

    @dg.sensor(
        name=scope.named(RANGES),
        description="Requests one run per range of due partitions, for all its assets. Its ticks list the reasons.",
        # Not `target`, which would require the same partitions definition for all assets.
        asset_selection=scope.assets | scope.checks,  # includes checks of external assets
        minimum_interval_seconds=1,
        default_status=dg.DefaultSensorStatus.RUNNING,
    )
    def catch_up(context: dg.SensorEvaluationContext) -> dg.SensorResult | dg.SkipReason:
        if why := reason_to_stand_by(context, scope.settings):
            return dg.SkipReason(why)
        begun = time.monotonic()
        asked, plan = _ask(context, scope.settings, begun, ranges=True)
        if not asked:
            return dg.SkipReason("; ".join(["no range of partitions is due", *_waits(plan)]))
        return dg.SensorResult(run_requests=asked)

    return catch_up


def due_now(
    context: dg.SensorEvaluationContext, settings: Settings | None = None, *, begun: float | None = None
) -> list[dg.RunRequest]:
    """Return requests for due partitions.

    A sensor that has found changes requests them at once, because the planner's next tick may be 5 s away.

    Args:
        begun: Start of the tick, by `time.monotonic`; by default now.
    """
    begun = time.monotonic() if begun is None else begun
    return [] if reason_to_stand_by(context, settings) else _ask(context, settings, begun, ranges=False)[0]


def is_given_up(context: dg.SensorEvaluationContext, begun: float) -> bool:
    """Return True, and log it, if a tick has lasted so long that Dagster may have given up on it.

    Dagster drops the requests of such a tick, but the code server completes it: it waited for a service, or its process
    was stopped. The planner must not count the requests as made, because it would wait a minute for their runs.
    """
    lasted = time.monotonic() - begun
    is_too_long = lasted > longest_tick() - _ANSWER_SECONDS
    if is_too_long:
        context.log.warning(f"this tick lasted {lasted:.0f} s, so it requests nothing; the next ticks do")
    return is_too_long


def _ask(
    context: dg.SensorEvaluationContext, settings: Settings | None, begun: float, *, ranges: bool
) -> tuple[list[dg.RunRequest], Plan]:
    assets = assets_of(context)
    engine = engine_of(context, assets, settings)
    requests, plan = engine.request(context.instance, event_time.now(), ranges=ranges)
    log_new(context, engine, plan, context.instance)
    if not ranges:
        requests = [request for request in requests if not request.conditional]  # others have their own conditions
    asked: list[dg.RunRequest] = []
    for request in requests:
        for run in run_requests([request], assets, engine, context, plan.now):
            context.log.info(line(request, plan))
            asked.append(run)
    if (asked or ranges) and is_given_up(context, begun):
        engine.release([target for request in requests for target in request.targets])
        return [], plan
    return asked + (_checks(context, engine, plan) if ranges else []), plan


def _checks(context: dg.SensorEvaluationContext, engine: Engine, plan: Plan) -> list[dg.RunRequest]:
    """Return runs of blocking checks that have no result yet, although due partitions wait for it."""
    found = []
    for request in engine.request_checks(plan):
        run = check_run(request, engine, context)
        if run is not None:
            context.log.info(f"{run.tags[CHECK]}: this check has no result, and downstream assets wait for one")
            found.append(run)
    return found


def _waits(plan: Plan) -> list[str]:
    """Return up to 10 pending partitions that are not requested, with reasons, newest first."""
    held = sorted(plan.waiting.items(), key=lambda wait: str(wait[0][1]), reverse=True)
    told = [f"{key} {partition or ''}: {reason}" for (key, partition), reason in held[:_TOLD]]
    return [*told, f"and {len(held) - _TOLD} more"] if len(held) > _TOLD else told
