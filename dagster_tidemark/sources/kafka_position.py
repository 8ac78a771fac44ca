"""Positions in a topic as text, and the offsets to continue from in the current topic. All functions are pure.

Belongs here: positions, gaps, recreated topics. Does not belong here: requests to a broker (`sources.kafka_client`).
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from dagster_tidemark.sources.kafka_errors import PositionUnreadable


@dataclass(frozen=True)
class Position:
    """The next offset to read of each partition of a topic.

    Args:
        topic_id: The topic's id. A topic that is deleted and created again under its name has a new id.
        next_offsets: The next offset by partition. Lower offsets were read, or never existed.
        of_rows: True if the position was derived from rows. A partition that it lacks may then have been read. If
            False, such a partition did not exist yet.
    """

    topic_id: str
    next_offsets: Mapping[int, int]
    of_rows: bool = False

    def __str__(self) -> str:
        told: dict[str, object] = {"topic_id": self.topic_id, "next": dict(sorted(self.next_offsets.items()))}
        return json.dumps(told | ({"of_rows": True} if self.of_rows else {}))

    @classmethod
    def parse(cls, text: str) -> "Position":
        """Return the position that a text represents.

        Raises:
            PositionUnreadable: the text is not a position.
        """
        try:
            told = json.loads(text)
            offsets = {int(partition): int(offset) for partition, offset in told["next"].items()}
            return cls(str(told["topic_id"]), offsets, bool(told.get("of_rows", False)))
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise PositionUnreadable(f"not a position of a topic: {text[:200]}") from error


def position_after_rows(topic_id: str, highest: Mapping[int, int]) -> str:
    """Return the position after the highest offset of each partition, for tables whose snapshot property is lost.

    Args:
        topic_id: The newest topic id in the rows. Offsets of other topic ids do not apply to it.
        highest: The highest offset in rows with that topic id, by partition.
    """
    return str(Position(topic_id, {partition: offset + 1 for partition, offset in highest.items()}, of_rows=True))


@dataclass(frozen=True)
class OffsetBounds:
    """Bounds of a partition at its broker: the first offset, and the offset after the last."""

    start: int
    end: int


@dataclass(frozen=True)
class Begin:
    """Start of reading a topic.

    Args:
        offsets: The first offset by partition, without partitions that cannot be read now.
        lost: Sentences about messages that are permanently lost.
        behind: A sentence for each partition that cannot be read, because its log ends before the position.
    """

    offsets: Mapping[int, int]
    lost: tuple[str, ...] = ()
    behind: Mapping[int, str] = field(default_factory=dict)


def unread_parts(topic: str, leaderless: Iterable[int], behind: Mapping[int, str]) -> frozenset[str]:
    """Return a sentence on each partition that cannot be read now.

    Args:
        leaderless: The partitions without a leader.
        behind: Sentences on partitions whose log ends before the position, as in `Begin`.
    """
    without = (f"kafka:{topic}/{p} has no leader; reading continues when it has one" for p in leaderless)
    return frozenset((*behind.values(), *without))


def begin(topic: str, topic_id: str, logs: Mapping[int, OffsetBounds], position: Position | None) -> Begin:
    """Return the first offset to read of each partition, and the losses.

    If a log starts after the position, messages are lost. Holes in the middle of a log (compaction, transaction
    markers) are not losses, and are not visible here.
    """
    if position is not None and position.topic_id != topic_id:
        offsets = ", ".join(f"{offset} of {partition}" for partition, offset in sorted(position.next_offsets.items()))
        recreated = (
            f"kafka:{topic} was deleted and created again (topic id {position.topic_id}, now {topic_id}). Unread "
            f"messages of the old topic are lost; its next offsets by partition were {offsets}. "
            "The new topic is read from its beginning"
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
                f"kafka:{topic}/{partition} ends at offset {log.end}, but was read up to {offset}: its broker is "
                f"recovering, or has lost the end of the log. Reading continues at offset {offset}: messages that are "
                "written before this offset are not read. The other partitions are read"
            )
            continue
        if offset < log.start:
            lost.append(
                f"kafka:{topic}/{partition}: up to {log.start - offset} messages are lost, offsets {offset} to "
                f"{log.start - 1}: retention deleted them before they were read"
            )
        found[partition] = max(offset, log.start)
    return Begin(found, tuple(lost), behind)
