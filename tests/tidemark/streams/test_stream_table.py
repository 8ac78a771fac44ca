"""A shift's knowledge of its table: positions that survive the commits of other inlets, and a bounded set of ids."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from dagster_tidemark.lakehouse.append import Appendable, TableCommit, open_lake, rows_of
from dagster_tidemark.settings import Settings
from dagster_tidemark.sources.inlets import QueueInlet
from dagster_tidemark.sources.kafka_position import Position, position_after_rows
from dagster_tidemark.sources.notification_queue import FakeMessageSource
from dagster_tidemark.sources.received_messages import Inlet, ReceivedBatch, ReceivedMessage
from dagster_tidemark.streams import shift as shift_module
from dagster_tidemark.streams import stream_table, timeline
from dagster_tidemark.streams.alerts.worker import Alerts
from dagster_tidemark.streams.shift import Shift
from dagster_tidemark.streams.stream_declaration import Stream
from tests.conftest import make_settings
from tests.tidemark.streams import toy

NAME = "tidemark.kafka.pings"


@dataclass
class Log(Inlet):
    """A topic of one partition, in memory."""

    bodies: list[str] = field(default_factory=list)
    sent_at: list[datetime] = field(default_factory=list)
    id: str = "topic-1"
    name: str = "kafka:pings"
    asked: list[str | None] = field(default_factory=list)

    def send(self, body: str, sent_at: datetime | None = None) -> None:
        self.bodies.append(body)
        self.sent_at.append(sent_at or datetime.now(UTC))

    def topic_id(self) -> str:
        return self.id

    def property_name(self) -> str:
        return NAME

    def resume_after(self, topic_id: str, highest: Mapping[int, int]) -> str:
        return position_after_rows(topic_id, highest)

    def receive(self, resume: str | None, wait_seconds: float) -> ReceivedBatch | None:
        self.asked.append(resume)
        position = None if resume is None else Position.parse(resume)
        assert position is None or position.topic_id == self.id, "it would be read from its beginning again"
        start = position.next_offsets[0] if position else 0
        records = tuple(
            ReceivedMessage(
                body.encode(),
                f"{self.id}/0/{start + n:020d}",
                self.sent_at[start + n],
                "kafka:pings/0",
                self.id,
                0,
                start + n,
            )
            for n, body in enumerate(self.bodies[start:])
        )
        return ReceivedBatch(records, {NAME: str(Position(self.id, {0: len(self.bodies)}))}) if records else None

    def acknowledge(self, batch: ReceivedBatch, refused: Collection[str] = ()) -> None:
        pass

    def close(self) -> None:
        pass


@dataclass
class Post:
    """A stream with a queue and a log, on a lake in a folder."""

    settings: Settings
    stream: Stream = field(default_factory=lambda: toy.stream(toy.new_name()))
    queue: FakeMessageSource = field(default_factory=FakeMessageSource)
    log: Log = field(default_factory=Log)

    def shift(self, *inlets: Inlet) -> Shift:
        queue = QueueInlet("memory:pings", lambda: self.queue)
        return toy.shift(self.stream, self.settings, inlets or (queue, self.log))

    def kept(self) -> list[str]:
        return [row["gadget"] for row in toy.kept(self.stream, self.settings)]

    def table(self) -> Appendable:
        return Appendable(open_lake(self.settings), self.stream.table)


@pytest.fixture
def post(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Post:
    settings = make_settings(tmp_path)
    Path(settings.warehouse).mkdir()
    for name in ("_LINGER_SECONDS", "_WAIT_SECONDS", "_WAIT_EACH_SECONDS"):
        monkeypatch.setattr(shift_module, name, 0.0)
    monkeypatch.setattr(shift_module, "_KEEP_SNAPSHOTS", 3)
    monkeypatch.setattr(shift_module, "EXPIRED_AT_ONCE", 1)
    return Post(settings)


@pytest.fixture
def searches(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The searches through a table's rows for a position."""
    found: list[str] = []
    searched = stream_table.highest_offsets

    def counted(table: Appendable, source: str, *more: Any) -> Any:
        found.append(source)
        return searched(table, source, *more)

    monkeypatch.setattr(stream_table, "highest_offsets", counted)
    return found


def busy(post: Post, shift: Shift, prefix: str, count: int = 8) -> None:
    for n in range(count):
        post.queue.send(toy.ping(f"{prefix}{n}"))
        shift.step()
        shift._look_after()


def test_position_of_a_quiet_topic_beside_a_busy_queue_is_never_searched(post: Post, searches: list[str]) -> None:
    post.log.send(toy.ping("log"))
    shift = post.shift()
    shift.step()
    searches.clear()
    busy(post, shift, "a")
    assert len(list(post.table()._ancestors())) <= 4, "the snapshot of the topic's own commit has expired"
    again = post.shift()
    busy(post, again, "b", 2)
    post.log.send(toy.ping("log2"))
    again.step()
    assert searches == [], "each commit says how far every topic was read"
    assert post.kept() == sorted(["log", "log2", *(f"a{n}" for n in range(8)), "b0", "b1"])


