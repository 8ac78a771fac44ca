"""A topic as an inlet, on a real broker, whatever happens to the topic."""

import contextlib
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from dagster_tidemark.errors import Terminal, Transient
from dagster_tidemark.sources import kafka as kafka_module
from dagster_tidemark.sources.kafka import KafkaTopic, TopicBacklog
from dagster_tidemark.sources.kafka_errors import (
    KafkaMissing,
    KafkaRefused,
    KafkaUnavailable,
    PositionUnreadable,
    TopicUnknown,
)
from dagster_tidemark.sources.kafka_position import Position, position_after_rows
from dagster_tidemark.sources.kafka_range import range_behind
from dagster_tidemark.sources.received_messages import Inlet, ReceivedBatch, ReceivedMessage, UncommittedMessages
from tests.conftest import free_port
from tests.tidemark.kafka import PASSWORD, READER, STRANGER, Broker, eventually


class Table:
    """What a shift does with an inlet: commits each batch, and resumes from what was committed."""

    def __init__(self, inlet: KafkaTopic, resume: str | None = None) -> None:
        self.inlet, self.resume = inlet, resume
        self.batches: list[ReceivedBatch] = []

    def take(self, wait_seconds: float = 5) -> ReceivedBatch | None:
        batch = self.inlet.receive(self.resume, wait_seconds)
        if batch is not None:
            self.batches.append(batch)
            self.resume = batch.reached[self.inlet.property_name()]
            self.inlet.acknowledge(batch)
        return batch

    def fill(self, *, quiet: float = 0.7) -> list[str]:
        """Take until nothing comes for a while. Returns the bodies that came."""
        before = len(self.records)
        while self.take(quiet) is not None:
            pass
        return [record.body.decode() for record in self.records[before:]]

    @property
    def records(self) -> list[ReceivedMessage]:
        return [record for batch in self.batches for record in batch.records]

    @property
    def lost(self) -> list[str]:
        return [sentence for batch in self.batches for sentence in batch.lost]

    @property
    def next_offsets(self) -> dict[int, int]:
        assert self.resume is not None
        return dict(Position.parse(self.resume).next_offsets)


@pytest.fixture
def opened(kafka: Broker, request: pytest.FixtureRequest) -> Callable[..., Table]:
    """A reader of a topic, as another shift would have it: nothing is remembered but what it resumes from."""

    def open_table(topic: str, resume: str | None = None, **options: Any) -> Table:
        inlet = KafkaTopic(options.pop("options", kafka.options), topic, **options)
        request.addfinalizer(inlet.close)
        return Table(inlet, resume)

    return open_table


Opened = Callable[..., Table]


def test_first_start_reads_a_kafka_topic_from_its_beginning(kafka: Broker, opened: Opened) -> None:
    topic = kafka.topic(partitions=2)
    begun = datetime.now(UTC).replace(microsecond=0)
    kafka.send(topic, "a", "b")
    kafka.send(topic, "c", partition=1)
    table = opened(topic)
    inlet: Inlet = table.inlet

    assert sorted(table.fill()) == ["a", "b", "c"]
    b = next(record for record in table.records if record.body == b"b")
    assert (b.topic_id, b.partition, b.offset) == (Position.parse(table.resume or "").topic_id, 0, 1)
    assert b.message_id == f"{b.topic_id}/0/{1:020d}"
    assert (inlet.name, b.source) == (f"kafka:{topic}", f"kafka:{topic}/0")
    assert begun <= b.sent_at < begun + timedelta(seconds=20) and b.sent_at.microsecond % 1000 == 0
    assert table.next_offsets == {0: 2, 1: 1}
    assert table.lost == []


def test_new_kafka_reader_continues_at_the_committed_position(kafka: Broker, opened: Opened) -> None:
    topic = kafka.topic(partitions=2)
    kafka.send(topic, "a")
    first = opened(topic)
    first.fill()
    kafka.send(topic, "b")
    kafka.send(topic, "c", partition=1)
    assert sorted(opened(topic, first.resume).fill()) == ["b", "c"]


def test_uncommitted_kafka_records_are_read_again(kafka: Broker, opened: Opened) -> None:
    topic = kafka.topic()
    kafka.send(topic, "a")
    inlet = opened(topic).inlet
    first, again = inlet.receive(None, 5), inlet.receive(None, 5)
    assert first is not None and again is not None
    assert first.records == again.records

    kafka.send(topic, "b")
    ahead = opened(topic)
    ahead.fill()
    assert inlet.receive(ahead.resume, 0.5) is None, "somebody else has committed what comes next"


