"""Days of the grocer's whole graph in the simulator, and what the oracle says of them.

What each asset reads is written down a second time here, as plain text, so that the judgement owes nothing to the
mappings the planner uses.
"""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from math import ceil
from typing import Any

from dagster_tidemark.simulation.simulator import RunPace, Simulation
from pipelines.definitions import defs
from tests.tidemark.planner.lag_oracle import Miss, Oracle, Promise, RunRecord, Target, sample

START = datetime(2026, 10, 4, tzinfo=UTC)  # a Sunday: the morning after it a day and a week are due
HOUR, DAY, WEEK = 3600.0, 24 * 3600.0, 7 * 24 * 3600.0
ROUGH = RunPace(step=20.0, spread=0.5, failing=0.02, launch=(1.0, 6.0), notice=(0.2, 2.0))

READS: Mapping[str, Sequence[tuple[str, str]]] = {
    "core/orders": [("raw/orders", "same")],
    "core/customers": [("raw/customers", "same")],
    "core/prices": [("raw/prices", "same")],
    "marts/sales_hourly": [("core/orders", "same")],
    "marts/sales_daily": [("core/orders", "hours of day")],
    "marts/order_stats": [("core/orders", "hours of day"), ("core/customers", "all")],
    "marts/margin_hourly": [("core/orders", "same"), ("core/prices", "day of hour")],
    "marts/executive_rollup": [("core/orders", "hours of day"), ("marts/margin_hourly", "hours of day")],
    "marts/weekly_review": [("core/orders", "hours of two weeks")],
}
PARTITIONS = {
    "core/orders": HOUR,
    "marts/sales_hourly": HOUR,
    "marts/margin_hourly": HOUR,
    "marts/sales_daily": DAY,
    "marts/order_stats": DAY,
    "marts/executive_rollup": DAY,
    "marts/weekly_review": WEEK,
}
"""How long a partition of each asset with a contract is."""
WITHIN = {
    "core/orders": 5 * 60.0,
    "marts/sales_hourly": HOUR,
    "marts/margin_hourly": 2 * HOUR,
    "marts/sales_daily": DAY,
    "marts/order_stats": DAY,
}
"""Contracts on lag."""
BY_NINE = {"marts/executive_rollup": 0.5 * HOUR, "marts/weekly_review": HOUR}
"""Contracts on a deadline: nine o'clock after the partition's end, for what arrived so long before."""
SHORTEST = 60.0
"""A contract on lag is never scaled below this."""


def window(asset: str, scale: float = 1.0) -> float:
    """How many seconds a contract on lag gives."""
    return max(SHORTEST, WITHIN[asset] * scale)


def promise(target: Target, scale: float = 1.0) -> Promise:
    """By when a partition is to hold what arrived at a time."""
    asset, partition = target
    if asset in WITHIN:
        return lambda arrival: arrival + window(asset, scale)
    length = PARTITIONS[asset]
    nine = datetime.fromisoformat(str(partition)).replace(tzinfo=UTC).timestamp() + length + 9 * HOUR
    return lambda arrival: nine + ceil(max(0.0, arrival + BY_NINE[asset] - nine) / length) * length


def partition_at(asset: str, hour: str) -> str:
    """The partition of an asset that an hour of orders lies in."""
    if PARTITIONS[asset] == HOUR:
        return hour
    day = datetime.fromisoformat(hour[:10])
    return f"{day - timedelta(days=day.weekday() if PARTITIONS[asset] == WEEK else 0):%Y-%m-%d}"


def reads(target: Target) -> list[list[Target]]:
    """What a partition reads."""
    asset, partition = target
    return [[(read, p) for p in _read_partitions(how, partition)] for read, how in READS.get(asset, ())]


def _read_partitions(how: str, partition: str | None) -> list[str | None]:
    if how == "all" or partition is None:
        return [None]
    if how == "same":
        return [partition]
    if how == "day of hour":
        return [partition[:10]]
    first = datetime.fromisoformat(partition)
    if how == "hours of day":
        return [f"{partition}-{hour:02}:00" for hour in range(24)]
    assert how == "hours of two weeks"
    return [f"{first + timedelta(hours=n):%Y-%m-%d-%H:00}" for n in range(-7 * 24, 7 * 24)]


def counts(target: Target, source: Target, arrival: float) -> bool:
    """New customers make the last seven days stale, and not history."""
    if target[0] != "marts/order_stats" or source[0] != "raw/customers":
        return True
    ago = datetime.fromtimestamp(arrival, UTC).date() - datetime.fromisoformat(str(target[1])).date()
    return timedelta(0) <= ago < timedelta(days=7)


