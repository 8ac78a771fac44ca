"""Runs of an instance: unfinished runs, processes of runs, reasons of failures, and the queue's limit."""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import dagster as dg
from dagster import DagsterInstance, RunsFilter
from dagster._core.events import JobFailureData, RunFailureReason
from dagster._core.execution.plan.objects import StepFailureData
from dagster._core.launcher.base import WorkerStatus
from dagster._core.storage.dagster_run import NOT_FINISHED_STATUSES
from dagster._core.storage.tags import GRPC_INFO_TAG, RUN_FAILURE_REASON_TAG

from dagster_tidemark.tags import STREAM

_LOOPBACK = ("127.0.0.1", "localhost", "::1")
_GONE = (WorkerStatus.NOT_FOUND, WorkerStatus.FAILED, WorkerStatus.SUCCESS)

ENDED_BY_THE_PLATFORM = frozenset(
    reason.value
    for reason in (
        RunFailureReason.START_TIMEOUT,
        RunFailureReason.RUN_WORKER_RESTART,
        RunFailureReason.UNEXPECTED_TERMINATION,
    )
)
"""Reasons of failures (see `failure_reason`) that are not due to the run's code or data."""


def failure_reason(run: dg.DagsterRun) -> str | None:
    """Return Dagster's reason for a run's failure, such as STEP_FAILURE; None if Dagster recorded no reason."""
    return run.tags.get(RUN_FAILURE_REASON_TAG)


def mark_as_lost(instance: DagsterInstance, run_id: str) -> None:
    """Record that a run failed because its process ended unexpectedly."""
    instance.add_run_tags(run_id, {RUN_FAILURE_REASON_TAG: RunFailureReason.UNEXPECTED_TERMINATION.value})


def errors_of(event: dg.EventLogEntry) -> list[str] | None:
    """Return the class names of a failure's error and of the error's causes, in this order; None without an error."""
    failure = event.dagster_event.event_specific_data if event.dagster_event else None
    error = failure.error if isinstance(failure, StepFailureData | JobFailureData) else None
    if error is None:
        return None
    names = []
    while error is not None:
        names.append(error.cls_name or "")
        error = error.cause or error.context
    return names


def run_slots(instance: DagsterInstance) -> int | None:
    """Return how many runs of tables the queue may run at once, besides streams; None without a queue or a limit."""
    limit = queue_limit(instance)
    return max(1, limit - len(unfinished_shifts(instance))) if limit else None


def unfinished_runs(instance: DagsterInstance) -> Sequence[dg.RunRecord]:
    """Return the runs that the instance lists as unfinished."""
    return instance.get_run_records(RunsFilter(statuses=NOT_FINISHED_STATUSES))


def unfinished_shifts(instance: DagsterInstance) -> list[dg.RunRecord]:
    """Return the runs of streams that the instance lists as unfinished."""
    return [record for record in unfinished_runs(instance) if STREAM in record.dagster_run.tags]


def end_lost_run(instance: DagsterInstance, run: dg.DagsterRun, message: str) -> None:
    """Report a run whose process ended without a result: as canceled if it was being canceled, else as failed."""
    if run.status is dg.DagsterRunStatus.CANCELING:
        instance.report_run_canceled(run, message)
    else:
        reason = JobFailureData(error=None, failure_reason=RunFailureReason.UNEXPECTED_TERMINATION)
        instance.report_run_failed(run, message, reason)


def launching_server(run: dg.DagsterRun) -> str | None:
    """Return the socket of the code server that started a run, or `127.0.0.1:PORT` if it has a port of the same host.

    None if Dagster's own launcher did not start the run, or if the server is at another address.
    """
    try:
        found = json.loads(run.tags.get(GRPC_INFO_TAG, ""))
    except ValueError:
        return None
    if not isinstance(found, dict):
        return None
    if isinstance(socket := found.get("socket"), str):
        return socket
    return f"127.0.0.1:{found['port']}" if found.get("host") in _LOOPBACK and found.get("port") else None


