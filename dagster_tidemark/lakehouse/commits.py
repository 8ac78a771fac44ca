"""Optimistic commits: the one policy of retries, and the two errors if another writer was faster.

A commit names the state that its writer has seen, and fails if the table has another state by then. The writer looks,
decides and commits again. Does not belong here: how a commit detects other writers (`append`, `write`, `branches`),
and faults of services, which the engine or the shift retries.
"""

import logging
import random
import time
from collections.abc import Callable
from typing import Any, TypeVar, cast

from tenacity import retry, retry_if_exception, stop_after_attempt, wait_random

from dagster_tidemark.errors import Transient

ATTEMPTS = 20
"""Number of commits that a writer may lose in a row, as of Iceberg's own writers (`table_properties`)."""
_LONGEST_WAIT_SECONDS = 0.5

_T = TypeVar("_T")
_F = TypeVar("_F", bound=Callable[..., Any])

logger = logging.getLogger(__name__)


class CommitConflict(Transient):
    """Another writer has committed in the meantime, and nothing was written. A retry helps: it starts from that commit.

    Args:
        is_last: True if a policy has retried it already. A policy around that one does not retry it again.
    """

    def __init__(self, message: str, *, is_last: bool = False) -> None:
        super().__init__(message)
        self.is_last = is_last


class SourceAdvanced(Transient):
    """Another run has read the same source further, and handles those messages. Continue after its position."""


def until_committed(decide: Callable[[], _T], table: str, *, look_again: Callable[[], object] | None = None) -> _T:
    """Return the result of a function that decides and commits. Call it again while other writers commit first.

    Args:
        decide: Commits what the state of the table requires. Raises CommitConflict if the table has another state.
        table: Name of the table, for messages.
        look_again: Loads the state again after each lost commit; None if `decide` loads it.

    Raises:
        CommitConflict: other writers won each of the attempts.
    """
    lost: CommitConflict | None = None
    for attempt in range(ATTEMPTS):
        if attempt:
            # Random, so that two writers do not meet again. At most 10 ms after the first attempt, for messages.
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

    The loser finds the work done when it looks again. If no attempt succeeds, the last error is raised.
    """
    policy = retry(
        retry=retry_if_exception(is_race), wait=wait_random(0.1, 0.5), stop=stop_after_attempt(10), reraise=True
    )
    return cast("Callable[[_F], _F]", policy)  # tenacity's own type names its wrapper
