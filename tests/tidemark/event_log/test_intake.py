"""One bad event harms only its own partition; and what the tags of good ones mean."""

import json
import logging
from collections.abc import Iterator
from dataclasses import replace

import dagster as dg
import pytest
import sqlalchemy
from dagster._core.storage.event_log.schema import SqlEventLogStorageTable as Table

from dagster_tidemark.asset_graph.planner_graph import graph_of
from dagster_tidemark.dagster_internals import event_time
from dagster_tidemark.event_log import intake
from dagster_tidemark.event_log.consumer import LogConsumer
from dagster_tidemark.event_log.event_rows import Event, EventKind
from dagster_tidemark.planner.graph import Graph
from dagster_tidemark.planner.history import History
from dagster_tidemark.simulation.instance import simulated_instance
from dagster_tidemark.simulation.log import Clock, SimulatedLog
from dagster_tidemark.tags import DATA_VERSION
from tests.tidemark.toy_graph import START, asset, small

RAW, CORE = "raw/orders", "core/orders"
H7, H8, H9 = "2026-10-05-07:00", "2026-10-05-08:00", "2026-10-05-09:00"


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with simulated_instance() as made:
        yield made


@pytest.fixture
def follower(instance: dg.DagsterInstance) -> LogConsumer:
    return started(instance)


def started(instance: dg.DagsterInstance) -> LogConsumer:
    return LogConsumer.started(instance, graph_of(dg.Definitions(small()).resolve_asset_graph()))


def observe(instance: dg.DagsterInstance, partition: str, **tags: str) -> None:
    named = {f"tidemark/{name}": value for name, value in tags.items() if name != "version"}
    version = {DATA_VERSION: tags["version"]} if "version" in tags else {}
    event = dg.AssetObservation(RAW.split("/"), partition=partition, tags=named | version)
    instance.report_runless_asset_event(event)


def look(follower: LogConsumer, instance: dg.DagsterInstance) -> None:
    assert follower.read(instance, lambda: False) == ""


def spoil(instance: dg.DagsterInstance, partition: str, text: str) -> None:
    with instance.event_log_storage.index_connection() as connection:  # type: ignore[attr-defined]
        connection.execute(sqlalchemy.update(Table).where(Table.c.partition == partition).values(event=text))


