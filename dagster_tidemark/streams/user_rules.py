"""Exceptions of a user's rule: which ones are a verdict on a message, and which ones are a defect of the rule.

Belongs here: that distinction, and the search for the messages that make a rule raise. Does not belong here: the
evaluation of rules (`decode`, `alert_reaction`), and what happens to a message (`shift`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from dagster_tidemark.errors import Terminal, Transient

FEW = 3
"""Number of messages in a row that may make a rule raise. After more, the rule counts as wrong, not the messages."""
RULE_RAISES = "rule_raises"
"""Reason of a quarantine entry: the message is a row of the table, but the rule of the alerts raises on it."""

_MOST_JUDGED = 10_000
_MOST_WORK = 2_000_000  # messages given to a rule in one search: a few seconds

Item = TypeVar("Item")


class RuleFails(Terminal):
    """A user's code raises whatever the message is. No message is judged until the code was changed."""


def blames_the_message(error: Exception) -> bool:
    """Return True if an exception of a rule is about its message, and not a fault of a service, a disk or memory."""
    if isinstance(error, OSError | MemoryError | Transient):
        return False
    # By name: Spark's workers, which run this as well, may have neither library.
    return not any(base.__module__.partition(".")[0] in ("botocore", "sqlalchemy") for base in type(error).__mro__)


def raised(error: Exception) -> str:
    """Return an exception as one line."""
    said = str(error).strip().partition("\n")[0]
    return f"{type(error).__name__}: {said}"[:1_000]


@dataclass
class RaisingRules:
    """Messages on which each rule of a stream has raised since it last worked.

    Args:
        stream: The stream's name.
    """

    stream: str
    _since: dict[str, set[str]] = field(default_factory=dict)
    _judged: dict[str, set[str]] = field(default_factory=dict)
    """Messages on which a rule raised before it worked on another one, from whatever inlet."""

    def judge(self, rule: str, ids: Collection[str], worked: int, error: str) -> None:
        """Take the outcome of a rule on a batch.

        Args:
            ids: Messages on which it raised.
            worked: Number of messages on which it did not.
            error: One of the exceptions.

        Raises:
            RuleFails: it worked on none, and the messages since it last worked are more than a few.
        """
        since, judged = self._since.setdefault(rule, set()), self._judged.setdefault(rule, set())
        if worked:
            if len(judged) > _MOST_JUDGED:
                judged.clear()
            judged |= since
            since.clear()
            return
        since |= set(ids) - judged
        if len(since) > FEW:
            raise RuleFails(
                f"stream {self.stream}: the rule {rule} raises on every message: {error}. None is put into the "
                "quarantine for it. Correct the rule and reload the code location"
            )


def to_leave_out(
    items: Sequence[Item], known_good: Sequence[Item], raises: Callable[[Sequence[Item]], bool]
) -> set[int]:
    """Return the indexes of the items without which a rule does not raise.

    Items are added to those known to be good by halves, so one culprit among n costs about 2 log n evaluations. Beyond
    two million items given to the rule, all items that are left are taken for culprits.

    Args:
        items: The items in the order of the rule.
        known_good: The items on which the rule worked before; others are suspects.
        raises: Evaluates the rule.
    """
    good_ids = {id(item) for item in known_good}
    good = {at for at, item in enumerate(items) if id(item) in good_ids}
    work = 0

    def works(chosen: Collection[int]) -> bool:
        nonlocal work
        work += len(chosen) + 1
        return work <= _MOST_WORK and not raises([items[at] for at in sorted(chosen)])

    if not works(good):
        good = set()
    bad: set[int] = set()
    waiting = [[at for at in range(len(items)) if at not in good]]
    while waiting:
        some = waiting.pop()
        if not some:
            continue
        if works({*good, *some}):
            good.update(some)
        elif len(some) == 1 or work > _MOST_WORK:
            bad.update(some)
        else:
            middle = len(some) // 2
            waiting += [some[middle:], some[:middle]]
    return bad
