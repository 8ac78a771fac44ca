"""Received messages as data, independent of the queue or log that delivers them.

Belongs here: the form of a received message, and the interface of an inlet. Does not belong here: the calls to a system
(`sources.sqs`, `sources.kafka`), and the meaning of message bodies (`streams.decode`).
"""

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime


@dataclass(frozen=True)
class ReceivedMessage:
    """One message.

    Args:
        body: The body as it was sent.
        message_id: A unique id, the same at each delivery.
        sent_at: The sending time in UTC, from the queue or the topic's producer. It is never later than the receipt.
        source: `sqs:<queue>`, or `kafka:<topic>/<partition>`.
        topic_id: The id of the topic. A recreated topic of the same name has a new id.
        partition: The partition of the topic.
        offset: The offset within the partition.
        is_null: True if a record of a topic has no value at all, and so its body is empty.
        headers: Names and values of the record's headers, in their order. A name may occur more than once.
        comes_again: True if the source certainly delivers the message again unless it is acknowledged.
    """

    body: bytes
    message_id: str
    sent_at: datetime
    source: str
    topic_id: str | None = None
    partition: int | None = None
    offset: int | None = None
    is_null: bool = False
    headers: tuple[tuple[str, bytes | None], ...] = ()
    comes_again: bool = False


@dataclass(frozen=True)
class ReceivedBatch:
    """Records that were received together.

    Args:
        records: The records in the order of their source.
        reached: Snapshot properties with the source's position, committed together with the rows. They are
            committed even if there are no records.
        lost: Sentences about messages that are permanently lost.
    """

    records: tuple[ReceivedMessage, ...] = ()
    reached: Mapping[str, str] = field(default_factory=dict)
    lost: tuple[str, ...] = ()


@dataclass(frozen=True)
class UncommittedMessages:
    """Messages that are not committed yet.

    Args:
        count: The number of messages.
        oldest_at: The time when the oldest message was sent (Unix seconds); None if it is unknown.
        uncounted: A sentence on each part of a source whose messages cannot be counted now.
    """

    count: int = 0
    oldest_at: float | None = None
    uncounted: frozenset[str] = frozenset()

    @classmethod
    def together(cls, parts: Sequence["UncommittedMessages"]) -> "UncommittedMessages":
        """Return the total count of several parts, with the oldest time."""
        times = [part.oldest_at for part in parts if part.oldest_at is not None]
        uncounted = frozenset[str]().union(*(part.uncounted for part in parts))
        return cls(sum(part.count for part in parts), min(times, default=None), uncounted)


def one_sentence(hindrances: Collection[str]) -> str:
    """Return the first of some sentences on unreadable parts, with the number of the others; empty if there is none."""
    first, *others = sorted(hindrances) or [""]
    return f"{first} (and {len(others)} more)" if others else first


class Inlet(ABC):
    """A source of messages that are kept in a table. Used by one thread.

    The defaults are those of a source that itself stores which messages were read.
    """

    name: str
    """`sqs:<queue>` or `kafka:<topic>`."""

    def property_name(self) -> str | None:
        """Return the name of the snapshot property with the position; None if the source itself stores the position."""
        return None

    def topic_id(self) -> str | None:
        """Return the id of the topic that currently has the name; None if the source is no topic.

        Raises:
            Transient: the broker does not answer, or the topic does not exist.
        """
        return None

    def resume_after(self, topic_id: str, highest: Mapping[int, int]) -> str | None:
        """Return a value for this property from the table's rows, for tables whose snapshots have lost the property.

        Args:
            topic_id: The newest topic id in the rows.
            highest: The highest offset in rows with that topic id, by partition.
        """
        return None

    @abstractmethod
    def receive(self, resume: str | None, wait_seconds: float) -> ReceivedBatch | None:
        """Return the next batch; None if nothing arrives within `wait_seconds`.

        Messages of earlier batches that were not acknowledged are part of the next batch.

        Args:
            resume: The newest value of the property `property_name` in the table.

        Raises:
            Transient: the source does not answer, or refuses the request.
        """

    def position(self) -> str | None:
        """Return the position after the last record that `receive` gave; None before it, or without positions."""
        return None

    def hindrances(self) -> Collection[str]:
        """Return a sentence on each part of the source that the last `receive` could not read."""
        return ()

    @abstractmethod
    def acknowledge(self, batch: ReceivedBatch, refused: Collection[str] = ()) -> None:
        """Acknowledge a batch after it was committed and its results were published.

        Args:
            refused: Ids of messages that did not become rows. They are not deleted, so that the queue gives them up.
        """

    @abstractmethod
    def close(self) -> None:
        """Stop receiving."""
