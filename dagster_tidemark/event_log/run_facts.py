"""What the records of runs say: whether they have ended, how, and how long they took.

Not all of it is annotated as public: `test_adapter.py` and `test_outcomes.py` hold it.
Belongs here: a run that ended by itself told apart from one that a person, or the platform, ended. Does not belong
here: what follows for what it was to build (`planner.history`).
"""

from collections.abc import Collection
from dataclasses import dataclass

from dagster import (
    DagsterEventType,
    DagsterInstance,
    DagsterRun,
    DagsterRunStatus,
    EventLogEntry,
    RunRecord,
    RunsFilter,
)
from dagster._core.events import JobFailureData, RunFailureReason
from dagster._core.execution.plan.objects import StepFailureData
from dagster._core.storage.tags import RUN_FAILURE_REASON_TAG
from dagster_shared.error import SerializableErrorInfo

from dagster_tidemark.event_log import adapter
from dagster_tidemark.lakehouse.session import SparkLost, SparkUnreachable
from dagster_tidemark.planner.event_records import Outcome
from dagster_tidemark.tags import PUBLISHED, REBUILD, REQUESTED_BY

_PAGE = 1000
_LONGEST_QUEUE = 60.0  # after an outage runs wait for each other, which says nothing of how long one takes
_RECENTLY = 86_400.0  # why a run failed that ended longer ago makes no difference
_ENDED = (DagsterRunStatus.SUCCESS, DagsterRunStatus.FAILURE, DagsterRunStatus.CANCELED)

_OF_THE_PLATFORM = {
    reason.value
    for reason in (
        RunFailureReason.START_TIMEOUT,
        RunFailureReason.RUN_WORKER_RESTART,
        RunFailureReason.UNEXPECTED_TERMINATION,
    )
}
_ENGINE_GONE = {SparkUnreachable.__name__, SparkLost.__name__}
_OF_ENDS = (DagsterEventType.STEP_FAILURE, DagsterEventType.RUN_FAILURE, DagsterEventType.RUN_CANCELING)


@dataclass(frozen=True)
class RunFacts:
    """What a run's record says.

    Args:
        ended_at: Unix seconds, None while it has not ended.
        outcome: How it ended; of no meaning while it has not.
        seconds: From its creation (waiting in the queue counts up to a minute) to its end, if it succeeded.
        by_person: Nobody but a person asked for it.
        rebuild: It is of the class rebuild.
        queued: True if it has not left the queue.
    """

    ended_at: float | None
    outcome: Outcome = Outcome.LOST
    seconds: float | None = None
    by_person: bool = False
    rebuild: bool = False
    queued: bool = False


def run_facts(instance: DagsterInstance, run_ids: Collection[str]) -> dict[str, RunFacts]:
    """What is known of these runs. One that was deleted has ended."""
    found: dict[str, RunFacts] = {}
    asked = list(run_ids)
    for start in range(0, len(asked), _PAGE):
        some = asked[start : start + _PAGE]
        records = instance.get_run_records(RunsFilter(run_ids=some))
        found |= {run_id: RunFacts(adapter.now()) for run_id in some}
        found |= {record.dagster_run.run_id: _facts(instance, record) for record in records}
    return found


def _facts(instance: DagsterInstance, record: RunRecord) -> RunFacts:
    run, ended_at, seconds, outcome = record.dagster_run, None, None, Outcome.LOST
    if run.status in _ENDED:
        ended_at = record.end_time or record.update_timestamp.timestamp()
        outcome = _outcome(instance, run, is_recent=ended_at > adapter.now() - _RECENTLY)
    # A run that reports a preview computes nothing, and says nothing of how long that takes.
    if run.status is DagsterRunStatus.SUCCESS and PUBLISHED not in run.tags and record.start_time and ended_at:
        queued = max(0.0, record.start_time - record.create_timestamp.timestamp())
        seconds = min(queued, _LONGEST_QUEUE) + ended_at - record.start_time
    queued = run.status in (DagsterRunStatus.QUEUED, DagsterRunStatus.NOT_STARTED)
    return RunFacts(ended_at, outcome, seconds, REQUESTED_BY not in run.tags, REBUILD in run.tags, queued)


def _outcome(instance: DagsterInstance, run: DagsterRun, *, is_recent: bool) -> Outcome:
    """How a run ended: by itself, by a person, or with the platform, which says nothing of what it was to build."""
    reason = run.tags.get(RUN_FAILURE_REASON_TAG)
    if run.status is DagsterRunStatus.SUCCESS:
        return Outcome.SUCCEEDED
    if reason in _OF_THE_PLATFORM:
        return Outcome.LOST
    if run.status is DagsterRunStatus.CANCELED:
        return Outcome.CANCELED
    if not is_recent:
        return Outcome.FAILED if reason else Outcome.LOST
    # Of what its run monitoring ends Dagster gives no reason: the worker died, or the run took longer than it may.
    events = instance.all_logs(run.run_id, of_type=set(_OF_ENDS))
    if any(event.dagster_event_type is DagsterEventType.RUN_CANCELING for event in events):
        return Outcome.FAILED
    errors = [error for event in events if (error := _error(event)) is not None]
    if errors:
        return Outcome.LOST if all(_is_engines(error) for error in errors) else Outcome.FAILED
    return Outcome.FAILED if reason else Outcome.LOST


def _error(event: EventLogEntry) -> SerializableErrorInfo | None:
    told = event.dagster_event.event_specific_data if event.dagster_event else None
    return told.error if isinstance(told, StepFailureData | JobFailureData) else None


def _is_engines(error: SerializableErrorInfo | None) -> bool:
    while error is not None:
        if error.cls_name in _ENGINE_GONE:
            return True
        error = error.cause or error.context
    return False
