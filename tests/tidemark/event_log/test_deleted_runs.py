"""Deleting runs changes nothing; a wipe does: on every kind of storage, also after a restart without a checkpoint."""

from collections.abc import Callable
from typing import Any

import dagster as dg
import pytest
import sqlalchemy
from dagster._core.storage.runs.schema import KeyValueStoreTable

from dagster_tidemark.engine import engine
from dagster_tidemark.simulation.simulator import Simulation
from dagster_tidemark.tags import DATA_VERSION
from tests.sampling import sample
from tests.tidemark.toy_graph import ASAP, HOURS, START, asset, lag, source

CORE, HOURLY, RAW = "core/orders", "marts/hourly", "raw/orders"
EVENING = [f"2026-10-04-{hour}:00" for hour in (21, 22, 23)]


def orders() -> list[Any]:
    """Orders and sales by the hour, built soon."""
    return [
        source("orders", HOURS),
        asset(CORE, RAW, by=HOURS, freshness_policy=lag(minutes=5), **ASAP),
        asset(HOURLY, CORE, by=HOURS, freshness_policy=lag(minutes=5)),
    ]


def built(instance: dg.DagsterInstance) -> Simulation:
    """A few hours are there and built, and their runs are over."""
    simulation = Simulation(orders(), start=START, instance=instance)
    for minute, hour in enumerate(EVENING):
        simulation.arrive(RAW, hour, at=simulation.time(minutes=1 + minute))
    simulation.run(minutes=20)
    assert len(simulation.runs_of(HOURLY)) == 3
    return simulation


def delete_runs(simulation: Simulation) -> None:
    for run in simulation.runs:
        simulation.instance.delete_run(run.id)


def lose_what_was_saved(simulation: Simulation) -> None:
    with simulation.instance.run_storage.connect() as connection:  # type: ignore[attr-defined]
        connection.execute(sqlalchemy.delete(KeyValueStoreTable))


def restart(simulation: Simulation) -> None:
    simulation.restart(at=simulation.clock.now)


def nothing(simulation: Simulation) -> None:
    pass


def restart_from_a_checkpoint(simulation: Simulation) -> None:
    simulation._engine().follower.save(simulation.instance)
    restart(simulation)


def restart_without_a_checkpoint(simulation: Simulation) -> None:
    lose_what_was_saved(simulation)
    restart(simulation)


@pytest.mark.parametrize(
    "then",
    sample([nothing, restart, restart_from_a_checkpoint, restart_without_a_checkpoint], restart_without_a_checkpoint),
    ids=lambda f: f.__name__,
)
def test_deleting_all_runs_causes_no_rebuild(instance: dg.DagsterInstance, then: Callable[[Simulation], None]) -> None:
    simulation = built(instance)
    before, runs = dict(simulation._engine().follower.history.facts.builds()), len(simulation.runs)
    delete_runs(simulation)
    then(simulation)
    simulation.run(minutes=20)
    assert len(simulation.runs) == runs
    history = simulation._engine().follower.history
    assert history.facts.builds() == before
    assert not history.failures and not history.open_runs


def test_data_that_arrives_after_all_runs_are_deleted_is_built(instance: dg.DagsterInstance) -> None:
    simulation = built(instance)
    delete_runs(simulation)
    simulation.arrive(RAW, EVENING[0], at=simulation.clock.now + 60)
    simulation.run(minutes=20)
    assert len(simulation.runs_of(CORE, EVENING[0])) == 2


def test_events_that_reuse_ids_of_deleted_runs_are_read(instance: dg.DagsterInstance) -> None:
    simulation = Simulation(orders(), start=START, instance=instance)
    simulation.arrive(RAW, EVENING[0], at=simulation.time(minutes=1))
    simulation.run(minutes=3)
    assert all(run.ended_at for run in simulation.runs) and simulation.runs_of(CORE)
    delete_runs(simulation)
    simulation.arrive(RAW, EVENING[1], at=simulation.clock.now + 1)
    simulation.arrive(RAW, EVENING[0], at=simulation.clock.now + 1)
    simulation.run(minutes=5)
    assert len(simulation.runs_of(CORE, EVENING[0])) == 2
    assert len(simulation.runs_of(CORE, EVENING[1])) == 1


