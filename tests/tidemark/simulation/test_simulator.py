"""The simulator itself: that its shortcut changes nothing, and that what is told to happen happens."""

import random
from typing import Any

import pytest

from dagster_tidemark.simulation.simulator import RunFate, RunPace, Simulation
from tests.tidemark.toy_graph import ASAP, HOURS, START, asset, lag, small, source

HOUR_7, DAY = "2026-10-05-07:00", "2026-10-05"
ROUGH = RunPace(spread=0.5, failing=0.2, launch=(1.0, 6.0), notice=(0.2, 3.0))


def rough_morning(seed: int, *, every_tick: bool) -> Simulation:
    simulation = Simulation(small(), start=START, seed=seed, pace=ROUGH, every_tick=every_tick)
    chance = random.Random(seed)
    for minute in range(0, 30, 3):
        hour = f"2026-10-05-{minute // 15:02}:00"
        simulation.arrive("raw/orders", hour, at=simulation.time(hours=0, minutes=minute) + chance.uniform(0, 60))
    simulation.fail("marts/daily")
    simulation.outage(at=simulation.time(minutes=14), until=simulation.time(minutes=20))
    simulation.restart(at=simulation.time(minutes=22))
    simulation.run(minutes=40)
    return simulation


def history(simulation: Simulation) -> list[tuple[object, ...]]:
    return [(r.assets, r.partitions, r.created_at, r.started_at, r.ended_at, r.succeeded) for r in simulation.runs]


def test_simulation_that_skips_idle_ticks_has_the_same_runs() -> None:
    jumped, ticked = rough_morning(1, every_tick=False), rough_morning(1, every_tick=True)
    assert history(jumped) == history(ticked)
    assert len(jumped.runs) > 5
    assert jumped.ticks < ticked.ticks / 10


def test_same_seed_gives_the_same_simulated_day_and_another_seed_differs() -> None:
    first, again, other = (history(rough_morning(seed, every_tick=False)) for seed in (1, 1, 3))
    assert first == again != other


def test_listed_asset_without_a_condition_is_logged_with_the_remedy(caplog: pytest.LogCaptureFixture) -> None:
    listed = [source("orders"), asset("core/orders", "raw/orders", automation_condition=None)]
    Simulation([*listed, asset("marts/sales", "core/orders")], start=START)
    assert [record.getMessage() for record in caplog.records] == [
        "the simulation requests no run of core/orders, because a plain list keeps assets without an automation "
        "condition as they are: set automation_condition=derived(), or pass the definitions of build_definitions"
    ]
    caplog.clear()
    Simulation(small(), start=START)
    assert not caplog.records


def test_simulated_run_waits_starts_and_commits_at_the_expected_times() -> None:
    simulation = Simulation(small(), start=START, pace=RunPace(step={"core/orders": 30.0}, tick=5.0))
    simulation.arrive("raw/orders", HOUR_7, at=simulation.time(hours=7, minutes=12))
    simulation.run(hours=8)
    first = simulation.runs_of("core/orders", HOUR_7)[0]
    arrived = simulation.time(hours=7, minutes=12)
    assert first.created_at == arrived + 1.0, "the landing sensor asks at once"
    assert first.started_at == arrived + 3.0
    assert first.committed["core/orders"] == arrived + 33.0
    assert simulation.tables.fresh(("core/orders", HOUR_7))


def test_no_more_simulated_runs_execute_at_once_than_slots_exist() -> None:
    simulation = Simulation(small(), start=START, pace=RunPace(at_once=2))
    for hour in range(6):
        at = simulation.time(hours=7)
        simulation.request(["core/orders"], [f"2026-10-05-{hour:02}:00"], at=at)
    simulation.run(hours=8)
    for run in simulation.runs:
        assert run.started_at is not None
        beside = [
            other
            for other in simulation.runs
            if other.started_at and other.ended_at and other.started_at <= run.started_at < other.ended_at
        ]
        assert len(beside) <= 2