def launch_of(instance: DagsterInstance, run_id: str) -> tuple[float | None, int | None]:
    """Return when Dagster last asked a code server to start a run, and the pid that its newest process logged.

    The time is in Unix seconds, and None if Dagster has not asked. The pid is None if no process logged one.
    """
    asked, pid = None, None
    types = {dg.DagsterEventType.RUN_STARTING, dg.DagsterEventType.ENGINE_EVENT}
    for entry in instance.all_logs(run_id, of_type=types):
        event = entry.dagster_event
        if event is None:
            continue
        if event.event_type is dg.DagsterEventType.RUN_STARTING:
            asked = entry.timestamp
        elif (event.message or "").startswith("Started process for run"):
            logged = event.engine_event_data.metadata.get("pid")
            if logged is not None and str(logged.value).isdigit():
                pid = int(str(logged.value))
    return asked, pid


def selected_assets(run: dg.DagsterRun) -> frozenset[dg.AssetKey]:
    """Return the assets that a run is asked to build or check; none for a run of a whole job."""
    checks = run.asset_check_selection or ()
    return frozenset({*(run.asset_selection or ()), *(check.asset_key for check in checks)})


def planned_assets(instance: DagsterInstance, run: dg.DagsterRun) -> frozenset[dg.AssetKey]:
    """Return the assets that a run builds or checks. A run of a whole job has no selection, but planned assets."""
    if selected := selected_assets(run):
        return selected
    planned = instance.all_logs(run.run_id, of_type=dg.DagsterEventType.ASSET_MATERIALIZATION_PLANNED)
    return frozenset(key for entry in planned if (key := entry.get_dagster_event().asset_key) is not None)


def has_unfinished_run(instance: DagsterInstance, tags: Mapping[str, str]) -> bool:
    """Return True if the instance has a run with these tags that has not ended."""
    return bool(instance.get_run_records(RunsFilter(statuses=NOT_FINISHED_STATUSES, tags=dict(tags)), limit=1))


@dataclass(frozen=True)
class QueuedRun:
    """A run that waits in the queue, its time of creation (Unix seconds), and the assets that it builds."""

    since: float
    assets: tuple[str, ...]


def queued_runs(instance: DagsterInstance) -> list[QueuedRun]:
    """Return the runs that wait in the queue."""
    records = instance.get_run_records(RunsFilter(statuses=[dg.DagsterRunStatus.QUEUED]))
    return [
        QueuedRun(
            record.create_timestamp.timestamp(),
            tuple(key.to_user_string() for key in record.dagster_run.asset_selection or ()),
        )
        for record in records
    ]


def starts_of_running(instance: DagsterInstance) -> list[float]:
    """Return the start time of each run that occupies a slot of the queue, or its creation time (Unix seconds)."""
    held = [status for status in NOT_FINISHED_STATUSES if status is not dg.DagsterRunStatus.QUEUED]
    records = instance.get_run_records(RunsFilter(statuses=held))
    return [record.start_time or record.create_timestamp.timestamp() for record in records]


def queue_limit(instance: DagsterInstance) -> int | None:
    """Return the queue's limit of simultaneous runs, which includes shifts; None without a queue or a limit."""
    queue = instance.get_concurrency_config().run_queue_config
    return None if queue is None or queue.max_concurrent_runs < 0 else queue.max_concurrent_runs


def locations_of_runs(instance: DagsterInstance, run_ids: Collection[str]) -> dict[str, str]:
    """Return the name of each run's code location. Runs whose code location is unknown are left out."""
    runs = instance.get_runs(dg.RunsFilter(run_ids=list(run_ids))) if run_ids else ()
    return {run.run_id: found for run in runs if (found := location_of(run)) is not None}


def location_of(run: dg.DagsterRun) -> str | None:
    """Return the name of a run's code location; None if it is unknown."""
    origin = run.remote_job_origin
    return None if origin is None else origin.repository_origin.code_location_origin.location_name


def is_reported_gone(instance: DagsterInstance, run: dg.DagsterRun) -> bool:
    """Return True if the instance's launcher reports that a run's worker is gone.

    Return False if the launcher cannot check workers.

    Raises:
        Exception: the launcher cannot be queried from this process.
    """
    launcher = instance.run_launcher
    return launcher.supports_check_run_worker_health and launcher.check_run_worker_health(run).status in _GONE
