"""Messages as data: what a queue or a log delivers, whatever system it is.

Belongs here: the form in which a message comes in, and what an inlet has to offer. Does not belong here: how a system
is asked (`sources.sqs`, `sources.kafka`), and what the bodies mean (`streams.decode`).
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol, runtime_checkable


@dataclass(frozen=True)
class Record:
    """One message.

    Args:
        body: As it was sent.
        message_id: Unique, and the same each time it is delivered.
        sent_at: When the broker took it, UTC.
        source: `sqs:<queue>`, or `kafka:<topic>/<partition>`.
        topic_id: Of a log: which topic, also where one of the same name took its place.
        partition: Of a log.
        offset: Of a log, within its partition.
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
class IsHindered(Protocol):
    """An inlet of several parts, of which some may not be readable while the others are."""

    def hindrances(self) -> Collection[str]:
        """A sentence on each of them, as of the last `receive`."""
        ...
