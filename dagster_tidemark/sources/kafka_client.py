"""One topic of a broker, through confluent-kafka: what it is, where its logs begin and end, what is in them.

Belongs here: every call of that library, and which of its errors mean what. Does not belong here: what is done about a
gap or a new topic (`sources.kafka`).
"""

import contextlib
import time
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NotYet
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from confluent_kafka import (
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Message,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]  # of its documented face

from dagster_tidemark.errors import TidemarkError
from dagster_tidemark.sources.kafka_errors import KafkaRefused
from dagster_tidemark.sources.kafka_faults import MOMENTARY, NO_CONCERN, NOT_LET_IN, named, text
from dagster_tidemark.sources.kafka_position import Log
from dagster_tidemark.sources.received_messages import Record

_SECONDS_TO_ANSWER = 4.0
_EARLIEST, _LATEST = OffsetSpec.earliest(), OffsetSpec.latest()  # type: ignore[no-untyped-call]
_SAFE = str.maketrans("+/", "-_")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
FETCH_SECONDS = 0.1
"""How long a broker holds a request for records that are not there yet. What ends at the mark of a transaction is known
to end there after so long; ten requests a second are a burden to nobody."""

_CLIENT = {
    "client.id": "tidemark",
    "log_level": 2,  # what goes wrong is told in errors; the library repeats it on stderr every second
    "reconnect.backoff.max.ms": 1_000,  # a broker that is back is noticed at once
}
_CONSUMER = _CLIENT | {
    "group.id": "tidemark",  # the library wants one; nobody joins it, and nothing is committed to it
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "max.poll.interval.ms": 86_400_000,  # a commit may take as long as it likes
    "isolation.level": "read_committed",
    "auto.offset.reset": "error",  # an offset that is gone is said, never replaced in silence
    "allow.auto.create.topics": False,
    "enable.partition.eof": True,
    "check.crcs": True,
    "fetch.wait.max.ms": int(1000 * FETCH_SECONDS),
    "fetch.error.backoff.ms": 100,
    "queued.min.messages": 10_000,
    "queued.max.messages.kbytes": 16_384,  # what is read ahead; twice that much is held at most
}


_ONE_RECORD = {"queued.min.messages": 1, "queued.max.messages.kbytes": 256, "fetch.message.max.bytes": 4_096}
_SECONDS_TO_FETCH = 2.0


@dataclass(frozen=True)
class Topic:
    """A topic as its broker describes it.

    Args:
        id: Of the topic.
        partitions: Those that can be read now.
        leaderless: The others.
    """

    id: str
    partitions: frozenset[int]
    leaderless: frozenset[int] = frozenset()


@dataclass(frozen=True)
class Polled:
    """What came next of the logs, in the order of each.

    Args:
        records: Those nobody has aborted, of any partition.
        ends: By partition the offset at which its log ends for now: everything before was in a message, or never is.
        out_of_range: Some offset to read from is not in its log; that partition is not read further.
    """

    records: tuple[Record, ...]
    ends: Mapping[int, int]
    out_of_range: bool

    @property
    def is_empty(self) -> bool:
        """Whether nothing came."""
        return not (self.records or self.ends or self.out_of_range)


