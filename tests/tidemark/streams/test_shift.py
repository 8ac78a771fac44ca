"""A shift at a queue, on the local cloud and a real Iceberg table."""

import base64
import time
import uuid
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from dagster_tidemark.lakehouse.append import Appendable, TableCommit, equal, open_lake, rows_of
from dagster_tidemark.lakehouse.loading.quarantine_table import QUARANTINE
from dagster_tidemark.settings import Settings
from dagster_tidemark.sources.inlets import QueueInlet
from dagster_tidemark.sources.notification_queue import FakeMessageSource
from dagster_tidemark.sources.received_messages import Inlet, ReceivedBatch, ReceivedMessage
from dagster_tidemark.sources.sqs import SqsQueue
from dagster_tidemark.streams.shift import Shift
from dagster_tidemark.streams.stream_declaration import Stream
from dagster_tidemark.streams.stream_table import highest_offsets
from tests.live.waiting import eventually
from tests.tidemark.streams import toy


@dataclass
class Post:
    """A stream, its queue and what the event log has heard of it."""

    stream: Stream
    queue: SqsQueue
    settings: Settings
    heard: toy.Heard

    def shift(self, kind: type[QueueInlet] = QueueInlet) -> Shift:
        inlet = kind(f"sqs:{self.stream.queue}", lambda: self.queue)
        return toy.shift(self.stream, self.settings, [inlet], self.heard)

    def kept(self) -> list[str]:
        return [row["gadget"] for row in toy.kept(self.stream, self.settings)]

    def quarantined(self) -> list[tuple[str, str]]:
        rows = Appendable(open_lake(self.settings), QUARANTINE).rows().to_pylist()
        return sorted((row["reason"], row["content"]) for row in rows if row["asset"] == self.stream.asset)


class KilledBeforeItAcknowledges(QueueInlet):
    """What it received is soon somebody else's."""

    def acknowledge(self, batch: ReceivedBatch, refused: Collection[str] = ()) -> None:
        self.close()


@dataclass
class OnceInlet(Inlet):
    """A log in memory that gives these once."""

    records: tuple[ReceivedMessage, ...]
    name: str = "memory:pings"

    def receive(self, resume: str | None, wait_seconds: float) -> ReceivedBatch | None:
        given, self.records = self.records, ()
        return ReceivedBatch(given) if given else None

    def acknowledge(self, batch: ReceivedBatch, refused: Collection[str] = ()) -> None:
        pass

    def close(self) -> None:
        pass


def record(body: bytes) -> ReceivedMessage:
    return ReceivedMessage(body, uuid.uuid4().hex, datetime.now(UTC), "memory:pings")


def entries(stream: Stream, settings: Settings) -> list[dict[str, Any]]:
    rows = Appendable(open_lake(settings), QUARANTINE).rows(equal("asset", stream.asset))
    return list(rows.to_pylist())


class ImpatientWithRefused(QueueInlet):
    """What is refused comes back at once, not when its time is over."""

    def acknowledge(self, batch: ReceivedBatch, refused: Collection[str] = ()) -> None:
        back = [self._messages[each] for each in refused]
        super().acknowledge(batch, refused)
        assert self._queue is not None
        self._queue.extend(back, 0)


@pytest.fixture
def post(cloud: Settings) -> Post:
    name = toy.new_name()
    stream = toy.stream(name)
    return Post(stream, toy.make_queue(cloud, f"queue-{name}", receives=2), cloud, toy.Heard())


def test_messages_are_written_to_their_hour_and_deleted_from_the_queue(post: Post) -> None:
    post.queue.send([toy.ping("a", minute=1), toy.ping("b", minute=2, strength=3.5)])
    shift = post.shift()
    shift.step()
    rows = toy.kept(post.stream, post.settings)
    assert [(row["gadget"], row["strength"], row["hour"]) for row in rows] == [
        ("a", 1.0, toy.HOUR),
        ("b", 3.5, toy.HOUR),
    ]
    assert {row["message_source"] for row in rows} == {f"sqs:{post.stream.queue}"}
    assert all(row["sent_at"] is not None and row["topic_id"] is None for row in rows)
    assert post.queue.receive(0) == []


