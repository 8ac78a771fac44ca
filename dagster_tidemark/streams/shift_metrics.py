"""Measurements of a stream that its shift reports with each heartbeat: backlog, lag, rate and hindrance.

Belongs here: the measurements. Does not belong here: their evaluation (`engine.stream_rows`).
"""

import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from dagster_tidemark.sources.received_messages import UncommittedMessages, one_sentence

_WINDOW = 60.0  # seconds over which a rate is measured
_BEGINS_WITHIN = 15.0  # seconds that a shift may need to open its tables and queues before this is a fault


@dataclass
class ShiftCounts:
    """Numbers of a shift's messages, rows and commits.

    In a shift of deliveries, `added` counts loaded deliveries, `commits` counts answered messages, and `failed` counts
    messages that were returned to the queue.
    """

    received: int = 0
    added: int = 0
    refused: int = 0
    published: int = 0
    commits: int = 0
    failed: int = 0


class Working(Protocol):
    """A shift at work."""

    @property
    def counts(self) -> ShiftCounts: ...
    @property
    def looked_at(self) -> float: ...
    @property
    def hindrance(self) -> str: ...
    @property
    def lag(self) -> float: ...


@runtime_checkable
class HasInHand(Protocol):
    """A shift that knows its unfinished messages."""

    @property
    def in_hand(self) -> UncommittedMessages: ...
    @property
    def position(self) -> str | None: ...


class Facts:
    """Measurements of one shift. Each call returns the current ones.

    Args:
        depth: Returns the number of messages waiting in the stream's queue; None if the stream has no queue.
        behind: Returns the unread records of the stream's topic after a position; None if the stream has no topic.
    """

    def __init__(
        self,
        depth: Callable[[], int] | None = None,
        behind: Callable[[str | None], UncommittedMessages] | None = None,
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._depth, self._behind, self._clock = depth, behind, clock
        self.at_work: Working | None = None
        self.fault = ""
        """The fault that prevents the start of the shift's work."""
        self._began, self._commits, self._committed_at = clock(), 0, 0.0
        self._added = deque[tuple[float, int]]()
        self._queue_since: float | None = None
        self._waiting_since: float | None = None

    def note(self, fault: str) -> None:
        """Record a fault that prevents the start of the shift's work."""
        self.fault = fault

    def __call__(self) -> Mapping[str, Any]:
        """Return the current facts. A fact that cannot be measured is left out."""
        now, work = self._clock(), self.at_work
        if work is None:
            begins = now - self._began < _BEGINS_WITHIN
            fault = self.fault or ("" if begins else "its tables and sources cannot be opened")
            return {"looked_at": self._began, "hindrance": fault}
        if work.counts.commits != self._commits:
            self._commits, self._committed_at = work.counts.commits, now
        self._added.append((now, work.counts.added))
        while self._added[0][0] < now - _WINDOW and len(self._added) > 1:
            self._added.popleft()
        (first, before), (last, after) = self._added[0], self._added[-1]
        found = {
            "began_at": self._began,
            "looked_at": work.looked_at,
            "hindrance": work.hindrance,
            "committed_at": self._committed_at,
            "rows_per_second": round((after - before) / (last - first), 2) if last > first else 0.0,
            "refused": work.counts.refused,
            "lag_seconds": round(work.lag, 1),
        }
        try:
            waiting = self._waiting(now, work)
        except Exception as error:  # any error of a client; a missing measurement must not stop the work
            said = f"waiting messages cannot be counted: {type(error).__name__}: {str(error).partition(chr(10))[0]}"
            return found | {"hindrance": found["hindrance"] or said}
        self._waiting_since = (self._waiting_since or now) if waiting.count else None
        found["hindrance"] = found["hindrance"] or one_sentence(waiting.uncounted)
        if waiting.count or not waiting.uncounted:  # "no message waits" would be a guess
            found["backlog"] = waiting.count
        if waiting.count:
            found["waiting_since"] = self._waiting_since
            found["oldest_at"] = waiting.oldest_at
        return found

    def _waiting(self, now: float, work: Working) -> UncommittedMessages:
        """Return the number and the age of all messages that wait in the sources or are in hand."""
        parts = [work.in_hand] if isinstance(work, HasInHand) else []
        if self._depth is not None:
            parts.append(self._in_queue(self._depth(), now))
        if self._behind is not None:
            parts.append(self._behind(work.position if isinstance(work, HasInHand) else None))
        return UncommittedMessages.together(parts)

    def _in_queue(self, depth: int, now: float) -> UncommittedMessages:
        """Return the messages in a queue. SQS does not report the age of messages before they are received.

        The oldest message counts as sent when the queue was first found with messages, or at the last commit, whichever
        is later.
        """
        if not depth:
            self._queue_since = None
            return UncommittedMessages()
        self._queue_since = max(self._queue_since or now, self._committed_at)
        return UncommittedMessages(depth, self._queue_since)
