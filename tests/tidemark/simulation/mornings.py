"""Mornings with a report due at nine, of everything that arrived by half past eight."""

import random
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import dagster as dg

from dagster_tidemark.simulation.simulator import RunPace, Simulation
from tests.tidemark.planner.lag_oracle import Oracle, RunRecord, Target
from tests.tidemark.toy_graph import ASAP, DAYS, HOURS, START, asset, lag, source, within

REPORT = "marts/report"
PATH = ("core/orders", "marts/margin", REPORT)
NINE = dg.FreshnessPolicy.cron(deadline_cron="0 9 * * *", lower_bound_delta=timedelta(minutes=30))


def graph() -> list[Any]:
    """Orders, margins by the hour, and the report of a day."""
    return [
        source("orders", HOURS),
        asset("core/orders", "raw/orders", by=HOURS, freshness_policy=lag(minutes=5), **ASAP),
        asset("marts/margin", "core/orders", by=HOURS, freshness_policy=lag(hours=2)),
        asset(REPORT, within("core/orders"), within("marts/margin"), by=DAYS, freshness_policy=NINE),
    ]


def reads(target: Target) -> list[list[Target]]:
    """What a partition reads, as plain text."""
    name, partition = target
    hours = [f"{partition}-{hour:02}:00" for hour in range(24)]
    return {
        "raw/orders": [],
        "core/orders": [[("raw/orders", partition)]],
        "marts/margin": [[("core/orders", partition)]],
        REPORT: [[("core/orders", hour) for hour in hours], [("marts/margin", hour) for hour in hours]],
    }[name]


@dataclass(frozen=True)
class Morning:
    """How a morning went.

    Args:
        fails: The asset on the path whose first attempt of that morning failed.
        failed: Whether it did fail.
        in_time: Whether the report of the day before held at nine all that had arrived by half past eight.
        first_start: When its first run was created, in seconds after half past eight.
    """

    day: str
    fails: str
    failed: bool
    in_time: bool
    first_start: float


def mornings(count: int, seed: int = 1, every_hours: float = 1.0) -> list[Morning]:
    """Play so many days: data each hour of the day, late data of the day before until and after half past eight."""
    simulation = Simulation(
        graph(), start=START, seed=seed, pace=RunPace(spread=0.5, launch=(1.0, 6.0), notice=(0.2, 2.0))
    )
    chance = random.Random(seed)
    fails: list[str] = []
    for number in range(count):
        for n in range(int(24 / every_hours)):
            at = simulation.time(days=number, hours=n * every_hours, seconds=chance.uniform(0, 1800))
            simulation.arrive("raw/orders", _hour(simulation, at), at=at)
        for minute in (0, 20, 29, 29.9, 33, 50):
            late = _hour(simulation, simulation.time(days=number, hours=chance.uniform(0, 23.9)))
            simulation.arrive("raw/orders", late, at=simulation.time(days=number + 1, hours=8, minutes=minute))
        fails.append(PATH[number % len(PATH)])
        simulation.at(simulation.time(days=number + 1, hours=8, minutes=29), lambda a=fails[-1]: simulation.fail(a))  # type: ignore[misc]
    simulation.run(days=count, hours=12)
    return [_judged(simulation, number, failing) for number, failing in enumerate(fails)]


def _judged(simulation: Simulation, number: int, fails: str) -> Morning:
    runs = [
        RunRecord(r.created_at, {(a, p): at for a, at in r.committed.items() for p in r.partitions})
        for r in simulation.runs
    ]
    day = f"{START + timedelta(days=number):%Y-%m-%d}"
    half_past_eight, nine = (simulation.time(days=number + 1, hours=hours) for hours in (8.5, 9.0))
    lacks = Oracle(simulation.arrivals, runs, reads).lacks_since((REPORT, day), nine)
    first = simulation.runs_of(REPORT, day)[0].created_at
    failed = any(
        r.succeeded is False and half_past_eight - 60 <= r.created_at < nine for r in simulation.runs_of(fails)
    )
    return Morning(day, fails, failed, lacks is None or lacks > half_past_eight, first - half_past_eight)


def _hour(simulation: Simulation, at: float) -> str:
    return f"{simulation.start + timedelta(seconds=at - simulation.start.timestamp()):%Y-%m-%d-%H:00}"