def test_redelivered_message_adds_no_second_row(post: Post) -> None:
    post.queue.send([toy.ping("a")])
    first = post.shift(KilledBeforeItAcknowledges)
    first.step()
    again = post.shift()  # another process, that knows nothing of the first
    again.step()
    assert post.kept() == ["a"]
    assert (first.counts.added, again.counts.received, again.counts.added) == (1, 1, 0)
    assert post.queue.receive(0) == []


def test_two_concurrent_shifts_process_each_message_once(post: Post) -> None:
    one, two = post.shift(), post.shift()
    for n in range(6):
        post.queue.send([toy.ping(f"g{n}{i}") for i in range(3)])
        (one if n % 2 else two).step()
    assert post.kept() == sorted(f"g{n}{i}" for n in range(6) for i in range(3))


NO_ROWS = {
    "junk": "malformed",
    "[1, 2]": "malformed",
    '{"gadget": "x", "at": "2026-10-01T00:00:00Z", "strength": "warm"}': "bad_type",
    '{"gadget": "x", "at": 3, "strength": 1}': "bad_type",
    '{"gadget": "x", "at": "2026-10-01T00:00:00Z", "strength": NaN}': "malformed",
    '{"gadget": "", "at": "2026-10-01T00:00:00Z", "strength": 1}': "null_value",
    '{"gadget": "x", "strength": 1}': "null_value",
    '{"gadget": "x", "at": "2016-10-01T00:00:00Z", "strength": 1}': "before_start",
    '{"gadget": "x", "at": "9999-12-31T23:00:00Z", "strength": 1}': "in_future",
    '{"gadget": "x", "at": "2026-10-01T00:00:00Z", "strength": -1}': "weak",
    '{"gadget": "\\ud800", "at": "2026-10-01T00:00:00Z", "strength": 1}': "malformed",
}
"""Bodies that become no row, and the reasons."""


def test_invalid_messages_are_quarantined_and_valid_ones_loaded(post: Post) -> None:
    post.queue.send([toy.ping("a"), *NO_ROWS, toy.ping("b")])
    shift = post.shift()
    shift.step()
    assert post.kept() == ["a", "b"]
    assert sorted(post.quarantined()) == sorted((reason, body) for body, reason in NO_ROWS.items())
    assert shift.counts.refused == len(NO_ROWS)
    shift.step()
    assert post.heard.quarantined == Counter(NO_ROWS.values())


def test_invalid_message_is_quarantined_once_and_ends_in_the_dead_letter_queue(post: Post) -> None:
    post.queue.send(["junk"])
    shift = post.shift(ImpatientWithRefused)

    def given_up() -> None:
        shift.step()
        assert post.queue.dead_letters() == 1

    eventually(given_up, seconds=60)
    assert shift.counts.received == 2, "received as often as the queue allows"
    assert post.quarantined() == [("malformed", "junk")]


def test_shift_works_with_any_queue_that_redelivers(cloud: Settings) -> None:
    stream, queue = toy.stream(toy.new_name()), FakeMessageSource()
    queue.send([toy.ping("a"), "junk", toy.ping("b")])
    shift = toy.shift(stream, cloud, [QueueInlet("memory:pings", lambda: queue)])
    shift.step()
    assert [row["gadget"] for row in toy.kept(stream, cloud)] == ["a", "b"]
    assert [message.body for message in queue.in_flight.values()] == ["junk"]
    queue.redeliver()
    shift.step()
    assert len(toy.kept(stream, cloud)) == 2


@pytest.mark.parametrize(
    "body", [b"\xff\xfe{}", '{"gadget": "é", "at": "2026-10-01", "strength": 1}'.encode("latin-1")]
)
def test_undecodable_message_is_quarantined_as_base64(cloud: Settings, body: bytes) -> None:
    stream = toy.stream(toy.new_name())
    shift = toy.shift(stream, cloud, [OnceInlet((record(body), record(toy.ping("a").encode())))])
    shift.step()
    assert [row["gadget"] for row in toy.kept(stream, cloud)] == ["a"]
    (entry,) = entries(stream, cloud)
    assert (entry["reason"], base64.b64decode(entry["content"])) == ("not_utf8", body)


