"""The backlog of a topic, taken by Spark within a shift: a real broker, a real Connect server, a real cloud.

Killed at each boundary, beside another or asleep: tests/proof/test_stream_kills.py.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from dagster_tidemark.errors import Transient
from dagster_tidemark.lakehouse.append import Appendable, open_lake
from dagster_tidemark.lakehouse.commits import CommitConflict
from dagster_tidemark.lakehouse.loading.quarantine_table import QUARANTINE
from dagster_tidemark.settings import Settings
from dagster_tidemark.sources.kafka import KafkaTopic
from dagster_tidemark.streams import topic_backlog_step
from dagster_tidemark.streams.reports import Reports
from dagster_tidemark.streams.shift import Shift
from dagster_tidemark.streams.stream_declaration import Stream, StreamContext
from dagster_tidemark.streams.topic_backlog import TopicBacklogReader
from tests.tidemark.kafka import Broker
from tests.tidemark.streams import avro_registry, toy
from tests.tidemark.streams.kills import drained


@pytest.fixture
def settings(cloud: Settings, spark_server: Settings, kafka: Broker) -> Settings:
    return spark_server.model_copy(update={"kafka_bootstrap_servers": kafka.servers})


@contextmanager
def shift_at(of: Stream, settings: Settings, topic: str, *, large: bool = True, **sizes: int) -> Iterator[Shift]:
    """A shift for which ten messages are a backlog."""
    place = StreamContext(settings, open_lake(settings), of)
    inlet = KafkaTopic(settings.kafka_options(), topic)
    backlog = TopicBacklogReader(place, topic, **{"from_size": 10, "at_once": 40} | sizes)
    backlogs = {inlet.name: backlog} if large else {}
    work = Shift(place, [inlet], Reports(of, toy.Heard()), "code-1", lambda: None, backlogs=backlogs)
    try:
        yield work
    finally:
        inlet.close()
        backlog.close()


def entries(of: Stream, settings: Settings) -> list[tuple[str, str, int]]:
    """Content, reason and offset of what is in the quarantine."""
    rows = Appendable(open_lake(settings), QUARANTINE).rows().to_pylist()
    return sorted((r["content"] or "", r["reason"], r["row_number"]) for r in rows if r["asset"] == of.asset)


def bodies(count: int) -> list[str | bytes]:
    """Readings of three gadgets; each tenth message is none."""
    pings: list[str | bytes] = [
        toy.ping(f"g{n % 3}", minute=n // 3 - 40, strength=7 if n % 11 < 5 else 1) for n in range(count)
    ]
    for at in range(0, count, 10):
        pings[at] = [b"\xff\xfe", "no reading", '{"gadget": "g1"}', toy.ping("g0", strength=-1)][at // 10 % 4]
    return pings


def test_first_start_reads_the_topic_backlog_like_small_batches(settings: Settings, kafka: Broker) -> None:
    topic, sent = kafka.topic(partitions=2), bodies(100)
    kafka.send(topic, *sent[:50])
    kafka.abort(topic, toy.ping("aborted"), toy.ping("aborted"))
    kafka.commit(topic, *[b for b in sent[50:] if isinstance(b, str)], partition=1)
    found: list[tuple[Any, ...]] = []
    for large in (True, False):
        name = toy.new_name()
        of = toy.stream_with_alerts(name, queue=None, topic=topic)
        out = toy.make_queue(settings, f"out-{name}", receives=1000)
        with shift_at(of, settings, topic, large=large) as work:
            while work.step():
                pass
            rows = toy.kept(of, settings)
            position = work._kept.table.newest(f"tidemark.kafka.{topic}")
            assert work.counts.commits == (3 if large else 1)
            work.reports.flush(work._kept, work._reaction)
        alerts = Appendable(open_lake(settings), toy.alerts(name)).rows().to_pylist()
        standing = sorted((a["gadget"], a["episode_started_at"]) for a in alerts if a["retracted_at"] is None)
        assert {alert_id for kind, alert_id, _ in drained(out) if kind == "raise"} == {a["alert_id"] for a in alerts}
        assert len(rows) > 80 and len(standing) > 3
        assert isinstance(work.reports.log, toy.Heard) and {o[1] for o in work.reports.log.observations}
        found.append((rows, position, entries(of, settings), standing))
    assert found[0] == found[1]


@pytest.mark.proof
def test_spark_and_stream_reader_agree_on_avro_headers_compression_and_tombstones(
    settings: Settings, kafka: Broker
) -> None:
    topic, gadgets = kafka.topic(), iter(range(100))
    with avro_registry.registry() as address:
        for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
            producer = kafka.producer(**{"compression.type": codec, "linger.ms": 5})
            for _ in range(3):
                body = avro_registry.written(f"g{next(gadgets)}", toy.HOUR, 1.5)
                producer.produce(topic, body, key=None, headers=[("trace", f"of {codec}".encode())])
            assert producer.flush(30) == 0
        producer = kafka.producer()
        producer.produce(topic, None, key=b"k")
        producer.produce(topic, b"", key=b"k")
        producer.produce(topic, None, headers=[("trace", b"t-1"), ("more", None)])
        producer.produce(topic, b"junk that is no Avro", key=None)
        producer.produce(topic, avro_registry.written("g", toy.HOUR, 1.5, schema_id=8))
        assert producer.flush(30) == 0
        found = []
        for large in (True, False):
            base = toy.table(toy.new_name())
            of = Stream(
                base.name.removeprefix("raw."),
                replace(base, columns={**base.columns, "trace": "string"}),
                topic=topic,
                required=("gadget", "at", "strength"),
                time="at",
                deserialize=avro_registry.Deserializer(address),
                headers={"trace": "trace"},
            )
            with shift_at(of, settings, topic, large=large) as work:
                while work.step():
                    pass
                assert work.counts.commits == 1
            faults = Appendable(open_lake(settings), QUARANTINE).rows().to_pylist()
            entered = {r["row_number"]: (r["reason"], r["message"]) for r in faults if r["asset"] == of.asset}
            assert len(entered) == sum(r["asset"] == of.asset for r in faults)
            kept = sorted((r["topic_offset"], r["gadget"], r["at"], r["trace"]) for r in toy.kept(of, settings))
            found.append((kept, entered))
    assert found[0] == found[1]
    kept, entered = found[0]
    assert [(gadget, trace) for _, gadget, _, trace in kept] == [
        (f"g{3 * n + m}", f"of {codec}")
        for n, codec in enumerate(("none", "gzip", "snappy", "lz4", "zstd"))
        for m in range(3)
    ]
    assert list(dict(sorted(entered.items())).values()) == [
        ("no_value", "the record has no value (a tombstone)"),
        ("empty_value", "the body is empty"),
        ("no_value", "the record has no value, only the headers trace, more (a tombstone)"),
        ("not_deserialized", "deserialize raises ValueError: expected the number of a schema before the values"),
        ("not_deserialized", "deserialize raises ValueError: the registry has no schema 8"),
    ]


@pytest.mark.proof
def test_spark_and_stream_reader_agree_on_odd_times_keys_and_sizes(settings: Settings, kafka: Broker) -> None:
    forever = str(2**63 - 1)
    topic = kafka.topic(
        message_timestamp_after_max_ms=forever, message_timestamp_before_max_ms=forever, max_message_bytes="12000000"
    )
    large = toy.ping("large").replace("}", f', "padding": "{"x" * 5_000_000}"' + "}")
    producer = kafka.producer(**{"message.max.bytes": 12_000_000})
    sent: list[tuple[str | bytes, dict[str, Any]]] = [
        *((toy.ping(f"at {ms}"), {"timestamp": ms}) for ms in (1, 4_102_444_800_000, 253_402_300_800_000, 2**60)),
        (toy.ping("large"), {"key": b"k" * 900_000}),
        (large, {}),
        (toy.ping("empty key"), {"key": b""}),
        (b"", {"key": None}),
        (b"\x00" * 3_000_000, {"key": b"\xff"}),
        (toy.ping("many headers"), {"headers": [("h", None)] * 1_000}),
        *((toy.ping(f"g{n}"), {}) for n in range(10)),
    ]
    for body, options in sent:
        producer.produce(topic, body, partition=0, **options)
    assert producer.flush(30) == 0
    kafka.abort(topic, toy.ping("aborted"))
    kept = sorted([*(f"at {ms}" for ms in (1, 4_102_444_800_000, 253_402_300_800_000, 2**60)), "empty key", "large",
                   "large", "many headers", *(f"g{n}" for n in range(10))])  # fmt: skip
    for is_large in (True, False):
        of = toy.stream(toy.new_name(), queue=None, topic=topic)
        with shift_at(of, settings, topic, large=is_large) as work:
            while work.step():
                pass
            assert not work.hindrance
        rows = toy.kept(of, settings)
        assert [row["gadget"] for row in rows] == kept
        assert all(row["sent_at"] <= datetime.now(UTC) for row in rows)
        assert [(reason, offset) for _, reason, offset in sorted(entries(of, settings), key=lambda e: e[2])] == [
            ("empty_value", 7),
            ("malformed", 8),
        ]


def test_shift_continues_with_new_messages_after_the_backlog(settings: Settings, kafka: Broker) -> None:
    topic = kafka.topic()
    of = toy.stream(toy.new_name(), queue=None, topic=topic)
    kafka.send(topic, *[toy.ping("a", minute=m) for m in range(30)])
    with shift_at(of, settings, topic) as work:
        assert work.step() and len(toy.kept(of, settings)) == 30
        kafka.send(topic, *[toy.ping("b", minute=m) for m in range(30)])
        while work.step():
            pass
        assert len(toy.kept(of, settings)) == 60
        refs = Appendable(open_lake(settings), of.table)._loaded.refs()
        assert list(refs) == ["main"]
    with shift_at(of, settings, topic) as later:
        assert not later.step()


def test_rule_failing_on_every_backlog_message_commits_nothing(settings: Settings, kafka: Broker) -> None:
    topic, name = kafka.topic(), toy.new_name()
    kafka.send(topic, *[toy.ping("a", minute=m, strength=m) for m in range(30)])
    broken = toy.stream(name, queue=None, topic=topic, rules={"odd": lambda fields: fields["strenght"] > 0})
    with shift_at(broken, settings, topic) as work:
        work.step()
        assert "the rule odd raises on every message: KeyError: 'strenght'" in work.hindrance
        assert (toy.kept(broken, settings), entries(broken, settings), work._kept.table.head) == ([], [], None)
    some = toy.stream(name, queue=None, topic=topic, rules={"odd": lambda fields: 1 / (fields["strength"] - 7) < 2})
    with shift_at(some, settings, topic) as work:
        assert work.step() and not work.hindrance
    assert len(toy.kept(some, settings)) == 29
    assert [(reason, offset) for _, reason, offset in entries(some, settings)] == [("odd", 7)]


def test_overtaken_backlog_step_adds_no_rows(settings: Settings, kafka: Broker) -> None:
    topic = kafka.topic()
    of = toy.stream(toy.new_name(), queue=None, topic=topic)
    kafka.send(topic, *[toy.ping("a", minute=m) for m in range(30)])
    with shift_at(of, settings, topic) as slow, shift_at(of, settings, topic, large=False) as quick:
        step = slow.backlogs[f"kafka:{topic}"].next_step(None, slow._kept.table)
        assert step is not None
        assert quick.step()
        with pytest.raises(CommitConflict):
            step.commit()
        step.close()
        assert len(toy.kept(of, settings)) == 30
        while slow.step():
            pass
        assert len(toy.kept(of, settings)) == 30


def test_backlog_of_a_recreated_topic_is_not_mixed_with_the_old(settings: Settings, kafka: Broker) -> None:
    topic = kafka.topic()
    of = toy.stream(toy.new_name(), queue=None, topic=topic)
    kafka.send(topic, *[toy.ping("old", minute=m) for m in range(30)])
    with shift_at(of, settings, topic) as work:
        step = work.backlogs[f"kafka:{topic}"].next_step(None, work._kept.table)
        assert step is not None
        kafka.recreate(topic)
        kafka.send(topic, *[toy.ping("new", minute=m) for m in range(30)])
        with pytest.raises(Transient, match="created again"):
            step.commit()
        assert toy.kept(of, settings) == []
        while work.step():
            pass
        assert {row["gadget"] for row in toy.kept(of, settings)} == {"new"}


def test_messages_deleted_by_retention_are_quarantined_as_lost(settings: Settings, kafka: Broker) -> None:
    topic = kafka.topic()
    of = toy.stream(toy.new_name(), queue=None, topic=topic)
    kafka.send(topic, *[toy.ping("a", minute=m) for m in range(5)])
    with shift_at(of, settings, topic) as work:
        while work.step():
            pass
        kafka.send(topic, *[toy.ping("b", minute=m) for m in range(30)])
        kafka.forget(topic, 12)
    with shift_at(of, settings, topic) as work:
        while work.step():
            pass
    assert len(toy.kept(of, settings)) == 5 + 23
    assert [reason for _, reason, _ in entries(of, settings)] == ["lost"]


def test_topic_backlog_is_read_in_small_batches_without_spark(
    settings: Settings, kafka: Broker, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = kafka.topic()
    of = toy.stream(toy.new_name(), queue=None, topic=topic)
    kafka.send(topic, *[toy.ping("a", minute=m) for m in range(30)])
    away = settings.model_copy(update={"spark_remote": "sc://127.0.0.1:9"})
    with shift_at(of, away, topic) as work, caplog.at_level(logging.WARNING):
        while work.step():
            pass
    assert len(toy.kept(of, settings)) == 30
    assert caplog.text.count("in small batches, because Spark failed") == 1

    # Nor does a rule that cannot be sent to Spark's workers stop it.
    def unshippable(_: Any) -> Any:
        raise TypeError("cannot pickle this")

    monkeypatch.setattr(topic_backlog_step, "shipped", unshippable)
    other = toy.stream(toy.new_name(), queue=None, topic=topic)
    with shift_at(other, settings, topic) as work:
        while work.step():
            pass
    assert len(toy.kept(other, settings)) == 30


def test_backlog_step_size_is_limited_by_the_size_of_its_rows(settings: Settings, kafka: Broker) -> None:
    topic = kafka.topic()
    of = toy.stream(toy.new_name(), queue=None, topic=topic)
    kafka.send(topic, *[toy.ping("x" * 10_000, minute=-m) for m in range(30)], *["no reading"] * 10)
    with shift_at(of, settings, topic, most_bytes=100_000_000) as work:
        backlog = work.backlogs[f"kafka:{topic}"]
        work.step()
        assert 5_000 < backlog._size < 20_000
    assert len(toy.kept(of, settings)) == 30
