"""The lag of past days, read from the event log, compared with an oracle that samples the facts of a simulated day."""

import random
from collections.abc import Sequence
from datetime import timedelta

import dagster as dg
import pytest

from dagster_tidemark.engine.lag_history import AssetLag, lags
from dagster_tidemark.engine.override_store import OverrideStore
from dagster_tidemark.engine.overview import judged
from dagster_tidemark.planner.contract_status import span
from dagster_tidemark.planner.contracts import FreshnessStatus
from dagster_tidemark.planner.overrides import without
from dagster_tidemark.simulation.simulator import RunPace, Simulation
from tests.tidemark.planner.lag_oracle import Oracle, RunRecord, Target
from tests.tidemark.toy_graph import DAYS, HOURS, START, asset, lag, small, source, within

LAGS = {"core/orders": 300.0, "marts/hourly": 3600.0, "marts/daily": 86_400.0}
EVERY = 10.0
"""Seconds between two samples of the oracle."""


def found(simulation: Simulation, *periods: tuple[float, float]) -> list[AssetLag]:
    with simulation.clock.frozen():
        return lags(simulation.instance, simulation.asset_graph, periods)


def reads(target: Target) -> Sequence[Sequence[Target]]:
    asset_, partition = target
    match asset_:
        case "core/orders":
            return [[("raw/orders", partition)]]
        case "marts/hourly":
            return [[("core/orders", partition)]]
        case "marts/daily":
            return [[("core/orders", f"{partition}-{hour:02}:00") for hour in range(24)]]
    return []


def sampled(simulation: Simulation, asset_: str, start: float, end: float) -> tuple[float, float, float, float]:
    """Mean, p95, longest and share within contract, from samples of what the arrivals and runs alone say."""
    runs = [
        RunRecord(r.created_at, {(a, p): at for a, at in r.committed.items() for p in r.of[a]})
        for r in simulation.runs
        if r.committed
    ]
    oracle = Oracle(simulation.arrivals, runs, reads)
    hours = sorted({p for _, (_, p) in simulation.arrivals if p is not None})
    partitions = sorted({p[:10] for p in hours}) if asset_ == "marts/daily" else hours
    lags_, late = [], 0
    number = round((end - start) / EVERY)
    for n in range(number):
        at = start + (n + 0.5) * (end - start) / number
        since = [s for p in partitions if (s := oracle.lacks_since((asset_, p), at)) is not None]
        lags_.append(max((at - s for s in since), default=0.0))
        late += any(at > s + LAGS[asset_] for s in since)
    ordered = sorted(lags_)
    return sum(lags_) / number, ordered[int(0.95 * number)], ordered[-1], 1 - late / number


@pytest.mark.parametrize("seed", range(3))
def test_lag_of_a_day_with_faults_agrees_with_samples_of_its_facts(seed: int) -> None:
    chance = random.Random(seed)
    pace = RunPace(step=40.0, spread=0.5, failing=0.1, notice=(1.0, 40.0))
    simulation = Simulation(small(), start=START, seed=seed, pace=pace)  # type: ignore[arg-type]
    for hour in range(8):
        for _ in range(chance.randint(0, 3)):
            at = simulation.time(hours=hour, minutes=chance.uniform(0, 110))
            simulation.arrive("raw/orders", f"2026-10-05-{hour:02}:00", at=at)
    down = chance.uniform(1, 6)
    simulation.outage(at=simulation.time(hours=down), until=simulation.time(hours=down + chance.uniform(0.2, 1.5)))
    simulation.run(hours=12)
    every = found(simulation, (simulation.time(hours=1), simulation.time(hours=9)))
    assert {each.asset for each in every} == LAGS.keys()
    for each in every:
        exact, (mean, p95, longest, share) = each.lag, sampled(simulation, each.asset, each.start, each.end)
        assert exact.mean == pytest.approx(mean, abs=3.0), (each.asset, span(exact.mean), span(mean))
        assert exact.longest == pytest.approx(longest, abs=EVERY + 1), each.asset
        assert exact.within == pytest.approx(share, abs=0.003), each.asset
        assert exact.p95 == pytest.approx(p95, abs=90.0), each.asset


