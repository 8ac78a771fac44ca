"""Optimistic commits: the retry policy for all writers, and the errors if another writer was faster.

A commit names the state of the table that the writer has read, and fails if the table has changed since. Then the
writer reads the state, decides and commits again. Does not belong here: how a commit detects other writers (`append`,
`write`, `branches`), and faults of services, which the engine or the stream run retries.
"""

import logging
import random
import time
from collections.abc import Callable
from typing import Any, TypeVar, cast

from tenacity import retry, retry_if_exception, stop_after_attempt, wait_random

from dagster_tidemark.errors import Transient

ATTEMPTS = 20
"""Number of attempts to commit. It equals the number of retries of Iceberg's writers (`table_properties`)."""
_LONGEST_WAIT_SECONDS = 0.5

_T = TypeVar("_T")
_F = TypeVar("_F", bound=Callable[..., Any])

logger = logging.getLogger(__name__)


class CommitConflict(Transient):
    """Error of a commit because another writer has committed first. Nothing was written. A retry helps.

    Args:
        is_last: True if `until_committed` has already used all attempts. An outer `until_committed` then does not
            retry.
    """

    def __init__(self, message: str, *, is_last: bool = False) -> None:
        super().__init__(message)
        self.is_last = is_last


class SourceAdvanced(Transient):
    """Error of a run because another run has read the same source further and handles those messages.

    Continue after the position of the other run.
    """


def until_committed(decide: Callable[[], _T], table: str, *, look_again: Callable[[], object] | None = None) -> _T:
    """Return the result of a function that decides and commits. Call it again while other writers commit first.

    Args:
        decide: Commits what the state of the table requires. It raises CommitConflict if the table has changed since.
        table: Name of the table, for messages.
        look_again: Loads the state again after each conflict; None if `decide` loads it.

    Raises:
        CommitConflict: in each attempt, another writer committed first.
    """
    lost: CommitConflict | None = None
    for attempt in range(ATTEMPTS):
        if attempt:
            # The wait is random, so that two writers do not collide again. It is short at first (at most 10 ms),
            # because stream runs need short delays.
            time.sleep(random.uniform(0, min(0.01 * 2 ** (attempt - 1), _LONGEST_WAIT_SECONDS)))
            if look_again is not None:
                look_again()
        try:
            return decide()
        except CommitConflict as error:
            if error.is_last:
                raise
            lost = error
            logger.info("%s: another writer was faster, starting again: %s", table, str(error).partition("\n")[0])
    raise CommitConflict(f"{table}: other writers won {ATTEMPTS} commits in a row: {lost}", is_last=True) from lost


def again_after_a_race(is_race: Callable[[BaseException], bool]) -> Callable[[_F], _F]:
    """Return a decorator that calls a function again if two writers have created or altered a table at once.

    In the repeated call, the later writer finds the change already made. If no attempt succeeds, the last error is
    raised.
    """
    policy = retry(
        retry=retry_if_exception(is_race), wait=wait_random(0.1, 0.5), stop=stop_after_attempt(10), reraise=True
    )
    return cast("Callable[[_F], _F]", policy)  # tenacity's type is that of its wrapper
