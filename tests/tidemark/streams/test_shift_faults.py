"""Faults of the world while a shift works: nothing is acknowledged too early, and no run fails. No server, no Spark."""

import logging
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from dagster_tidemark.lakehouse import append
from dagster_tidemark.lakehouse.append import Appendable, open_lake
from dagster_tidemark.lakehouse.loading.quarantine_table import QUARANTINE
from dagster_tidemark.settings import Settings
from dagster_tidemark.sources.inlets import QueueInlet
from dagster_tidemark.sources.notification_queue import FakeMessageSource, Message
from dagster_tidemark.streams import shift as shift_module
from dagster_tidemark.streams import shift_retries
from dagster_tidemark.streams.alerts import worker as alerts_module
from dagster_tidemark.streams.answers.worker import Answers
from dagster_tidemark.streams.reports import Reports
from dagster_tidemark.streams.shift import Shift
from dagster_tidemark.streams.stream_declaration import Stream, StreamContext
from tests.conftest import make_settings
from tests.tidemark.streams import questions, toy


@pytest.fixture
def lake(tmp_path: Path) -> Settings:
    settings = make_settings(tmp_path)
    Path(settings.warehouse).mkdir()
    return settings


def entries(settings: Settings) -> list[str]:
    return sorted(row["content"] for row in Appendable(open_lake(settings), QUARANTINE).rows().to_pylist())


class Killed(BaseException):
    """Simulates the end of the process."""


class DiesOnDelete(FakeMessageSource):
    """The process is killed right after it has acknowledged something."""

    def delete(self, messages: Sequence[Message]) -> None:
        super().delete(messages)
        raise Killed


def worker(stream: Stream, settings: Settings, queue: FakeMessageSource, **more: Any) -> Shift:
    return toy.shift(stream, settings, [QueueInlet("memory:pings", lambda: queue)], **more)


def answering(settings: Settings, queue: FakeMessageSource) -> Shift:
    shift = worker(questions.stream(toy.new_name()), settings, queue)
    assert isinstance(shift._reaction, Answers)
    shift._reaction.outlet = FakeMessageSource()
    shift._catch_up()
    return shift


def test_answered_invalid_messages_are_quarantined_before_they_are_acknowledged(lake: Settings) -> None:
    queue = DiesOnDelete()
    asked = [f'{{"request_id": "r{n}", "number": "x"}}' for n in range(8)]
    queue.send(asked)
    shift = answering(lake, queue)
    shift._entered_at = time.monotonic()  # other entries were written a moment ago
    with pytest.raises(Killed):
        shift.step()
    assert queue.in_flight == {}, "all of them were answered and acknowledged"
    assert entries(lake) == asked


@pytest.mark.parametrize("receives", [1, 3])
def test_message_is_quarantined_at_its_last_receive_before_the_queue_discards_it(lake: Settings, receives: int) -> None:
    stream, queue = toy.stream(toy.new_name()), FakeMessageSource(max_receives=receives)
    queue.send(["junk", toy.ping("a")])
    while not queue.dead:
        shift = worker(stream, lake, queue)
        shift._entered_at = time.monotonic()
        shift._process(shift.inlets[0], shift.inlets[0].receive(None, 0), {})  # type: ignore[arg-type]
        queue.redeliver()  # killed before any deferred entry is written
    assert entries(lake) == ["junk"]


class OfAnotherMake:
    """A queue that does not say when it gives a message up."""

    def __init__(self, queue: FakeMessageSource) -> None:
        self.receive, self.extend, self.delete = queue.receive, queue.extend, queue.delete
        self.dead_letters = queue.dead_letters


def test_invalid_message_is_quarantined_at_once_if_the_receive_limit_is_unknown(lake: Settings) -> None:
    stream, queue = toy.stream(toy.new_name()), FakeMessageSource()
    queue.send(["junk"])
    shift = toy.shift(stream, lake, [QueueInlet("memory:pings", lambda: OfAnotherMake(queue))])
    shift._entered_at = time.monotonic()
    shift._process(shift.inlets[0], shift.inlets[0].receive(None, 0), {})  # type: ignore[arg-type]
    assert entries(lake) == ["junk"]


