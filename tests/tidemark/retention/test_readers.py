"""Records that other readers than the planner still need stay: listeners, OpenLineage, run keys, reports of lag."""

import json
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import dagster as dg
import pytest
from dagster._core.storage.tags import RUN_KEY_TAG

from dagster_tidemark.asset_events.listen import FailedEvent, ListenerPosition
from dagster_tidemark.asset_graph import planner_graph
from dagster_tidemark.dagster_internals import event_time, instance_store, old_records
from dagster_tidemark.dagster_internals.sensor_states import SensorCursor
from dagster_tidemark.engine.lag_history import REPORTED_BY, lags
from dagster_tidemark.retention import choice, locations
from dagster_tidemark.retention.prune import is_own_sensor
from dagster_tidemark.sensors import freshness_sensor
from dagster_tidemark.simulation.simulator import Simulation
from dagster_tidemark.tags import LISTED_AT, MAINTENANCE, PRUNED
from tests.tidemark.retention.histories import pruned
from tests.tidemark.retention.test_prune import CORE, MART, TWO_HOURS, orders, run_ids


def stored(monkeypatch: pytest.MonkeyPatch, sensor: str, cursor: str) -> None:
    monkeypatch.setattr(locations, "sensor_cursors", lambda _: [SensorCursor("here", sensor, cursor)])


def ids_of(simulation: Simulation, asset: str) -> list[str]:
    return [run.id for run in simulation.runs_of(asset)]


def event_of(simulation: Simulation, run_id: str) -> int:
    events = old_records.asset_events(simulation.instance)
    return next(event.id for event in events if event.run_id == run_id and event.kind == "ASSET_MATERIALIZATION")


