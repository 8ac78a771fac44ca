"""A topic of Kafka as an inlet: read from exact offsets, up to the last stable one.

Belongs here: the guarantees for a shift, whatever happens to the topic. Does not belong here: the client library
(`sources.kafka_client`), and the meaning of positions (`sources.kafka_position`).
"""

import math
import time
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from dagster_tidemark.sources.kafka_errors import KafkaMissing, KafkaUnavailable
from dagster_tidemark.sources.kafka_position import Position, begin, position_after_rows, unread_parts
from dagster_tidemark.sources.received_messages import Inlet, ReceivedBatch, ReceivedMessage, UncommittedMessages

if TYPE_CHECKING:
    from dagster_tidemark.sources.kafka_client import KafkaClient

_LOOK_EVERY = 2.0  # seconds between checks for new partitions, a recreated topic or a missing broker
_SETTLE_SECONDS = 0.3  # longest wait for more records and transaction markers after the first record
_EMPTY_EVERY = 60.0  # seconds between commits of positions without records
_CHUNK = 500
_TIMES_EVERY = 20.0  # seconds between reads of the times, because each read fetches records


class KafkaTopic(Inlet):
    """Inlet of one topic. It joins no consumer group: only the table stores the position.

    Several inlets of one topic are independent; each receives all records.

    Args:
        options: Options of librdkafka: `bootstrap.servers`, and the cluster's security settings.
        topic: The topic's name.
        most_records: Maximum number of records of a batch.
        most_bytes: Total size of bodies. A batch ends when it reaches this size.

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
        self._resume: str | None = None  # the `resume` value that continues reading without a restart
        self._topic_id = ""
        self._partitions: frozenset[int] = frozenset()  # partitions that had a leader when reading began
        self._leaderless: frozenset[int] = frozenset()
        self._behind: Mapping[int, str] = {}  # why partitions with a leader are not read
        self._handed: dict[int, int] = {}  # the next offsets in `_resume`
        self._next: dict[int, int] = {}  # the current next offsets
        self._ends: dict[int, int] = {}  # the end of a log when it was last read to its end
        self._looked = self._committed_empty = -math.inf

    def property_name(self) -> str:
        """Return the name of the snapshot property with the topic's id and the next offset of each partition."""
        return property_of(self._topic)

    def topic_id(self) -> str:
        """Return the current id of the topic at its broker.

        Raises:
            KafkaUnavailable, TopicUnknown, KafkaRefused: as in `receive`.
        """
        return self._client.look().id

    def position(self) -> str | None:
        """Return the position after the last record that `receive` gave; None before the first.

        The position may be later than that of the last batch, because transaction markers advance it too.
        """
        return str(Position(self._topic_id, self._next)) if self._reading else None

    def resume_after(self, topic_id: str, highest: Mapping[int, int]) -> str:
        """Return a value for the property from the highest offsets in rows, for tables where no snapshot has it."""
        return position_after_rows(topic_id, highest)

    def receive(self, resume: str | None, wait_seconds: float) -> ReceivedBatch | None:
        """Return the records after the position, waiting up to `wait_seconds` for the first.

        Only records that are committed on the broker are returned, in the order of each partition. For a range
        without such records an empty batch is returned, at most once a minute: committing it avoids reading the range
        again.

        Args:
            resume: The newest surviving value of the property. None: the topic is read from its beginning. If rows
                exist and no property survives, pass the result of `resume_after`.
            wait_seconds: 0 returns only records that were fetched in the background since the last call.

        Raises:
            KafkaUnavailable: no broker answers. The same call works later.
            TopicUnknown: the topic does not exist. The same call works after it was created.
            KafkaRefused: the broker denies access to the topic.
            PositionUnreadable: `resume` is not a position.
        """
        deadline = time.monotonic() + wait_seconds
        try:
            return self._receive(resume, deadline)
        except BaseException:  # records that were taken and not returned are read again
            self._reading = False
            raise

    def acknowledge(self, batch: ReceivedBatch, refused: Collection[str] = ()) -> None:
        """Do nothing: the position was committed with the rows."""

    def hindrances(self) -> frozenset[str]:
        """Return a sentence on each partition that cannot be read now. All other partitions are read."""
        return unread_parts(self._topic, self._leaderless, self._behind)

    def close(self) -> None:
        """Close the connections."""
        self._reading = False
        self._client.close()

    def _receive(self, resume: str | None, deadline: float) -> ReceivedBatch | None:
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
                # Check also before returning records: the topic may have been recreated in the meantime.
                lost = self._look_again(out_of_range=out_of_range)
            if self._topic_id != topic_id:
                records = []
            if records or lost or self._is_worth_a_commit(now):
                return self._batch(records, lost)
            if now >= deadline:
                return None

    def _begin(self, position: Position | None) -> tuple[str, ...]:
        """Start reading at a position. Return sentences about lost messages."""
        topic = self._client.look()
        self._looked = time.monotonic()
        begun = begin(self._topic, topic.id, self._client.logs(topic.partitions), position)
        is_same = position is not None and position.topic_id == topic.id
        # A partition that cannot be read now keeps its next offset.
        self._next = {**(position.next_offsets if position is not None and is_same else {}), **begun.offsets}
        self._topic_id, self._ends = topic.id, {}
        self._partitions, self._leaderless, self._behind = topic.partitions, topic.leaderless, begun.behind
        self._client.read_from(topic.id, begun.offsets)
        self._reading = True
        return begun.lost

    def _look_again(self, *, out_of_range: bool) -> tuple[str, ...]:
        """Check for a recreated topic and for new partitions. Return sentences about lost messages."""
        topic = self._client.look()
        self._looked = time.monotonic()
        if topic.id != self._topic_id:
            return self._begin(Position(self._topic_id, self._handed))
        self._leaderless = topic.leaderless
        if not out_of_range and topic.partitions <= self._partitions and not self._have_caught_up(topic.partitions):
            return ()
        lost = self._begin(Position(self._topic_id, self._next))
        if out_of_range and not lost:
            raise KafkaUnavailable(f"{self.name}: the broker refuses an offset that is within its log")
        self._handed = {**self._next, **self._handed}
        return lost

    def _have_caught_up(self, partitions: Collection[int]) -> bool:
        """Return True if a log that ended before its position now reaches the position."""
        behind = [partition for partition in self._behind if partition in partitions]
        return any(log.end >= self._next[p] for p, log in self._client.logs(behind).items()) if behind else False

    def _take(self, until: float) -> tuple[list[ReceivedMessage], bool]:
        """Return the next records, and True if an offset is no longer in its log."""
        records: list[ReceivedMessage] = []
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
        """Return True if every partition was read to its end. Transaction markers have offsets, but are not records."""
        for partition in self._partitions:
            offset = self._next[partition]
            if offset != self._ends.get(partition) and offset < self._client.log_end(partition):
                return False
        return True

    def _is_worth_a_commit(self, now: float) -> bool:
        moved = any(offset > self._handed[partition] for partition, offset in self._next.items())
        return moved and now - self._committed_empty >= _EMPTY_EVERY

    def _batch(self, records: Sequence[ReceivedMessage], lost: tuple[str, ...]) -> ReceivedBatch:
        if not records and not lost:
            self._committed_empty = time.monotonic()
        self._resume, self._handed = str(Position(self._topic_id, self._next)), dict(self._next)
        return ReceivedBatch(tuple(records), {self.property_name(): self._resume}, lost)


