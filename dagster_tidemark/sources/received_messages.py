"""Messages as data: what a queue or a log delivers, whatever system it is.

Belongs here: the form in which a message comes in, and what an inlet has to offer. Does not belong here: how a system
is asked (`sources.sqs`, `sources.kafka`), and what the bodies mean (`streams.decode`).
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol, runtime_checkable


@dataclass(frozen=True)
class Record:
    """One message.

    Args:
        body: As it was sent.
        message_id: Unique, and the same each time it is delivered.
        sent_at: When it was sent, UTC: a queue's own time, or the claim of a topic's producer, not after the receipt.
        source: `sqs:<queue>`, or `kafka:<topic>/<partition>`.
        topic_id: Of a log: which topic, also where one of the same name took its place.
        partition: Of a log.
        offset: Of a log, within its partition.
        comes_again: True if the source certainly delivers it again unless it is acknowledged.
    """

    body: bytes
    message_id: str
    sent_at: datetime
    source: str
    topic_id: str | None = None
    partition: int | None = None
    offset: int | None = None
    comes_again: bool = False


@dataclass(frozen=True)
class Batch:
    """What was received at once.

    Args:
        records: In the order of their source.
        reached: Snapshot properties that are committed together with the rows: how far the source was read. Where it
            holds something, it is committed also if there is no record.
        lost: Sentences about messages that are gone for good.
        handle: What the inlet needs to acknowledge it.
    """

    records: tuple[Record, ...] = ()
    reached: Mapping[str, str] = field(default_factory=dict)
    lost: tuple[str, ...] = ()
    handle: object = None


@dataclass(frozen=True)
class Waiting:
    """Messages that are not committed yet.

    Args:
        count: The number of them.
        oldest_at: The time when the oldest was sent (Unix seconds); None if there is none, or it is not known.
    """

    count: int = 0
    oldest_at: float | None = None

    @classmethod
    def together(cls, parts: Sequence["Waiting"]) -> "Waiting":
        """Return the messages of several places as one."""
        times = [part.oldest_at for part in parts if part.oldest_at is not None]
        return cls(sum(part.count for part in parts), min(times, default=None))


class Inlet(Protocol):
    """A source of messages that are kept in a table. Used by one thread."""

    name: str
    """`sqs:<queue>` or `kafka:<topic>`."""

    def property_name(self) -> str | None:
        """The snapshot property that says how far it was read; None where the source itself remembers."""
        ...

    def resume_after(self, topic_id: str, highest: Mapping[int, int]) -> str | None:
        """The value of that property where no snapshot of the table has it any more.

        Args:
            topic_id: The newest that has rows.
            highest: By partition the highest offset of a row of it.
        """
        ...

    def receive(self, resume: str | None, wait_seconds: float) -> Batch | None:
        """What there is; None if nothing comes within so many seconds.

        Args:
            resume: The newest value of that property in the table.

        Raises:
            Transient: the source does not answer, or refuses.
        """
        ...

    def acknowledge(self, batch: Batch, refused: Collection[str] = ()) -> None:
        """All of it is committed, and what follows from it published.

        Args:
            refused: Ids of messages that are no rows: a queue gives them up by itself.
        """
        ...

    def close(self) -> None:
        """Nothing is received any more."""
        ...


@runtime_checkable
class HasTopicId(Protocol):
    """An inlet of a topic, whose positions are valid for this topic only."""

    def topic_id(self) -> str:
        """Return the id of the topic that has the name now.

        Raises:
            Transient: the broker does not answer, or there is no such topic.
        """
        ...


@runtime_checkable
class HasPosition(Protocol):
    """An inlet of a topic, which knows how far it has read."""

    def position(self) -> str | None:
        """Return the position after the last record that `receive` gave; None before the first."""
        ...


@runtime_checkable
class KeepsInHand(Protocol):
    """An inlet whose source counts the receives of a message."""

    def put_back(self, batch: Batch) -> None:
        """Deliver a batch that was not acknowledged again, as the first part of the next one."""
        ...


@runtime_checkable
class IsHindered(Protocol):
    """An inlet of several parts. Some parts may be unreadable while others are readable."""

    def hindrances(self) -> Collection[str]:
        """Return a sentence on each unreadable part, as of the last `receive`."""
        ...
