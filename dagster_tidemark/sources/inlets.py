"""Inlet of messages from a queue of any `MessageSource`.

Received messages stay in hand until they are acknowledged or given up. Until then they are hidden from other receivers.
A waiting message therefore does not approach the queue's limit of receives. If the process dies, the queue delivers the
messages again. Does not belong here: logs, which are read by offset (`sources.kafka`).
"""

import logging
from collections.abc import Callable, Collection
from contextlib import ExitStack, suppress
from datetime import UTC, datetime

from dagster_tidemark.sources.notification_queue import (
    HOLD_SECONDS,
    DeleteRefused,
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
"""Maximum number of messages in hand. Other receivers may take the rest."""


class QueueInlet(Inlet):
    """Inlet of the messages of a queue.

    Args:
        name: `sqs:<queue>`.
        connect: Function that opens the queue. Called at the first use, and again after a fault.
        hold_seconds: The interval, in seconds, between extensions that keep received messages hidden.
        at_once: The number of new messages after which a receive ends, although more messages may be waiting.
    """

    def __init__(
        self,
        name: str,
        connect: Callable[[], MessageSource],
        *,
        hold_seconds: float = HOLD_SECONDS / 3,
        at_once: int = MOST,
    ) -> None:
        self.name = name
        self._connect = connect
        self._every = hold_seconds
        self._at_once = at_once
        self._queue: MessageSource | None = None
        self._most_receives: int | None = 0  # None: the queue never gives up a message
        self._hold: Hold | None = None
        self._open = ExitStack()
        self._messages: dict[str, Message] = {}
        """The messages in hand, by id."""

    def receive(self, resume: str | None, wait_seconds: float) -> ReceivedBatch | None:
        """Return all messages in hand, after a receive of new ones; None if there is none.

        Args:
            wait_seconds: The longest wait for the first new message. A queue waits only for whole seconds.
        """
        queue, hold = self._opened()
        new = 0
        try:
            while new < self._at_once and len(self._messages) < MOST:
                found = queue.receive(0 if new else round(wait_seconds))
                if not found:
                    break
                # A message in hand is delivered again if it did not stay hidden. Only its newest receipt is valid.
                hold.release([self._messages[m.message_id] for m in found if m.message_id in self._messages])
                hold.add(found)
                self._messages |= {message.message_id: message for message in found}
                new += len(found)
        except BaseException:  # a client in an unknown state is not used again, and the thread of the hold must stop
            self._disconnect()
            raise
        return ReceivedBatch(tuple(map(self._record, self._messages.values()))) if self._messages else None

    def acknowledge(self, batch: ReceivedBatch, refused: Collection[str] = ()) -> None:
        """Delete the received messages. Refused messages are delivered again until the queue gives them up."""
        self._drop(refused)
        self.delete([record.message_id for record in batch.records])

    def delete(self, message_ids: Collection[str]) -> None:
        """Delete those messages among the given ones that are in hand.

        Raises:
            DeleteRefused: the queue did not delete some messages, and delivers them again.
        """
        queue, hold = self._opened()
        done = [self._messages[each] for each in message_ids if each in self._messages]
        hold.release(done)
        try:
            if done:
                queue.delete(done)
        except DeleteRefused:
            self._drop(message_ids)
            raise
        self._drop(message_ids)  # after any other error they stay in hand, so that the caller can try again

    def give_up(self, message_id: str) -> None:
        """Return a message to the queue, which delivers it again later, until the limit of receives is reached."""
        _, hold = self._opened()
        hold.defer(self._drop([message_id]))

    def close(self) -> None:
        """Return the messages in hand to the queue. Other receivers can take them at once."""
        queue, left = self._queue, list(self._messages.values())
        self._disconnect()
        self._messages.clear()
        with suppress(Exception):  # if this fails, the queue delivers the messages again after a while
            if queue is not None and left:
                queue.extend(left, 0)

    def _drop(self, message_ids: Collection[str]) -> list[Message]:
        """Take messages out of hand, and return them."""
        dropped = [self._messages.pop(each) for each in message_ids if each in self._messages]
        if self._hold is not None:
            self._hold.release(dropped)
        return dropped

    def _opened(self) -> tuple[MessageSource, Hold]:
        if self._hold is not None and self._hold.fault is not None:
            self._disconnect()
        if self._queue is None or self._hold is None:
            queue = self._connect()
            try:
                self._most_receives = queue.most_receives() if isinstance(queue, GivesUp) else 0
            except QueueUnavailable as error:
                _log.debug("%s: every receive of a message is treated as its last: %s", self.name, error)
                self._most_receives = 0
            self._queue, self._hold = queue, self._open.enter_context(holding(queue, self._every))
            self._hold.add(list(self._messages.values()))
        return self._queue, self._hold

    def _disconnect(self) -> None:
        self._queue = self._hold = None
        self._open.close()

    def _record(self, message: Message) -> ReceivedMessage:
        sent_at = datetime.fromtimestamp(message.sent_at, UTC)
        comes_again = self._most_receives is None or message.receives < self._most_receives
        body = message.body.encode(errors="surrogateescape")
        return ReceivedMessage(body, message.message_id, sent_at, self.name, comes_again=comes_again)
