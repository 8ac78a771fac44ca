"""The unread records of a topic as one exact range of offsets, for reading a backlog at once.

Belongs here: the start and end of the range. Does not belong here: reading it (`lakehouse.topic_range`).
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from dagster_tidemark.sources.kafka import open_client, property_of
from dagster_tidemark.sources.kafka_position import Position, begin, unread_parts


@dataclass(frozen=True)
class Range:
    """Range of offsets of a topic, by partition: the first offset, and the offset after the last.

    Args:
        topic: The topic's name.
        topic_id: The topic's id. Offsets are meaningless in a recreated topic.
        starts: The first offsets to read.
        ends: The last stable offsets. Open transactions and the records after them are not read.
        lost: Sentences about messages that are permanently lost.
        elsewhere: The next offsets of partitions that cannot be read now.
        hindrances: A sentence on each partition that cannot be read now.
    """

    topic: str
    topic_id: str
    starts: Mapping[int, int]
    ends: Mapping[int, int]
    lost: tuple[str, ...]
    elsewhere: Mapping[int, int]
    hindrances: frozenset[str] = frozenset()

    @property
    def reached(self) -> dict[str, str]:
        """The snapshot property to commit together with the range's rows. `KafkaTopic` writes the same property."""
        return {property_of(self.topic): str(Position(self.topic_id, {**self.elsewhere, **self.ends}))}

    @property
    def size(self) -> int:
        """Number of offsets: an upper bound of the number of records."""
        return sum(self.ends[partition] - start for partition, start in self.starts.items())

    def first(self, offsets: int) -> "Range":
        """Return the beginning of the range: about this many offsets, an equal share of each partition."""
        waiting = [partition for partition, start in self.starts.items() if start < self.ends[partition]]
        share = -(-offsets // max(1, len(waiting)))
        return replace(
            self, ends={p: min(end, self.starts[p] + share) if p in waiting else end for p, end in self.ends.items()}
        )


def range_behind(options: Mapping[str, str], topic: str, resume: str | None) -> Range:
    """Return the range after a position, up to the last stable offsets.

    Args:
        options: Options of librdkafka.
        topic: The topic's name.
        resume: The position, as for `KafkaTopic.receive`.

    Raises:
        KafkaMissing, KafkaUnavailable, TopicUnknown, KafkaRefused, PositionUnreadable: as in `KafkaTopic`.
    """
    client = open_client(options, topic)
    position = Position.parse(resume) if resume is not None else None
    seen = client.look()
    begun = begin(topic, seen.id, client.logs(seen.partitions), position)
    stable = client.stable_ends(seen.partitions)
    same = position is not None and position.topic_id == seen.id
    known = position.next_offsets if position is not None and same else {}
    return Range(
        topic=topic,
        topic_id=seen.id,
        starts=begun.offsets,
        # An open transaction cannot move the end of the range before its start.
        ends={partition: max(stable[partition], start) for partition, start in begun.offsets.items()},
        lost=begun.lost,
        elsewhere={partition: offset for partition, offset in known.items() if partition not in begun.offsets},
        hindrances=unread_parts(topic, seen.leaderless, begun.behind),
    )


def is_still_of(options: Mapping[str, str], read: Range) -> bool:
    """Return True if the topic was not recreated since the range was made. Call it after reading the range.

    Raises:
        KafkaUnavailable, TopicUnknown, KafkaRefused: as in `KafkaTopic`.
    """
    return open_client(options, read.topic).look().id == read.topic_id
