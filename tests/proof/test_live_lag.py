"""The oracle of the lag on the real platform: half an hour at a twentieth of the contracts' windows."""

import os
import time
from collections import defaultdict
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from tests.automation.grocer_days import READS, WINDOWS, counts, reads
from tests.automation.lag_oracle import Oracle, RunRecord, Target, sample
from tests.live.platform import Platform
from tests.proof.conftest import Report

SCALE = 0.05
MINUTES = float(os.environ.get("TIDEMARK_PROOF_MINUTES", "30"))
EVERY = 300 * SCALE
SAMPLES = 60 * SCALE
SHORTEST = 60.0
JUDGED = [asset for asset in WINDOWS if not asset.endswith(("daily", "stats"))]  # a day's window is longer than this


@pytest.fixture
def platform(tmp_path: Path) -> Iterator[Platform]:
    """A platform on the scaled clock, without the sample feed."""
    jars = Path(os.environ.get("TIDEMARK_JARS_DIR") or ".tidemark/jars").absolute()
    made = Platform(tmp_path / "state", jars, tmp_path / "up.log")
    made.asked["TIDEMARK_CONTRACT_SCALE"] = str(SCALE)
    try:
        made.start()
        yield made
    finally:
        made.end()


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


def judged(
    arrivals: list[tuple[float, Target]], runs: list[RunRecord], begun: float, ended: float
) -> tuple[dict[str, Any], dict[str, int], float]:
    """The figures, how often each asset was built, and the share of samples within contract."""
    hours = {partition for _, (source, partition) in arrivals if source == "raw/orders"}
    windows = {(asset, hour): max(SHORTEST, WINDOWS[asset] * SCALE) for asset in JUDGED for hour in hours}
    oracle = Oracle(arrivals, runs, reads, counts)
    moments = [begun + n * SAMPLES for n in range(int((ended - begun) / SAMPLES))]
    looked, lacking, misses = sample(oracle, windows, moments)
    within = 1 - len(misses) / looked
    built = {asset: sum(asset == key for run in runs for key, _ in run.written) for asset in WINDOWS}
    figures = {
        "minutes": MINUTES,
        "files": len(arrivals),
        "samples": looked,
        "samples with something lacking": lacking,
        "within contract, % of all samples": round(100 * within, 3),
        "within contract, % of those lacking something": round(100 * (1 - len(misses) / max(1, lacking)), 3),
        "builds": built,
        "misses": [f"{m.target[0]} {m.target[1]}: {m.lag:.0f} s after {m.at - begun:.0f} s" for m in misses],
    }
    return figures, built, within


def test_on_the_real_daemon_data_is_incorporated_in_time(platform: Platform, report: Report) -> None:
    begun = time.time()
    arrivals = feed(platform)
    ended = time.time()
    with dg.DagsterInstance.from_config(str(platform.environment["DAGSTER_HOME"])) as instance:
        runs = runs_of(instance)
        failed = instance.get_runs_count(dg.RunsFilter(statuses=[dg.DagsterRunStatus.FAILURE]))
    figures, built, within = judged(arrivals, runs, begun, ended)
    figures |= {"failed runs": failed, "load average": os.getloadavg()}
    report("live-lag", figures)
    assert all(built[asset] > 1 for asset in JUDGED), built
    assert within >= 0.995, figures


CUSTOMERS = "customer_id,name,email,segment,nation,signed_up_at\n1,A,a@b.c,s,n,2026-01-01T00:00:00Z\n"
ORDERS = "order_id,line_number,customer_id,product_id,store_id,quantity,unit_price_usd,discount,ordered_at\n"