def property_of(topic: str) -> str:
    """Return the name of the snapshot property with the position of a topic."""
    return f"tidemark.kafka.{topic}"


def open_client(options: Mapping[str, str], topic: str) -> "KafkaClient":
    """Open a client of one topic.

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


class TopicBacklog:
    """The unread records of a topic. Used by one thread, with its own connection.

    Args:
        options: Options of librdkafka.
        topic: The topic's name.
    """

    def __init__(self, options: Mapping[str, str], topic: str) -> None:
        self._options, self._topic = options, topic
        self._client: KafkaClient | None = None
        self._times: dict[int, float] = {}
        """The time of the first unread record of each partition, as of the last fetch."""
        self._asked = float("-inf")

    def after(self, position: str | None) -> UncommittedMessages:
        """Return the records after a position: end offset minus position, summed over the partitions that can be read.

        The time of the oldest record may be up to 20 seconds out of date. `uncounted` names the other partitions.

        Args:
            position: The position, as for `KafkaTopic.receive`.

        Raises:
            KafkaUnavailable, TopicUnknown, KafkaRefused, PositionUnreadable: as in `KafkaTopic.receive`.
        """
        self._client = client = self._client or open_client(self._options, self._topic)
        topic = client.look()
        logs = client.logs(topic.partitions)
        begun = begin(self._topic, topic.id, logs, None if position is None else Position.parse(position))
        unread = {partition: offset for partition, offset in begun.offsets.items() if offset < logs[partition].end}
        if unread and time.monotonic() - self._asked >= _TIMES_EVERY:
            self._times, self._asked = client.first_times(topic.id, unread), time.monotonic()
        oldest = min((at for partition, at in self._times.items() if partition in unread), default=None)
        count = sum(logs[partition].end - offset for partition, offset in unread.items())
        return UncommittedMessages(count, oldest, unread_parts(self._topic, topic.leaderless, begun.behind))
