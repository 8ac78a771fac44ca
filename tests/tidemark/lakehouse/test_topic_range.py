"""A range of a topic by Spark's own source: a real broker, a real Connect server."""

import time
from collections.abc import Callable
from datetime import UTC
from typing import Any

import pytest
from pyspark.sql import SparkSession

from dagster_tidemark.errors import Transient
from dagster_tidemark.lakehouse.topic_range import COLUMNS, RangeGone, naming_the_broker, read_range
from dagster_tidemark.sources.kafka import KafkaTopic
from dagster_tidemark.sources.kafka_errors import KafkaRefused, KafkaUnavailable, TopicUnknown
from dagster_tidemark.sources.kafka_range import Range, is_still_of, range_behind
from tests.tidemark.kafka import PASSWORD, READER, Broker, eventually

Rows = list[tuple[Any, ...]]


def rows(spark: SparkSession, kafka: Broker, read: Range) -> Rows:
    with naming_the_broker(read):
        found = read_range(spark, kafka.options, read).collect()
    return sorted((r.topic_partition, r.topic_offset, bytes(r.body)) for r in found)


def streamed(kafka: Broker, topic: str) -> tuple[Rows, str | None]:
    """The same columns by the other reader, and where it ended."""
    inlet, found, resume = KafkaTopic(kafka.options, topic), [], None
    while (batch := inlet.receive(resume, 1)) is not None:
        found += batch.records
        resume = batch.reached[inlet.property_name()]
    inlet.close()
    return sorted(
        (r.body, r.message_id, r.source, r.topic_id, r.partition, r.offset, r.sent_at.astimezone(UTC)) for r in found
    ), resume


def test_topic_range_read_by_spark_equals_the_streamed_records(spark: SparkSession, kafka: Broker) -> None:
    topic = kafka.topic(partitions=2)
    kafka.send(topic, "a", b"\xff\x00")
    kafka.commit(topic, "b", "c")
    kafka.abort(topic, "x", "y")
    kafka.send(topic, "d", partition=1)
    kafka.abort(topic, "z", partition=1)

    read = range_behind(kafka.options, topic, None)
    frame = read_range(spark, kafka.options, read)
    assert dict(frame.dtypes) == COLUMNS
    found = [(bytes(r[0]), *r[1:6], r[6].replace(tzinfo=UTC)) for r in frame.collect()]
    expected, resume = streamed(kafka, topic)
    assert sorted(found) == expected
    assert read.reached == {f"tidemark.kafka.{topic}": resume}
    assert (read.size, len(found)) == (11, 5)
    assert is_still_of(kafka.options, read)


def test_next_topic_range_starts_at_the_end_of_the_last_one(spark: SparkSession, kafka: Broker) -> None:
    topic = kafka.topic(partitions=2)
    kafka.send(topic, "a", "b")
    first = range_behind(kafka.options, topic, None)
    (resume,) = first.reached.values()
    nothing = range_behind(kafka.options, topic, resume)
    assert (nothing.size, nothing.reached) == (0, first.reached)
    assert read_range(spark, kafka.options, nothing).collect() == []

    kafka.send(topic, "c")
    kafka.grow(topic, 3)
    kafka.send(topic, "d", partition=2)
    assert rows(spark, kafka, range_behind(kafka.options, topic, resume)) == [(0, 2, b"c"), (2, 0, b"d")]


def test_topic_range_ends_before_an_open_transaction(spark: SparkSession, kafka: Broker) -> None:
    topic = kafka.topic()
    kafka.send(topic, "a")
    with kafka.transaction(topic, "b") as producer:
        kafka.send(topic, "c")
        begun = time.monotonic()
        read = range_behind(kafka.options, topic, None)
        assert rows(spark, kafka, read) == [(0, 0, b"a")]
        assert time.monotonic() - begun < 30
        producer.commit_transaction(30)
    (resume,) = read.reached.values()
    assert rows(spark, kafka, range_behind(kafka.options, topic, resume)) == [(0, 1, b"b"), (0, 2, b"c")]


