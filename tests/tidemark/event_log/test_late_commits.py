"""PostgreSQL gives out an id before its event is committed: what appears behind other events is seen all the same."""

import dagster as dg
import pytest
import sqlalchemy
from dagster._core.storage.event_log.schema import SqlEventLogStorageTable as Table

from dagster_tidemark.asset_graph.planner_graph import graph_of
from dagster_tidemark.dagster_internals import event_time
from dagster_tidemark.event_log import reader
from dagster_tidemark.event_log.consumer import LogConsumer
from dagster_tidemark.tags import DATA_VERSION
from tests.tidemark.toy_graph import HOURS, small

RAW, CORE = "raw/orders", "core/orders"
GRAPH = dg.Definitions(small()).resolve_asset_graph()
PARTITIONS = iter(HOURS.get_partition_keys()[::-1])


@pytest.fixture(scope="module")
def instance(postgres: dg.DagsterInstance) -> dg.DagsterInstance:
    return postgres


class Clock:
    """This process' own clock, which nothing sets back."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        monkeypatch.setattr(reader.time, "monotonic", lambda: self.now)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def observe(instance: dg.DagsterInstance, partition: str, version: str = "1") -> None:
    tags = {DATA_VERSION: version}
    instance.report_runless_asset_event(dg.AssetObservation(RAW.split("/"), partition=partition, tags=tags))


def held_back(instance: dg.DagsterInstance) -> dict[str, object]:
    """The latest event, taken out of the log as if its transaction had not been committed yet."""
    with instance.event_log_storage.index_connection() as connection:  # type: ignore[attr-defined]
        last = connection.execute(sqlalchemy.select(Table).order_by(Table.c.id.desc()).limit(1)).one()
        connection.execute(sqlalchemy.delete(Table).where(Table.c.id == last.id))
    return dict(last._mapping)


def commit(instance: dg.DagsterInstance, row: dict[str, object]) -> None:
    with instance.event_log_storage.index_connection() as connection:  # type: ignore[attr-defined]
        connection.execute(Table.insert().values(**row))


def look(follower: LogConsumer, instance: dg.DagsterInstance) -> None:
    assert follower.read(instance, lambda: False) == ""


@pytest.mark.parametrize("seconds", [0.0, 16.0, 120.0, 299.0])
@pytest.mark.parametrize("restarted", [False, True])
def test_event_committed_minutes_after_its_id_was_taken_is_read(
    instance: dg.DagsterInstance, clock: Clock, seconds: float, restarted: bool
) -> None:
    late, early, later = next(PARTITIONS), next(PARTITIONS), next(PARTITIONS)
    follower = LogConsumer.started(instance, graph_of(GRAPH))
    look(follower, instance)
    observe(instance, late)
    row = held_back(instance)
    observe(instance, early)
    look(follower, instance)
    clock.now += seconds
    observe(instance, later)
    look(follower, instance)
    if restarted:
        follower.save(instance)
        follower = LogConsumer.started(instance, graph_of(GRAPH))
    assert {early, later} <= follower.history.facts.with_content(
        RAW
    ) and late not in follower.history.facts.with_content(RAW)
    commit(instance, row)
    look(follower, instance)
    assert late in follower.history.facts.with_content(RAW)


@pytest.mark.parametrize("off", [-60.0, 60.0, -86_400.0, 86_400.0])
def test_wrong_clocks_of_writers_do_not_hide_late_commits(
    instance: dg.DagsterInstance, clock: Clock, off: float
) -> None:
    late, early = next(PARTITIONS), next(PARTITIONS)
    follower = LogConsumer.started(instance, graph_of(GRAPH))
    look(follower, instance)
    observe(instance, late)
    row = held_back(instance)
    now = event_time.now()
    with pytest.MonkeyPatch.context() as wrong:
        wrong.setattr("time.time", lambda: now + off)
        observe(instance, early)
    look(follower, instance)
    clock.now += 120
    look(follower, instance)
    commit(instance, row)
    look(follower, instance)
    assert {late, early} <= follower.history.facts.with_content(RAW)


def test_late_commit_does_not_override_a_newer_event(instance: dg.DagsterInstance, clock: Clock) -> None:
    partition = next(PARTITIONS)
    follower = LogConsumer.started(instance, graph_of(GRAPH))
    observe(instance, partition, "older")
    row = held_back(instance)
    observe(instance, partition, "newer")
    look(follower, instance)
    commit(instance, row)
    look(follower, instance)
    assert follower.history.facts.version((RAW, partition)) == "newer"
    ids = [change.id for change in follower.history.facts.changes((RAW, partition))]
    assert ids == sorted(ids) and ids[-1] > int(str(row["id"]))


def test_events_are_applied_once_and_old_ids_are_dropped(
    instance: dg.DagsterInstance, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    follower = LogConsumer.started(instance, graph_of(GRAPH))
    look(follower, instance)
    applied: list[int] = []
    sound = follower.intake.apply
    monkeypatch.setattr(follower.intake, "apply", lambda event: (applied.append(event.id), sound(event)))
    for _ in range(3):
        observe(instance, next(PARTITIONS))
        look(follower, instance)
        look(follower, instance)
        clock.now += 100
    assert len(applied) == len(set(applied)) == 3
    before = follower.cursor
    clock.now += 300
    look(follower, instance)
    assert follower.cursor > before and not follower.reader.seen


def test_database_restart_during_a_read_loses_and_repeats_no_event(
    instance: dg.DagsterInstance, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    follower = LogConsumer.started(instance, graph_of(GRAPH))
    look(follower, instance)
    some = [next(PARTITIONS) for _ in range(5)]
    for partition in some:
        observe(instance, partition)
    applied: list[int] = []
    sound = follower.intake.apply

    def breaking(event: object) -> None:
        applied.append(event.id)  # type: ignore[attr-defined]
        sound(event)  # type: ignore[arg-type]
        if len(applied) == 3:
            disconnect(instance)

    monkeypatch.setattr(follower.intake, "apply", breaking)
    monkeypatch.setattr(reader.event_rows, "_IDS_IN_A_QUERY", 1)
    monkeypatch.setattr(follower, "_notice_wipes", failing_once(follower._notice_wipes))
    with pytest.raises(sqlalchemy.exc.OperationalError):
        follower.read(instance, lambda: False)
    look(follower, instance)
    assert set(some) <= follower.history.facts.with_content(RAW)
    assert len(applied) == len(set(applied)) == 5


def disconnect(instance: dg.DagsterInstance) -> None:
    """End every connection, as a restart of the server does."""
    with instance.event_log_storage.index_connection() as connection:  # type: ignore[attr-defined]
        ended = "select pg_terminate_backend(pid) from pg_stat_activity where pid <> pg_backend_pid()"
        connection.execute(sqlalchemy.text(ended))


def failing_once(method):  # type: ignore[no-untyped-def]
    calls = []

    def _method(instance: dg.DagsterInstance) -> None:
        calls.append(instance)
        if len(calls) == 1:
            raise sqlalchemy.exc.OperationalError("select", {}, Exception("the server is starting up"))
        method(instance)

    return _method
