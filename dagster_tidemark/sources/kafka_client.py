"""Client of one Kafka topic, through confluent-kafka: its description, the bounds of its logs, and its records.

Belongs here: every call of that library, and the handling of its errors. Does not belong here: the reaction to a gap or
a new topic (`sources.kafka`).
"""

import contextlib
import time
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NotYet
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, cast

from confluent_kafka import (
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Message,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # documented, but missing in its types
    AdminClient,
    NewTopic,
    OffsetSpec,
)

from dagster_tidemark.errors import TidemarkError
from dagster_tidemark.sources.kafka_errors import KafkaRefused, KafkaUnavailable, TopicUnknown
from dagster_tidemark.sources.kafka_position import OffsetBounds
from dagster_tidemark.sources.received_messages import ReceivedMessage

_SECONDS_TO_ANSWER = 4.0
_EARLIEST, _LATEST = OffsetSpec.earliest(), OffsetSpec.latest()  # type: ignore[no-untyped-call]
_SAFE = str.maketrans("+/", "-_")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
FETCH_SECONDS = 0.1
"""Time that a broker waits for new records before it answers a request. The end of a log that ends with a transaction
marker is known after this time. Ten requests a second are a negligible load."""

_CLIENT = {
    "client.id": "tidemark",
    "log_level": 2,  # faults are reported as errors; the library would repeat them on stderr every second
    "reconnect.backoff.max.ms": 1_000,  # a broker that is back is noticed at once
}
_CONSUMER = _CLIENT | {
    "group.id": "tidemark",  # required by the library; no consumer joins it, and no offset is committed
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "max.poll.interval.ms": 86_400_000,  # a commit may take up to a day
    "isolation.level": "read_committed",
    "auto.offset.reset": "error",  # report a missing offset, never replace it silently
    "allow.auto.create.topics": False,
    "enable.partition.eof": True,
    "check.crcs": True,
    "fetch.wait.max.ms": int(1000 * FETCH_SECONDS),
    "fetch.error.backoff.ms": 100,
    "queued.min.messages": 10_000,
    "queued.max.messages.kbytes": 16_384,  # size of the read-ahead; uses at most twice this memory
}


_ONE_RECORD = {"queued.min.messages": 1, "queued.max.messages.kbytes": 256, "fetch.message.max.bytes": 4_096}
_SECONDS_TO_FETCH = 2.0
_UNKNOWN = {
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError.UNKNOWN_TOPIC_ID,
    KafkaError._UNKNOWN_TOPIC,
    KafkaError._UNKNOWN_PARTITION,
}
_NOT_ALLOWED = {KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED}
_NOT_LET_IN = {KafkaError._AUTHENTICATION, KafkaError.SASL_AUTHENTICATION_FAILED, KafkaError._SSL}
"""Codes of failed logins. The library retries, and is refused again."""
_NO_CONCERN = {
    KafkaError.GROUP_AUTHORIZATION_FAILED,  # the library requires a group, which no consumer joins
    # The library retries. The regular check of the topic fails if no broker answers.
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._TRANSPORT,
    KafkaError._RESOLVE,
    KafkaError._TIMED_OUT,
}
_MOMENTARY = {
    # A partition was just created or moved, and its new leader is not ready yet.
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError.OFFSET_NOT_AVAILABLE,
}
"""Codes of requests about a partition that succeed when repeated at once."""
_NEW_PARTITIONS = 3
_SECONDS_TO_CREATE = 20


@dataclass(frozen=True)
class Topic:
    """A topic as its broker describes it.

    Args:
        id: The topic's id.
        partitions: The readable partitions, which have a leader.
        leaderless: The partitions without a leader.
    """

    id: str
    partitions: frozenset[int]
    leaderless: frozenset[int] = frozenset()


@dataclass(frozen=True)
class Polled:
    """Result of a poll, in the order of each log.

    Args:
        records: Committed records of any partition.
        ends: The current end of each partition's log. All earlier offsets were delivered, or have no record.
        out_of_range: True if an offset to read from is not in its log. The partition is then not read further.
    """

    records: tuple[ReceivedMessage, ...]
    ends: Mapping[int, int]
    out_of_range: bool

    @property
    def is_empty(self) -> bool:
        """True if the poll returned nothing."""
        return not (self.records or self.ends or self.out_of_range)


