"""A checkpoint that is saved and loaded in slices, with events in between, agrees with the event log."""

from typing import Any

import pytest

from dagster_tidemark.asset_graph.planner_graph import graph_of
from dagster_tidemark.dagster_internals import event_time, instance_store
from dagster_tidemark.event_log import checkpoint, checkpoint_parts
from dagster_tidemark.event_log.consumer import LogConsumer
from dagster_tidemark.planner.history import History
from dagster_tidemark.planner.planner import Planner
from dagster_tidemark.simulation.simulator import RunPace, Simulation
from dagster_tidemark.tags import HISTORY_PARTS
from tests.tidemark.toy_graph import START, small


def always() -> bool:
    return True


def never() -> bool:
    return False


@pytest.fixture
def simulation(monkeypatch: pytest.MonkeyPatch) -> Simulation:
    """Half a day of arrivals and of failing runs, then half a day more."""
    monkeypatch.setattr(checkpoint_parts, "_ROWS", 3)
    made = Simulation(small(), start=START, seed=7, pace=RunPace(failing=0.3, spread=0.5))
    for hour in range(24):
        for minutes in (5, 50):
            made.arrive("raw/orders", f"2026-10-05-{hour:02}:00", at=made.time(hours=hour, minutes=minutes))
    made.run(hours=12)
    return made


def follower_of(simulation: Simulation) -> LogConsumer:
    return simulation._engine().follower


def saved_in_slices(simulation: Simulation) -> int:
    """Save while time passes, and return the number of slices."""
    follower, slices = follower_of(simulation), 0
    with simulation.clock.frozen():
        saving = follower._begin_to_save()
    while True:
        simulation.run(minutes=90)  # in the meantime the sensors' ticks read new events
        slices += 1
        if saving.step(simulation.instance, always):
            return slices


def known(simulation: Simulation, follower: LogConsumer) -> dict[str, Any]:
    """Return all state that decisions depend on, after the log was read to its end."""
    with simulation.clock.frozen():
        while follower.read(simulation.instance, never):
            pass
        history = follower.history
        plan = Planner(history.graph, history).plan(event_time.now())
        return {
            "decisions": {t: (d.state, d.oldest_arrival, d.stale, d.attempts) for t, d in plan.decisions.items()},
            "built": history.facts.builds(),
            "versions": {target: history.facts.version(target) for target in history.facts},
            "failures": history.failures,
            "latest": {target: history.facts.changes(target)[-1:] for target in history.facts},
        }


def assert_knows_all(simulation: Simulation, restarted: LogConsumer) -> None:
    """Assert that it agrees with a process that never ended, and with a process that read the whole log."""
    # Durations of runs do not count: a process learns them as runs end.
    found = known(simulation, restarted)
    assert found == known(simulation, follower_of(simulation))
    assert found == known(simulation, cold(simulation))


def warm(simulation: Simulation) -> LogConsumer:
    graph = graph_of(simulation.asset_graph)
    graph.moment.moves_to(simulation.clock.now)
    return LogConsumer.started(simulation.instance, graph)


def cold(simulation: Simulation) -> LogConsumer:
    graph = graph_of(simulation.asset_graph)
    graph.moment.moves_to(simulation.clock.now)
    return LogConsumer(History(graph), checkpoint.key_of(graph), keeps=False)


def test_checkpoint_with_rows_newer_than_its_head_agrees_with_the_event_log(simulation: Simulation) -> None:
    assert saved_in_slices(simulation) >= 3
    simulation.run(hours=3)
    restarted = warm(simulation)
    assert restarted.cursor > 0, "it goes on from the checkpoint"
    assert_knows_all(simulation, restarted)


def test_durations_of_runs_are_kept_by_a_checkpoint(simulation: Simulation) -> None:
    durations = follower_of(simulation).history.durations
    durations.add({next(iter(durations.samples)): 24}, 900.0)
    follower_of(simulation).save(simulation.instance)
    assert warm(simulation).history.durations == durations


def test_interrupted_checkpoint_save_keeps_the_previous_checkpoint(simulation: Simulation) -> None:
    follower_of(simulation).save(simulation.instance)
    at = follower_of(simulation).cursor
    simulation.run(hours=6)
    saving = follower_of(simulation)._begin_to_save()
    assert not saving.step(simulation.instance, always)
    restarted = warm(simulation)
    assert restarted.cursor == at
    assert_knows_all(simulation, restarted)


def test_checkpoint_save_writes_only_changed_assets(simulation: Simulation, monkeypatch: pytest.MonkeyPatch) -> None:
    follower = follower_of(simulation)
    follower.save(simulation.instance)
    written: list[str] = []
    save = instance_store.save
    monkeypatch.setattr(
        instance_store, "save", lambda instance, key, text: (written.append(key), save(instance, key, text))
    )
    follower._changed = {"marts/hourly"}
    follower.save(simulation.instance)
    assert {"/marts/hourly/" in key for key in written if key.startswith(HISTORY_PARTS)} == {True}
    assert_knows_all(simulation, warm(simulation))


def test_checkpoint_of_the_former_format_is_loaded(simulation: Simulation) -> None:
    follower = follower_of(simulation)
    rest = {"catalog": follower.catalog, "unread": [], "touched": []}
    text = checkpoint.dump(follower.history, follower.reader.state(), rest)
    instance_store.save(simulation.instance, follower.key, text)
    restarted = warm(simulation)
    assert restarted.cursor == follower.cursor
    assert restarted._loading is None, "a small one is loaded at once"
    assert_knows_all(simulation, restarted)


def test_checkpoint_loading_continues_in_the_next_tick(simulation: Simulation, monkeypatch: pytest.MonkeyPatch) -> None:
    follower_of(simulation).save(simulation.instance)
    monkeypatch.setattr("dagster_tidemark.event_log.consumer.after", lambda _: always)
    restarted, said = warm(simulation), []
    while told := restarted.read(simulation.instance, always):
        said.append(told)
    assert sum("loading the checkpoint" in told for told in said) > 3
    assert_knows_all(simulation, restarted)


def test_lost_checkpoint_part_causes_a_full_read_of_the_event_log(
    simulation: Simulation, caplog: pytest.LogCaptureFixture
) -> None:
    follower_of(simulation).save(simulation.instance)
    key = next(iter(instance_store.saved_under(simulation.instance, HISTORY_PARTS)))
    instance_store.save(simulation.instance, key, "")
    assert known(simulation, warm(simulation))["built"] == known(simulation, cold(simulation))["built"] != {}
    assert "the checkpoint cannot be loaded" in caplog.text