class KafkaClient:
    """A topic on a cluster.

    Args:
        options: Of librdkafka: `bootstrap.servers`, and what the security of the cluster needs.
        topic: Its name.
    """

    def __init__(self, options: Mapping[str, str], topic: str) -> None:
        self._options = dict(options)
        self._topic = topic
        self._servers = self._options.get("bootstrap.servers", "")
        self._consumer: Consumer | None = None
        self._topic_id = ""
        self._said: KafkaError | None = None  # what the library last had to say of its connections
        self._admin: AdminClient = self._made(AdminClient, _CLIENT)

    def look(self) -> Topic:
        """The topic as it is.

        Raises:
            KafkaUnavailable, TopicUnknown, KafkaRefused: it is not to be had.
        """
        asked = self._admin.describe_topics(TopicCollection([self._topic]), request_timeout=_SECONDS_TO_ANSWER)
        try:
            found = self._answer(asked[self._topic])
        except KafkaException as error:
            raise self._named(error) from None
        led = frozenset(p.id for p in found.partitions if p.leader is not None and p.leader.id >= 0)
        others = frozenset(p.id for p in found.partitions) - led
        # As Kafka writes it: the library has it in the letters of base64 that mean something to paths.
        return Topic(str(found.topic_id).translate(_SAFE), led, others)

    def logs(self, partitions: Collection[int]) -> dict[int, Log]:
        """Where the logs of these partitions begin, and where they end, open transactions included.

        Raises:
            KafkaUnavailable, TopicUnknown, KafkaRefused: it is not to be had.
        """
        starts, ends = (self._offsets(partitions, spec) for spec in (_EARLIEST, _LATEST))
        return {partition: Log(starts[partition], ends[partition]) for partition in partitions}

    def stable_ends(self, partitions: Collection[int]) -> dict[int, int]:
        """Where the logs of these partitions end for who reads only what is committed.

        Raises:
            KafkaUnavailable, TopicUnknown, KafkaRefused: it is not to be had.
        """
        return self._offsets(partitions, _LATEST, isolation_level=IsolationLevel.READ_COMMITTED)

    def read_from(self, topic_id: str, offsets: Mapping[int, int]) -> None:
        """From now on `poll` brings what follows these offsets, and nothing else."""
        self._topic_id = topic_id
        # A consumer that has seen a topic goes on with what it knew of it, also when it is another one by now.
        self._close_consumer()
        self._consumer = self._made(Consumer, _CONSUMER)
        self._consumer.assign([TopicPartition(self._topic, *each) for each in sorted(offsets.items())])

    def poll(self, most: int, wait_seconds: float) -> Polled:
        """What there is, at most so much; waits for the first at most so long.

        Raises:
            KafkaUnavailable, TopicUnknown, KafkaRefused: nothing comes, and waiting does not change that.
        """
        assert self._consumer is not None, "read_from comes first"
        first = self._consumer.poll(wait_seconds)
        if first is None:
            return Polled((), {}, out_of_range=False)
        records: list[Record] = []
        ends: dict[int, int] = {}
        out_of_range = False
        for message in (first, *(self._consumer.consume(most - 1, 0) if most > 1 else ())):
            error = message.error()
            if error is None:
                records.append(self._record(message))
            elif error.code() == KafkaError._PARTITION_EOF:
                partition, offset = _place(message)
                ends[partition] = offset
            elif error.code() == KafkaError._AUTO_OFFSET_RESET:
                out_of_range = True
            elif error.code() not in NO_CONCERN:
                raise named(error, self._servers, self._topic)
        return Polled(tuple(records), ends, out_of_range)

    def first_times(self, topic_id: str, offsets: Mapping[int, int]) -> dict[int, float]:
        """Return the time of the first record from each offset on (Unix seconds), by partition.

        A partition is left out if its record does not come within two seconds, or belongs to an open transaction.

        Raises:
            KafkaUnavailable, TopicUnknown, KafkaRefused: as of `poll`.
        """
        self._topic_id = topic_id
        self._close_consumer()
        consumer = self._consumer = self._made(Consumer, _CONSUMER | _ONE_RECORD)
        consumer.assign([TopicPartition(self._topic, *each) for each in sorted(offsets.items())])
        found: dict[int, float] = {}
        missing, deadline = set(offsets), time.monotonic() + _SECONDS_TO_FETCH
        while missing and (left := deadline - time.monotonic()) > 0:
            polled = self.poll(1, left)
            for record in polled.records:
                assert record.partition is not None
                found.setdefault(record.partition, record.sent_at.timestamp())
                missing.discard(record.partition)
                consumer.pause([TopicPartition(self._topic, record.partition)])
            missing -= set(polled.ends)
            if polled.out_of_range:
                break
        self._close_consumer()
        return found

    def log_end(self, partition: int) -> int:
        """Where a partition's log ended when records of it last came, open transactions included; -1001 before."""
        assert self._consumer is not None, "read_from comes first"
        answer = self._consumer.get_watermark_offsets(TopicPartition(self._topic, partition), cached=True)
        return answer[1] if answer else -1001

    def close(self) -> None:
        """Let go of the connections."""
        self._close_consumer()

    def _record(self, message: Message) -> Record:
        partition, offset = _place(message)
        # A producer may claim any time. The broker had the record by now, and a later time would win for ever.
        milliseconds = min(max(message.timestamp()[1], 0), int(time.time() * 1000))
        return Record(
            body=message.value() or b"",
            message_id=f"{self._topic_id}/{partition}/{offset:020d}",
            sent_at=_EPOCH + timedelta(milliseconds=milliseconds),
            source=f"kafka:{self._topic}/{partition}",
            topic_id=self._topic_id,
            partition=partition,
            offset=offset,
        )

    def _close_consumer(self) -> None:
        if self._consumer is not None:
            self._consumer.close()
            self._consumer = None

    def _made(self, client: Callable[[dict[str, Any]], Any], conf: Mapping[str, object]) -> Any:
        try:
            return client({**self._options, **conf, "error_cb": self._say})
        except KafkaException as error:  # a word or a file that the library cannot use
            raise KafkaRefused(f"Kafka at {self._servers}: {text(error.args[0])}") from None

    def _say(self, error: KafkaError) -> None:
        if error.code() != KafkaError._ALL_BROKERS_DOWN:
            self._said = error

    def _offsets(self, partitions: Collection[int], spec: OffsetSpec, **options: Any) -> dict[int, int]:
        wanted = {TopicPartition(self._topic, partition): spec for partition in partitions}
        deadline = time.monotonic() + _SECONDS_TO_ANSWER
        while wanted:
            asked = self._admin.list_offsets(wanted, request_timeout=_SECONDS_TO_ANSWER, **options)
            try:
                return {each.partition: int(self._answer(future).offset) for each, future in asked.items()}
            except KafkaException as error:
                if error.args[0].code() not in MOMENTARY or time.monotonic() > deadline:
                    raise self._named(error) from None
            time.sleep(0.05)
        return {}

    def _answer(self, future: "Future[Any]") -> Any:
        """What was asked for; KafkaException where it is not to be had."""
        # A client that is told a wrong password goes on trying; that nobody has to wait for.
        begun, self._said = time.monotonic(), None
        while time.monotonic() - begun < 2 * _SECONDS_TO_ANSWER:
            self._admin.poll(0)
            if self._said is not None and self._said.code() in NOT_LET_IN:
                raise KafkaException(self._said)
            with contextlib.suppress(NotYet):
                return future.result(timeout=0.2)
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT))

    def _named(self, error: KafkaException) -> TidemarkError:
        self._admin.poll(0)
        told: KafkaError = error.args[0]
        if self._said is not None and told.code() in NO_CONCERN:
            told = self._said  # why no broker answers
        return named(told, self._servers, self._topic)


def _place(message: Message) -> tuple[int, int]:
    partition, offset = message.partition(), message.offset()
    assert partition is not None and offset is not None, "a message that came from nowhere"
    return partition, offset
