"""The oracle of the lag on the real platform: half an hour at a twentieth of the contracts' windows."""

import os
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import dagster as dg
import pytest

from tests.grocer_days import HOUR, PARTITIONS, READS, WITHIN, counts, promise, reads, window
from tests.live.platform import Platform, running
from tests.proof.conftest import Report
from tests.tidemark.planner.lag_oracle import Oracle, RunRecord, Target, sample

SCALE = 0.05
MINUTES = float(os.environ.get("PROOF_MINUTES", "30"))
EVERY = 300 * SCALE
SAMPLES = 60 * SCALE
JUDGED = [asset for asset in WITHIN if PARTITIONS[asset] == HOUR]  # a day's window is longer than this
LAZY = [asset for asset in JUDGED if asset != "core/orders"]


@pytest.fixture
def platform(tmp_path: Path) -> Iterator[Platform]:
    """A platform on the scaled clock, without the sample feed."""
    jars = Path(os.environ.get("TIDEMARK_JARS_DIR") or ".tidemark/jars").absolute()
    with running(tmp_path, jars, TIDEMARK_CONTRACT_SCALE=str(SCALE)) as made:
        yield made


def feed(platform: Platform) -> list[tuple[float, Target]]:
    """An order file every fifteen seconds, and one each of prices and customers; what arrived when."""
    arrivals: list[tuple[float, Target]] = []
    begun = time.time()

    def put(key: str, body: str, target: Target) -> None:
        arrivals.append((time.time(), target))
        platform.put(key, body)

    put("customers/latest.csv", CUSTOMERS, ("raw/customers", None))
    day = datetime.now(UTC)
    put(f"prices/dt={day:%Y-%m-%d}/p.csv", "product_id,cost_usd\n1,1.5\n", ("raw/prices", f"{day:%Y-%m-%d}"))
    for number in range(int(MINUTES * 60 / EVERY)):
        time.sleep(max(0.0, begun + number * EVERY - time.time()))
        now = datetime.now(UTC)
        line = f"{number},1,1,1,1,3,2.50,0.1,{now:%Y-%m-%dT%H}:00:00Z\n"
        key = f"orders/dt={now:%Y-%m-%d}/hour={now:%H}/{number}.csv"
        put(key, ORDERS + line, ("raw/orders", f"{now:%Y-%m-%d-%H}:00"))
    return arrivals


def runs_of(instance: dg.DagsterInstance) -> list[RunRecord]:
    """What ran: when it was created and when each partition was written, in Dagster's own times."""
    created = {r.dagster_run.run_id: r.create_timestamp.timestamp() for r in instance.get_run_records()}
    written: dict[str, dict[Target, float]] = defaultdict(dict)
    for asset in READS:
        for record in instance.fetch_materializations(dg.AssetKey.from_user_string(asset), limit=10_000).records:
            written[record.run_id][(asset, record.partition_key)] = record.timestamp
    return [RunRecord(created[run_id], targets) for run_id, targets in written.items() if run_id in created]


def how_long(instance: dg.DagsterInstance) -> dict[str, str]:
    """From the creation of a run to its first step, and to its end."""
    launches, durations = [], []
    for record in instance.get_run_records(dg.RunsFilter(statuses=[dg.DagsterRunStatus.SUCCESS])):
        steps = instance.all_logs(record.dagster_run.run_id, of_type={dg.DagsterEventType.STEP_START})
        created = record.create_timestamp.timestamp()
        launches += [min(step.timestamp for step in steps) - created] if steps else []
        durations += [record.end_time - created] if record.end_time else []
    return {"launch, s": _spread(launches), "runs, s": _spread(durations)}


def _spread(seconds: list[float]) -> str:
    cuts = quantiles(seconds, n=20)
    return f"median {median(seconds):.1f}, p95 {cuts[-1]:.1f}, longest {max(seconds):.1f}"


@dataclass(frozen=True)
class Judgement:
    """The share of looks within contract, how often each asset was built and may have been, and all figures."""

    within: float
    builds: dict[str, int]
    allowed: dict[str, float]
    figures: dict[str, Any]


def judged(arrivals: list[tuple[float, Target]], runs: list[RunRecord], begun: float, ended: float) -> Judgement:
    """What the oracle says of the assets of an hour."""
    orders: dict[str, list[float]] = defaultdict(list)
    for at, (source, partition) in arrivals:
        if source == "raw/orders":
            orders[str(partition)].append(at)
    due = {(asset, hour): promise((asset, hour), SCALE) for asset in JUDGED for hour in orders}
    oracle = Oracle(arrivals, runs, reads, counts)
    moments = [begun + n * SAMPLES for n in range(int((ended - begun) / SAMPLES))]
    looked, lacking, misses = sample(oracle, due, moments)
    builds = {asset: sum(asset == key for run in runs for key, _ in run.written) for asset in JUDGED}
    spans = [max(span) - min(span) for span in orders.values()]
    allowed = {a: sum(1.1 + span / window(a, SCALE) for span in spans) for a in LAZY}
    within = 1 - len(misses) / looked
    figures = {
        "minutes": MINUTES,
        "files": len(arrivals),
        "samples": looked,
        "samples with something lacking": lacking,
        "within contract, % of all samples": round(100 * within, 3),
        "within contract, % of those lacking something": round(100 * (1 - len(misses) / max(1, lacking)), 3),
        "builds": builds,
        "builds of the lazy ones, at most": {asset: round(most, 1) for asset, most in allowed.items()},
        "longest lag, s": {a: round(longest_lag(oracle, due, moments, a), 1) for a in JUDGED},
        "misses": [f"{m.target[0]} {m.target[1]}: {m.lag:.0f} s after {m.at - begun:.0f} s" for m in misses],
    }
    return Judgement(within, builds, allowed, figures)


def longest_lag(oracle: Oracle, targets: Iterable[Target], moments: list[float], asset: str) -> float:
    """How old the oldest was that a partition of an asset lacked at some moment."""
    lacked = [(at, oracle.lacks_since(t, at)) for t in targets if t[0] == asset for at in moments]
    return max((at - since for at, since in lacked if since is not None), default=0.0)


def test_data_is_built_in_time_on_a_real_daemon(platform: Platform, report: Report) -> None:
    begun = time.time()
    arrivals = feed(platform)
    ended = time.time()
    with dg.DagsterInstance.from_config(str(platform.environment["DAGSTER_HOME"])) as instance:
        runs = runs_of(instance)
        failed = instance.get_runs_count(dg.RunsFilter(statuses=[dg.DagsterRunStatus.FAILURE]))
        leads = how_long(instance)
    found = judged(arrivals, runs, begun, ended)
    report("live-lag", found.figures | leads | {"failed runs": failed, "load average": os.getloadavg()})
    assert all(found.builds[asset] > 1 for asset in JUDGED), found.builds
    assert found.within >= 0.995, found.figures
    assert all(found.builds[asset] <= most for asset, most in found.allowed.items()), found.figures


CUSTOMERS = "customer_id,name,email,segment,nation,signed_up_at\n1,A,a@b.c,s,n,2026-01-01T00:00:00Z\n"
ORDERS = "order_id,line_number,customer_id,product_id,store_id,quantity,unit_price_usd,discount,ordered_at\n"