def test_asset_wiped_after_its_runs_were_deleted_is_built_again(instance: dg.DagsterInstance) -> None:
    simulation = built(instance)
    delete_runs(simulation)
    simulation.wipe(HOURLY, at=simulation.clock.now + 60)
    simulation.run(minutes=1, seconds=30)
    restart_without_a_checkpoint(simulation)
    simulation.run(minutes=20)
    assert [len(simulation.runs_of(HOURLY, hour)) for hour in EVENING] == [2, 2, 2]
    assert [len(simulation.runs_of(CORE, hour)) for hour in EVENING] == [1, 1, 1]


def test_deleting_an_older_run_does_not_make_an_unchanged_rebuild_new_data(instance: dg.DagsterInstance) -> None:
    simulation = built(instance)
    (first,) = simulation.runs_of(CORE, EVENING[0])
    simulation.request([CORE], [EVENING[0]], at=simulation.clock.now + 60)
    simulation.run(minutes=10)
    runs = len(simulation.runs)
    instance.delete_run(first.id)
    restart_without_a_checkpoint(simulation)
    simulation.run(minutes=20)
    assert len(simulation.runs) == runs


def test_observation_of_a_run_is_kept_after_the_run_is_deleted(instance: dg.DagsterInstance) -> None:
    simulation = built(instance)
    later = "2026-10-04-20:00"

    @dg.op
    def look(context: dg.OpExecutionContext) -> None:
        tags = {DATA_VERSION: "seen"}
        context.log_event(dg.AssetObservation(RAW.split("/"), partition=later, tags=tags))

    @dg.job
    def observe() -> None:
        look()

    with simulation.clock.frozen():
        run_id = observe.execute_in_process(instance=instance).run_id
    simulation._stir()
    simulation.run(minutes=20)
    (built_once,) = simulation.runs_of(CORE, later)
    assert built_once.succeeded
    instance.delete_run(run_id)
    restart_without_a_checkpoint(simulation)
    simulation.run(minutes=20)
    assert later in simulation._engine().follower.history.facts.with_content(RAW)
    assert len(simulation.runs_of(CORE, later)) == 1


def test_new_asset_reads_its_own_events_and_other_assets_keep_theirs(instance: dg.DagsterInstance) -> None:
    simulation = built(instance)
    deep = simulation._engine().follower
    deep.save(instance)
    more = asset("a/first", CORE, by=HOURS, freshness_policy=lag(minutes=10), **ASAP)
    instance.report_runless_asset_event(dg.AssetMaterialization(["a", "first"], partition=EVENING[0]))
    simulation.deploy([*orders(), more], at=simulation.clock.now + 60)
    simulation.run(minutes=2)
    history = simulation._engine().follower.history
    assert history.facts.builds().items() >= deep.history.facts.builds().items()
    assert EVENING[0] in history.facts.with_content("a/first")


def test_removed_asset_does_not_discard_the_history_of_other_assets(instance: dg.DagsterInstance) -> None:
    simulation = built(instance)
    simulation._engine().follower.save(instance)
    before = dict(simulation._engine().follower.history.facts.builds())
    delete_runs(simulation)
    simulation.deploy(orders()[:-1], at=simulation.clock.now + 60)
    simulation.run(minutes=2)
    after = simulation._engine().follower.history.facts.builds()
    assert after == {target: was for target, was in before.items() if target[0] != HOURLY}
    runs = len(simulation.runs)
    simulation.deploy(orders(), at=simulation.clock.now + 60)
    simulation.run(minutes=20)
    assert simulation._engine().follower.history.facts.builds() == before
    assert len(simulation.runs) == runs


def test_code_locations_with_a_shared_source_keep_separate_checkpoints(instance: dg.DagsterInstance) -> None:
    simulation = built(instance)
    simulation._engine().follower.save(instance)
    other = dg.Definitions([source("orders", HOURS), asset("z/other", RAW, by=HOURS)])
    engine.forget(instance)
    with simulation.clock.frozen():
        follower = engine.engine_for(instance, other.resolve_asset_graph()).follower
        assert follower.read(instance, lambda: False) == "" and follower.history.facts.assets_with_content() == {RAW}
        follower.save(instance)
    engine.forget(instance)
    assert simulation._engine().follower.history.graph.nodes.keys() == simulation.graph.nodes.keys()
    assert simulation._engine().follower.cursor > 0 and not simulation._engine().follower._to_read_again