@pytest.mark.parametrize("text", ["", "{", "[]", '{"dagster_event": null}', json.dumps({"timestamp": "yesterday"})])
def test_malformed_event_is_set_aside_and_other_events_are_read(
    instance: dg.DagsterInstance, follower: LogConsumer, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    observe(instance, H7, version="1")
    spoil(instance, H7, text)
    observe(instance, H8, version="1")
    with caplog.at_level(logging.WARNING):
        look(follower, instance)
        look(follower, instance)
    assert "cannot be read" in follower.history.set_aside[(RAW, H7)]
    assert follower.history.facts.with_content(RAW) == {H8}
    assert len([record for record in caplog.records if H7 in record.getMessage()]) == 1, "said once"


@pytest.mark.parametrize("tag", ["arrived_at", "listed_at"])
@pytest.mark.parametrize("value", ["", "soon", "nan", "-inf", "1e999"])
def test_event_with_an_invalid_time_is_set_aside(
    instance: dg.DagsterInstance, follower: LogConsumer, tag: str, value: str
) -> None:
    observe(instance, H7, version="1", **{tag: value})
    observe(instance, H8, version="1")
    look(follower, instance)
    assert "cannot be applied" in follower.history.set_aside[(RAW, H7)]
    assert follower.history.facts.with_content(RAW) == {H8}


def test_partition_stays_set_aside_after_a_restart_until_a_valid_event_arrives(
    instance: dg.DagsterInstance, follower: LogConsumer
) -> None:
    observe(instance, H7, version="1", arrived_at="soon")
    observe(instance, H8, version="1")
    look(follower, instance)
    follower.save(instance)
    again = started(instance)
    look(again, instance)
    assert (RAW, H7) in again.history.set_aside
    again.adopt(graph_of(dg.Definitions(small()).resolve_asset_graph()))
    assert (RAW, H7) in again.history.set_aside
    observe(instance, H7, version="1")
    look(again, instance)
    assert (RAW, H7) not in again.history.set_aside
    assert again.history.facts.with_content(RAW) == {H7, H8}


@pytest.mark.parametrize("arrived_at", ["1e18", "-1e18", "0", "99999999999"])
def test_implausible_arrival_time_does_not_affect_later_observations(
    instance: dg.DagsterInstance, follower: LogConsumer, arrived_at: str
) -> None:
    observe(instance, H7, version="1", arrived_at=arrived_at, listed_at="99999999999")
    look(follower, instance)
    now = event_time.now()
    assert now - 4000 * 86_400 < follower.history.facts.first_arrival((RAW, H7)) <= now
    observe(instance, H7, version="2", arrived_at=f"{now}", listed_at=f"{now}")
    look(follower, instance)
    assert follower.history.facts.version((RAW, H7)) == "2", "the listing of the far future is no later one"


def test_observation_of_a_clock_one_day_ahead_does_not_hide_later_ones(
    instance: dg.DagsterInstance, follower: LogConsumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = event_time.now()
    with pytest.MonkeyPatch.context() as ahead:
        ahead.setattr("time.time", lambda: now + 86_400)
        observe(instance, H7, version="1", arrived_at=f"{now + 86_400}", listed_at=f"{now + 86_400}")
    look(follower, instance)
    observe(instance, H7, version="2", arrived_at=f"{now}", listed_at=f"{now}")
    look(follower, instance)
    assert follower.history.facts.version((RAW, H7)) == "2"


def test_observation_without_a_listing_time_counts_after_a_clock_step_back(
    instance: dg.DagsterInstance, follower: LogConsumer
) -> None:
    now = event_time.now()
    observe(instance, H7, version="1", listed_at=f"{now + 600}")
    observe(instance, H7, version="2")
    look(follower, instance)
    assert follower.history.facts.version((RAW, H7)) == "2"


def test_observation_without_a_version_counts_as_new_and_is_logged_once(
    instance: dg.DagsterInstance, follower: LogConsumer, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        for partition in (H7, H7, H8):
            observe(instance, partition)
            look(follower, instance)
    first = follower.history.facts.version((RAW, H7)), follower.history.facts.version((RAW, H8))
    observe(instance, H7)
    look(follower, instance)
    assert follower.history.facts.version((RAW, H7)) != first[0] != first[1]
    assert [record.getMessage() for record in caplog.records] == [f"{RAW}: {intake.NO_VERSION}"]
    assert follower.notes == {RAW: intake.NO_VERSION}


def test_observation_without_a_version_of_an_unread_asset_is_not_logged(
    instance: dg.DagsterInstance, caplog: pytest.LogCaptureFixture
) -> None:
    unread = dg.AssetsDefinition(specs=[dg.AssetSpec(["ops", "incidents"])])
    follower = LogConsumer.started(instance, graph_of(dg.Definitions([*small(), unread]).resolve_asset_graph()))
    instance.report_runless_asset_event(dg.AssetObservation(["ops", "incidents"], metadata={"open": 1}))
    with caplog.at_level(logging.WARNING):
        look(follower, instance)
    assert follower.history.facts.version(("ops/incidents", None)), "the observation was read"
    assert not caplog.records and not follower.notes


def test_event_that_raises_in_the_history_is_the_only_one_set_aside(
    instance: dg.DagsterInstance, follower: LogConsumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    sound = History.materialized

    def raising(self: History, target: tuple[str, str | None], **told: object) -> None:
        if target[1] == H7:
            raise KeyError("somebody's mapping")
        sound(self, target, **told)  # type: ignore[arg-type]

    monkeypatch.setattr(History, "materialized", raising)
    for partition in (H7, H8):
        instance.report_runless_asset_event(dg.AssetMaterialization(CORE.split("/"), partition=partition))
    look(follower, instance)
    assert "somebody's mapping" in follower.history.set_aside[(CORE, H7)]
    assert follower.history.facts.with_content(CORE) == {H8}


def test_code_version_equal_to_the_run_id_is_ignored() -> None:
    tags = {"dagster/code_version": "the-run"}
    assert Event(1, EventKind.MATERIALIZED, CORE, (H7,), "the-run", 0.0, tags).code_version is None
    assert Event(1, EventKind.MATERIALIZED, CORE, (H7,), "another", 0.0, tags).code_version == "the-run"


def test_asset_without_a_code_version_is_read_without_one(instance: dg.DagsterInstance) -> None:
    @dg.asset
    def plain() -> None: ...

    dg.materialize([plain], instance=instance)
    follower = LogConsumer.started(instance, graph_of(dg.Definitions([plain]).resolve_asset_graph()))
    look(follower, instance)
    assert follower.history.facts.builds()[("plain", None)].code_version is None


def test_only_blocking_checks_of_the_evaluated_asset_are_applied(
    instance: dg.DagsterInstance, follower: LogConsumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[tuple[object, ...]] = []
    monkeypatch.setattr(
        History,
        "checked",
        lambda _, target, check, *, passed, run_id, **_more: told.append((target, check, passed, run_id)),
    )
    nodes = dict(follower.history.graph.nodes)
    nodes[CORE] = replace(nodes[CORE], blocking=frozenset({"rows"}))
    follower.adopt(Graph(nodes))
    for checked, check in ((CORE, "rows"), (CORE, "contract"), ("marts/hourly", "rows")):
        evaluation = dg.AssetCheckEvaluation(dg.AssetKey(checked.split("/")), check, passed=False, metadata={})
        instance.report_runless_asset_event(evaluation)
    look(follower, instance)
    assert told == [((CORE, None), "rows", False, None)]


def test_runs_of_another_code_location_are_read_and_block_nothing(instance: dg.DagsterInstance) -> None:
    theirs = dg.Definitions([asset("far/table"), asset("far/unknown")]).resolve_asset_graph()
    ours = graph_of(
        dg.Definitions([dg.AssetSpec(["far", "table"]), asset("our/mart", "far/table")]).resolve_asset_graph()
    )
    log = SimulatedLog(instance, Clock(START.timestamp()), theirs)
    follower = LogConsumer.started(instance, ours)
    with log.clock.frozen():
        log.created("done", ["far/table", "far/unknown"], {})
        log.materialized("done", "far/table", {None: "content"})
        log.state("done", dg.DagsterEventType.RUN_SUCCESS)
        log.created("stuck", ["far/table"], {})
        log.created("deleted", ["far/table"], {})
        for _ in range(2):
            look(follower, instance)
        assert follower.history.running == {("far/table", None): {"stuck", "deleted"}}
        instance.delete_run("deleted")
        log.state("stuck", dg.DagsterEventType.RUN_FAILURE)
        look(follower, instance)
    history = follower.history
    assert not history.running and not history.open_runs
    assert history.facts.builds()[("far/table", None)].run_id == "done"
    assert [change.run_id for change in history.facts.changes(("far/table", None))] == ["done"]


def test_unplanned_materialization_is_a_change_for_readers_but_not_a_running_run(
    instance: dg.DagsterInstance, follower: LogConsumer
) -> None:
    @dg.op
    def stays(context: dg.OpExecutionContext) -> None:
        context.log_event(dg.AssetMaterialization(CORE.split("/"), partition=H7))
        look(follower, instance)
        assert not any(run.planned for run in follower.history.open_runs.values()), "taken for running"

    @dg.job
    def shift() -> None:
        stays()

    observe(instance, H7, version="1")
    look(follower, instance)
    assert shift.execute_in_process(instance=instance).success
    look(follower, instance)
    assert len(follower.history.facts.changes((CORE, H7))) == 1, "what reads it is told"
    assert not follower.history.facts.is_built((CORE, H7)), "and what it was to contain is still pending"
