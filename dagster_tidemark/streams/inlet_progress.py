"""The progress of a shift at one inlet: faults, the time of the next try, and unfinished messages.

Does not belong here: the receiving (`shift`), and the inlets (`sources`).
"""

from __future__ import annotations

import time
from collections.abc import Collection
from dataclasses import dataclass, field

from dagster_tidemark.pauses import growing_pause
from dagster_tidemark.sources.received_messages import (
    Inlet,
    ReceivedBatch,
    UncommittedMessages,
    one_sentence,
)
from dagster_tidemark.streams.shift_retries import SAID_AGAIN_AFTER, told
from dagster_tidemark.streams.user_rules import RuleFails

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
