"""The sensor `dead_runs`: ends runs whose process is gone.

Dagster's own launcher notices the end of a run's process only while the code server that started it lives. Without
that server a dead run stays STARTED until `max_runtime`, or STARTING until `start_timeout`. Does not belong here:
finding a process (`event_log.run_process`).

A run is ended only if its process is certainly gone. Slow and stopped runs, and runs on other hosts, are left alone.
"""

import dagster as dg
from dagster import DagsterInstance, DagsterRunStatus, RunsFilter

from dagster_tidemark.dagster_internals import code_server, run_storage
from dagster_tidemark.event_log.run_process import (
    ProcessState,
    fate_of,
    fate_while_starting,
    is_inherited,
    note_code_server,
)
from dagster_tidemark.sensors.scope import WHOLE_LOCATION, LocationScope
from dagster_tidemark.tags import PROCESS

NAME = "dead_runs"
_UNDER_WAY = [DagsterRunStatus.STARTING, DagsterRunStatus.STARTED, DagsterRunStatus.CANCELING]


def dead_runs_sensor(scope: LocationScope = WHOLE_LOCATION) -> dg.SensorDefinition:
    """Return the sensor that ends runs whose process is gone."""

    @dg.sensor(
        name=scope.named(NAME),
        description="Ends runs whose process is gone, so that their work is requested again.",
        asset_selection=scope.assets,
        minimum_interval_seconds=5,
        default_status=dg.DefaultSensorStatus.RUNNING,
    )
    def dead_runs(context: dg.SensorEvaluationContext) -> dg.SkipReason:
        code_server.keep_watching_runs()
        note_code_server(context.instance)
        ended = end_dead_runs(context.instance, scope)
        for run in ended:
            context.log.warning(f"run {run.run_id} of {run.job_name} was ended: its process is gone")
        return dg.SkipReason(f"{len(ended)} runs ended because their process is gone")

    return dead_runs


def end_dead_runs(instance: DagsterInstance, scope: LocationScope = WHOLE_LOCATION) -> list[dg.DagsterRun]:
    """End each unfinished run whose process is gone, and return these runs.

    Args:
        scope: The part of the location whose runs are ended. Runs of other assets record no process and are left
            alone.
    """
    runs = [run for run in instance.get_runs(RunsFilter(statuses=_UNDER_WAY)) if _is_ours(run, scope)]
    ended = []
    for suspect in [run for run in runs if _is_gone(instance, run)]:
        # A process reports its result before it exits. The run is read again after its process was found missing, so
        # that it includes a reported result.
        run = instance.get_run_by_id(suspect.run_id)
        if run is None or run.is_finished:
            continue
        pid = run.tags.get(PROCESS, "").partition("@")[0] or "as logged at its start"
        run_storage.end_lost_run(
            instance, run, f"The process of this run (pid {pid}) ended without reporting a result."
        )
        ended.append(run)
    return ended


def _is_ours(run: dg.DagsterRun, scope: LocationScope) -> bool:
    if scope.keys is None or PROCESS in run.tags:
        return True
    return not scope.keys.isdisjoint(run.asset_selection or ())


def _is_gone(instance: DagsterInstance, run: dg.DagsterRun) -> bool:
    if fate_of(run) is ProcessState.GONE:
        return not is_inherited(instance, run)
    # A started run without a recorded process belongs to other assets, or a person started it. Its log may be long.
    return run.status is not DagsterRunStatus.STARTED and fate_while_starting(instance, run) is ProcessState.GONE