def test_lag_of_skipped_data_ends_at_the_skip_and_counts_again_after_its_end() -> None:
    simulation = Simulation(small(), start=START)  # type: ignore[arg-type]
    simulation.switch("automation", on=False, at=simulation.time(minutes=50))
    simulation.arrive("raw/orders", "2026-10-05-00:00", at=simulation.time(hours=1))
    simulation.skip("core/orders", at=simulation.time(hours=2))
    simulation.arrive("raw/orders", "2026-10-05-03:00", at=simulation.time(hours=4))
    simulation.run(hours=5)
    start = simulation.time(hours=1)
    (orders, *_) = found(simulation, (start, simulation.time(hours=3)), (start, simulation.time(hours=5)))
    assert orders.asset == "core/orders"
    assert orders.lag.longest == pytest.approx(3600.0, abs=60.0)
    assert orders.lag.within == pytest.approx(1 - 3300 / 7200, abs=0.01)
    store = OverrideStore(simulation.instance)
    (made,) = store.read()
    end = simulation.time(hours=4, minutes=30)
    store.change(lambda before: without(before, [made.id], at=end, by="a person"))
    (after, *_) = found(simulation, (start, end + 60))
    assert after.lag.longest == pytest.approx(end + 60 - start, abs=60.0), "it lacks the data of one o'clock again"


NINE = dg.FreshnessPolicy.cron(deadline_cron="0 9 * * *", lower_bound_delta=timedelta(minutes=30))


def withholding() -> list[object]:
    """Sales of an hour need orders and tills; the report is promised by nine."""
    return [
        source("orders", HOURS),
        source("tills", HOURS),
        asset("core/sales", "raw/orders", "raw/tills", by=HOURS, freshness_policy=lag(minutes=30)),
        asset("marts/report", within("core/sales"), by=DAYS, freshness_policy=NINE),
    ]


def test_lag_agrees_with_the_verdicts_that_status_gave_at_the_time() -> None:
    simulation = Simulation(withholding(), start=START)  # type: ignore[arg-type]
    for hour in (1, 2, 3):
        at = simulation.time(hours=hour + 1, minutes=5)
        simulation.arrive("raw/orders", f"2026-10-05-{hour:02}:00", at=at)
        if hour != 2:  # the tills of two o'clock come five hours late
            simulation.arrive("raw/tills", f"2026-10-05-{hour:02}:00", at=at + 60)
    simulation.arrive("raw/tills", "2026-10-05-02:00", at=simulation.time(hours=8))
    # The report of the first day fails from its first attempt until half past ten.
    simulation.at(simulation.time(days=1, hours=8), lambda: simulation.fail("marts/report", times=50))
    simulation.heal(at=simulation.time(days=1, hours=10, minutes=30))
    # No data comes on the second day: its report is promised and never built.
    simulation.run(hours=2)
    start, each = simulation.clock.now, {"core/sales": list[tuple[float, bool]](), "marts/report": []}
    for _ in range(340):
        simulation.run(minutes=10)
        with simulation.clock.frozen():
            _, standings = judged(simulation.instance, simulation.asset_graph)
        for asset_, seen in each.items():
            standing = standings[asset_]
            seen.append((standing.lag, standing.verdict is FreshnessStatus.BREACHED))
    (sales, report) = found(simulation, (start, simulation.clock.now))
    for exact, seen in ((sales, each["core/sales"]), (report, each["marts/report"])):
        lags_, late = [lag for lag, _ in seen], [breached for _, breached in seen]
        assert max(lags_) > 3600 and 0 < sum(late) < len(late), "the day has what the test is about"
        assert exact.lag.longest == pytest.approx(max(lags_), abs=600), exact.asset
        assert exact.lag.mean == pytest.approx(sum(lags_) / len(lags_), rel=0.02, abs=60), exact.asset
        assert exact.lag.within == pytest.approx(1 - sum(late) / len(late), abs=0.01), exact.asset