class KafkaClient:
    """A topic on a cluster.

    Args:
        options: Options of librdkafka: `bootstrap.servers`, and the cluster's security settings.
        topic: The topic's name.
    """

    def __init__(self, options: Mapping[str, str], topic: str) -> None:
        self._options = dict(options)
        self._topic = topic
        self._servers = self._options.get("bootstrap.servers", "")
        self._consumer: Consumer | None = None
        self._topic_id = ""
        self._said: KafkaError | None = None  # the library's last report on its connections
        self._admin: AdminClient = self._made(AdminClient, _CLIENT)

    def look(self) -> Topic:
        """Return the current description of the topic.

        Raises:
            KafkaUnavailable, TopicUnknown, KafkaRefused: the description is not available.
        """
        asked = self._admin.describe_topics(TopicCollection([self._topic]), request_timeout=_SECONDS_TO_ANSWER)
        try:
            found = self._answer(asked[self._topic])
        except KafkaException as error:
            raise self._named(error) from None
        led = frozenset(p.id for p in found.partitions if p.leader is not None and p.leader.id >= 0)
        others = frozenset(p.id for p in found.partitions) - led
        # Kafka writes ids in URL-safe base64; the library returns the standard alphabet.
        return Topic(str(found.topic_id).translate(_SAFE), led, others)

    def logs(self, partitions: Collection[int]) -> dict[int, OffsetBounds]:
        """Return the start and end offsets of partitions, open transactions included.

        Raises:
            KafkaUnavailable, TopicUnknown, KafkaRefused: the offsets are not available.
        """
        starts, ends = (self._offsets(partitions, spec) for spec in (_EARLIEST, _LATEST))
        return {partition: OffsetBounds(starts[partition], ends[partition]) for partition in partitions}

    def stable_ends(self, partitions: Collection[int]) -> dict[int, int]:
        """Return the last stable offsets of partitions: the ends of their logs for a `read_committed` consumer.

        Raises:
            KafkaUnavailable, TopicUnknown, KafkaRefused: the offsets are not available.
        """
        return self._offsets(partitions, _LATEST, isolation_level=IsolationLevel.READ_COMMITTED)

    def read_from(self, topic_id: str, offsets: Mapping[int, int]) -> None:
        """Start reading at these offsets; `poll` then returns only the records from there on."""
        self._topic_id = topic_id
        # A consumer keeps using cached metadata of a topic, even after the topic was recreated.
        self.close()
        self._consumer = self._made(Consumer, _CONSUMER)
        self._consumer.assign([TopicPartition(self._topic, *each) for each in sorted(offsets.items())])

    def poll(self, most: int, wait_seconds: float) -> Polled:
        """Return up to `most` messages, waiting up to `wait_seconds` for the first.

        Raises:
            KafkaUnavailable, TopicUnknown, KafkaRefused: no messages arrive, and waiting does not help.
        """
        assert self._consumer is not None, "call read_from first"
        first = self._consumer.poll(wait_seconds)
        if first is None:
            return Polled((), {}, out_of_range=False)
        records: list[ReceivedMessage] = []
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
            elif error.code() not in _NO_CONCERN:
                raise _error_of(error, self._servers, self._topic)
        return Polled(tuple(records), ends, out_of_range)

    def first_times(self, topic_id: str, offsets: Mapping[int, int]) -> dict[int, float]:
        """Return the time of the first record at or after each offset (Unix seconds), by partition.

        A partition is left out if its record does not arrive within two seconds, or belongs to an open transaction.

        Raises:
            KafkaUnavailable, TopicUnknown, KafkaRefused: as in `poll`.
        """
        self._topic_id = topic_id
        self.close()
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
        self.close()
        return found

    def log_end(self, partition: int) -> int:
        """Return the end of a partition's log as of its last received records, with open transactions.

        The result is -1001 if no records were received.
        """
        assert self._consumer is not None, "call read_from first"
        answer = self._consumer.get_watermark_offsets(TopicPartition(self._topic, partition), cached=True)
        return answer[1] if answer else -1001

    def _record(self, message: Message) -> ReceivedMessage:
        partition, offset = _place(message)
        # A producer may claim any time. A future time would stay the newest for long, and is therefore set to now.
        milliseconds = min(max(message.timestamp()[1], 0), int(time.time() * 1000))
        value = message.value()
        # The declared type also allows the forms that a producer takes.
        headers = cast("list[tuple[str, bytes | None]]", message.headers() or [])
        return ReceivedMessage(
            body=value or b"",
            message_id=f"{self._topic_id}/{partition}/{offset:020d}",
            sent_at=_EPOCH + timedelta(milliseconds=milliseconds),
            source=f"kafka:{self._topic}/{partition}",
            topic_id=self._topic_id,
            partition=partition,
            offset=offset,
            is_null=value is None,
            headers=tuple(headers),
        )

    def close(self) -> None:
        """Close the connections of the consumer."""
        if self._consumer is not None:
            self._consumer.close()
            self._consumer = None

    def _made(self, client: Callable[[dict[str, Any]], Any], conf: Mapping[str, object]) -> Any:
        try:
            return client({**self._options, **conf, "error_cb": self._say})
        except KafkaException as error:  # an option or a file that the library cannot use
            raise KafkaRefused(f"Kafka at {self._servers}: {_text(error.args[0])}") from None

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
                if error.args[0].code() not in _MOMENTARY or time.monotonic() > deadline:
                    raise self._named(error) from None
            time.sleep(0.05)
        return {}

    def _answer(self, future: "Future[Any]") -> Any:
        """Return the result of a request; raise KafkaException if there is none."""
        # A client with a wrong password retries forever. Fail as soon as the library reports it.
        begun, self._said = time.monotonic(), None
        while time.monotonic() - begun < 2 * _SECONDS_TO_ANSWER:
            self._admin.poll(0)
            if self._said is not None and self._said.code() in _NOT_LET_IN:
                raise KafkaException(self._said)
            with contextlib.suppress(NotYet):
                return future.result(timeout=0.2)
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT))

    def _named(self, error: KafkaException) -> TidemarkError:
        self._admin.poll(0)
        told: KafkaError = error.args[0]
        if self._said is not None and told.code() in _NO_CONCERN:
            told = self._said  # the reason why no broker answers
        return _error_of(told, self._servers, self._topic)


