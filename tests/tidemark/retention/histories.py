"""Random days on an instance, played twice: once with prunes, and once without.

The oracle is the second play. It shares no code with the prune: two plays with the same seed request the same runs, so
every difference is a decision that the prune has changed.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import dagster as dg

from dagster_tidemark.asset_graph import planner_graph
from dagster_tidemark.engine import engine
from dagster_tidemark.retention.prune import Pruning, prune
from dagster_tidemark.simulation.simulator import CheckFate, RunFate, RunPace, Simulation
from tests.tidemark.toy_graph import ASAP, DAYS, HOURS, START, asset, lag, source, within

FEED, HOURLY, DAILY, TOTAL, SIDE = "raw/orders", "core/orders", "marts/daily", "marts/total", "marts/side"
HOURS_OF_START = [f"2026-10-0{day}-{hour:02}:00" for day in (3, 4) for hour in range(24)]


def assets() -> list[Any]:
    """A feed by the hour and one without partitions, tables of each kind, and blocking checks."""

    @dg.asset_check(asset=HOURLY.split("/"), name="complete", blocking=True)
    def complete() -> dg.AssetCheckResult:
        return dg.AssetCheckResult(passed=True)

    @dg.asset_check(asset=SIDE.split("/"), name="sane", blocking=True)
    def sane() -> dg.AssetCheckResult:
        return dg.AssetCheckResult(passed=True)

    return [
        source("orders", HOURS),
        source("stock"),
        asset(HOURLY, FEED, by=HOURS, freshness_policy=lag(minutes=5), **ASAP),
        asset(SIDE, "raw/stock", freshness_policy=lag(minutes=10), **ASAP),
        asset(DAILY, within(HOURLY), by=DAYS, freshness_policy=lag(minutes=40)),
        asset(TOTAL, HOURLY, SIDE, freshness_policy=lag(minutes=60)),
        complete,
        sane,
    ]


@dataclass
class Played:
    """A play: its simulation, and what each prune reported."""

    simulation: Simulation
    prunings: list[Pruning]

    def decisions(self) -> list[tuple[object, ...]]:
        """Every run so far: assets, partitions and the moment it was requested."""
        return [(run.assets, run.partitions, run.created_at) for run in self.simulation.runs]

    def built(self) -> list[tuple[object, ...]]:
        """How often each partition was requested, regardless of the pauses between attempts."""
        return sorted((run.assets, str(run.partitions)) for run in self.simulation.runs)

    def texts(self) -> tuple[object, ...]:
        """The present decisions and the state of each contract, with all words."""
        plan = self.simulation.plan()
        return plan.decisions, plan.requests, plan.set_aside, plan.checks, self.simulation.standings()


def play(
    seed: int,
    instance: dg.DagsterInstance,
    *,
    hours: int,
    prunes: bool,
    lose: Callable[[Simulation], None],
    restarts: bool = True,
    defs: Callable[[], list[Any]] = assets,
) -> Played:
    """Play random hours. At the same moments, with prunes or without them, the code server restarts."""
    chance = random.Random(f"history {seed}")
    pace = RunPace(failing=chance.choice((0.0, 0.15)), spread=0.3)
    simulation = Simulation(_definitions(defs()), start=START, seed=seed, instance=instance, pace=pace)
    played = Played(simulation, [])
    at = START.timestamp()
    for _ in range(hours):
        for event in range(chance.randrange(5)):
            _happens(chance, simulation, at + 60 + 600 * event)
        at += 3600
        simulation.run_until(at)
        saves, wants_restart = chance.random() < 0.3, chance.random() < 0.5
        age, loses = timedelta(hours=chance.choice((1, 1, 2, 5))), chance.random() < 0.5
        wants = chance.random() < 0.4
        if saves:
            with simulation.clock.frozen():
                simulation._engine().follower.save(instance)
        if wants and prunes:
            played.prunings.append(pruned(simulation, age))
        if wants and wants_restart and restarts:
            if loses:
                lose(simulation)
            engine.forget(instance)
            simulation.restart(at=simulation.clock.now)
    simulation.run_until(at + 6 * 3600)
    return played


def pruned(simulation: Simulation, age: timedelta, *, apply: bool = True, **options: Any) -> Pruning:
    """Prune the simulation's instance at its present time."""
    with simulation.clock.frozen():
        return prune(
            simulation.instance, lambda: planner_graph.graph_of(simulation.asset_graph), age, apply=apply, **options
        )


def _happens(chance: random.Random, simulation: Simulation, at: float) -> None:
    hour = chance.choice(HOURS_OF_START[-8:])
    kind = chance.choice(
        ("arrive", "arrive", "arrive", "stock", "stock", "fail", "check", "request", "evaluate", "report", "cancel")
    )
    if kind == "arrive":
        simulation.arrive(FEED, hour, at=at)
    elif kind == "stock":
        simulation.arrive("raw/stock", at=at)
    elif kind == "fail":
        simulation.fail(
            chance.choice((HOURLY, DAILY, TOTAL, SIDE)), times=chance.randrange(1, 4), how=chance.choice(list(RunFate))
        )
    elif kind == "check":
        simulation.fail_check(
            *chance.choice(((HOURLY, "complete"), (SIDE, "sane"))), how=chance.choice(list(CheckFate))
        )
    elif kind == "request":
        simulation.request([HOURLY], [hour], at=at)
    elif kind == "evaluate":
        passed = chance.random() < 0.6
        simulation.evaluate_check(*chance.choice(((HOURLY, "complete"), (SIDE, "sane"))), passed=passed, at=at)
    elif kind == "report":
        simulation.report(HOURLY, hour, at=at)
    elif kind == "cancel":
        simulation.cancel(chance.choice((DAILY, TOTAL)), at=at)


def _definitions(found: list[Any]) -> dg.Definitions:
    checks = [each for each in found if isinstance(each, dg.AssetChecksDefinition)]
    return dg.Definitions([each for each in found if each not in checks], asset_checks=checks)