def test_position_of_an_empty_topic_is_searched_once_in_a_run(post: Post, searches: list[str]) -> None:
    shift = post.shift()
    busy(post, shift, "a")
    assert searches == ["kafka:pings"]
    post.log.send(toy.ping("log"))
    shift.step()
    assert "log" in post.kept() and searches == ["kafka:pings"]


def test_expired_topic_position_is_found_from_rows_once_and_kept(post: Post, searches: list[str]) -> None:
    for body in (toy.ping("l1"), toy.ping("l2")):
        post.log.send(body)
    post.shift().step()
    other = post.table()
    for _ in range(4):  # compactions of another engine do not record positions
        other.commit(TableCommit(rows_of(other.schema, [])))
    other.expire(keep=2)
    assert other.newest(NAME) is None
    searches.clear()
    shift = post.shift()
    busy(post, shift, "a", 3)
    assert searches == ["kafka:pings"]
    table = post.table()
    assert Position.parse(table.newest(NAME) or "").next_offsets == {0: 2}
    busy(post, post.shift(), "b", 1)
    assert searches == ["kafka:pings"]


def test_paused_shift_with_expired_positions_reads_the_table_before_it_commits(post: Post) -> None:
    post.log.send(toy.ping("l1"))
    sleeper, other = post.shift(), post.shift()
    sleeper.step()
    post.log.send(toy.ping("l2"))
    batch = post.log.receive(sleeper._kept.positions.of(NAME), 0)
    assert batch is not None
    resumed = {NAME: sleeper._kept.positions.of(NAME)}
    other.step()
    writer = post.table()
    for _ in range(4):
        writer.commit(TableCommit(rows_of(writer.schema, [])))
    writer.expire(keep=1)
    sleeper._see_through(post.log, lambda: sleeper._process(post.log, batch, resumed))
    assert post.kept() == ["l1", "l2"]


def test_recreated_topic_is_read_from_its_start_whatever_its_timestamps(post: Post) -> None:
    post.log.send(toy.ping("old"))
    post.shift().step()
    post.log.bodies.clear()
    post.log.sent_at.clear()
    post.log.id = "topic-2"
    post.log.send(toy.ping("new"), datetime(1970, 1, 1, tzinfo=UTC))  # mirrored, with its first timestamp
    table = post.table()
    made = toy.record_row(post.stream, toy.ping("new"), offset=0) | {
        "topic_id": "topic-2",
        "sent_at": datetime(1970, 1, 1, tzinfo=UTC),
    }
    table.commit(TableCommit(rows_of(table.schema, [made])))
    table.expire(keep=1)
    post.shift().step()
    assert post.kept() == ["new", "old"]