def test_log_position_is_committed_with_its_rows_and_found_quickly(
    cloud: Settings, note: Callable[[str], None]
) -> None:
    stream = toy.stream(toy.new_name())
    table = Appendable(open_lake(cloud), stream.table)
    for n in range(0, 1000, 10):  # a file for each of ten hours
        pings = [toy.ping("g", minute=-60 * hour) for hour in range(10)]
        made = [toy.record_row(stream, each, offset=n + at) for at, each in enumerate(pings)]
        table.commit(TableCommit(rows_of(table.schema, made), properties={"log": str(n + 10)}))
    looks = []
    for _ in range(5):
        began = time.perf_counter()
        table.refresh()
        assert table.newest("log") == "1000"
        looks.append(time.perf_counter() - began)
    note(f"where to read on, among 1,000 files in 100 commits: {min(looks) * 1000:.0f} ms")
    assert min(looks) < 0.05
    table.commit(TableCommit(rows_of(table.schema, []), properties={"log": "2000"}))
    assert table.newest("log") == "2000", "a range without any record is read only once"
    assert highest_offsets(table, "kafka:pings") == ("topic-1", {0: 999}), "where no snapshot says it, the rows do"
    assert highest_offsets(table, "kafka:others") is None


@dataclass
class HalfInlet(OnceInlet):
    """A part of it cannot be read for two looks."""

    looks: int = 0

    def hindrances(self) -> Collection[str]:
        self.looks += 1
        return {"memory:pings/1 has no leader"} if self.looks < 3 else ()


def test_unreadable_inlet_partition_is_logged_once_and_others_are_read(
    cloud: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    stream = toy.stream(toy.new_name())
    shift = toy.shift(stream, cloud, [HalfInlet((record(toy.ping("a").encode()),))])
    began, hindrances = shift.looked_at, list[str]()
    with caplog.at_level("INFO"):
        for _ in range(4):
            shift.step()
            hindrances.append(shift.hindrance)
            assert (shift.looked_at == began) == bool(shift.hindrance), "an inlet that is read in part is not read"
    assert hindrances == ["memory:pings/1 has no leader"] * 2 + [""] * 2
    said = [each.getMessage() for each in caplog.records if "leader" in each.getMessage()]
    assert said == ["memory:pings/1 has no leader", "resolved: memory:pings/1 has no leader"]
    assert len(toy.kept(stream, cloud)) == 1


def received(shift: Shift) -> ReceivedBatch:
    batch = shift.inlets[0].receive(None, 1)
    assert batch is not None
    return batch


def test_message_values_are_converted_to_their_column_types(post: Post) -> None:
    post.queue.send(
        [
            '{"gadget": 17, "at": "2026-10-01 10:00:00", "strength": "4", "colour": "red"}',
            '{"strength": 2.5, "at": "2026-10-01T12:30:00.123456+02:00", "gadget": "b"}',
        ]
    )
    post.shift().step()
    rows = toy.kept(post.stream, post.settings)
    assert [(row["gadget"], row["strength"], f"{row['at']:%d %H:%M:%S.%f}", f"{row['hour']:%H}") for row in rows] == [
        ("17", 4.0, "01 10:00:00.000000", "10"),
        ("b", 2.5, "01 10:30:00.123456", "10"),
    ]


def test_committed_messages_are_reported_by_hour_with_the_oldest_arrival(post: Post) -> None:
    shift = post.shift()
    before = time.time()
    post.queue.send([toy.ping("a"), toy.ping("b", minute=-90)])
    shift.step()
    reported = {partition: at for _, partition, _, at in post.heard.observations}
    hours = [f"{toy.HOUR - timedelta(hours=h):%Y-%m-%d-%H:%M}" for h in (2, 0)]
    assert sorted(reported) == hours
    assert all(before - 1 < at < time.time() + 1 for at in reported.values())


def test_commit_a_killed_shift_did_not_report_is_reported_by_the_next(post: Post) -> None:
    post.queue.send([toy.ping("a")])
    killed = post.shift()
    killed._process(killed.inlets[0], received(killed), {})
    assert post.heard.observations == []
    following = post.shift()
    following._catch_up()
    following.step()
    assert [partition for _, partition, _, _ in post.heard.observations] == [f"{toy.HOUR:%Y-%m-%d-%H:%M}"]
    third = post.shift()
    third._catch_up()
    third.step()
    assert len(post.heard.observations) == 1, "reported twice"
