"""When a partition is tried again after an attempt that did not build it, and how many attempts count.

Pure arithmetic on what is remembered of the attempts. Does not belong here: what else a partition waits for
(`planner.evaluate`).
"""

from dataclasses import replace

from dagster_tidemark.planner.event_records import Failure, Outcome

FIRST_PAUSE = 60.0
LONGEST_PAUSE = 3600.0

_LOST_PAUSE = 15.0
_LONGEST_LOST_PAUSE = 120.0  # the platform comes back by itself; a partition that kills its process keeps a rate


def backoff(attempts: int) -> float:
    """Seconds to wait after so many failed attempts in a row."""
    return min(FIRST_PAUSE * 2.0 ** min(attempts - 1, 10), LONGEST_PAUSE)


def next_try(failure: Failure, *, has_new_data: bool) -> float:
    """When the pause after an attempt ends (Unix seconds).

    New data ends a long pause, but an asset that fails under a stream of new data keeps a rate: no attempt begins
    sooner than the last one lasted, or a minute.
    """
    if failure.lost:
        doubled = _LOST_PAUSE * 2.0 ** min(failure.lost - 2, 10)
        return failure.ended_at + (0.0 if failure.lost == 1 else min(doubled, _LONGEST_LOST_PAUSE))
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
    """What is remembered after one more attempt that did not build its partition.

    Args:
        before: What was remembered of those before it.
        outcome: An attempt that was lost with the platform says nothing of the partition, and counts as none.
        seconds: How long the attempt lasted.
        starts_over: Whether the count starts over: new data came since the last attempt, or a person tried.
    """
    attempts = before.attempts if before else 0
    if outcome is Outcome.LOST:
        return Failure(attempts, as_of, ended_at, code_version, lost=(before.lost if before else 0) + 1)
    return Failure(1 if starts_over else attempts + 1, as_of, ended_at, code_version, seconds=seconds)


def shortened(failure: Failure) -> Failure:
    """After a success of the same asset: what held the others up may be over, so the pause is the first again."""
    return replace(failure, attempts=min(failure.attempts, 1), lost=min(failure.lost, 1))