def test_materializations_that_a_listener_has_not_handled_stay(
    simulation: Simulation, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = ids_of(simulation, CORE)
    failed = FailedEvent(CORE, 0.0, 0.0, 1, "raised")
    position = ListenerPosition(event_of(simulation, runs[2]), {}, {event_of(simulation, runs[0]): failed}, [CORE])
    stored(monkeypatch, "tidemark_listener_crm", position.text())
    found = pruned(simulation, TWO_HOURS)
    assert {runs[0], *runs[3:]} <= run_ids(simulation.instance)
    assert run_ids(simulation.instance).isdisjoint(runs[1:3])
    assert any("tidemark_listener_crm has not handled" in why for why in found.kept)
    assert len(run_ids(simulation.instance) & set(ids_of(simulation, MART))) <= 2, "it does not hear this asset"


def test_listener_without_named_assets_hears_all_and_new_or_removed_ones_need_nothing(
    simulation: Simulation, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = planner_graph.graph_of(simulation.asset_graph)
    stored(monkeypatch, "listener_crm", ListenerPosition(5).text())
    [found] = locations.known_locations(simulation.instance, graph).listeners
    assert found.needs(6, MART) and not found.needs(5, MART)
    stored(monkeypatch, "listener_crm", ListenerPosition().text())
    assert not locations.known_locations(simulation.instance, graph).listeners
    stored(monkeypatch, "listener_crm", "a cursor of somebody's own sensor")
    assert not locations.known_locations(simulation.instance, graph).listeners
    stored(monkeypatch, "listener_crm", ListenerPosition(5).text())
    ours = locations.known_locations(simulation.instance, graph).ours or frozenset({"here"})
    monkeypatch.setattr(locations.deployed, "locations", lambda *_: ours | {"here"})
    assert not locations.known_locations(simulation.instance, graph, sensors={"contracts"}).listeners
    assert locations.known_locations(simulation.instance, graph, sensors={"listener_crm"}).listeners


def test_runs_with_a_run_key_stay_even_if_unplanned_ones_go(
    simulation: Simulation, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = ids_of(simulation, CORE)[0]
    simulation.instance.add_run_tags(first, {RUN_KEY_TAG: "file-1"})
    found = pruned(simulation, TWO_HOURS, unplanned=True)
    assert first in run_ids(simulation.instance) and any("run key" in why for why in found.kept)


def test_runs_that_are_not_reported_to_openlineage_stay(
    simulation: Simulation, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = ids_of(simulation, CORE)
    changed_at = {
        record.dagster_run.run_id: record.update_timestamp.timestamp()
        for record in simulation.instance.get_run_records()
    }
    cursor = {"at": changed_at[runs[3]] + 5, "begun": [runs[0]], "ended": {}}
    stored(monkeypatch, "lineage", json.dumps(cursor))
    found = pruned(simulation, TWO_HOURS)
    assert {runs[0], *runs[3:]} <= run_ids(simulation.instance)
    assert runs[1] not in run_ids(simulation.instance) and any("OpenLineage" in why for why in found.kept)


def test_only_the_librarys_own_events_of_unread_sources_are_superseded() -> None:
    specs = [dg.AssetSpec(key) for key in ("theirs", "raw/feed", "ops/maintenance")]
    graph = planner_graph.graph_of(dg.Definitions([*orders(), *specs]).resolve_asset_graph())
    with dg.DagsterInstance.ephemeral() as instance:
        instance.report_runless_asset_event(dg.AssetObservation("theirs", tags={"dagster/data_version": "1"}))
        instance.report_runless_asset_event(dg.AssetObservation(["raw", "feed"], tags={LISTED_AT: "1.0"}))
        assert set(choice._own_sources(instance, graph)) == {"raw/orders", "raw/feed", "ops/maintenance"}


def test_runs_of_maintenance_and_ticks_of_every_own_sensor_are_covered(simulation: Simulation) -> None:
    names = ["maintenance", "freshness_report", "lineage", "listener_crm", "tidemark_listener_crm", "automation_2"]
    assert all(map(is_own_sensor, names)) and not is_own_sensor("their_sensor")
    instance, specs = simulation.instance, [dg.AssetSpec("ops/maintenance")]
    graph = planner_graph.graph_of(dg.Definitions([*orders(), *specs]).resolve_asset_graph())

    @dg.op
    def maintain(context: dg.OpExecutionContext) -> None:
        context.log_event(dg.AssetObservation(["ops", "maintenance"]))

    @dg.job(tags={MAINTENANCE: "here"})
    def maintain_tables() -> None:
        maintain()

    first, *_ = [maintain_tables.execute_in_process(instance=instance).run_id for _ in range(4)]
    known, now = locations.known_locations(instance, graph), time.time() + 1
    found = choice.RecordChooser(instance, graph, known, location="x", before=now, now=now).choice()
    assert first in {run.id for run in found.runs}


def test_run_is_deleted_although_the_store_of_its_logs_cannot_delete(
    simulation: Simulation, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise NotImplementedError("this store keeps logs\nfor ever")

    monkeypatch.setattr(simulation.instance.compute_log_manager, "delete_logs", refuse)
    lines: list[str] = []
    count = pruned(simulation, TWO_HOURS, progress=lines.append).amounts["runs"].count
    said = [line for line in lines if "stay" in line]
    assert said == [
        f"the compute logs of {count} deleted runs stay, delete them in their store: "
        "NotImplementedError: this store keeps logs"
    ]


def test_lags_begin_where_a_prune_has_left_all_events(simulation: Simulation) -> None:
    with simulation.clock.frozen():
        end = event_time.now()
        period = [(end - 86_400, end)]
        before = lags(simulation.instance, simulation.asset_graph, period)
    found = pruned(simulation, TWO_HOURS)
    assert instance_store.saved(simulation.instance, PRUNED) == str(found.before)
    with simulation.clock.frozen():
        after = lags(simulation.instance, simulation.asset_graph, period)
    assert {each.start for each in before} != {each.start for each in after} == {found.before}
    assert {each.lag.seconds for each in after} == {7200.0}
    pruned(simulation, timedelta(hours=5))
    assert instance_store.saved(simulation.instance, PRUNED) == str(found.before), "an earlier limit changes nothing"


@pytest.mark.parametrize("text", ["7;7", "nan", "inf", '{"at": 7}'])
def test_unreadable_time_of_the_last_prune_is_ignored_and_named(
    simulation: Simulation, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    instance_store.save(simulation.instance, PRUNED, text)
    with simulation.clock.frozen():
        end = event_time.now()
        assert lags(simulation.instance, simulation.asset_graph, [(end - 86_400, end)])
    assert f"{PRUNED} is ignored: expected Unix seconds, found {text!r}" in caplog.text
    found = pruned(simulation, TWO_HOURS)
    assert instance_store.saved(simulation.instance, PRUNED) == str(found.before)


def test_events_stay_back_to_the_oldest_day_without_a_report(monkeypatch: pytest.MonkeyPatch) -> None:
    report = dg.AssetSpec(["ops", "freshness"], partitions_def=dg.DailyPartitionsDefinition("2026-10-01"))
    graph = dg.Definitions([report]).resolve_asset_graph()
    now = datetime(2026, 10, 5, 6, tzinfo=UTC)
    monkeypatch.setattr(event_time, "now", now.timestamp)
    monkeypatch.setattr(
        freshness_sensor,
        "sensor_cursors",
        lambda _: [SensorCursor("here", "freshness_report", '{"since": "2026-10-03"}')],
    )
    with dg.DagsterInstance.ephemeral() as instance:
        assert freshness_sensor.reports_need(instance, "here", graph) == timedelta(days=2, hours=6)
        for day, location in (("2026-10-03", "here"), ("2026-10-04", "elsewhere")):
            made = dg.AssetMaterialization(["ops", "freshness"], partition=day, metadata={REPORTED_BY: location})
            instance.report_runless_asset_event(made)
        assert freshness_sensor.reports_need(instance, "here", graph) == timedelta(days=1, hours=6)
        two = [SensorCursor("here", "freshness_report", text) for text in ('{"since": 7}', '{"since": "2026-10-03"}')]
        monkeypatch.setattr(freshness_sensor, "sensor_cursors", lambda _: two)
        need = freshness_sensor.reports_need(instance, "here", graph)
        assert need == timedelta(days=1, hours=6), "the unreadable cursor of another release is ignored"
        unreported = dg.Definitions(orders()).resolve_asset_graph()
        assert freshness_sensor.reports_need(instance, "here", unreported) == timedelta(0)
