"""A wipe is noticed within one look, however many assets; what is written after it stands."""

from typing import Any

import dagster as dg
import pytest
import sqlalchemy

from dagster_tidemark.asset_graph.planner_graph import graph_of
from dagster_tidemark.dagster_internals import event_storage
from dagster_tidemark.engine.condition import with_automation
from dagster_tidemark.event_log.consumer import LogConsumer
from dagster_tidemark.planner.event_records import Built, Failure
from dagster_tidemark.simulation.instance import simulated_instance
from dagster_tidemark.simulation.simulator import RunFate
from tests.tidemark.planner.shapes.playing import REGIONS, built, play
from tests.tidemark.toy_graph import ASAP, HOURS, asset, lag, source

H7, H8 = "2026-10-05-07:00", "2026-10-05-08:00"
MANY = [f"many/t{n}" for n in range(500)]


def follower_of(instance: dg.DagsterInstance, *assets: str) -> LogConsumer:
    made = [asset(name, by=HOURS) for name in assets]
    return LogConsumer.started(instance, graph_of(dg.Definitions(made).resolve_asset_graph()))


def report(instance: dg.DagsterInstance, name: str, partition: str) -> None:
    instance.report_runless_asset_event(dg.AssetMaterialization(name.split("/"), partition=partition))


def look(follower: LogConsumer, instance: dg.DagsterInstance) -> None:
    assert follower.read(instance, lambda: False) == ""


def test_wipe_of_500_assets_is_detected_in_one_read_with_few_queries() -> None:
    with simulated_instance() as instance:
        follower = follower_of(instance, *MANY)
        for name in MANY:
            report(instance, name, H7)
        look(follower, instance)
        assert all(follower.history.facts.with_content(name) == {H7} for name in MANY)
        instance.wipe_assets([dg.AssetKey(name.split("/")) for name in MANY])
        asked: list[str] = []
        count = lambda _connection, _cursor, statement, *_: asked.append(statement)  # noqa: E731
        sqlalchemy.event.listen(sqlalchemy.engine.Engine, "before_cursor_execute", count)
        try:
            look(follower, instance)
        finally:
            sqlalchemy.event.remove(sqlalchemy.engine.Engine, "before_cursor_execute", count)
        assert 1 < len(asked) < 30
        assert not any(follower.history.facts.with_content(name) for name in MANY)


def test_event_written_after_an_undetected_wipe_is_kept(instance: dg.DagsterInstance) -> None:
    follower = follower_of(instance, "core/table")
    report(instance, "core/table", H7)
    look(follower, instance)
    instance.wipe_assets([dg.AssetKey(["core", "table"])])
    report(instance, "core/table", H8)
    look(follower, instance)
    assert follower.history.facts.with_content("core/table") == {H8}
    look(follower, instance)
    assert follower.history.facts.with_content("core/table") == {H8}


@pytest.mark.parametrize("with_checkpoint", [True, False])
def test_wipe_during_downtime_is_detected_at_startup(instance: dg.DagsterInstance, with_checkpoint: bool) -> None:
    before = follower_of(instance, "core/table", "core/other")
    report(instance, "core/table", H7)
    report(instance, "core/other", H7)
    look(before, instance)
    if with_checkpoint:
        before.save(instance)
    instance.wipe_assets([dg.AssetKey(["core", "table"])])
    report(instance, "core/table", H8)
    after = follower_of(instance, "core/table", "core/other")
    look(after, instance)
    assert after.history.facts.with_content("core/table") == {H8}
    assert after.history.facts.with_content("core/other") == {H7}


def test_emptied_instance_clears_the_history_of_its_assets(instance: dg.DagsterInstance) -> None:
    follower = follower_of(instance, "core/table")
    report(instance, "core/table", H7)
    look(follower, instance)
    instance.event_log_storage.wipe()
    look(follower, instance)
    assert not follower.history.facts.with_content("core/table")
    report(instance, "core/table", H8)
    look(follower, instance)
    assert follower.history.facts.with_content("core/table") == {H8}


def test_dagsters_own_storages_cannot_wipe_single_partitions(instance: dg.DagsterInstance) -> None:
    """Once they can, what is wiped so has to be noticed: it leaves no time in the catalog."""
    report(instance, "core/table", H7)
    with pytest.raises(NotImplementedError):
        instance.wipe_asset_partitions(dg.AssetKey(["core", "table"]), [H7])
    assert event_storage.catalog(instance)["core/table"] == float("-inf")


def test_failures_and_empty_runs_of_an_asset_are_forgotten_after_a_wipe(instance: dg.DagsterInstance) -> None:
    follower = follower_of(instance, "core/table", "core/other")
    for target in (("core/table", H7), ("core/other", H8)):
        follower.history.failures[target] = Failure(1, 0.0, 1, None)
        follower.history.facts.to_change(target).built = Built(1, 1, "run", 0.0, None)
    follower.intake.goes_back_to(0.0, ("core/table", "core/other"))
    report(instance, "core/table", H8)
    report(instance, "core/other", H8)
    look(follower, instance)
    instance.wipe_assets([dg.AssetKey(["core", "table"])])
    look(follower, instance)
    assert follower.history.heard_of == {"core/other"}


@pytest.mark.parametrize("restarts", [False, True])
def test_change_wiped_before_it_was_read_reaches_the_reader_after_restart(restarts: bool) -> None:
    mart = asset("mart", "core/x", freshness_policy=lag(hours=6))
    simulation = play([source("x"), asset("core/x", "raw/x", **ASAP), mart])
    simulation.arrive("raw/x", at=simulation.time(minutes=1), version="a")
    simulation.run(hours=7)
    assert built(simulation, "mart") == [None]
    simulation.arrive("raw/x", at=simulation.time(hours=7), version="b")
    simulation.run(minutes=30)
    simulation.fail("core/x", times=3)
    simulation.wipe("core/x", at=simulation.time(hours=7, minutes=31))
    simulation.run(minutes=2)
    if restarts:
        with simulation.clock.frozen():
            simulation._engine().follower.save(simulation.instance)
        simulation.restart(at=simulation.time(hours=7, minutes=32))
    simulation.run(hours=12)
    assert len(built(simulation, "core/x")) == 3
    assert simulation.tables.fresh(("mart", None))


@pytest.mark.parametrize("restarts", [False, True])
def test_partition_that_a_run_found_empty_is_run_again_after_wipe(restarts: bool) -> None:
    @dg.asset(key=["core", "x"], deps=[["raw", "x"]], partitions_def=REGIONS, output_required=False, tags=ASAP["tags"])
    def x() -> Any: ...

    simulation = play([source("x", REGIONS), *with_automation([x])])
    simulation.fail("core/x", how=RunFate.YIELDS_NOTHING, times=1)
    simulation.arrive("raw/x", "eu", at=simulation.time(minutes=5))
    simulation.run(hours=1)
    assert (len(simulation.runs), built(simulation, "core/x")) == (1, [])
    simulation.wipe("core/x", at=simulation.time(hours=1))
    if restarts:
        simulation.restart(at=simulation.time(hours=1, minutes=10))
    simulation.run(hours=1)
    assert built(simulation, "core/x") == ["eu"]
