"""The same days on every storage: in memory, SQLite files and a PostgreSQL server give the same plans and runs."""

import dagster as dg
import pytest

from dagster_tidemark.simulation.instance import simulated_instance
from dagster_tidemark.simulation.simulator import RunPace, Simulation
from tests.tidemark.toy_graph import START, small

Story = list[object]


def play(instance: dg.DagsterInstance) -> Story:
    """Arrivals, an outage, a restart, overrides, a failure at the day's end; what the planner said, and every run."""
    pace = RunPace(spread=0.5, failing=0.1, launch=(1.0, 6.0))
    simulation = Simulation(small(), start=START, seed=5, pace=pace, instance=instance)
    for minute in (0, 6):
        simulation.arrive("raw/orders", "2026-10-05-00:00", at=simulation.time(minutes=minute))
    simulation.fail("marts/daily")
    simulation.outage(at=simulation.time(minutes=30), until=simulation.time(hours=12))
    for hour in range(1, 12):
        simulation.arrive("raw/orders", f"2026-10-05-{hour:02}:00", at=simulation.time(hours=hour))
    simulation.restart(at=simulation.time(hours=12, minutes=1))
    simulation.arrive("raw/orders", "2026-10-05-12:00", at=simulation.time(hours=13))
    simulation.pause("marts/hourly", at=simulation.time(hours=12, minutes=2), until=simulation.time(hours=15))
    simulation.skip("core/orders", at=simulation.time(hours=2))
    simulation.rebuild("core/orders", at=simulation.time(hours=16))
    told: Story = []
    for hours in (0.2, 11.83, 0.05, 12.5):
        simulation.run(hours=hours)
        plan = simulation.plan()
        told.append((sorted(plan.waiting.items(), key=repr), [request.targets for request in plan.requests]))
    told += [(r.assets, r.partitions, r.created_at, r.ended_at, r.succeeded) for r in simulation.runs]
    return told


@pytest.fixture(scope="module")
def expected() -> Story:
    with simulated_instance() as instance:
        return play(instance)


def test_storage_scenario_is_long_enough_and_contains_waiting_partitions(expected: Story) -> None:
    assert len(expected) > 10
    assert any(waiting for waiting, _ in expected[:4])  # type: ignore[misc]


def test_sqlite_files_give_the_same_plans_and_runs(expected: Story) -> None:
    with dg.instance_for_test() as instance:
        assert play(instance) == expected


def test_a_postgres_instance_gives_the_same_plans_and_runs(expected: Story, postgres: dg.DagsterInstance) -> None:
    assert "Postgres" in type(postgres.event_log_storage).__name__
    assert play(postgres) == expected
