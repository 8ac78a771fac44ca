"""A year in minutes: records and tables that are pruned and maintained each day grow on day 365 as on day 30.

Each day has few runs and commits, so that a year takes minutes; what counts is the ratio of late days to early ones.
`PROOF_DAYS=90` plays fewer days. Figures of a day are medians of the twenty days before it.
"""

import logging
import os
import time
import uuid
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import date, timedelta
from pathlib import Path
from statistics import median
from typing import Any

import dagster as dg
from dagster import DagsterInstance

from dagster_tidemark.lakehouse.append import Appendable, TableCommit, equal, open_lake, rows_of
from dagster_tidemark.lakehouse.maintenance.due import MaintenancePolicy
from dagster_tidemark.lakehouse.table import Retention, Table
from dagster_tidemark.maintenance.job import MaintenanceWork
from dagster_tidemark.settings import Settings
from dagster_tidemark.simulation.simulator import Simulation
from tests.proof.conftest import Report
from tests.tidemark.retention.histories import pruned
from tests.tidemark.toy_graph import ASAP, DAYS, START, asset, lag, source

LAST = int(os.environ.get("PROOF_DAYS", 365))
EARLY, WINDOW = 30, 20
AGE = timedelta(days=1)
ARRIVALS = 3
"""New files of each source a day."""
COMMITS = 6
"""Commits of the table a day: one file each, the last one into the day before."""
MOST = 1.1


def late_by_early(of_days: Sequence[float]) -> float:
    """Return the median of the last days divided by that of the days before day 30."""
    return round(median(of_days[-WINDOW:]) / median(of_days[EARLY - WINDOW : EARLY]), 3)


def growth(sizes: Sequence[float], until: int) -> float:
    """Return the growth a day over the twenty days before a day."""
    return (sizes[until - 1] - sizes[until - 1 - WINDOW]) / WINDOW


def test_records_of_a_year_grow_by_the_same_bytes_each_day(report: Report) -> None:
    began, sizes, ticks, prunes, runs = time.monotonic(), list[float](), list[float](), list[float](), list[int]()
    with dg.instance_for_test() as instance:
        simulation = Simulation(_assets(), start=START, instance=instance)
        for day in range(LAST):
            partition = f"{START + timedelta(days=day):%Y-%m-%d}"
            for n in range(ARRIVALS):
                at = simulation.time(days=day, hours=1 + n * 7)
                simulation.arrive("raw/orders", partition, at=at)
                simulation.arrive("raw/stock", at=at)
            simulation.run_until(simulation.time(days=day + 1))
            prunes.append(_seconds(lambda: pruned(simulation, AGE)))
            ticks.append(min(_seconds(simulation.plan) for _ in range(3)))
            sizes.append(
                sum(path.stat().st_size for path in Path(instance.root_directory).rglob("*") if path.is_file())
            )
            runs.append(instance.get_runs_count())
        made = len(simulation.runs)
    found = {
        "days": LAST,
        "seconds": round(time.monotonic() - began),
        "runs": made,
        "runs left on day 30 and on the last day": [runs[EARLY - 1], runs[-1]],
        "bytes on day 30 and on the last day": [sizes[EARLY - 1], sizes[-1]],
        "bytes a day before day 30": round(growth(sizes, EARLY)),
        "bytes a day before the last day": round(growth(sizes, LAST)),
        "seconds of a plan before day 30": round(median(ticks[EARLY - WINDOW : EARLY]), 4),
        "seconds of a plan before the last day": round(median(ticks[-WINDOW:]), 4),
        "plan, late / early": late_by_early(ticks),
        "seconds of a prune before day 30": round(median(prunes[EARLY - WINDOW : EARLY]), 2),
        "seconds of a prune before the last day": round(median(prunes[-WINDOW:]), 2),
    }
    report("year-records", found)
    assert growth(sizes, LAST) <= MOST * max(growth(sizes, EARLY), 1)
    assert late_by_early(ticks) <= MOST


