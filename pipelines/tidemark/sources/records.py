"""What a stream brings, whatever broker it comes from: records, in batches that are committed as one.

Belongs here: what an inlet promises to whoever commits its records. Does not belong here: a broker
(`sources.kafka`, `sources.sqs`), and what a body means.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol


@dataclass(frozen=True)
class Record:
    """One message as the broker has it; nobody has looked into its body yet.

    Args:
        body: Its bytes, whatever they are.
        message_id: Stable over redeliveries and unique: SQS's MessageId; of Kafka topic id, partition and offset.
        sent_at: The broker's time, UTC, in milliseconds.
        source: `sqs:<queue>` or `kafka:<topic>/<partition>`.
        topic_id: Of Kafka; a topic that is deleted and created anew has another.
        partition: Of Kafka.
        offset: Of Kafka.
    """

    body: bytes
    message_id: str
    sent_at: datetime
    source: str
    topic_id: str | None = None
    partition: int | None = None
    offset: int | None = None


@dataclass(frozen=True)
class Batch:
    """Records that are committed together.

    Args:
        records: In the order of each partition. There may be none: a batch with `reached` is committed all the same.
        reached: Snapshot properties committed together with the rows: how far the inlet has come.
        lost: Sentences about messages that are gone for good.
        handle: What the inlet needs to acknowledge it.
    """

    records: tuple[Record, ...]
    reached: Mapping[str, str] = field(default_factory=dict)
    lost: tuple[str, ...] = ()
    handle: object = None


class Inlet(Protocol):
    """Where records come from: a queue that takes back what is not acknowledged, or a log that is read from a position.

    Not to be called from several threads at once.
    """

    name: str
    """`sqs:cold-chain-readings`, `kafka:cold-chain-readings`."""

    def property_name(self) -> str | None:
        """The snapshot property it resumes from; None for queues, which know by themselves."""
        ...

    def receive(self, resume: str | None, wait_seconds: float) -> Batch | None:
        """What there is, at once; waits for the first record at most so long. None: nothing worth a commit.

        Args:
            resume: The newest surviving value of that property in the table.
        """
        ...

    def acknowledge(self, batch: Batch, refused: Collection[str] = ()) -> None:
        """The batch is committed.

        Args:
            refused: Ids of messages that are no rows: a queue leaves them to its dead-letter queue.
        """
        ...

    def close(self) -> None:
        """Let go of what it holds at the broker."""
        ...
