"""Exceptions of a user's rule: the distinction between a bad message and a defective rule.

Belongs here: that distinction, and the search for the messages that make a rule raise. Does not belong here: the
evaluation of rules (`decode`, `alerts.worker`), and the handling of a message (`shift`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import ParamSpec, TypeVar

from dagster_tidemark.errors import Terminal, Transient

FEW = 3
"""Number of messages in a row on which a rule may raise. If it raises on more, the rule counts as defective."""
RULE_RAISES = "rule_raises"
"""Reason of a quarantine entry: the message is a row of the table, but the rule of the alerts raises on it."""

_MOST_JUDGED = 10_000
_MOST_WORK = 2_000_000  # messages passed to a rule in one search; takes a few seconds

Item = TypeVar("Item")
_P = ParamSpec("_P")
_T = TypeVar("_T")


class RuleFails(Terminal):
    """User code raises on every message. Messages wait until the code is changed."""


def blames_the_message(error: Exception) -> bool:
    """Return True if the message caused a rule's exception, and not a fault of a service, a disk or memory."""
    if isinstance(error, OSError | MemoryError | Transient):
        return False
    # Compared by name, because Spark's workers also run this, and may not have these libraries.
    return not any(base.__module__.partition(".")[0] in ("botocore", "sqlalchemy") for base in type(error).__mro__)


def judged(function: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T | Exception:
    """Return the result of a user's rule, or its exception if the message caused it.

    Raises:
        Exception: a service, a disk or memory has failed. The message can be evaluated again later.
    """
    try:
        return function(*args, **kwargs)
    except Exception as error:  # user code may raise anything
        if not blames_the_message(error):
            raise
        return error


def raised(error: Exception) -> str:
    """Return an exception as one line."""
    said = str(error).strip().partition("\n")[0]
    return f"{type(error).__name__}: {said}"[:1_000]


@dataclass
class RaisingRules:
    """Messages on which each rule of a stream has raised since that rule last worked.

    Args:
        stream: The stream's name.
    """

    stream: str
    _since: dict[str, set[str]] = field(default_factory=dict)
    _judged: dict[str, set[str]] = field(default_factory=dict)
    """Messages on which a rule raised, while it worked on others. They are faulty, and are not counted again."""

    def judge(self, rule: str, ids: Collection[str], worked: int, error: str) -> None:
        """Record the outcome of a rule on a batch.

        Args:
            ids: Ids of the messages on which the rule raised.
            worked: Number of messages on which the rule did not raise.
            error: One of the exceptions.

        Raises:
            RuleFails: the rule worked on none of the messages, and raised on more than three since it last worked.
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
                f"stream {self.stream}: the rule {rule} raises on every message: {error}. No message is rejected "
                "for it; correct the rule and reload the code location"
            )


def to_leave_out(
    items: Sequence[Item], known_good: Sequence[Item], raises: Callable[[Sequence[Item]], bool]
) -> set[int]:
    """Return the indexes of the items that make a rule raise.

    The search adds items to the good ones by halves, so one culprit among n costs about 2 log n evaluations. After two
    million items given to the rule, all remaining items count as culprits.

    Args:
        items: The items, in the order that the rule expects.
        known_good: The items on which the rule worked before. All others are suspects.
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
