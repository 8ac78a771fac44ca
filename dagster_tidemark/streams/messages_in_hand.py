"""Messages in the hands of one run, each a piece of work of its own: seen to, tried again later, or given back.

What is in hand stays hidden from other receivers, so that waiting costs a message none of its receives; where the
process dies it comes back by itself. Does not belong here: what is done about a message, and queues whose messages are
rows (`sources.inlets`).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field

from dagster_tidemark.sources.notification_queue import HOLD_SECONDS, Hold, Message, MessageSource, holding

MOST = 500
"""Messages at once; others are left to whoever else receives."""


@dataclass(eq=False)
class Held:
    """A message in hand.

    Args:
        message: As it was received last.
        again_at: When it is to be seen to, by the monotonic clock.
        looks: How often it was seen to, and put off.
        failures: How often in a row that failed.
        answered: What was answered to it already.
    """

    message: Message
    again_at: float = field(default_factory=time.monotonic)
    looks: int = 0
    failures: int = 0
    answered: str = ""

    def again_in(self, seconds: float) -> None:
        """Put it off."""
        self.again_at = time.monotonic() + seconds


class InHand:
    """What one run has received of a queue and not done yet. Used by one thread.

    Args:
        connect: Gives the queue; asked for when it is first needed, and again after a fault.
        hold_seconds: Every so many seconds what is in hand is hidden anew.
    """

    def __init__(self, connect: Callable[[], MessageSource], *, hold_seconds: float = HOLD_SECONDS / 3) -> None:
        self._connect = connect
        self._every = hold_seconds
        self._queue: MessageSource | None = None
        self._hold: Hold | None = None
        self._open = ExitStack()
        self._held: dict[str, Held] = {}

    def receive(self, wait_seconds: float) -> int:
        """Take what there is; wait for it as long, unless something in hand is due before. Returns how many."""
        queue, hold = self._opened()
        wait = min(wait_seconds, self._seconds_to_next())
        try:
            found = queue.receive(int(wait)) if len(self._held) < MOST else []
        except BaseException:
            self._close()
            raise
        hold.add(found)
        if not found and (wait < 1 or len(self._held) >= MOST):
            time.sleep(wait)  # a queue waits for whole seconds
        for message in found:
            # One that is in hand already: its hold has failed for a while. The older receipt is worth nothing now.
            before = self._held.get(message.message_id)
            if before is not None:
                hold.release([before.message])
                before.message = message
            else:
                self._held[message.message_id] = Held(message)
        return len(found)

    def due(self) -> list[Held]:
        """Those that are to be seen to now, in the order in which they were sent."""
        now = time.monotonic()
        return sorted((h for h in self._held.values() if h.again_at <= now), key=lambda held: held.message.sent_at)

    def done(self, held: Held) -> None:
        """It is seen to, and is never received again.

        Raises:
            DeleteRefused: it is, once more.
        """
        queue, hold = self._opened()
        hold.release([held.message])
        self._held.pop(held.message.message_id, None)
        queue.delete([held.message])

    def let_go(self, held: Held) -> None:
        """It comes back later, to whomever, until the queue gives it up."""
        self._held.pop(held.message.message_id, None)
        _, hold = self._opened()
        hold.release([held.message])
        hold.defer([held.message])

    def close(self) -> None:
        """What is left is given back at once."""
        left = [held.message for held in self._held.values()]
        queue = self._queue
        self._close()
        self._held.clear()
        with suppress(Exception):  # it comes back by itself
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