def test_message_ids_in_memory_are_bounded_and_old_duplicates_add_no_row(
    post: Post, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream_table, "_MOST_IDS", 40)
    shift = post.shift(QueueInlet("memory:pings", lambda: post.queue))
    everything = []
    for n in range(30):
        post.queue.send([toy.ping(f"g{n:02}{i}") for i in range(8)])
        everything += post.queue.waiting
        shift.step()
        assert len(shift._kept._ids._ids) <= 40
    fresh = post.shift(QueueInlet("memory:pings", lambda: post.queue))
    for worker in (shift, fresh):
        for start in range(0, len(everything), 60):  # the queue delivers every message again, the oldest first
            post.queue.waiting = everything[start : start + 60]
            worker.step()
            assert len(worker._kept._ids._ids) <= 40
        assert worker.counts.received >= 240
    assert len(post.kept()) == 240


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Numbers of rows, one for each read of a table."""
    found: list[int] = []
    rows = Appendable.rows

    def counted(self: Appendable, *arguments: Any, **more: Any) -> Any:
        given = rows(self, *arguments, **more)
        found.append(given.num_rows)
        return given

    monkeypatch.setattr(Appendable, "rows", counted)
    return found


def test_topic_messages_need_no_stored_ids_and_no_table_reads(post: Post, read: list[int]) -> None:
    shift = post.shift()
    for n in range(6):
        post.log.send(toy.ping(f"g{n}"), datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=n))
        post.log.send(toy.ping(f"h{n}"))
        shift.step()
    assert read == [], "offsets are exact"
    post.queue.send([toy.ping("q")])
    shift.step()
    assert shift._kept._ids._ids.keys() == {"message-1"}
    assert len(post.kept()) == 13


def test_message_timestamp_of_1970_does_not_make_a_partition_late(post: Post) -> None:
    heard = toy.Heard()
    queue = QueueInlet("memory:pings", lambda: post.queue)
    shift = toy.shift(post.stream, post.settings, [queue, post.log], heard)
    shift.step()
    before = datetime.now(UTC)
    shift.step()
    post.log.send(toy.ping("now"), datetime(1970, 1, 1, tzinfo=UTC))
    shift.step()
    shift.step()
    ((_, _, _, arrived_at),) = heard.observations
    assert before <= datetime.fromtimestamp(arrived_at, UTC) <= datetime.now(UTC)
    post.log.send(toy.ping("first"), datetime(1970, 1, 1, tzinfo=UTC))
    unread = toy.shift(post.stream, post.settings, [queue, post.log], heard)
    unread.step()
    unread.step()
    assert heard.observations[-1][3] >= toy.HOUR.timestamp(), "nothing of an hour arrived before it began"


def test_first_batch_of_a_run_reads_no_rows_of_a_topic(post: Post, read: list[int]) -> None:
    for n in range(2000):
        post.log.send(toy.ping(f"g{n}"))
    post.shift().step()
    post.queue.send([toy.ping("q1")])
    post.shift().step()
    read.clear()
    post.queue.send([toy.ping("q2")])
    shift = post.shift()
    shift.step()
    assert shift.counts.added == 1
    assert sum(read) <= 2


def test_alerts_of_many_keys_hold_a_bounded_part_of_the_stream() -> None:
    line = timeline.Timeline(toy.Strong(), lambda keys, since: [], lambda since: None)
    start = datetime(2026, 10, 1, tzinfo=UTC)
    for second in range(900):
        at = start + timedelta(seconds=second)
        said = {
            f"g{key}": [timeline.TimedMessage(at, at, f"{key}-{second}", {"at": at, "strength": 9 if key == 3 else 1})]
            for key in range(200)
        }
        line.add(said)
        assert line._size() <= timeline._MOST
    assert len(line._lines["g3"].times) == 900, "an episode that goes on keeps its beginning"


def test_table_is_not_read_for_a_new_key_if_all_its_messages_came_during_this_run(post: Post) -> None:
    post.stream = toy.stream_with_alerts(toy.new_name())
    shift, loaded = post.shift(), list[set[str]]()
    alerts = shift._reaction
    assert isinstance(alerts, Alerts)
    alerts.outlet = FakeMessageSource()
    load = alerts._timeline._load

    def noted(keys: Collection[str], since: datetime) -> Iterable[tuple[str, timeline.TimedMessage]]:
        loaded.append(set(keys))
        return load(keys, since)

    def read_for(gadget: str, minute: int) -> list[set[str]]:
        loaded.clear()
        post.queue.send([toy.ping(gadget, minute=minute)])
        shift.step()
        return list(loaded)

    alerts._timeline._load = noted
    gap = round(toy.Strong.silence / timedelta(minutes=1)) + 2
    assert read_for("g1", 0) == [{"g1"}], "the table may have earlier messages"
    assert read_for("near", 1) == [{"near"}]
    assert read_for("later", gap) == [], "no earlier message of any key is near"
    assert read_for("g1", gap + 1) == []
    assert read_for("late", 1) == [{"late"}]


def test_ids_of_earlier_alerts_are_read_once_in_a_run(post: Post) -> None:
    post.stream = toy.stream_with_alerts(toy.new_name())
    queue = FakeMessageSource()
    shift = toy.shift(post.stream, post.settings, [QueueInlet("memory:pings", lambda: queue)])
    alerts = shift._reaction
    assert isinstance(alerts, Alerts)
    alerts.outlet = FakeMessageSource()
    rows, read = alerts._table.table.rows, list[Any]()
    alerts._table.table.rows = lambda *where: read.append(where[1:]) or rows(*where)  # type: ignore[method-assign, func-returns-value]
    for minute in range(0, 20, 4):
        queue.send([toy.ping(f"g{n}", minute=minute + m, strength=[7, 7, 1][m]) for n in range(4) for m in range(3)])
        shift.step()
    assert rows().num_rows == 20
    assert read.count((("alert_id",),)) == 1
    again = toy.shift(post.stream, post.settings, [QueueInlet("memory:pings", lambda: queue)])
    assert isinstance(again._reaction, Alerts)
    again._reaction.outlet = FakeMessageSource()
    queue.send([toy.ping("g0", minute=0, strength=1), toy.ping("g0", minute=1, strength=1)])
    again.step()
    queue.send([toy.ping("g0", minute=0, strength=8), toy.ping("g0", minute=1, strength=8)])
    again.step()
    raised = Appendable(open_lake(post.settings), toy.alerts(post.stream.name)).rows().to_pylist()
    of_start = [row for row in raised if row["gadget"] == "g0" and row["episode_started_at"] == toy.HOUR]
    assert len({row["alert_id"] for row in of_start}) == len(of_start) == 2, "an alert that comes back is another one"