def test_kafka_reader_without_a_saved_position_continues_after_the_rows(kafka: Broker, opened: Opened) -> None:
    topic = kafka.topic(partitions=2)
    kafka.send(topic, "a", "b")
    kafka.send(topic, "c", "d", partition=1)
    kafka.forget(topic, 1, partition=1)  # no row of it is there, so nobody can say that it was not read
    topic_id = Position.parse(_filled(opened(topic))).topic_id
    table = opened(topic, position_after_rows(topic_id, {0: 0}))
    assert sorted(table.fill()) == ["b", "d"]
    assert table.lost == []


def test_single_kafka_message_is_received_at_once(kafka: Broker, opened: Opened, note: Callable[[str], None]) -> None:
    topic = kafka.topic(partitions=3)
    table = opened(topic)
    assert table.take(1) is None
    took = []
    for number in range(20):
        kafka.send(topic, str(number), partition=number % 3)
        begun = time.monotonic()
        assert table.take(5) is not None
        took.append(time.monotonic() - begun)
    note(f"a Kafka message is received after {1000 * sorted(took)[10]:.0f} ms in the median")
    assert sorted(took)[10] < 0.1
    assert len(table.batches) == 20


def test_kafka_reader_waits_no_longer_than_requested(kafka: Broker, opened: Opened) -> None:
    table = opened(kafka.topic())
    table.take(1)
    for asked in (0.0, 0.5):
        begun = time.monotonic()
        assert table.take(asked) is None
        assert time.monotonic() - begun < asked + 0.2


def test_kafka_batches_are_limited_by_records_and_bytes(kafka: Broker, opened: Opened) -> None:
    topic = kafka.topic()
    kafka.send(topic, *(str(number) for number in range(25)))
    by_records = opened(topic, most_records=10)
    by_records.fill()
    assert [len(batch.records) for batch in by_records.batches] == [10, 10, 5]

    big = kafka.topic()
    kafka.send(big, *(bytes(900_000) for _ in range(12)))
    by_bytes = opened(big, most_bytes=2_000_000)
    by_bytes.fill()
    assert len(by_bytes.records) == 12
    assert len(by_bytes.batches) > 1
    assert [record.offset for record in by_bytes.records] == list(range(12))


def test_invalid_empty_and_null_kafka_records_are_read_like_others(kafka: Broker, opened: Opened) -> None:
    topic = kafka.topic(message_timestamp_before_max_ms=str(2**63 - 1))
    poison = b"\xff\xfe\x00{]"
    kafka.send(topic, b"a", poison, b"", b"z")
    kafka.send(topic, b"old", timestamp=1)
    producer = kafka.producer()
    producer.produce(topic, None, key=b"k", partition=0)  # what a compacted topic deletes a key with
    producer.flush(30)
    table = opened(topic)
    while len(table.records) < 6:
        assert table.take() is not None
    assert [record.body for record in table.records] == [b"a", poison, b"", b"z", b"old", b""]
    assert table.records[4].sent_at == datetime(1970, 1, 1, 0, 0, 0, 1000, tzinfo=UTC)


def test_two_kafka_readers_each_receive_every_record(kafka: Broker, opened: Opened) -> None:
    topic = kafka.topic(partitions=2)
    tables = opened(topic), opened(topic)
    for number in range(4):
        kafka.send(topic, str(number), partition=number % 2)
        for table in tables:
            assert table.take() is not None
    assert [sorted(record.body for record in table.records) for table in tables] == [[b"0", b"1", b"2", b"3"]] * 2


def test_killed_kafka_broker_loses_and_doubles_no_record(kafka: Broker, opened: Opened) -> None:
    topic = kafka.topic(partitions=2)
    kafka.send(topic, *(str(number) for number in range(500)))
    table = opened(topic, most_records=100)
    table.take()
    kafka.kill()
    begun = time.monotonic()
    with pytest.raises(KafkaUnavailable) as caught:
        for _ in range(10):  # what was fetched before is still given where it is certain
            table.take(20)
    assert time.monotonic() - begun < 10
    assert isinstance(caught.value, Transient) and "\n" not in str(caught.value) and kafka.servers in str(caught.value)
    kafka.start()
    kafka.send(topic, *(str(number) for number in range(500, 600)), partition=1)

    def everything_is_there() -> bool:
        table.fill()
        return len(table.records) >= 600

    eventually(everything_is_there)
    assert sorted(int(record.body) for record in table.records) == list(range(600))


