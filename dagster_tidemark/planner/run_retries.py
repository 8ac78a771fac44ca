"""Retries of a partition after an attempt that did not build it: pauses, and the count of attempts.

Pure arithmetic on the recorded attempts. Does not belong here: other reasons why a partition waits
(`planner.evaluate`).
"""

from dataclasses import replace

from dagster_tidemark.pauses import growing_pause
from dagster_tidemark.planner.event_records import Failure, Outcome

FIRST_PAUSE = 60.0
LONGEST_PAUSE = 3600.0

_LOST_PAUSE = 15.0
_LONGEST_LOST_PAUSE = 120.0  # the platform recovers on its own; a partition that kills its process is still slowed down


def backoff(attempts: int) -> float:
    """Return the seconds to wait after a number of failed attempts in a row."""
    return growing_pause(attempts, FIRST_PAUSE, LONGEST_PAUSE)


def next_try(failure: Failure, *, has_new_data: bool) -> float:
    """Return when the pause after an attempt ends (Unix seconds).

    New data ends a long pause. But an asset that fails while data keeps arriving is slowed down: the pause is at least
    as long as the last attempt, and at least a minute.
    """
    if failure.lost:
        pause = growing_pause(failure.lost - 1, _LOST_PAUSE, _LONGEST_LOST_PAUSE)
        return failure.ended_at + (0.0 if failure.lost == 1 else pause)
    pause = backoff(failure.attempts)
    return failure.ended_at + (min(pause, max(FIRST_PAUSE, failure.seconds)) if has_new_data else pause)


def after(
    before: Failure | None,
    outcome: Outcome,
    *,
    as_of: int,
    ended_at: float,
    seconds: float,
    code_version: str | None,
    starts_over: bool,
) -> Failure:
    """Return the record after one more attempt that did not build its partition.

    Args:
        before: Record of the attempts before it.
        outcome: Outcome of the attempt. An attempt that the platform lost is no failure of the partition, and does not
            count as an attempt.
        seconds: Duration of the attempt.
        starts_over: True if the count starts over: new data arrived since the last attempt, or a person tried.
    """
    attempts = before.attempts if before else 0
    if outcome is Outcome.LOST:
        return Failure(attempts, as_of, ended_at, code_version, lost=(before.lost if before else 0) + 1)
    return Failure(1 if starts_over else attempts + 1, as_of, ended_at, code_version, seconds=seconds)


def shortened(failure: Failure) -> Failure:
    """Return the record with the shortest pause. Another partition was built, so the problem may be over."""
    return replace(failure, attempts=min(failure.attempts, 1), lost=min(failure.lost, 1))