@contextmanager
def locked(settings: Settings) -> Iterator[None]:
    """Another process holds the catalog's database."""
    path = settings.catalog_uri.partition("file:")[2] or settings.catalog_uri.removeprefix("jdbc:sqlite:")
    with sqlite3.connect(path.removeprefix("//"), check_same_thread=False) as other:
        other.execute("BEGIN EXCLUSIVE")
        try:
            yield
        finally:
            other.rollback()


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Retries follow at once, and a locked database is reported at once."""
    monkeypatch.setattr(shift_retries, "LONGEST_BACKOFF", 0.05)
    monkeypatch.setattr(shift_module, "LONGEST_BACKOFF", 0.05)


def until(settings: Settings, stream: Stream, queue: FakeMessageSource, ends: Callable[[], str | None]) -> Shift:
    place = StreamContext(settings, open_lake(settings), stream)
    return Shift(place, [QueueInlet("memory:pings", lambda: queue)], Reports(stream, toy.Heard()), "code-1", ends)


class TException(Exception):
    """The base of all errors of thrift and of a Hive metastore."""

    __module__ = "thrift.Thrift"


class TTransportException(TException):
    __module__ = "thrift.transport.TTransport"


class MetaException(TException):
    __module__ = "hive_metastore.ttypes"


class InvalidOperationException(TException):
    __module__ = "hive_metastore.ttypes"


@pytest.mark.usefixtures("hasty")
@pytest.mark.parametrize("kind", [TTransportException, MetaException])
def test_hive_metastore_that_is_away_fails_no_shift(lake: Settings, kind: type[Exception]) -> None:
    stream, queue = toy.stream(toy.new_name()), FakeMessageSource()
    shift, failures = worker(stream, lake, queue), [kind("could not connect to metastore:9083")] * 4
    add = shift._kept.add

    def fails(*arguments: Any) -> Any:
        if failures:
            raise failures.pop()
        return add(*arguments)

    shift._kept.add = fails  # type: ignore[method-assign]
    queue.send([toy.ping("a")])
    shift.step()
    assert (failures, [row["gadget"] for row in toy.kept(stream, lake)]) == ([], ["a"])


def test_answer_of_a_hive_metastore_is_no_fault_of_the_service() -> None:
    kinds = (TTransportException, MetaException, InvalidOperationException, TException, ValueError)
    assert [shift_retries.is_of_the_world(kind("said")) for kind in kinds] == [True, True, False, False, False]


@pytest.mark.usefixtures("hasty")
@pytest.mark.parametrize("moment", ["start", "step", "commit", "report", "end"])
def test_locked_catalog_fails_no_shift_at_any_stage(lake: Settings, moment: str) -> None:
    stream, queue = toy.stream(toy.new_name(), quiet=timedelta(0)), FakeMessageSource()
    over = threading.Event()
    shift = until(lake, stream, queue, lambda: "the hour is over" if over.is_set() else None)
    queue.send([toy.ping("a"), "junk"])
    at = {"start": (shift, "_catch_up"), "step": (shift._kept, "look"), "commit": (shift._kept, "add")}
    owner, name = at.get(moment, (shift.reports, "flush"))
    lock, went = locked(lake), getattr(owner, name)
    held = threading.Event()

    def first_locked(*arguments: Any) -> Any:
        if not held.is_set():
            held.set()
            lock.__enter__()
            threading.Timer(1.5, lambda: (lock.__exit__(None, None, None), gone.set())).start()
            if moment == "end":
                over.set()
        return went(*arguments)

    gone, ended = threading.Event(), list[str]()
    setattr(owner, name, first_locked)
    run = threading.Thread(target=lambda: ended.append(shift.work()))
    run.start()
    assert gone.wait(30)
    if moment != "end":
        deadline = time.monotonic() + 30
        while queue.in_flight.keys() != {"2"} or shift.counts.added != 1:
            assert run.is_alive() and time.monotonic() < deadline
            time.sleep(0.05)
    time.sleep(0.5)
    over.set()
    run.join(30)
    assert ended and "the hour is over" in ended[0]
    if moment != "end":
        assert [row["gadget"] for row in toy.kept(stream, lake)] == ["a"]
        assert entries(lake) == ["junk"]


def test_repeated_snapshot_expiry_logs_nothing_and_each_failure_only_once(
    lake: Settings, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (shift_module, alerts_module):
        monkeypatch.setattr(module, "_KEEP_SNAPSHOTS", 5)
    stream, queue = toy.stream_with_alerts(toy.new_name()), FakeMessageSource()
    shift = worker(stream, lake, queue)
    alerts = shift._reaction
    assert alerts is not None
    table, kept = Appendable(open_lake(lake), stream.table), Appendable(open_lake(lake), toy.alerts(stream.name))
    for writer in (table, kept):
        for _ in range(31):
            writer.commit(append.TableCommit(append.rows_of(writer.schema, [])))
    shift._catch_up()
    shift._following.log = shift._expiring.log = shift.log = log = logging.getLogger("a shift")
    loads = []
    monkeypatch.setattr(
        shift.place.lake, "load_table", lambda name, of=shift.place.lake.load_table: loads.append(name) or of(name)
    )
    with caplog.at_level(logging.INFO, log.name):
        shift._look_after()
        loads.clear()
        for _ in range(5):
            shift._look_after()
        assert (caplog.messages, loads) == ([], []), "the catalog is asked only if there is something to expire"
        assert [len(list(w._ancestors())) for w in (table, kept) if w.refresh() or True] == [5, 5]
        before = alerts.look_after  # type: ignore[attr-defined]

        def fails() -> None:
            raise OSError("no such bucket")

        alerts.look_after = fails  # type: ignore[attr-defined]
        for _ in range(30):
            table.commit(append.TableCommit(append.rows_of(table.schema, [])))
        shift._kept.look()
        for _ in range(5):
            shift._following.again_at = 0.0
            shift._look_after()
        table.refresh()
        assert len(list(table._ancestors())) == 5, "the stream's own table is not held up"
        assert [m for m in caplog.messages if "no such bucket" in m] == [caplog.messages[0]]
        alerts.look_after = before  # type: ignore[attr-defined]
        shift._following.again_at = 0.0
        shift._look_after()
        assert "succeeded after 5 failures" in caplog.messages[-1]


def test_undeletable_file_of_an_expired_snapshot_is_reported_and_others_deleted(
    lake: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = Appendable(open_lake(lake), replace(toy.table("expiring"), name="raw.expiring"))
    for _ in range(6):
        table.commit(append.TableCommit(append.rows_of(table.schema, [])))
    old = [snapshot.manifest_list for snapshot in table._ancestors()][2:]
    io = type(table._loaded.io)
    delete = io.delete

    def refuses_one(self: Any, location: Any) -> None:
        if location == old[0]:
            raise PermissionError("not yours")
        delete(self, location)

    monkeypatch.setattr(io, "delete", refuses_one)
    with pytest.raises(OSError, match=r"1 of 4 files of expired snapshots could not be deleted: .*: not yours"):
        table.expire(keep=2)
    assert [Path(path.removeprefix("file://")).exists() for path in old] == [True, False, False, False]
    assert table.expire(keep=2) == 0