def _place(message: Message) -> tuple[int, int]:
    partition, offset = message.partition(), message.offset()
    assert partition is not None and offset is not None, "a message without partition or offset"
    return partition, offset


def _error_of(error: KafkaError, servers: str, topic: str) -> TidemarkError:
    """Return Tidemark's error for an error of the library, with a one-line message."""
    code = error.code()
    if code in _UNKNOWN:
        return TopicUnknown(f"Kafka at {servers} has no topic {topic}; create it, or correct its name")
    if code in _NOT_ALLOWED:
        return KafkaRefused(f"Kafka at {servers} does not allow the user to read the topic {topic}: {_text(error)}")
    if code in _NOT_LET_IN:
        return KafkaRefused(f"Kafka at {servers} refused the login: {_text(error)}")
    return KafkaUnavailable(f"Kafka at {servers} does not answer ({_text(error)}); is it running?")


def _text(error: KafkaError) -> str:
    """Return the library's message on one line."""
    return " ".join(error.str().split())


def create_topic(options: Mapping[str, str], topic: str) -> None:
    """Create a topic on a laptop's own broker unless it exists. On other clusters, operators create topics.

    Raises:
        KafkaUnavailable: the broker did not create the topic.
    """
    admin = AdminClient({**options, "log_level": 2})
    made = admin.create_topics([NewTopic(topic, _NEW_PARTITIONS, 1)], request_timeout=_SECONDS_TO_CREATE)[topic]
    try:
        made.result(2 * _SECONDS_TO_CREATE)
    except KafkaException as error:
        if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
            raise KafkaUnavailable(f"the topic {topic} could not be created: {error.args[0].str()}") from error