def test_kafka_offsets_deleted_unread_by_retention_are_reported_as_lost(kafka: Broker, opened: Opened) -> None:
    topic = kafka.topic(partitions=2)
    kafka.send(topic, *(str(number) for number in range(5)))
    kafka.send(topic, "x", partition=1)
    first = opened(topic)
    first.fill()
    kafka.send(topic, *(str(number) for number in range(5, 20)))
    kafka.forget(topic, 15)

    table = opened(topic, first.resume)
    assert table.fill() == ["15", "16", "17", "18", "19"]
    (sentence,) = table.lost
    assert f"kafka:{topic}/0" in sentence and "10 messages" in sentence and "offsets 5 to 14" in sentence
    assert opened(topic, table.resume).fill() == []


def test_offsets_deleted_during_a_kafka_read_are_reported_as_lost(kafka: Broker, opened: Opened) -> None:
    topic = kafka.topic()
    kafka.send(topic, "0")
    table = opened(topic)
    table.fill()
    table.inlet._client.close()  # it cannot fetch meanwhile
    kafka.send(topic, *(str(number) for number in range(1, 10)))
    kafka.forget(topic, 8)
    table.inlet._client.read_from(table.records[0].topic_id or "", {0: 1})
    assert table.fill() == ["8", "9"]
    assert ["offsets 1 to 7" in sentence for sentence in table.lost] == [True]


def test_first_start_does_not_report_earlier_deletions_as_lost(kafka: Broker, opened: Opened) -> None:
    topic = kafka.topic()
    kafka.send(topic, "a", "b", "c")
    kafka.forget(topic, 2)
    table = opened(topic)
    assert (table.fill(), table.lost) == (["c"], [])


def test_offsets_removed_by_compaction_are_not_reported_as_lost(kafka: Broker, opened: Opened) -> None:
    topic = kafka.topic(cleanup_policy="compact", segment_ms="100", min_cleanable_dirty_ratio="0.01")
    kafka.send(topic, "first", key=b"other")
    half = opened(topic)
    half.fill()
    for number in range(20):
        kafka.send(topic, str(number), key=b"same")
    time.sleep(0.3)
    kafka.send(topic, "last", key=b"last")  # closes the segment, so that it can be cleaned

    def cleaned() -> bool:
        return len(opened(topic).fill(quiet=0.3)) < 22

    eventually(cleaned)
    table = opened(topic, half.resume)
    found = table.fill()
    assert found[-1] == "last" and "19" in found and len(found) < 21
    assert table.lost == []
    assert table.next_offsets == {0: 22}


def test_new_kafka_partitions_are_read_from_their_beginning_within_seconds(kafka: Broker, opened: Opened) -> None:
    topic = kafka.topic()
    kafka.send(topic, "a")
    table = opened(topic)
    table.fill()
    kafka.grow(topic, 3)
    kafka.send(topic, "b", partition=2)
    begun = time.monotonic()
    assert table.take(20) is not None
    assert time.monotonic() - begun < 5
    kafka.send(topic, "c", partition=0)
    table.take(5)
    assert [(record.body, record.partition) for record in table.records] == [(b"a", 0), (b"b", 2), (b"c", 0)]
    assert table.next_offsets == {0: 2, 1: 0, 2: 1}
    assert table.lost == []

    kafka.grow(topic, 4)
    kafka.send(topic, "d", partition=3)
    assert opened(topic, table.resume).fill() == ["d"], "of a reader that was not there"


