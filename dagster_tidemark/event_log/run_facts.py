"""Facts from the records of runs: end, outcome and duration.

Belongs here: the distinction between runs that ended by themselves and runs ended by a person or the platform. Does not
belong here: the consequences for the run's targets (`planner.history`).
"""

from collections.abc import Collection
from dataclasses import dataclass

from dagster import (
    DagsterEventType,
    DagsterInstance,
    DagsterRun,
    DagsterRunStatus,
    RunRecord,
    RunsFilter,
)

from dagster_tidemark.dagster_internals import event_time, run_storage
from dagster_tidemark.event_log.standby import ReplacedCode
from dagster_tidemark.lakehouse.session import SparkLost, SparkUnreachable
from dagster_tidemark.planner.event_records import Outcome
from dagster_tidemark.tags import PUBLISHED, REBUILD, REQUESTED_BY

_PAGE = 1000
_LONGEST_QUEUE = 60.0  # after an outage runs wait for each other, which is not part of their usual duration
_RECENTLY = 86_400.0  # the reason for an older failure makes no difference

_NO_VERDICT = {SparkUnreachable.__name__, SparkLost.__name__, ReplacedCode.__name__}
_OF_ENDS = (DagsterEventType.STEP_FAILURE, DagsterEventType.RUN_FAILURE, DagsterEventType.RUN_CANCELING)


@dataclass(frozen=True)
class RunFacts:
    """Facts from a run's record.

    Args:
        ended_at: Time of the end (Unix seconds); None while the run has not ended.
        outcome: Outcome of the run; meaningless while it has not ended.
        seconds: Duration from creation to end if the run succeeded. At most a minute in the queue counts.
        by_person: True if a person requested the run, and no sensor.
        rebuild: True if the run is a rebuild.
        queued: True if it has not left the queue.
    """

    ended_at: float | None
    outcome: Outcome = Outcome.LOST
    seconds: float | None = None
    by_person: bool = False
    rebuild: bool = False
    queued: bool = False


def run_facts(instance: DagsterInstance, run_ids: Collection[str]) -> dict[str, RunFacts]:
    """Return the facts of runs by run id. A deleted run counts as ended."""
    found: dict[str, RunFacts] = {}
    asked = list(run_ids)
    for start in range(0, len(asked), _PAGE):
        some = asked[start : start + _PAGE]
        records = instance.get_run_records(RunsFilter(run_ids=some))
        found |= {run_id: RunFacts(event_time.now()) for run_id in some}
        found |= {record.dagster_run.run_id: _facts(instance, record) for record in records}
    return found


def _facts(instance: DagsterInstance, record: RunRecord) -> RunFacts:
    run, ended_at, seconds, outcome = record.dagster_run, None, None, Outcome.LOST
    if run.is_finished:
        ended_at = record.end_time or record.update_timestamp.timestamp()
        outcome = _outcome(instance, run, is_recent=ended_at > event_time.now() - _RECENTLY)
    # A run that publishes a preview computes nothing, so its duration is not typical.
    if run.status is DagsterRunStatus.SUCCESS and PUBLISHED not in run.tags and record.start_time and ended_at:
        queued = max(0.0, record.start_time - record.create_timestamp.timestamp())
        seconds = min(queued, _LONGEST_QUEUE) + ended_at - record.start_time
    queued = run.status in (DagsterRunStatus.QUEUED, DagsterRunStatus.NOT_STARTED)
    return RunFacts(ended_at, outcome, seconds, REQUESTED_BY not in run.tags, REBUILD in run.tags, queued)


def _outcome(instance: DagsterInstance, run: DagsterRun, *, is_recent: bool) -> Outcome:
    """Return the outcome of a run. If the platform ended it, that is no evidence about the run's targets."""
    reason = run_storage.failure_reason(run)
    if run.status is DagsterRunStatus.SUCCESS:
        return Outcome.SUCCEEDED
    if reason in run_storage.ENDED_BY_THE_PLATFORM:
        return Outcome.LOST
    if run.status is DagsterRunStatus.CANCELED:
        return Outcome.CANCELED
    if not is_recent:
        return Outcome.FAILED if reason else Outcome.LOST
    # Dagster's run monitoring gives no reason: the worker died, or the run exceeded its time limit.
    events = instance.all_logs(run.run_id, of_type=set(_OF_ENDS))
    if any(event.dagster_event_type is DagsterEventType.RUN_CANCELING for event in events):
        return Outcome.FAILED
    errors = [error for event in events if (error := run_storage.errors_of(event)) is not None]
    if errors:
        return Outcome.LOST if all(_NO_VERDICT & set(error) for error in errors) else Outcome.FAILED
    return Outcome.FAILED if reason else Outcome.LOST
