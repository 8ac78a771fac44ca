"""What a prune deletes and what it leaves alone, in memory and on SQLite files."""

import sqlite3
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from dagster_tidemark.asset_graph import planner_graph
from dagster_tidemark.dagster_internals import instance_store, old_records
from dagster_tidemark.engine import engine
from dagster_tidemark.event_log import checkpoint
from dagster_tidemark.retention import choice, prune
from dagster_tidemark.retention.locations import PruneRefused
from dagster_tidemark.simulation.instance import simulated_instance
from dagster_tidemark.simulation.simulator import Simulation
from dagster_tidemark.tags import DEPLOYED, HISTORY, JOURNAL
from tests.sampling import sample
from tests.tidemark.event_log.test_deleted_runs import lose_what_was_saved
from tests.tidemark.retention.histories import pruned
from tests.tidemark.toy_graph import ASAP, HOURS, START, asset, lag, source

RAW, CORE, MART = "raw/orders", "core/orders", "marts/orders"
HOUR = "2026-10-04-23:00"
TWO_HOURS = timedelta(hours=2)


@pytest.fixture(autouse=True)
def short_tail(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few runs are a log whose last rows are not all of it."""
    monkeypatch.setattr(choice, "_TAIL", 3)


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    """An instance in memory, which is four times as fast as one of files."""
    with simulated_instance() as made:
        yield made


@pytest.fixture
def on_disk() -> Iterator[dg.DagsterInstance]:
    with dg.instance_for_test() as made:
        yield made


def orders() -> list[Any]:
    return [
        source("orders", HOURS),
        asset(CORE, RAW, by=HOURS, freshness_policy=lag(minutes=5), **ASAP),
        asset(MART, CORE, freshness_policy=lag(minutes=10), **ASAP),
    ]


def day(instance: dg.DagsterInstance) -> Simulation:
    """The same hour arrives six times, half an hour apart, then nothing for four hours."""
    simulation = Simulation(orders(), start=START, instance=instance)
    for times in range(6):
        simulation.arrive(RAW, HOUR, at=simulation.time(minutes=1 + 30 * times))
    simulation.run(hours=7)
    assert len(simulation.runs_of(CORE)) == 6
    return simulation


def files_of(instance: dg.DagsterInstance) -> dict[str, list[Any]]:
    """Every row of every database of an instance."""
    found: dict[str, list[Any]] = {}
    for path in sorted(Path(instance.root_directory).rglob("*.db")):
        with sqlite3.connect(path) as connection:
            names = [name for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
            for name in names:
                found[f"{path.name}/{name}"] = connection.execute(f"SELECT * FROM {name}").fetchall()
    return found


def texts(simulation: Simulation) -> Any:
    plan = simulation.plan()
    return plan.decisions, plan.requests, plan.set_aside, simulation.standings()


def restarted(simulation: Simulation) -> Simulation:
    """A code server that lost its memory and its checkpoint."""
    lose_what_was_saved(simulation)
    engine.forget(simulation.instance)
    return simulation


def run_ids(instance: dg.DagsterInstance) -> set[str]:
    return {run.run_id for run in instance.get_runs()}


def test_dry_run_changes_no_row_of_any_database(on_disk: dg.DagsterInstance) -> None:
    simulation = day(on_disk)
    before = files_of(on_disk)
    found = pruned(simulation, TWO_HOURS, apply=False)
    assert found.amounts["runs"].count > 3 and found.amounts["events without a run"].count > 0 and not found.applied
    assert files_of(on_disk) == before


def test_superseded_runs_and_events_go_and_the_newest_of_each_partition_stay(instance: dg.DagsterInstance) -> None:
    simulation = day(instance)
    announced = pruned(simulation, TWO_HOURS, apply=False)
    found = pruned(simulation, TWO_HOURS)
    assert found.applied and found.unproven == ()
    assert found.amounts == announced.amounts
    newest = {simulation.runs_of(CORE)[-1].id, simulation.runs_of(MART)[-1].id}
    assert newest <= run_ids(instance) and len(run_ids(instance)) <= 4
    for name, partition in ((CORE, HOUR), (MART, None)):
        key = dg.AssetKey.from_user_string(name)
        event = instance.get_latest_materialization_event(key)
        assert event is not None and event.run_id in newest
        assert partition is None or instance.get_materialized_partitions(key) == {partition}
    again = pruned(simulation, TWO_HOURS)
    assert [amount.count for amount in again.amounts.values()] == [0] * len(again.amounts)


@pytest.mark.parametrize("loses", [False, True], ids=["from its checkpoint", "without a checkpoint"])
def test_decisions_and_contracts_are_the_same_after_a_prune_and_a_restart(
    instance: dg.DagsterInstance, loses: bool
) -> None:
    simulation = day(instance)
    simulation.arrive(RAW, HOUR, at=simulation.clock.now + 1)
    simulation.fail(CORE, times=2)
    simulation.run(minutes=8)
    if not loses:
        with simulation.clock.frozen():
            simulation._engine().follower.save(instance)
    before, runs = texts(simulation), len(simulation.runs)
    pruned(simulation, TWO_HOURS)
    assert texts(simulation) == before
    if loses:
        lose_what_was_saved(simulation)
    engine.forget(instance)
    assert texts(simulation) == before
    simulation.run(minutes=30)
    assert {run.assets for run in simulation.runs[runs:]} <= {(CORE,), (MART,), (CORE, MART)}
    assert simulation.tables.fresh((CORE, HOUR))


def test_files_of_deleted_runs_are_unlinked_and_those_of_kept_runs_stay_readable(
    on_disk: dg.DagsterInstance,
) -> None:
    simulation = day(on_disk)
    # A webserver has opened the file of each run before.
    with dg.DagsterInstance.from_config(on_disk.root_directory) as webserver:
        for run_id in run_ids(on_disk):
            webserver.all_logs(run_id)
        pruned(simulation, TWO_HOURS)
        for run_id in run_ids(on_disk):
            assert webserver.all_logs(run_id)
    files = {path.name for path in (Path(on_disk.root_directory) / "history" / "runs").glob("*.db")}
    assert files == {"index.db", ".db", *(f"{run_id}.db" for run_id in run_ids(on_disk))}


def test_last_rows_of_the_log_stay_so_that_no_id_is_given_out_twice(instance: dg.DagsterInstance) -> None:
    simulation = day(instance)
    last = max(old_records.last_ids(instance, 1))
    pruned(simulation, TWO_HOURS)
    assert max(old_records.last_ids(instance, 1)) >= last
    instance.report_runless_asset_event(dg.AssetObservation("x"))
    assert max(old_records.last_ids(instance, 1)) > last


def test_what_tidemark_does_not_plan_stays_unless_it_is_asked_for(instance: dg.DagsterInstance) -> None:
    simulation = day(instance)

    @dg.op
    def work(context: dg.OpExecutionContext) -> None:
        context.log.info("a line")

    @dg.job
    def of_ops() -> None:
        work()

    @dg.asset
    def foreign() -> None: ...

    with simulation.clock.frozen():
        ops = [of_ops.execute_in_process(instance=instance).run_id for _ in range(2)]
        built = [dg.materialize([foreign], instance=instance).run_id for _ in range(2)]
        for passed in (True, True, False):
            evaluation = dg.AssetCheckEvaluation(
                asset_key=dg.AssetKey("foreign"), check_name="good", passed=passed, metadata={}
            )
            instance.report_runless_asset_event(evaluation)
            instance.report_runless_asset_event(dg.AssetObservation("foreign"))
    simulation.clock.now = time.time() + 2 * 86_400  # these runs have real times
    logs = {run_id: len(instance.all_logs(run_id)) for run_id in (*ops, *built)}
    checks = len(old_records.checks(instance))
    found = pruned(simulation, timedelta(days=1))
    assert {*ops, *built} <= run_ids(instance)
    assert {run_id: len(instance.all_logs(run_id)) for run_id in (*ops, *built)} == logs
    assert len(old_records.checks(instance)) == checks
    assert any("--unplanned delete" in why for why in found.kept)
    pruned(simulation, timedelta(days=1), unplanned=True)
    assert run_ids(instance).isdisjoint({*ops, built[0]})
    assert built[1] in run_ids(instance), "it holds the newest materialization"


def test_runs_that_unfinished_runs_repeat_stay(instance: dg.DagsterInstance) -> None:
    simulation = day(instance)
    first = simulation.runs_of(CORE)[0].id
    instance.create_run_for_job(_job(), parent_run_id=first, root_run_id=first, status=dg.DagsterRunStatus.STARTED)
    found = pruned(simulation, TWO_HOURS)
    assert first in run_ids(instance) and any("unfinished" in why for why in found.kept)


def _job() -> dg.JobDefinition:
    @dg.op
    def work() -> None: ...

    @dg.job
    def again() -> None:
        work()

    return again


@pytest.mark.parametrize("after", sample([0, 1, 2, 5, 9], 1))
def test_killed_prune_changes_no_decision_and_the_next_one_completes_it(
    instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch, after: int
) -> None:
    simulation = day(instance)
    before, left = texts(simulation), [after]

    def killed(*_: object, **__: object) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise KeyboardInterrupt

    for name in ("delete_events_for_run", "delete_run"):
        storage = instance.run_storage if name == "delete_run" else instance.event_log_storage
        real = getattr(storage, name)
        monkeypatch.setattr(storage, name, lambda *a, real=real, **k: (killed(), real(*a, **k), killed()))
    with pytest.raises(KeyboardInterrupt):
        pruned(simulation, TWO_HOURS)
    monkeypatch.undo()
    monkeypatch.setattr(choice, "_TAIL", 3)
    assert texts(restarted(simulation))[0] == before[0]
    pruned(simulation, TWO_HOURS)
    assert len(run_ids(instance)) <= 4
    assert not [run_id for run_id in _logged(instance) if run_id and run_id not in run_ids(instance)]


def _logged(instance: dg.DagsterInstance) -> set[str]:
    return {event.run_id for event in old_records.asset_events(instance)}


def test_runs_that_another_location_reads_stay_until_it_has_saved_them(instance: dg.DagsterInstance) -> None:
    simulation = day(instance)
    other = dg.Definitions([asset("z/other", MART)]).resolve_asset_graph()
    graph = planner_graph.graph_of(other)
    instance_store.save(instance, f"{DEPLOYED}elsewhere/r", '{"z/other": {"reads": ["marts/orders"]}}')
    found = pruned(simulation, TWO_HOURS)
    assert any("elsewhere" in why for why in found.kept)
    assert {run.id for run in simulation.runs_of(MART)} <= run_ids(instance)
    with simulation.clock.frozen():
        follower = engine.engine_for(instance, other).follower
        follower.read(instance, lambda: False)
        follower.read(instance, lambda: False)  # closes the runs that have ended
        follower.intake.touched.clear()  # as its next note does
        follower.save(instance)
    assert checkpoint.key_of(graph) == f"{HISTORY}z/other"
    pruned(simulation, TWO_HOURS)
    assert len({run.id for run in simulation.runs_of(MART)} & run_ids(instance)) <= 2


def test_prune_is_refused_if_declarations_of_a_location_cannot_be_read(instance: dg.DagsterInstance) -> None:
    simulation = day(instance)
    instance_store.save(instance, f"{DEPLOYED}elsewhere/r", '{"z/other": []}')
    with pytest.raises(PruneRefused, match="elsewhere/r"):
        pruned(simulation, TWO_HOURS)
    assert len(run_ids(instance)) == len(simulation.runs)


def test_age_below_an_hour_is_refused(instance: dg.DagsterInstance) -> None:
    with pytest.raises(prune.TooShort, match="at least 1:00:00"):
        prune.prune(instance, lambda: planner_graph.graph_of(_graph()), timedelta(minutes=59), apply=True)


def _graph() -> Any:
    return dg.Definitions(orders()).resolve_asset_graph()


def test_old_notes_go_only_if_later_notes_have_their_partitions(instance: dg.DagsterInstance) -> None:
    simulation = day(instance)
    pruned(simulation, TWO_HOURS)
    notes = [event for event in old_records.asset_events(instance) if event.asset == JOURNAL]
    assert 1 <= len(notes) <= 4