@pytest.mark.parametrize("new_reader", [True, False], ids=["a new reader", "the same reader"])
def test_recreated_topic_is_reported_and_not_mixed_with_the_old(
    kafka: Broker, opened: Opened, new_reader: bool
) -> None:
    topic = kafka.topic(partitions=2)
    kafka.send(topic, "a", "b", "c")
    table = opened(topic)
    table.fill()
    old = table.records[0].topic_id
    kafka.recreate(topic)
    kafka.send(topic, "d", "e", "f", "g")  # more than were read of the old one
    if new_reader:
        table.inlet.close()
        table.inlet = opened(topic).inlet

    def the_new_one_is_read() -> bool:
        with contextlib.suppress(TopicUnknown):  # for a moment there is none
            table.fill()
        return len(table.records) >= 7

    eventually(the_new_one_is_read)
    assert [record.body for record in table.records[3:]] == [b"d", b"e", b"f", b"g"]
    assert [(record.topic_id == old, record.offset) for record in table.records] == [
        *((True, offset) for offset in range(3)),
        *((False, offset) for offset in range(4)),
    ]
    (sentence,) = table.lost
    assert "created again" in sentence and str(old) in sentence and "3 of 0" in sentence
    assert table.next_offsets == {0: 4}


def test_records_of_an_aborted_transaction_are_not_read(kafka: Broker, opened: Opened) -> None:
    topic = kafka.topic()
    kafka.commit(topic, "a", "b")
    kafka.abort(topic, "x", "y")
    kafka.send(topic, "c")
    table = opened(topic)
    assert table.fill() == ["a", "b", "c"]
    assert table.next_offsets == {0: 7}
    assert opened(topic, table.resume).fill() == []


def test_open_transaction_delays_later_records_without_blocking_the_reader(kafka: Broker, opened: Opened) -> None:
    topic = kafka.topic()
    kafka.send(topic, "a")
    with kafka.transaction(topic, "b", "c") as producer:
        kafka.send(topic, "d")
        table = opened(topic)
        begun = time.monotonic()
        assert table.fill() == ["a"]
        assert opened(topic, table.resume).fill() == []
        assert time.monotonic() - begun < 5
        assert table.next_offsets == {0: 1}
        producer.commit_transaction(30)
    assert table.fill() == ["b", "c", "d"]
    assert len(table.batches) == 2


def test_idle_transactional_topic_gives_no_batches(kafka: Broker, opened: Opened) -> None:
    topic = kafka.topic()
    table = opened(topic)
    for body in "abc":
        kafka.commit(topic, body)
        assert table.take() is not None
    assert table.next_offsets == {0: 6}, "the mark of the last transaction is behind us, too"
    assert table.fill(quiet=3) == []
    assert len(table.batches) == 3
    assert opened(topic, table.resume).take(1) is None
    assert opened(kafka.topic()).take(1) is None, "nor does an empty one"


def test_kafka_range_without_records_is_committed_once(kafka: Broker, opened: Opened) -> None:
    topic = kafka.topic()
    kafka.send(topic, "a")
    table = opened(topic)
    table.fill()
    kafka.abort(topic, *"xyz")

    assert table.take(5) == ReceivedBatch((), {table.inlet.property_name(): table.resume})
    assert table.next_offsets == {0: 5}
    kafka.abort(topic, *"xyz")
    assert table.take(1) is None, "many of them are not a commit each"
    assert table.next_offsets == {0: 5}
    kafka.send(topic, "b")
    assert table.take() is not None
    assert table.next_offsets == {0: 10}

    only_aborted = kafka.topic()
    kafka.abort(only_aborted, *"xyz")
    first = opened(only_aborted)
    first.fill()
    assert (len(first.batches), first.next_offsets) == (1, {0: 4})
    again = opened(only_aborted, first.resume)
    assert again.take(1) is None


