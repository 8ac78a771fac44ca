"""The size of an instance that prunes itself: thirty tables, thirty days, on SQLite files.

The days have few runs, so that the proof takes minutes. The figures per run are multiplied for a day of 288 runs.
`PROOF_RUNS=24` makes more runs a day.
"""

import os
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import dagster as dg

from dagster_tidemark.simulation.simulator import Simulation
from tests.proof.conftest import Report
from tests.tidemark.retention.histories import pruned
from tests.tidemark.toy_graph import ASAP, START, asset, lag, source

TABLES, DAYS, AGE = 30, 30, timedelta(days=1)
EVERY_FIVE_MINUTES = 288


def tables() -> list[Any]:
    made = [asset(f"core/table_{n}", "raw/stock", freshness_policy=lag(minutes=5), **ASAP) for n in range(TABLES)]
    return [source("stock"), *made]


def bytes_of(folder: str) -> int:
    return sum(path.stat().st_size for path in Path(folder).rglob("*") if path.is_file())


def test_instance_that_prunes_itself_stops_growing(report: Report) -> None:
    runs_a_day, began = int(os.environ.get("PROOF_RUNS", 8)), time.monotonic()
    sizes, prune_seconds, deleted = [], list[float](), 0
    with dg.instance_for_test() as instance:
        simulation = Simulation(tables(), start=START, instance=instance)
        first_day = 0
        for day in range(DAYS):
            for run in range(runs_a_day):
                simulation.arrive("raw/stock", at=simulation.time(days=day, hours=24 / runs_a_day * run, minutes=1))
            simulation.run_until(simulation.time(days=day + 1))
            first_day = first_day or bytes_of(instance.root_directory)
            at = time.monotonic()
            deleted += pruned(simulation, AGE).amounts["runs"].count
            prune_seconds.append(round(time.monotonic() - at, 1))
            sizes.append(bytes_of(instance.root_directory))
        runs, left = len(simulation.runs), instance.get_runs_count()
    growth = (sizes[-1] - sizes[2]) / (DAYS - 3)
    report(
        "prune-size",
        {
            "tables": TABLES,
            "runs a day": runs_a_day,
            "age of deleted records": str(AGE),
            "seconds": round(time.monotonic() - began),
            "runs": runs,
            "runs deleted": deleted,
            "runs left": left,
            "bytes after day 1, before the first prune": first_day,
            "bytes at day 3": sizes[2],
            "bytes at day 30": sizes[-1],
            "day 30 / day 3": round(sizes[-1] / sizes[2], 3),
            "growth in bytes a day": round(growth),
            "growth in bytes a day, for 288 runs a day": round(growth * EVERY_FIVE_MINUTES / runs_a_day),
            "seconds of a prune, at most": max(prune_seconds),
        },
    )
    assert runs >= DAYS * runs_a_day
    assert sizes[-1] / sizes[2] <= 1.1
    assert growth * EVERY_FIVE_MINUTES / runs_a_day <= 15e6
