"""Retries within a running shift: the errors to retry, the length of the pauses, the log lines, and each inlet's state.

Does not belong here: the work that is retried (`shift`, `deliveries.worker`), and the inlets (`sources`).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import TypeVar

from botocore.exceptions import BotoCoreError, ClientError
from pyiceberg.exceptions import RESTError
from sqlalchemy.exc import SQLAlchemyError

from dagster_tidemark.errors import TidemarkError, Transient
from dagster_tidemark.pauses import growing_pause
from dagster_tidemark.sources.received_messages import (
    Inlet,
    ReceivedBatch,
    UncommittedMessages,
    one_sentence,
)
from dagster_tidemark.streams.user_rules import RuleFails

Made = TypeVar("Made")

OF_THE_WORLD = (Transient, OSError, BotoCoreError, ClientError, SQLAlchemyError, RESTError)
"""Errors of a queue, a disk, a bucket or a catalog. No message causes them: the work is retried until the
service recovers. Use `is_of_the_world`, which also knows the errors of a Hive metastore."""

_OF_A_METASTORE = {("hive_metastore", "MetaException")}
"""Errors that a Hive metastore returns if its own database fails, by package and class. Its other errors are answers,
such as a missing table."""
_BASE_OF_ANSWERS = "TException"

LONGEST_BACKOFF = 15.0
TRIES_OF_A_BUG = 3
SAID_AGAIN_AFTER = 600.0


def is_of_the_world(error: BaseException) -> bool:
    """Return True if a service causes an error, not a message or the code."""
    return isinstance(error, OF_THE_WORLD) or any(map(_is_of_a_metastore, type(error).__mro__))


def _is_of_a_metastore(kind: type) -> bool:
    """Return True for an error of the transport, the protocol or the database of a Hive metastore.

    The classes are compared by name, because the package thrift is installed only beside a catalog of Hive. Answers of
    the metastore derive from thrift's TException too, and are no faults of the service.
    """
    package = kind.__module__.partition(".")[0]
    return (package == "thrift" and kind.__name__ != _BASE_OF_ANSWERS) or (package, kind.__name__) in _OF_A_METASTORE


class RunEnds(Exception):
    """The run was asked to end while it waited for a service to recover. The next run does its work."""


@dataclass
class Chore:
    """Work that can be retried at a later step, such as reports and expiry. Each chore has its own back-off.

    Args:
        name: The name of the work in the log.
        log: Receives each fault once, and again after ten minutes.
        is_vital: True to raise the error of the third failure in a row, unless a service caused this error.
        is_outage: Returns True if a service caused an error.
    """

    name: str
    log: logging.Logger
    is_vital: bool = False
    is_outage: Callable[[BaseException], bool] = is_of_the_world
    failures: int = 0
    again_at: float = 0.0
    """The time of the next attempt, by the monotonic clock."""
    fault: str = ""
    """The error of the last attempt; empty if it succeeded."""
    _said_at: float = 0.0

    def attempt(self, work: Callable[[], object], *, now: bool = False) -> bool:
        """Do the work, unless it failed a moment ago. Return True if it succeeded.

        Args:
            now: Try also during the back-off.
        """
        if not now and time.monotonic() < self.again_at:
            return False
        try:
            work()
        except Exception as error:  # any kind is retried; the class decides for how long
            self._failed(error)
            if self.is_vital and self.failures >= TRIES_OF_A_BUG and not self.is_outage(error):
                raise
            return False
        if self.failures:
            self.log.info("%s: succeeded after %d failures", self.name, self.failures)
        self.failures, self.fault = 0, ""
        return True

    def _failed(self, error: Exception) -> None:
        self.failures += 1
        self.again_at = time.monotonic() + growing_pause(self.failures, 1.0, LONGEST_BACKOFF)
        said = told(error)
        if said != self.fault or time.monotonic() - self._said_at >= SAID_AGAIN_AFTER:
            self.fault, self._said_at = said, time.monotonic()
            level = logging.WARNING if self.is_outage(error) else logging.ERROR
            self.log.log(level, "%s failed and is retried: %s", self.name, said, exc_info=level == logging.ERROR)


def patiently(
    name: str,
    work: Callable[[], Made],
    ends: Callable[[], str | None],
    log: logging.Logger,
    note: Callable[[str], None] = lambda fault: None,
) -> Made:
    """Do the work, retry it until failed services recover, and return its result.

    Args:
        note: Receives each fault, and an empty text after the work is done.

    Raises:
        RunEnds: the run was asked to end before the work succeeded.
        RuleFails: raised at once, because only a change of the code helps.
        Exception: any other error that no service causes, after three tries.
    """
    failures, said = 0, ""
    while True:
        try:
            made = work()
            note("")
            return made
        except RuleFails:
            note("")
            raise
        except Exception as error:  # any kind is retried; the class decides for how long
            failures += 1
            if not is_of_the_world(error) and failures >= TRIES_OF_A_BUG:
                raise
            note(f"{name}: {told(error)}")
            if told(error) != said:
                said = told(error)
                log.warning("%s failed and is retried: %s", name, said)
            rest(growing_pause(failures, 1.0, LONGEST_BACKOFF), ends)
            if (why := ends()) is not None:
                raise RunEnds(f"{name}: {why}, while the run waited for its next attempt: {said}") from error


def rest(seconds: float, ends: Callable[[], str | None]) -> None:
    """Sleep, and wake up early if the run ends."""
    until = time.monotonic() + seconds
    while time.monotonic() < until and ends() is None:
        time.sleep(0.1)


def told(error: Exception) -> str:
    """Return an error as one line."""
    said = str(error).strip().partition("\n")[0]
    return said if isinstance(error, TidemarkError) else f"{type(error).__name__}: {said}"


_TRIED_AGAIN_AFTER = 5.0  # seconds; a rule that raised on every message may work on a newer message


@dataclass
class Line:
    """The state of one inlet in a shift."""

    inlet: Inlet
    failures: int = 0
    again_at: float = 0.0
    may_lag: bool = True
    """True if there may be a backlog: at the start, after a failure, after a large batch."""
    hindrances: Collection[str] = ()
    """A sentence on each part of the inlet that could not be read by the last receive."""
    fault: str = ""
    """The error of the last receive; empty if the receive succeeded."""
    in_hand: UncommittedMessages = field(default_factory=UncommittedMessages)
    """Messages that were received and are not finished."""
    position: str | None = None
    """The position of a topic after the messages in `in_hand`."""
    rule_fault: str = ""
    """The error of a rule that raises on every message; empty if there is none."""
    _logged: str = ""
    _logged_at: float = 0.0

    @property
    def any_fault(self) -> str:
        """The fault that prevents reading the whole inlet or finishing its batch; empty if there is none."""
        return self.rule_fault or self.fault or one_sentence(self.hindrances)

    def failed(self, error: Exception, longest: float) -> float | None:
        """Record the error of a failed receive. Return the seconds to the next try; None if it was logged recently.

        Args:
            longest: The longest pause, in seconds.
        """
        is_new = (
            not self.failures or told(error) != self._logged or time.monotonic() - self._logged_at >= SAID_AGAIN_AFTER
        )
        self.failures, self.may_lag = self.failures + 1, True
        seconds = growing_pause(self.failures, 1.0, longest)
        self.again_at, self.fault = time.monotonic() + seconds, f"{self.inlet.name}: {told(error)}"
        if not is_new:
            return None
        self._logged, self._logged_at = told(error), time.monotonic()
        return seconds

    def received(self, batch: ReceivedBatch | None) -> None:
        """Record the result of a successful receive."""
        self.failures, self.fault = 0, ""
        self.position = self.inlet.position() or self.position
        if batch is not None:
            oldest = min((record.sent_at.timestamp() for record in batch.records), default=None)
            self.in_hand = UncommittedMessages(len(batch.records), oldest)

    def finished(self) -> None:
        """Record that the batch in hand is committed, and that the resulting messages are sent."""
        self.rule_fault, self.in_hand = "", UncommittedMessages()

    def held_up(self, error: RuleFails) -> bool:
        """Record that a rule raises on every message. Return True if the fault is new."""
        is_new = not self.rule_fault
        self.rule_fault, self.again_at = str(error), time.monotonic() + _TRIED_AGAIN_AFTER
        return is_new