def _assets() -> list[Any]:
    return [
        source("orders", DAYS),
        source("stock"),
        asset("core/orders", "raw/orders", by=DAYS, freshness_policy=lag(minutes=5), **ASAP),
        asset("marts/daily", "core/orders", by=DAYS, freshness_policy=lag(hours=1)),
        asset("core/stock", "raw/stock", freshness_policy=lag(minutes=5), **ASAP),
    ]


def _seconds(work: Callable[[], object]) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began


def test_table_of_a_year_has_the_same_metadata_each_day(spark_server: Settings, report: Report) -> None:
    began, maintenance, results = time.monotonic(), 0.0, Counter[str]()
    table = Table(
        f"proof{uuid.uuid4().hex[:6]}.orders",
        {"day": "date", "n": "bigint", "text": "string"},
        ("n",),
        "day",
        retention=Retention(held_for=timedelta(seconds=1)),
    )
    writer = Appendable(open_lake(spark_server), table)
    looks: dict[str, list[float]] = {}
    with DagsterInstance.ephemeral() as instance:
        log = logging.getLogger(__name__)
        policy = replace(MaintenancePolicy(), small_files=10)
        for day in range(LAST):
            for n in range(COMMITS):
                of = date(2026, 1, 1) + timedelta(days=day - (n == COMMITS - 1))
                row = {"day": of, "n": day * COMMITS + n, "text": os.urandom(100).hex()}
                writer.commit(TableCommit(rows_of(writer.schema, [row])))
            at = time.monotonic()
            work = MaintenanceWork(instance, spark_server, {table.name: table}, policy, "proof", log)
            work.work([table.name])
            assert not work.said, work.said
            results.update(work.done)
            maintenance += time.monotonic() - at
            writer.refresh()
            for what, value in _look(spark_server, table, date(2026, 1, 1) + timedelta(days=day)).items():
                looks.setdefault(what, []).append(value)
    assert writer.rows().num_rows == LAST * COMMITS
    report(
        "year-table",
        {
            "days": LAST,
            "seconds": round(time.monotonic() - began),
            "commits": LAST * COMMITS,
            "seconds of maintenance": round(maintenance),
            "actions": dict(results),
            **{f"{what}, before day 30": median(of[EARLY - WINDOW : EARLY]) for what, of in looks.items()},
            **{f"{what}, before the last day": median(of[-WINDOW:]) for what, of in looks.items()},
            **{f"{what}, late / early": late_by_early(of) for what, of in looks.items()},
        },
    )
    for what in ("manifests of a scan of one day", "bytes of metadata.json", "seconds of the plan of a scan"):
        assert late_by_early(looks[what]) <= MOST, what


def _look(settings: Settings, table: Table, day: date) -> dict[str, float]:
    """Return figures of the table as a reader finds it."""
    found = open_lake(settings).load_table(table.name)
    snapshot = found.current_snapshot()
    assert snapshot is not None
    ordinal = (day - date(1970, 1, 1)).days
    manifests = snapshot.manifests(found.io)
    of_day = [
        each
        for each in manifests
        if (bounds := (each.partitions or [None])[0]) is None
        or bounds.lower_bound is None
        or int.from_bytes(bounds.lower_bound, "little", signed=True)
        <= ordinal
        <= int.from_bytes(bounds.upper_bound or b"\xff\xff\xff\x7f", "little", signed=True)
    ]
    at = time.process_time()
    list(found.scan(equal("day", day)).plan_files())
    seconds = time.process_time() - at
    return {
        "manifests": len(manifests),
        "manifests of a scan of one day": len(of_day),
        "snapshots": len(found.snapshots()),
        "bytes of metadata.json": Path(found.metadata_location.removeprefix("file:")).stat().st_size,
        "seconds of the plan of a scan": seconds,
    }
