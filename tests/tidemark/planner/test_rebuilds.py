"""New code on many hours, four tables deep: how the rebuild goes through them, and what arrives meanwhile."""

from datetime import timedelta
from itertools import pairwise
from typing import Any

import dagster as dg
import pytest

from dagster_tidemark.simulation.simulator import RunPace, Simulation
from tests.tidemark.toy_graph import START, asset, lag, source

COUNT, DEPTH = 72, 4  # five hundred hours: tests/proof/test_rebuild_of_500_hours.py
ALLOWED = 1.3  # times the sum of the runs
TABLES = [f"t/{n}" for n in range(1, DEPTH + 1)]


def keys(count: int) -> list[str]:
    """So many hours before the start."""
    return [(START - timedelta(hours=count - n)).strftime("%Y-%m-%d-%H:00") for n in range(count)]


def chain(version: int, count: int) -> list[Any]:
    """Each table reads the one before; the first is of some code version."""
    hours = dg.HourlyPartitionsDefinition(keys(count)[0], end_offset=1)
    hour = lag(hours=1)
    first = asset(TABLES[0], "raw/h", by=hours, code_version=str(version), freshness_policy=hour)
    below = pairwise(TABLES)
    return [source("h", hours), first, *(asset(t, r, by=hours, freshness_policy=hour) for r, t in below)]


def rebuilt(count: int, *, arrivals: int) -> tuple[Simulation, float]:
    """A rebuild of everything, and when the code was deployed."""
    simulation = Simulation(dg.Definitions(assets=chain(1, count)), start=START, pace=RunPace())
    for key in keys(count):
        simulation.arrive("raw/h", key, at=simulation.time(minutes=1))
    simulation.run(hours=6)
    deployed = simulation.clock.now + 1
    simulation.deploy(chain(2, count), at=deployed)
    for number in range(arrivals):
        simulation.arrive("raw/h", keys(count)[-1 - count // 12 * number], at=deployed + 90 * (number + 1))
    simulation.run(hours=3)
    return simulation, deployed


def test_rebuild_of_four_tables_takes_little_longer_than_its_runs() -> None:
    assert goes_through(COUNT)["wall / compute"] <= ALLOWED


def test_data_that_arrives_during_a_rebuild_is_built_in_time() -> None:
    whatever_arrives_is_there_in_time(COUNT)


def test_rebuild_covers_only_the_built_ones_of_790_partitions() -> None:
    every = keys(790)
    built = [every[5], every[400], every[401]]
    simulation = Simulation(dg.Definitions(assets=chain(1, len(every))), start=START, pace=RunPace())
    for key in built:
        simulation.arrive("raw/h", key, at=simulation.time(minutes=1))
    simulation.run(hours=3)
    deployed = simulation.clock.now + 1
    simulation.deploy(chain(2, len(every)), at=deployed)
    simulation.run(hours=3)
    after = [run for run in simulation.runs if run.created_at > deployed]
    for table in TABLES:
        assert [list(run.of[table]) for run in after if table in run.committed] == [built[1:], built[:1]], table


@pytest.mark.parametrize("loaded", ["long ago", "just now"])
def test_edited_code_that_is_not_loaded_causes_no_repeated_runs(loaded: str) -> None:
    every = keys(6)
    simulation = Simulation(dg.Definitions(assets=chain(1, len(every))), start=START, pace=RunPace())
    for key in every:
        simulation.arrive("raw/h", key, at=simulation.time(minutes=1))
    simulation.run(hours=3)
    if loaded == "just now":
        simulation.restart(at=simulation.clock.now + 1)
        simulation.run(seconds=15)
    # From now on runs import the edited code, and the sensors have the one before.
    simulation.tables.code_versions = {**simulation.tables.code_versions, TABLES[0]: "2"}
    edited = simulation.clock.now
    simulation.arrive("raw/h", every[2], at=edited + 1)
    simulation.run(hours=3)
    again = [run for run in simulation.runs if run.created_at > edited and TABLES[0] in run.committed]
    assert len(again) == 1, "it goes round in circles"
    deployed = simulation.clock.now + 1
    simulation.deploy(chain(2, len(every)), at=deployed)
    simulation.run(hours=3)
    after = [p for run in simulation.runs if run.created_at > deployed for p in run.of.get(TABLES[0], ())]
    assert sorted(after) == sorted(set(every) - {every[2]}), "what the edited code has built is not built again"


def test_manual_run_of_edited_code_is_not_rebuilt_before_the_next_load() -> None:
    every = keys(3)
    simulation = Simulation(dg.Definitions(assets=chain(1, len(every))), start=START, pace=RunPace(step=2.0))
    for key in every:
        simulation.arrive("raw/h", key, at=simulation.time(minutes=1))
    simulation.run(hours=3)
    simulation.restart(at=simulation.clock.now + 1)
    simulation.run(seconds=10)
    simulation.tables.code_versions = {**simulation.tables.code_versions, TABLES[0]: "2"}
    edited = simulation.clock.now
    simulation.request([TABLES[0]], [every[1]], at=edited + 1)
    simulation.run(seconds=120)
    assert len([run for run in simulation.runs if run.created_at > edited and TABLES[0] in run.assets]) == 1


def goes_through(count: int) -> dict[str, float]:
    """See a rebuild of so many hours go chunk by chunk; its figures."""
    simulation, deployed = rebuilt(count, arrivals=0)
    runs = [run for run in simulation.runs if run.created_at > deployed]
    assert sorted((key, p) for run in runs for key in run.committed for p in run.of[key]) == sorted(
        (table, key) for table in TABLES for key in keys(count)
    ), "each once"
    compute = sum((run.ended_at or 0.0) - (run.started_at or 0.0) for run in runs)
    wall = max(run.ended_at or 0.0 for run in runs) - deployed
    chunks = [run.of[TABLES[0]] for run in runs if TABLES[0] in run.committed]
    assert len(chunks) > 1
    assert len(runs) <= DEPTH * len(chunks)
    order = [(chunks.index(run.of[table]), table) for run in runs for table in run.committed]
    assert order == sorted(order), "what reads a chunk follows before the next, older one"
    assert [max(chunk) for chunk in chunks] == sorted((max(chunk) for chunk in chunks), reverse=True)
    return {
        "runs": len(runs),
        "wall, s": round(wall),
        "compute, s": round(compute),
        "wall / compute": wall / compute,
    }


def whatever_arrives_is_there_in_time(count: int) -> None:
    """See eight hours that arrive during a rebuild of so many in all four tables within the hour."""
    simulation, deployed = rebuilt(count, arrivals=8)
    for number in range(8):
        key, at = keys(count)[-1 - count // 12 * number], deployed + 90 * (number + 1)
        assert any(key in run.of.get(TABLES[0], ()) and run.began[TABLES[0]] > at for run in simulation.runs), key
        last = [run for run in simulation.runs if key in run.of.get(TABLES[-1], ())][-1]
        assert last.committed[TABLES[-1]] <= at + 3600
