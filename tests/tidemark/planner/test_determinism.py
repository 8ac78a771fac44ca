"""The same graph and the same data lead to the same runs in every process, whatever its hash seed."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import dagster as dg

from dagster_tidemark.engine.condition import derived, with_automation
from dagster_tidemark.simulation.run import RunPace
from dagster_tidemark.simulation.simulator import Simulation
from tests.tidemark.toy_graph import HOURS, START, asset, lag, source

_ROOT = Path(__file__).parents[3]
_CITIES = dg.StaticPartitionsDefinition(["oslo", "rome", "lima", "kiev"])
_LANDS = dg.StaticPartitionsDefinition(["north", "south"])
_LANDS_OF = dg.StaticPartitionMapping({"oslo": "north", "rome": "south", "lima": "south", "kiev": "north"})


def tables() -> list[Any]:
    """Return tables by hours, by other keys and without partitions: most with an hour, one with ten minutes."""
    of_lands = dg.AssetDep(dg.AssetKey(["raw", "cities"]), partition_mapping=_LANDS_OF)
    idle = derived() & ~dg.AutomationCondition.in_progress()
    return with_automation(
        [
            source("hours", HOURS),
            source("whole"),
            source("cities", _CITIES),
            *(asset(f"whole_{n}", "raw/whole", freshness_policy=lag(hours=1)) for n in range(6)),
            *(asset(f"hours_{n}", "raw/hours", by=HOURS, freshness_policy=lag(hours=1)) for n in range(3)),
            asset("single", "raw/hours", by=HOURS, backfill_policy=None, freshness_policy=lag(hours=1)),
            asset("idle", "raw/hours", by=HOURS, automation_condition=idle, freshness_policy=lag(hours=1)),
            asset("lands", of_lands, by=_LANDS, freshness_policy=lag(hours=1)),
            asset("cities", "raw/cities", by=_CITIES, backfill_policy=None, freshness_policy=lag(hours=1)),
            asset("first", "raw/whole", freshness_policy=lag(minutes=10)),
        ]
    )


def played() -> list[str]:
    """Return the runs of two hours with two bursts of data, one line a run."""
    pace = RunPace(step=60.0, spread=0.3, at_once=2)
    simulation = Simulation(tables(), start=START, seed=1, pace=pace, own_every=600.0)
    for minutes in (5, 20):
        at = simulation.time(minutes=minutes)
        simulation.arrive("raw/whole", at=at)
        for hour in range(6):
            simulation.arrive("raw/hours", f"2026-10-04-{3 * hour:02}:00", at=at)
        for city in _CITIES.get_partition_keys():
            simulation.arrive("raw/cities", city, at=at)
    simulation.run(hours=2)
    return [
        f"{run.created_at} {run.started_at} {run.ended_at} {run.assets} {run.partitions}" for run in simulation.runs
    ]


def test_two_processes_request_the_same_runs_in_the_same_order() -> None:
    script = f"from {__name__} import played; print(*played(), sep='\\n')"
    processes = [
        subprocess.Popen(
            [sys.executable, "-W", "ignore", "-c", script],
            cwd=_ROOT,
            env={**os.environ, "PYTHONHASHSEED": seed},
            stdout=subprocess.PIPE,
            text=True,
        )
        for seed in ("0", "1")
    ]
    first, second = [process.communicate()[0].splitlines() for process in processes]
    assert len(first) > 20
    assert first == second
