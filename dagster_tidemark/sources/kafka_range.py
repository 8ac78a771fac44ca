"""What there is to read of a topic now, as one exact range: for who reads a backlog at once.

Belongs here: where the range begins and ends. Does not belong here: reading it (`lakehouse.topic_range`).
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from dagster_tidemark.sources.kafka import open_client, property_of
from dagster_tidemark.sources.kafka_position import Position, begin


@dataclass(frozen=True)
class Range:
    """Offsets of a topic, by partition: the first, and the one after the last.

    Args:
        topic: Its name.
        topic_id: What it is. Offsets mean nothing in a topic that was created anew.
        starts: Nothing before is read.
        ends: The last stable offsets. Of transactions that are open nothing is read, nor of what follows them.
        lost: Sentences about messages that are gone for good.
        elsewhere: The next offsets of partitions that cannot be read now.
    """

    topic: str
    topic_id: str
    starts: Mapping[int, int]
    ends: Mapping[int, int]
    lost: tuple[str, ...]
    elsewhere: Mapping[int, int]

    @property
    def reached(self) -> dict[str, str]:
        """The snapshot property to commit together with its rows: the same as that of `KafkaTopic`."""
        return {property_of(self.topic): str(Position(self.topic_id, {**self.elsewhere, **self.ends}))}

    @property
    def size(self) -> int:
        """How many offsets it has; records are as many or fewer."""
        return sum(self.ends[partition] - start for partition, start in self.starts.items())

    def first(self, offsets: int) -> "Range":
        """Its beginning: about so many offsets, as many of each partition as it has."""
        waiting = [partition for partition, start in self.starts.items() if start < self.ends[partition]]
        share = -(-offsets // max(1, len(waiting)))
        return replace(
            self, ends={p: min(end, self.starts[p] + share) if p in waiting else end for p, end in self.ends.items()}
        )


def range_behind(options: Mapping[str, str], topic: str, resume: str | None) -> Range:
    """What is behind a position, up to the last stable offsets.

    Args:
        options: Of librdkafka.
        topic: Its name.
        resume: As `KafkaTopic.receive` takes it.

    Raises:
        KafkaMissing, KafkaUnavailable, TopicUnknown, KafkaRefused, PositionUnreadable: as of `KafkaTopic`.
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
        # An open transaction can only hold back what comes later than what was read.
        ends={partition: max(stable[partition], start) for partition, start in begun.offsets.items()},
        lost=begun.lost,
        elsewhere={partition: offset for partition, offset in known.items() if partition not in begun.offsets},
    )


def is_still_of(options: Mapping[str, str], read: Range) -> bool:
    """Whether the topic is still the one the range is of: to be asked once the range is read.

    Raises:
        KafkaUnavailable, TopicUnknown, KafkaRefused: as of `KafkaTopic`.
    """
    return open_client(options, read.topic).look().id == read.topic_id
