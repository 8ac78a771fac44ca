"""A topic of Kafka as an inlet: read from exact offsets, up to the last stable one.

Belongs here: what a shift may rely on, whatever happens to the topic. Does not belong here: the client library
(`sources.kafka_client`), and what positions mean (`sources.kafka_position`).
"""

import math
import time
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from dagster_tidemark.sources.kafka_errors import KafkaMissing, KafkaUnavailable
from dagster_tidemark.sources.kafka_position import Position, begin, position_after_rows
from dagster_tidemark.sources.received_messages import Batch, Record

if TYPE_CHECKING:
    from dagster_tidemark.sources.kafka_client import KafkaClient

_LOOK_EVERY = 2.0  # seconds: for new partitions, another topic of that name, a broker that is gone
_SETTLE_SECONDS = 0.3  # at most, for the rest of what has just come: the marks of its transactions, more records
_EMPTY_EVERY = 60.0  # seconds: commits of positions alone
_CHUNK = 500


class KafkaTopic:
    """An `Inlet` of one topic. It is in no consumer group: how far it was read, the table alone knows.

    Several of one topic do not know of each other; each is given all records.

    Args:
        options: Of librdkafka: `bootstrap.servers`, and what the security of the cluster needs.
        topic: Its name.
        most_records: Of a batch.
        most_bytes: Of a batch: no more records are asked for once its bodies have so many.

    Raises:
        KafkaMissing: the client library is not installed.
        KafkaRefused: an option cannot be used.
    """

    def __init__(
        self, options: Mapping[str, str], topic: str, *, most_records: int = 10_000, most_bytes: int = 16_000_000
    ) -> None:
        self.name = f"kafka:{topic}"
        self._topic = topic
        self._most_records, self._most_bytes = most_records, most_bytes
        self._client = open_client(options, topic)
        self._reading = False
        self._resume: str | None = None  # what the caller has to resume from for reading to go on where it is
        self._topic_id = ""
        self._partitions: frozenset[int] = frozenset()  # those that had a leader when reading began
        self._leaderless: frozenset[int] = frozenset()
        self._behind: Mapping[int, str] = {}  # why some that have one are not read
        self._handed: dict[int, int] = {}  # the next offsets as `_resume` has them
        self._next: dict[int, int] = {}  # and as they are
        self._ends: dict[int, int] = {}  # where a log ended when it was last read to its end
        self._looked = self._committed_empty = -math.inf

    def property_name(self) -> str:
        """The snapshot property that holds the topic's id and the next offset of each partition."""
        return property_of(self._topic)

    def topic_id(self) -> str:
        """Return the present id of the topic at its broker.

        Raises:
            KafkaUnavailable, TopicUnknown, KafkaRefused: as of `receive`.
        """
        return self._client.look().id

    def position(self) -> str | None:
        """Return the position after the last record that `receive` gave; None before the first.

        It may be later than the last one in a batch: the marks of transactions move it as well.
        """
        return str(Position(self._topic_id, self._next)) if self._reading else None

    def resume_after(self, topic_id: str, highest: Mapping[int, int]) -> str:
        """The property's value where no snapshot has it any more: behind the highest offset of each partition."""
        return position_after_rows(topic_id, highest)

    def receive(self, resume: str | None, wait_seconds: float) -> Batch | None:
        """What there is behind the position, at once; waits for the first record at most so long.

        Given is what is committed on the broker and nothing that was aborted, in the order of each partition. A range
        without any such record makes a batch without records, so that it is not read again for ever: one a minute.

        Args:
            resume: The newest surviving value of the property. None: the topic is read from its beginning. Where there
                are rows and no property survives, give `resume_after` of them.
            wait_seconds: 0 asks only for what was fetched in the background since the last call.

        Raises:
            KafkaUnavailable: no broker answers; the same call works later.
            TopicUnknown: there is no such topic; the same call works once there is.
            KafkaRefused: the broker does not let us read it.
            PositionUnreadable: `resume` is no position.
        """
        deadline = time.monotonic() + wait_seconds
        try:
            return self._receive(resume, deadline)
        except BaseException:
            self._reading = False  # what was taken and not handed out is read again
            raise

    def acknowledge(self, batch: Batch, refused: Collection[str] = ()) -> None:
        """Nothing is left to do: the position was committed with the rows."""

    def hindrances(self) -> frozenset[str]:
        """A sentence on each partition that cannot be read now; the others are."""
        leaderless = (f"{self.name}/{p} has no leader now: it is read on once it has one" for p in self._leaderless)
        return frozenset((*self._behind.values(), *leaderless))

    def close(self) -> None:
        """Let go of the connections."""
        self._reading = False
        self._client.close()

    def _receive(self, resume: str | None, deadline: float) -> Batch | None:
        if not self._reading or resume != self._resume:
            lost = self._begin(Position.parse(resume) if resume is not None else None)
            self._resume, self._handed = resume, dict(self._next)
            if lost:
                return self._batch((), lost)
        while True:
            records, out_of_range = self._take(min(deadline, self._looked + _LOOK_EVERY))
            now = time.monotonic()
            topic_id, lost = self._topic_id, ()
            if records or out_of_range or now >= self._looked + _LOOK_EVERY:
                # Also before records are handed out: only now is it known that they are not of another topic.
                lost = self._look_again(out_of_range=out_of_range)
            if self._topic_id != topic_id:
                records = []
            if records or lost or self._is_worth_a_commit(now):
                return self._batch(records, lost)
            if now >= deadline:
                return None

    def _begin(self, position: Position | None) -> tuple[str, ...]:
        """Read on from a position. Returns what is lost."""
        topic = self._client.look()
        self._looked = time.monotonic()
        begun = begin(self._topic, topic.id, self._client.logs(topic.partitions), position)
        is_same = position is not None and position.topic_id == topic.id
        # A partition that cannot be read now keeps its place.
        self._next = {**(position.next_offsets if position is not None and is_same else {}), **begun.offsets}
        self._topic_id, self._ends = topic.id, {}
        self._partitions, self._leaderless, self._behind = topic.partitions, topic.leaderless, begun.behind
        self._client.read_from(topic.id, begun.offsets)
        self._reading = True
        return begun.lost

    def _look_again(self, *, out_of_range: bool) -> tuple[str, ...]:
        """See whether it is still this topic, and has more partitions. Returns what is lost."""
        topic = self._client.look()
        self._looked = time.monotonic()
        if topic.id != self._topic_id:
            return self._begin(Position(self._topic_id, self._handed))
        self._leaderless = topic.leaderless
        if not out_of_range and topic.partitions <= self._partitions and not self._have_caught_up(topic.partitions):
            return ()
        lost = self._begin(Position(self._topic_id, self._next))
        if out_of_range and not lost:
            raise KafkaUnavailable(f"{self.name}: the broker refuses an offset and says that it is there")
        self._handed = {**self._next, **self._handed}
        return lost

    def _have_caught_up(self, partitions: Collection[int]) -> bool:
        """Whether a partition that ended before its position does so no more."""
        behind = [partition for partition in self._behind if partition in partitions]
        return any(log.end >= self._next[p] for p, log in self._client.logs(behind).items()) if behind else False

    def _take(self, until: float) -> tuple[list[Record], bool]:
        """The next records, and whether some offset turned out to be in its log no more."""
        records: list[Record] = []
        size, latest = 0, until
        while len(records) < self._most_records and size < self._most_bytes:
            most = min(_CHUNK, self._most_records - len(records))
            polled = self._client.poll(most, max(0.0, latest - time.monotonic()))
            if polled.records and not records:
                latest = time.monotonic() + _SETTLE_SECONDS
            for record in polled.records:
                records.append(record)
                size += len(record.body)
                assert record.partition is not None and record.offset is not None
                self._next[record.partition] = record.offset + 1
            for partition, end in polled.ends.items():
                self._ends[partition] = end
                self._next[partition] = max(self._next[partition], end)
            if polled.out_of_range:
                return records, True
            is_over = time.monotonic() >= latest
            if (records and (is_over or self._is_settled())) or (is_over and polled.is_empty):
                break
        return records, False

    def _is_settled(self) -> bool:
        """Whether nothing more can come at once. The mark of a transaction has its offset too, and is no record."""
        for partition in self._partitions:
            offset = self._next[partition]
            if offset != self._ends.get(partition) and offset < self._client.log_end(partition):
                return False
        return True

    def _is_worth_a_commit(self, now: float) -> bool:
        moved = any(offset > self._handed[partition] for partition, offset in self._next.items())
        return moved and now - self._committed_empty >= _EMPTY_EVERY

    def _batch(self, records: Sequence[Record], lost: tuple[str, ...]) -> Batch:
        if not records and not lost:
            self._committed_empty = time.monotonic()
        self._resume, self._handed = str(Position(self._topic_id, self._next)), dict(self._next)
        return Batch(tuple(records), {self.property_name(): self._resume}, lost)


def property_of(topic: str) -> str:
    """The snapshot property that holds how far a topic was read into a table."""
    return f"tidemark.kafka.{topic}"


def open_client(options: Mapping[str, str], topic: str) -> "KafkaClient":
    """A client of one topic.

    Raises:
        KafkaMissing: the library is not installed.
        KafkaRefused: an option cannot be used.
    """
    try:
        from dagster_tidemark.sources.kafka_client import KafkaClient
    except ModuleNotFoundError as error:
        if not (error.name or "").startswith("confluent_kafka"):
            raise
        raise KafkaMissing from error
    return KafkaClient(options, topic)
