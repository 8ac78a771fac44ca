"""Runs that are due together under a limit: asked for earlier, by no more than it takes, and in the right order."""

from datetime import UTC, datetime, timedelta

import dagster as dg
import pytest

from dagster_tidemark.engine.condition import with_automation
from dagster_tidemark.planner.admission import Upcoming, earlier_starts
from dagster_tidemark.planner.graph import Target
from dagster_tidemark.planner.grouping import SINGLES
from dagster_tidemark.simulation.instance import simulated_instance
from dagster_tidemark.simulation.run import RunPace
from dagster_tidemark.simulation.simulator import Simulation

MARGIN = 20.0


def table(name: str, partition: str | None = None) -> Target:
    return (name, partition)


def due(name: str, latest: float = 1000.0, seconds: float = 60.0, **inputs: object) -> Upcoming:
    return Upcoming(table(name), latest, seconds, **inputs)  # type: ignore[arg-type]


def test_runs_that_fit_the_run_limit_are_not_started_early() -> None:
    assert earlier_starts([due("a"), due("b")], 2, MARGIN) == {}
    apart = [due("a", 1000), due("b", 1060), due("c", 1120)]
    assert earlier_starts(apart, 1, MARGIN) == {}, "each ends before the next one has to start"


def test_six_runs_in_two_slots_start_as_late_as_possible() -> None:
    found = earlier_starts([due(name) for name in "abcdef"], 2, MARGIN)
    assert sorted(found.values()) == [880, 880, 940, 940], "and two at their own time"


def test_assets_built_together_take_one_run_slot() -> None:
    together = [due("a"), *(due(name, joins=table("a")) for name in "bcd")]
    assert earlier_starts(together, 1, MARGIN) == {}
    found = earlier_starts([*together, due("x")], 1, MARGIN)
    assert set(found.values()) == {940}
    assert len(found) in (1, 4), "either x, or all that are built together"


def test_input_run_is_scheduled_before_its_reader() -> None:
    inputs = [due(f"in {n}", 1000 - 60 - MARGIN) for n in range(4)]
    readers = [due(f"out {n}", after=[table(f"in {n}")]) for n in range(4)]
    found = earlier_starts([*inputs, *readers], 2, MARGIN)
    start = {one.target: found.get(one.target, one.latest) for one in [*inputs, *readers]}
    for n in range(4):
        assert start[table(f"in {n}")] + 60 + MARGIN <= start[table(f"out {n}")]


def test_many_partitions_of_an_asset_are_scheduled_as_one_range() -> None:
    hours = [Upcoming(table("a", f"2026-10-05-{h:02}:00"), 1000, 60) for h in range(SINGLES + 1)]
    assert earlier_starts(hours, 1, MARGIN) == {}
    assert min(earlier_starts(hours[:-1], 1, MARGIN).values()) == 1000 - 60 * (SINGLES - 1)


@pytest.mark.parametrize(("most", "runs"), [(1, 24), (5, 5), (None, 1)])
def test_scheduled_range_is_no_longer_than_the_backfill_policy_allows(most: int | None, runs: int) -> None:
    hours = [Upcoming(table("a", f"2026-10-05-{h:02}:00"), 1000, 60, most=most) for h in range(24)]
    found = earlier_starts(hours, 1, MARGIN)
    assert sorted(set(found.values())) == [1000 - 60 * n for n in range(runs - 1, 0, -1)]


def crowd() -> list[dg.AssetsDefinition | dg.AssetSpec]:
    """Thirty tables that are promised within the hour, all of one source."""
    source = dg.AssetSpec("source")

    def _table(number: int) -> dg.AssetsDefinition:
        @dg.asset(
            name=f"table_{number}",
            deps=[source],
            freshness_policy=dg.FreshnessPolicy.time_window(fail_window=timedelta(hours=1)),
        )
        def table() -> None: ...

        return table

    return [source, *with_automation([_table(number) for number in range(30)])]


@pytest.mark.parametrize("limit_is_known", [True, False])
def test_30_tables_due_together_are_in_time_if_run_limit_is_known(limit_is_known: bool) -> None:
    pace = RunPace(step=50.0, at_once=3)
    instance = None if limit_is_known else simulated_instance()
    simulation = Simulation(crowd(), start=datetime(2026, 10, 5, tzinfo=UTC), pace=pace, instance=instance)
    arrivals = [simulation.time(minutes=1), simulation.time(hours=2), simulation.time(hours=5)]
    for at in arrivals:
        simulation.arrive("source", at=at)
    simulation.run(hours=7)
    committed = {
        asset: [at for run in simulation.runs for written, at in run.committed.items() if written == asset]
        for asset in simulation.graph.nodes
        if asset != "source"
    }
    late = [
        (asset, arrived)
        for asset, written in committed.items()
        for arrived in arrivals
        if not any(arrived <= at <= arrived + 3600 for at in written)
    ]
    assert {len(written) for written in committed.values()} == {len(arrivals)}, "each is built once for each arrival"
    # The positive control: without the limit all are asked for three minutes before they are promised.
    assert (late == []) is limit_is_known