def busy(simulation: Simulation, *, hours: float, every: float = 300.0, everything: bool = True, seed: int = 0) -> None:
    """Data every five minutes in the current hour of the orders; and in the prices and the customers, or once a day."""
    chance = random.Random(f"{seed}/data")
    begin = simulation.start.timestamp()
    for n in range(int(hours * 3600 / every)):
        at = begin + n * every + chance.uniform(0.0, every / 5)
        moment = datetime.fromtimestamp(at, UTC)
        simulation.arrive("raw/orders", f"{moment:%Y-%m-%d-%H:00}", at=at)
        if everything or n % round(24 * 3600 / every) == 0:
            simulation.arrive("raw/prices", f"{moment:%Y-%m-%d}", at=at + chance.uniform(0.0, 60.0))
            simulation.arrive("raw/customers", None, at=at + chance.uniform(0.0, 60.0))


def oracle_of(simulation: Simulation) -> Oracle:
    """The oracle on what arrived in a simulation and what ran."""
    runs = [
        RunRecord(run.created_at, {(asset, p): at for asset, at in run.committed.items() for p in run.partitions})
        for run in simulation.runs
    ]
    return Oracle(simulation.arrivals, runs, reads, counts)


@dataclass(frozen=True)
class Judgement:
    """A simulated day, judged: looks once a minute at every partition that has data."""

    looks: int
    lacking: int
    misses: list[Miss]
    runs: int
    failed: int
    runs_per_window: dict[str, tuple[float, float]]

    @property
    def within(self) -> float:
        """Share of looks within contract."""
        return 1 - len(self.misses) / self.looks

    def figures(self) -> dict[str, Any]:
        """What a report keeps."""
        return {
            "samples": self.looks,
            "samples with something lacking": self.lacking,
            "within contract, % of all samples": round(100 * self.within, 4),
            "within contract, % of those lacking something": round(100 * (1 - len(self.misses) / self.lacking), 4),
            "misses": [f"{m.target[0]} {m.target[1]}: {m.lag:.0f} s at {_clock(m.at)}" for m in self.misses],
            "runs": self.runs,
            "failed runs": self.failed,
            "runs per window (at most)": {a: f"{r:.2f} ({most:.2f})" for a, (r, most) in self.runs_per_window.items()},
        }


def judge(simulation: Simulation) -> Judgement:
    """Judge the time so far."""
    oracle = oracle_of(simulation)
    hours = {partition for _, (source, partition) in simulation.arrivals if source == "raw/orders" and partition}
    targets = {(asset, partition_at(asset, hour)) for asset in PARTITIONS for hour in hours}
    promises = {target: promise(target) for target in targets if oracle.present_since(target) is not None}
    begin, end = simulation.start.timestamp(), simulation.clock.now
    looks, lacking, misses = sample(oracle, promises, [begin + 60.0 * n for n in range(1, int((end - begin) / 60))])
    return Judgement(
        looks,
        lacking,
        misses,
        len(simulation.runs),
        sum(run.succeeded is False for run in simulation.runs),
        {asset: _runs_per_window(simulation, asset) for asset in PARTITIONS if asset != "core/orders"},
    )


def _runs_per_window(simulation: Simulation, asset: str) -> tuple[float, float]:
    """Runs of a lazy asset per partition, and how many there may be: 1.1 + the span of its arrivals / contract.

    Without those that the platform's dice let fail: they have to be repeated.
    """
    contract = WITHIN.get(asset, PARTITIONS[asset])
    spans: dict[Target, list[float]] = {}
    sources = {p: _sources((asset, p)) for run in simulation.runs_of(asset) for p in run.partitions}
    for at, source in simulation.arrivals:
        for partition, read in sources.items():
            if source in read:
                spans.setdefault((asset, partition), []).append(at)
    ran = sum(len(run.partitions) for run in simulation.runs_of(asset) if run.succeeded is not False)
    allowed = sum(1.1 + (max(span) - min(span)) / contract for span in spans.values())
    return (ran / len(spans), allowed / len(spans)) if spans else (0.0, 1.1)


def _sources(target: Target) -> set[Target]:
    read = [partition for partitions in reads(target) for partition in partitions]
    return {source for partition in read for source in _sources(partition)} if read else {target}


def _clock(at: float) -> str:
    return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M}"


def whole_graph(seed: int, pace: RunPace = ROUGH) -> Simulation:
    """The grocer's graph, from the Sunday on."""
    return Simulation(defs, start=START, seed=seed, pace=pace)
