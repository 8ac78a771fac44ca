"""Inlet of messages that are stored in a table, from a queue of any `MessageSource`.

Received messages stay hidden from other receivers until they are acknowledged, however long that takes. If the process
dies, the queue delivers them again. Does not belong here: logs, which are read by offset (`sources.kafka`).
"""

import logging
from collections.abc import Callable, Collection
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from dagster_tidemark.sources.notification_queue import (
    HOLD_SECONDS,
    GivesUp,
    Hold,
    Message,
    MessageSource,
    QueueUnavailable,
    holding,
)
from dagster_tidemark.sources.received_messages import Inlet, ReceivedBatch, ReceivedMessage

_log = logging.getLogger(__name__)

MOST = 500
"""Maximum number of messages of a batch."""


@dataclass(frozen=True)
class _InHand:
    messages: tuple[Message, ...]
    hold: ExitStack
    held: Hold


class QueueInlet(Inlet):
    """Inlet of the messages of a queue.

    Args:
        name: `sqs:<queue>`.
        connect: Function that opens the queue. Called at the first use, and again after a fault.
        hold_seconds: The interval, in seconds, between extensions that keep received messages hidden.
    """

    def __init__(
        self, name: str, connect: Callable[[], MessageSource], *, hold_seconds: float = HOLD_SECONDS / 3
    ) -> None:
        self.name = name
        self._connect = connect
        self._every = hold_seconds
        self._queue: MessageSource | None = None
        self._most_receives: int | None = 0  # None: the queue never gives up a message
        self._hold: ExitStack | None = None
        self._back: _InHand | None = None

    def receive(self, resume: str | None, wait_seconds: float) -> ReceivedBatch | None:
        """Return the waiting messages; None if none arrives within `wait_seconds`."""
        queue = self._opened()
        in_hand = self._in_hand(queue)
        messages = {message.message_id: message for message in in_hand.messages}
        try:
            while len(messages) < MOST and (found := queue.receive(0 if messages else round(wait_seconds))):
                # A message in hand is delivered again if it did not stay hidden. Only its newest receipt is valid.
                in_hand.held.release([messages[each.message_id] for each in found if each.message_id in messages])
                in_hand.held.add(found)
                messages |= {each.message_id: each for each in found}
        except BaseException:  # also on an interrupt, because the hold runs a thread that must stop
            if self._back is None:
                in_hand.hold.close()
            self._queue = None
            raise
        self._back = None
        if not messages:
            in_hand.hold.close()
            return None
        records = tuple(self._record(message) for message in messages.values())
        return ReceivedBatch(records, handle=replace(in_hand, messages=tuple(messages.values())))

    def put_back(self, batch: ReceivedBatch) -> None:
        """Deliver a batch again together with the next one. Until then its messages stay hidden in the queue."""
        assert isinstance(batch.handle, _InHand)
        self._back = batch.handle

    def acknowledge(self, batch: ReceivedBatch, refused: Collection[str] = ()) -> None:
        """Delete the received messages. Refused messages are delivered again until the queue gives them up."""
        in_hand = batch.handle
        assert isinstance(in_hand, _InHand) and self._queue is not None
        self._hold = None
        in_hand.hold.close()
        done = [message for message in in_hand.messages if message.message_id not in refused]
        if done:
            self._queue.delete(done)

    def close(self) -> None:
        """Stop hiding the messages in hand, so that the queue delivers them again."""
        if self._hold is not None:
            self._hold.close()
            self._hold = self._back = None

    def _in_hand(self, queue: MessageSource) -> _InHand:
        """Return the messages that were put back, kept hidden. Without such messages, return a new empty hold."""
        back = self._back
        if back is not None and back.held.fault is None:
            return back
        if back is not None:
            back.hold.close()
        hold = self._hold = ExitStack()
        held = hold.enter_context(holding(queue, self._every))
        found = _InHand(back.messages if back is not None else (), hold, held)
        held.add(found.messages)
        if back is not None:
            self._back = found
        return found

    def _opened(self) -> MessageSource:
        if self._queue is None:
            queue = self._connect()
            try:
                self._most_receives = queue.most_receives() if isinstance(queue, GivesUp) else 0
            except QueueUnavailable as error:
                _log.debug("%s: every receive of a message is treated as its last: %s", self.name, error)
                self._most_receives = 0
            self._queue = queue
        return self._queue

    def _record(self, message: Message) -> ReceivedMessage:
        sent_at = datetime.fromtimestamp(message.sent_at, UTC)
        comes_again = self._most_receives is None or message.receives < self._most_receives
        body = message.body.encode(errors="surrogateescape")
        return ReceivedMessage(body, message.message_id, sent_at, self.name, comes_again=comes_again)
