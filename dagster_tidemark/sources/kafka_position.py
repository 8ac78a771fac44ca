"""How far a topic has been read, as text, and what that means for a topic as it is now. Pure.

Belongs here: positions, gaps, topics that were created anew. Does not belong here: asking a broker
(`sources.kafka_client`).
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from dagster_tidemark.sources.kafka_errors import PositionUnreadable


@dataclass(frozen=True)
class Position:
    """The next offset to read of each partition of a topic.

    Args:
        topic_id: Of the topic; one that is deleted and created anew under its name has another.
        next_offsets: By partition. Offsets below are read, or were never there.
        of_rows: It was concluded from rows. Of a partition without any nothing is known; otherwise a partition that is
            missing did not exist yet.
    """

    topic_id: str
    next_offsets: Mapping[int, int]
    of_rows: bool = False

    def __str__(self) -> str:
        told: dict[str, object] = {"topic_id": self.topic_id, "next": dict(sorted(self.next_offsets.items()))}
        return json.dumps(told | ({"of_rows": True} if self.of_rows else {}))

    @classmethod
    def parse(cls, text: str) -> "Position":
        """The position a text stands for.

        Raises:
            PositionUnreadable: for none.
        """
        try:
            told = json.loads(text)
            offsets = {int(partition): int(offset) for partition, offset in told["next"].items()}
            return cls(str(told["topic_id"]), offsets, bool(told.get("of_rows", False)))
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise PositionUnreadable(f"this is no position of a topic: {text[:200]}") from error


def position_after_rows(topic_id: str, highest: Mapping[int, int]) -> str:
    """What to resume from where no snapshot property survives: behind the highest offset of each partition.

    Args:
        topic_id: The newest among the rows. Offsets of another say nothing about this one.
        highest: The highest offset of a row of that topic id, by partition.
    """
    return str(Position(topic_id, {partition: offset + 1 for partition, offset in highest.items()}, of_rows=True))


@dataclass(frozen=True)
class Log:
    """One partition as its broker has it: the first offset that is there, and the one after the last."""

    start: int
    end: int


@dataclass(frozen=True)
class Begin:
    """Where to begin to read a topic.

    Args:
        offsets: By partition; those that cannot be read now are not in it.
        lost: Sentences about messages that are gone for good.
        behind: By partition a sentence on why it cannot be read: it ends before what was read of it.
    """

    offsets: Mapping[int, int]
    lost: tuple[str, ...] = ()
    behind: Mapping[int, str] = field(default_factory=dict)


def begin(topic: str, topic_id: str, logs: Mapping[int, Log], position: Position | None) -> Begin:
    """Where to begin to read each partition.

    Holes in the middle of a log (compaction, the marks of transactions) are no loss, and are not seen here; a log that
    starts behind the position is.
    """
    if position is not None and position.topic_id != topic_id:
        offsets = ", ".join(f"{offset} of {partition}" for partition, offset in sorted(position.next_offsets.items()))
        recreated = (
            f"kafka:{topic} was deleted and created anew (topic id {position.topic_id}, now {topic_id}). What had not "
            f"been read of the old topic is lost; the next offsets by partition were {offsets}. "
            "The new one is read from its beginning"
        )
        return Begin({partition: log.start for partition, log in logs.items()}, (recreated,))
    found: dict[int, int] = {}
    lost: list[str] = []
    behind: dict[int, str] = {}
    for partition, log in sorted(logs.items()):
        unknown = log.start if position is None or position.of_rows else 0
        offset = position.next_offsets.get(partition, unknown) if position else unknown
        if offset > log.end:
            behind[partition] = (
                f"kafka:{topic}/{partition} ends at offset {log.end} and was read up to {offset}: its broker is "
                f"recovering, or has lost the end of the log. It is read on from offset {offset}, once it has it: what "
                "takes the place of lost messages before that is not read. The other partitions are"
            )
            continue
        if offset < log.start:
            lost.append(
                f"kafka:{topic}/{partition}: up to {log.start - offset} messages are lost, offsets {offset} to "
                f"{log.start - 1}: retention deleted them before they were read"
            )
        found[partition] = max(offset, log.start)
    return Begin(found, tuple(lost), behind)