def test_topic_range_of_aborted_records_is_empty(spark: SparkSession, kafka: Broker) -> None:
    topic = kafka.topic()
    kafka.abort(topic, "x", "y")
    read = range_behind(kafka.options, topic, None)
    assert (read.size, rows(spark, kafka, read)) == (3, [])


def test_offsets_removed_by_compaction_are_not_reported_as_lost(spark: SparkSession, kafka: Broker) -> None:
    topic = kafka.topic(cleanup_policy="compact", segment_ms="100", min_cleanable_dirty_ratio="0.01")
    for number in range(20):
        kafka.send(topic, str(number), key=b"same")
    time.sleep(0.3)
    kafka.send(topic, "last", key=b"last")
    eventually(lambda: len(streamed(kafka, topic)[0]) < 20)
    read = range_behind(kafka.options, topic, None)
    found = rows(spark, kafka, read)
    assert found[-1] == (0, 20, b"last") and (0, 19, b"19") in found and len(found) < 20
    assert (read.lost, read.ends) == ((), {0: 21})


def test_lost_offsets_are_reported_and_stop_a_running_range_read(spark: SparkSession, kafka: Broker) -> None:
    topic = kafka.topic()
    kafka.send(topic, "a")
    (resume,) = range_behind(kafka.options, topic, None).reached.values()
    kafka.send(topic, "b", "c", "d")
    read = range_behind(kafka.options, topic, resume)
    kafka.forget(topic, 3)
    with pytest.raises(RangeGone, match=f"kafka:{topic}: the offsets to read no longer exist"):
        rows(spark, kafka, read)
    again = range_behind(kafka.options, topic, resume)
    assert rows(spark, kafka, again) == [(0, 3, b"d")]
    assert ["offsets 1 to 2" in sentence for sentence in again.lost] == [True]


def test_topic_recreated_during_a_range_read_is_detected(spark: SparkSession, kafka: Broker) -> None:
    topic = kafka.topic()
    kafka.send(topic, "a", "b")
    read = range_behind(kafka.options, topic, None)
    (resume,) = read.reached.values()
    kafka.recreate(topic)
    kafka.send(topic, "c", "d", "e")
    assert len(rows(spark, kafka, read)) == 2, "Spark knows names only"
    assert not is_still_of(kafka.options, read)
    again = range_behind(kafka.options, topic, resume)
    assert len(rows(spark, kafka, again)) == 3
    assert ["created again" in sentence for sentence in again.lost] == [True]


def test_spark_reads_kafka_by_tls_and_password_without_exposing_it(spark: SparkSession, kafka: Broker) -> None:
    topic = kafka.topic()
    kafka.send(topic, "a")
    read = range_behind(kafka.options, topic, None)
    refused: dict[str, dict[str, str]] = {
        "does not allow Spark to read": kafka.locked_options(READER),
        "wrong user or password": kafka.locked_options(READER, 'wr"ong\\' + PASSWORD),
    }
    for words, options in refused.items():
        with pytest.raises(KafkaRefused, match=words) as caught, naming_the_broker(read):
            read_range(spark, options, read).collect()
        assert PASSWORD not in f"{caught.value} {caught.value.__cause__}"
    kafka.let_read(READER, topic)
    assert len(read_range(spark, kafka.locked_options(READER), read).collect()) == 1


def test_spark_reports_a_missing_topic_or_broker_within_seconds(
    spark: SparkSession, kafka: Broker, note: Callable[[str], None]
) -> None:
    topic, kept = kafka.topic(), kafka.topic()
    kafka.send(topic, "a")
    kafka.send(kept, "a")
    read, other = (range_behind(kafka.options, name, None) for name in (topic, kept))
    kafka.delete(topic)
    with pytest.raises(TopicUnknown, match="no such topic"):
        rows(spark, kafka, read)
    kafka.kill()
    begun = time.monotonic()
    try:
        with pytest.raises(KafkaUnavailable) as caught:
            rows(spark, kafka, other)
        note(f"Spark notices after {time.monotonic() - begun:.1f} s that no Kafka broker answers")
        assert time.monotonic() - begun < 30
        assert isinstance(caught.value, Transient) and "\n" not in str(caught.value)
    finally:
        kafka.start()
    assert rows(spark, kafka, other) == [(0, 0, b"a")]
