"""A queue as an inlet of messages that are kept: any `MessageSource`.

What was received stays hidden from other receivers until it is acknowledged, however long that takes, and comes back by
itself where the process dies. Does not belong here: logs, which are read by offset (`sources.kafka`).
"""

from collections.abc import Callable, Collection, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime

from pipelines.tidemark.sources.messages import HOLD_SECONDS, Message, MessageSource, holding
from pipelines.tidemark.sources.records import Batch, Record

MOST = 500
"""Messages of a batch."""


@dataclass(frozen=True)
class _InHand:
    messages: tuple[Message, ...]
    hold: ExitStack


class QueueInlet:
    """Messages of a queue.

    Args:
        name: `sqs:<queue>`.
        connect: Gives the queue; asked for when it is first needed, and again after a fault.
        hold_seconds: Every so many seconds what is in hand is hidden anew.
    """

    def __init__(
        self, name: str, connect: Callable[[], MessageSource], *, hold_seconds: float = HOLD_SECONDS / 3
    ) -> None:
        self.name = name
        self._connect = connect
        self._every = hold_seconds
        self._queue: MessageSource | None = None

    def property_name(self) -> str | None:
        """None: the queue itself remembers."""
        return None

    def resume_after(self, topic_id: str, highest: Mapping[int, int]) -> str | None:
        """None."""
        return None

    def receive(self, resume: str | None, wait_seconds: float) -> Batch | None:
        """What waits; None if nothing comes within so many seconds."""
        queue = self._queue = self._queue or self._connect()
        hold = ExitStack()
        held = hold.enter_context(holding(queue, self._every))
        messages: list[Message] = []
        try:
            while len(messages) < MOST and (found := queue.receive(0 if messages else round(wait_seconds))):
                held.add(found)
                messages += found
        except BaseException:
            hold.close()
            self._queue = None
            raise
        if not messages:
            hold.close()
            return None
        records = tuple(_record(message, self.name) for message in messages)
        return Batch(records, handle=_InHand(tuple(messages), hold))

    def acknowledge(self, batch: Batch, refused: Collection[str] = ()) -> None:
        """Delete what was received; what is refused comes back, until the queue gives it up."""
        in_hand = batch.handle
        assert isinstance(in_hand, _InHand) and self._queue is not None
        in_hand.hold.close()
        done = [message for message in in_hand.messages if message.message_id not in refused]
        if done:
            self._queue.delete(done)

    def close(self) -> None:
        """Nothing to do: what is in hand comes back by itself."""


def _record(message: Message, source: str) -> Record:
    sent_at = datetime.fromtimestamp(message.sent_at, UTC)
    return Record(message.body.encode(errors="surrogateescape"), message.message_id, sent_at, source)