def test_next_kafka_range_without_records_is_committed_a_minute_later(
    kafka: Broker, opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = kafka.topic()
    table = opened(topic)
    kafka.abort(topic, "x")
    table.fill()
    kafka.abort(topic, "y")
    assert table.take(0.5) is None
    monkeypatch.setattr(kafka_module, "_EMPTY_EVERY", 0.0)
    assert table.take(0.5) is not None
    assert table.next_offsets == {0: 4}
    assert table.take(0.5) is None


def test_kafka_partition_shorter_than_its_position_is_reported_and_others_are_read(
    kafka: Broker, opened: Opened
) -> None:
    topic = kafka.topic(partitions=2)
    kafka.send(topic, "a")
    first = opened(topic)
    assert first.fill() == ["a"]
    topic_id = Position.parse(_filled(first)).topic_id
    table = opened(topic, str(Position(topic_id, {0: 3, 1: 0})))
    kafka.send(topic, "b", partition=1)
    assert table.fill() == ["b"]
    (said,) = table.inlet.hindrances()
    assert "/0 ends at offset 1, but was read up to 3" in said
    assert table.next_offsets == {0: 3, 1: 1}, "it keeps its place"
    found = TopicBacklog(kafka.options, topic).after(table.resume)
    assert (found.count, found.uncounted) == (0, {said}), "messages of the partition cannot be counted"
    assert range_behind(kafka.options, topic, table.resume).hindrances == {said}

    kafka.send(topic, "x", "x", "c")
    bodies: list[str] = []
    eventually(lambda: bool(bodies.extend(table.fill()) or bodies))
    assert (bodies, table.inlet.hindrances()) == (["c"], frozenset())


def test_missing_kafka_broker_is_reported_within_seconds(opened: Opened) -> None:
    nobody = f"127.0.0.1:{free_port()}"
    table = opened("t", options={"bootstrap.servers": nobody})
    begun = time.monotonic()
    with pytest.raises(KafkaUnavailable, match=rf"Kafka at {nobody} does not answer .*refused") as caught:
        table.take(20)
    assert time.monotonic() - begun < 8
    assert "\n" not in str(caught.value)


def test_missing_topic_is_reported_and_read_once_it_exists(kafka: Broker, opened: Opened) -> None:
    table = opened("not-yet")
    with pytest.raises(TopicUnknown, match="no topic not-yet"):
        table.take()
    kafka.create("not-yet")
    kafka.send("not-yet", "a")
    assert table.fill() == ["a"]


def test_refused_kafka_user_is_reported_without_the_password(kafka: Broker, opened: Opened) -> None:
    topic = kafka.topic()
    kafka.send(topic, "a")
    kafka.let_read(READER, topic)
    assert opened(topic, options=kafka.locked_options(READER)).fill(quiet=5.0) == ["a"]  # it has to log in first
    refusals = {
        "does not allow the user to read": kafka.locked_options(STRANGER),
        "refused the login": kafka.locked_options(READER, "wrong-" + PASSWORD),
        "ssl.ca.location": kafka.locked_options(READER) | {"ssl.ca.location": "/nowhere/ca.pem"},
    }
    for words, options in refusals.items():
        begun = time.monotonic()
        with pytest.raises(KafkaRefused, match=words) as caught:
            opened(topic, options=options).take()
        assert isinstance(caught.value, Terminal)
        assert PASSWORD not in str(caught.value) and "\n" not in str(caught.value)
        assert time.monotonic() - begun < 5


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"topic_id": "x", "next": {"a": 1}}', "5"])
def test_invalid_kafka_position_is_refused(kafka: Broker, opened: Opened, text: str) -> None:
    with pytest.raises(PositionUnreadable, match="not a position of a topic"):
        opened(kafka.topic(), text).take()


def test_missing_kafka_client_library_is_reported_with_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "confluent_kafka", None)
    monkeypatch.delitem(sys.modules, "dagster_tidemark.sources.kafka_client", raising=False)
    with pytest.raises(KafkaMissing, match=r"pip install 'dagster-tidemark\[kafka\]'"):
        KafkaTopic({"bootstrap.servers": "127.0.0.1:1"}, "t")


def _filled(table: Table) -> str:
    table.fill()
    assert table.resume is not None
    return table.resume


def test_kafka_backlog_counts_unread_records_and_the_age_of_the_oldest(kafka: Broker, opened: Opened) -> None:
    topic, now = kafka.topic(partitions=3), round(time.time())
    backlog = TopicBacklog(kafka.options, topic)
    assert backlog.after(None) == UncommittedMessages()
    table = opened(topic)
    kafka.send(topic, "a", timestamp=(now - 90) * 1000)
    table.fill()
    assert backlog.after(table.resume) == UncommittedMessages()
    kafka.send(topic, *"bcd", timestamp=(now - 30) * 1000)
    kafka.send(topic, *"ef", partition=2, timestamp=(now - 60) * 1000)
    assert backlog.after(table.resume) == UncommittedMessages(5, now - 60)
    assert TopicBacklog(kafka.options, topic).after(None) == UncommittedMessages(6, now - 90)
    assert backlog.after(None).count == 6, "the times are of an earlier look"
    table.fill()
    assert backlog.after(table.resume) == UncommittedMessages() == backlog.after(table.inlet.position())
    with pytest.raises(TopicUnknown):
        TopicBacklog(kafka.options, "no-such-topic").after(None)
