"""The sensor `maintenance` requests one run when something is due and nothing else is, and says why it does not."""

import threading
import time
from dataclasses import replace

import dagster as dg
import pytest
from dagster import DagsterInstance, DagsterRunStatus
from dagster._core.test_utils import create_run_for_test

from dagster_tidemark.lakehouse import append
from dagster_tidemark.lakehouse.maintenance.due import Action, LastAction, MaintenancePolicy
from dagster_tidemark.lakehouse.maintenance.orphans import OrphanSearch
from dagster_tidemark.maintenance.lake_facts import LakeFacts
from dagster_tidemark.maintenance.maintained_tables import TableUpkeep, save_upkeep, saved_upkeep
from dagster_tidemark.maintenance.maintenance_overview import keep_overview, kept_overview
from dagster_tidemark.maintenance.spare_time import open_runs
from dagster_tidemark.planner.decisions import Decision, Plan, State
from dagster_tidemark.sensors.maintenance_sensor import FactsReader, look, maintenance_sensor
from dagster_tidemark.settings import Settings
from dagster_tidemark.tags import MAINTENANCE
from tests.tidemark.maintenance.conftest import commits, queued_run, table

POLICY = MaintenancePolicy(small_files=5)
ORDERS, BAD = table("core.orders"), table("core.bad")


@pytest.fixture
def reader(settings: Settings) -> FactsReader:
    tables = {t.name: t for t in (ORDERS, BAD)}
    return FactsReader(settings, tables, LakeFacts(tables, POLICY))


def test_due_maintenance_is_requested_when_nothing_else_is_due(
    settings: Settings, instance: DagsterInstance, reader: FactsReader
) -> None:
    assert look(instance, settings, reader, lambda: Plan(0.0), time.time()).why_not == "nothing is due"
    commits(settings, ORDERS, 6)
    found = look(instance, settings, reader, lambda: Plan(0.0), time.time())
    assert (found.why_not, [each.action for each in found.due]) == ("", [Action.COMPACT])
    assert list(found.lines()) == ["maintenance of core.orders: would rewrite_data_files (6 small files); requested"]
    now = time.time()
    soon = Plan(now, {("marts/x", None): Decision("marts/x", None, State.NOT_DUE, "", due_at=now + 30)})
    found = look(instance, settings, reader, lambda: soon, now)
    assert found.why_not.startswith("marts/x is due at ")
    keep_overview(instance, settings.code_location, found)
    assert kept_overview(instance, settings.code_location) == found
    [line] = found.lines()
    assert line.startswith("maintenance of core.orders: would rewrite_data_files (6 small files); not now: marts/x is")


def test_spare_time_must_fit_the_usual_duration(
    settings: Settings, instance: DagsterInstance, reader: FactsReader
) -> None:
    commits(settings, ORDERS, 6)
    usual = TableUpkeep({Action.COMPACT: LastAction(0.0, seconds=400)}, OrphanSearch(7.0, frozenset({"a"})))
    save_upkeep(instance, settings.code_location, ORDERS.name, usual)
    assert saved_upkeep(instance, settings.code_location, [ORDERS.name]) == {ORDERS.name: usual}
    now = time.time()
    due = {at: Plan(now, {("x", None): Decision("x", None, State.NOT_DUE, "", due_at=now + at)}) for at in (590, 610)}
    assert "may take 600 s" in look(instance, settings, reader, lambda: due[590], now).why_not
    assert look(instance, settings, reader, lambda: due[610], now).why_not == ""


def test_no_metadata_is_read_while_no_run_could_start(
    settings: Settings, instance: DagsterInstance, reader: FactsReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader, "read", lambda *_: pytest.fail("read"))
    queued_run(instance)
    assert look(instance, settings, reader, lambda: Plan(0.0), time.time()).why_not == "1 runs wait in the queue"