def test_arrival_during_an_outage_is_observed_afterwards_with_its_own_time() -> None:
    simulation = Simulation(small(), start=START)
    simulation.outage(at=simulation.time(hours=1), until=simulation.time(hours=9))
    for minute in (30, 10, 50):
        simulation.arrive("raw/orders", HOUR_7, at=simulation.time(hours=7, minutes=minute))
    simulation.run(hours=8.99)
    assert simulation.runs == []
    simulation.run(hours=1)
    assert simulation.runs_of("core/orders", HOUR_7)[0].created_at >= simulation.time(hours=9)
    (seen,) = simulation.observed("raw/orders")
    assert seen == (HOUR_7, simulation.time(hours=7, minutes=10))


def test_runs_in_progress_die_in_a_platform_outage() -> None:
    simulation = Simulation(small(), start=START, pace=RunPace(step=300.0))
    simulation.request(["core/orders"], [HOUR_7], at=simulation.time(hours=7))
    simulation.outage(at=simulation.time(hours=7, minutes=2), until=simulation.time(hours=7, minutes=3))
    simulation.run(hours=7.1)
    died = simulation.runs[0]
    assert (died.succeeded, died.ended_at, died.committed) == (False, simulation.time(hours=7, minutes=2), {})


def test_run_started_before_a_deploy_keeps_its_code_and_is_rebuilt() -> None:
    simulation = Simulation(
        [source("orders", HOURS), asset("core/orders", "raw/orders", by=HOURS, **ASAP)], start=START
    )
    newer = [source("orders", HOURS), asset("core/orders", "raw/orders", by=HOURS, code_version="2", **ASAP)]
    simulation.request(["core/orders"], [HOUR_7], at=simulation.time(hours=8))
    simulation.arrive("raw/orders", HOUR_7, at=simulation.time(hours=7, minutes=59))
    simulation.deploy(newer, at=simulation.time(hours=8, seconds=5))
    simulation.run(hours=9)
    runs = simulation.runs_of("core/orders", HOUR_7)
    assert [run.code["core/orders"] for run in runs][-2:] == ["1", "2"]
    assert runs[-2].ended_at is not None
    assert runs[-2].ended_at > simulation.time(hours=8, seconds=5), "it was under way"
    assert simulation.tables.fresh(("core/orders", HOUR_7))


def test_lost_run_of_a_rebuilt_partition_causes_no_run_after_restart() -> None:
    simulation = Simulation(
        [source("orders", HOURS), asset("core/orders", "raw/orders", by=HOURS, **ASAP)], start=START
    )
    for minute in (10, 20):
        simulation.arrive("raw/orders", HOUR_7, at=simulation.time(hours=7, minutes=minute))
    simulation.at(simulation.time(hours=7, minutes=15), lambda: simulation.fail("core/orders", how=RunFate.DIES))
    simulation.run(hours=8)
    assert [run.succeeded for run in simulation.runs_of("core/orders", HOUR_7)] == [True, False, True]
    simulation.restart(at=simulation.time(hours=8, minutes=1))
    simulation.run(hours=1)
    assert len(simulation.runs_of("core/orders", HOUR_7)) == 3
    assert simulation.plan().decisions == {}


def test_new_code_does_not_wait_for_an_input_that_cannot_be_rebuilt() -> None:
    def graph(code: str) -> list[Any]:
        core = asset("core/orders", "raw/orders", by=HOURS, code_version=code, **ASAP)
        between = asset("core/lines", "core/orders", by=HOURS, freshness_policy=lag(minutes=60))
        mart = asset("marts/hourly", "core/lines", by=HOURS, code_version=code, freshness_policy=lag(minutes=60))
        return [source("orders", HOURS), core, between, mart]

    simulation = Simulation(graph("1"), start=START)
    simulation.arrive("raw/orders", HOUR_7, at=simulation.time(hours=7, minutes=10))
    simulation.run(hours=10)
    simulation.fail("core/orders", times=1000)
    simulation.deploy(graph("2"), at=simulation.time(hours=10))
    simulation.run(hours=2)
    assert not any(run.succeeded for run in simulation.runs_of("core/orders", HOUR_7)[1:])
    last = simulation.runs_of("marts/hourly", HOUR_7)[-1]
    assert (last.succeeded, last.code["marts/hourly"]) == (True, "2")
