"""Messages that one run has received and handles separately: each is finished, retried later, or returned to the queue.

The run keeps the messages hidden from other receivers. A waiting message therefore does not approach the queue's limit
of receives. If the process dies, the queue delivers the messages again. Does not belong here: the handling of a
message, and queues whose messages become rows (`sources.inlets`).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field

from dagster_tidemark.sources.notification_queue import HOLD_SECONDS, Hold, Message, MessageSource, holding

MOST = 500
"""Maximum number of messages in hand. Other receivers may take the rest."""


@dataclass(eq=False)
class MessageInHand:
    """An unfinished message, and the history of its handling.

    Args:
        message: The message with its newest receipt.
        again_at: The time when the message is due, by the monotonic clock.
        looks: The number of times the message was handled and postponed.
        failures: The number of consecutive failures.
        answered: The answer that was already sent; empty if there is none.
    """

    message: Message
    again_at: float = field(default_factory=time.monotonic)
    looks: int = 0
    failures: int = 0
    answered: str = ""

    def again_in(self, seconds: float) -> None:
        """Postpone the message by a number of seconds."""
        self.again_at = time.monotonic() + seconds


class InHand:
    """Unfinished messages that one run has received from a queue. Not thread-safe.

    Args:
        connect: Opens the queue, at the first use and again after a fault.
        hold_seconds: The interval, in seconds, between extensions that keep the messages hidden from other receivers.
    """

    def __init__(self, connect: Callable[[], MessageSource], *, hold_seconds: float = HOLD_SECONDS / 3) -> None:
        self._connect = connect
        self._every = hold_seconds
        self._queue: MessageSource | None = None
        self._hold: Hold | None = None
        self._open = ExitStack()
        self._held: dict[str, MessageInHand] = {}

    def receive(self, wait_seconds: float) -> int:
        """Receive messages, and return their number. Stop waiting when a message in hand becomes due."""
        queue, hold = self._opened()
        wait = min(wait_seconds, self._seconds_to_next())
        try:
            found = queue.receive(int(wait)) if len(self._held) < MOST else []
        except BaseException:  # a client in an unknown state is not used again
            self._close()
            raise
        hold.add(found)
        if not found and (wait < 1 or len(self._held) >= MOST):
            time.sleep(wait)  # the queue itself waits only for whole seconds
        for message in found:
            # If the message is already in hand, it was not hidden for a while, and its older receipt is invalid.
            before = self._held.get(message.message_id)
            if before is not None:
                hold.release([before.message])
                before.message = message
            else:
                self._held[message.message_id] = MessageInHand(message)
        return len(found)

    def due(self) -> list[MessageInHand]:
        """Return the messages that are due, sorted by their sending times."""
        now = time.monotonic()
        return sorted((h for h in self._held.values() if h.again_at <= now), key=lambda held: held.message.sent_at)

    def done(self, held: MessageInHand) -> None:
        """Delete a finished message from the queue.

        Raises:
            DeleteRefused: the queue did not delete the message, and delivers it again.
        """
        queue, hold = self._opened()
        hold.release([held.message])
        self._held.pop(held.message.message_id, None)
        queue.delete([held.message])

    def let_go(self, held: MessageInHand) -> None:
        """Return a message to the queue, which delivers it again later, until the limit of receives is reached."""
        self._held.pop(held.message.message_id, None)
        _, hold = self._opened()
        hold.release([held.message])
        hold.defer([held.message])

    def close(self) -> None:
        """Return the remaining messages to the queue. Other receivers can take them at once."""
        left = [held.message for held in self._held.values()]
        queue = self._queue
        self._close()
        self._held.clear()
        with suppress(Exception):  # if this fails, the queue delivers the messages again after a while
            if queue is not None and left:
                queue.extend(left, 0)

    def _seconds_to_next(self) -> float:
        now = time.monotonic()
        return max(0.0, min((held.again_at - now for held in self._held.values()), default=60.0))

    def _opened(self) -> tuple[MessageSource, Hold]:
        if self._hold is not None and self._hold.fault is not None:
            self._close()
        if self._queue is None or self._hold is None:
            self._queue = self._connect()
            self._hold = self._open.enter_context(holding(self._queue, self._every))
            self._hold.add([held.message for held in self._held.values()])
        return self._queue, self._hold

    def _close(self) -> None:
        self._queue = self._hold = None
        self._open.close()