def test_failed_runs_are_followed_by_growing_pauses(
    settings: Settings, instance: DagsterInstance, reader: FactsReader
) -> None:
    commits(settings, ORDERS, 6)

    def why(after: float) -> str:
        return look(instance, settings, reader, lambda: Plan(0.0), time.time() + after).why_not

    tags = {MAINTENANCE: settings.code_location}
    for failures, pause in ((1, 60), (2, 120), (3, 240)):
        instance.report_run_failed(create_run_for_test(instance, status=DagsterRunStatus.STARTED, tags=tags))
        assert why(0).startswith(f"the last {failures} runs of maintenance failed; the next starts in ")
        assert why(pause - 5) and not why(pause + 5)
    create_run_for_test(instance, status=DagsterRunStatus.SUCCESS, tags=tags)
    assert why(0) == ""
    create_run_for_test(instance, status=DagsterRunStatus.STARTED, tags=tags)
    assert "maintains tables" in why(0), "also a run by hand"


def test_slow_store_delays_no_tick_and_is_named(
    settings: Settings, instance: DagsterInstance, reader: FactsReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    commits(settings, ORDERS, 6)
    go_on, opened = threading.Event(), append.open_lake

    def slow(of: Settings) -> object:
        go_on.wait(30)
        return opened(of)

    monkeypatch.setattr(append, "open_lake", slow)
    monkeypatch.setattr("dagster_tidemark.sensors.maintenance_sensor._READ_SECONDS", 0.2)
    runs = open_runs(instance, time.time())
    began = time.monotonic()
    for _ in range(2):
        assert reader.read(instance, runs, time.time(), 0.2) == (
            "the metadata of the catalog is being read for more than 0 s"
        )
    assert time.monotonic() - began < 5 and reader.due(time.time()) == []
    go_on.set()
    assert reader._thread is not None
    reader._thread.join(30)
    assert [each.action for each in reader.due(time.time())] == [Action.COMPACT]


def test_catalog_that_does_not_answer_is_named(instance: DagsterInstance, settings: Settings) -> None:
    gone = replace_settings(settings)
    reader = FactsReader(gone, {ORDERS.name: ORDERS})
    why = look(instance, gone, reader, lambda: Plan(0.0), time.time()).why_not
    assert why.startswith("the catalog jdbc:sqlite:/nowhere/catalog.db does not answer:")


def replace_settings(settings: Settings) -> Settings:
    return settings.model_copy(update={"catalog": {}, "catalog_uri": "jdbc:sqlite:/nowhere/catalog.db"})


def test_wrong_property_of_one_table_is_named_and_stops_no_other(
    settings: Settings, instance: DagsterInstance, reader: FactsReader
) -> None:
    commits(settings, ORDERS, 6)
    wrong = {"write.target-file-size-bytes": "large"}
    commits(settings, BAD, 6).commit(append.TableCommit(marks=wrong))
    found = look(instance, settings, reader, lambda: Plan(0.0), time.time())
    assert found.why_not == "" and {each.table for each in found.due} == {"core.orders"}
    assert any(line.startswith("maintenance of core.bad: unknown: ValueError") for line in found.lines())
    assert replace(found, due=()).unreadable.keys() == {"core.bad"}


def test_sensor_requests_one_run_with_the_tables_to_maintain(
    settings: Settings, instance: DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    commits(settings, ORDERS, 50)

    @dg.asset
    def unrelated() -> None: ...

    def tick() -> object:
        made = maintenance_sensor({t.name: t for t in (ORDERS, BAD)}, settings)
        defs = dg.Definitions(assets=[unrelated], sensors=[made]).get_repository_def()
        with dg.build_sensor_context(instance, repository_def=defs, sensor_name=made.name) as context:
            return made(context)

    found = tick()
    assert isinstance(found, dg.SkipReason) and found.skip_message == "the code server has just started"
    monkeypatch.setattr("dagster_tidemark.sensors.maintenance_sensor._AFTER_START", 0.0)
    found = tick()
    assert isinstance(found, dg.SensorResult) and found.run_requests is not None
    [asked] = found.run_requests
    assert asked.run_config == {"ops": {"maintenance": {"config": {"tables": ["core.orders"], "by_hand": False}}}}
    kept = kept_overview(instance, settings.code_location)
    assert kept is not None and [line.rpartition("; ")[2] for line in kept.lines()] == ["requested"]
