"""10,000 commits of one file each, with maintenance in between: commits, scans and stored bytes stay small.

`PROOF_COMMITS=1000` does fewer.
"""

import logging
import os
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from statistics import median

import pytest
from dagster import DagsterInstance
from pyspark.sql import SparkSession

from dagster_tidemark.lakehouse import catalog, write
from dagster_tidemark.lakehouse.append import Appendable, TableCommit, open_lake, rows_of
from dagster_tidemark.lakehouse.commits import until_committed
from dagster_tidemark.lakehouse.maintenance.due import MaintenancePolicy
from dagster_tidemark.lakehouse.table import Retention, Table
from dagster_tidemark.maintenance.job import MaintenanceWork
from dagster_tidemark.settings import Settings
from tests.proof.conftest import Report

COMMITS = 10_000
ROWS = 400_000  # 90 MB in all, so that a scan takes longer than its plan
BETWEEN = 250  # commits between two looks of the sensor; a file a second gives 30 in half a minute
LOADS = 30
FIRST = 100
HELD = timedelta(seconds=5)  # a day is played in some minutes


@pytest.mark.timeout(6 * 3600)
def test_table_with_many_small_commits_stays_as_fast_and_small_as_a_fresh_one(
    spark: SparkSession, spark_server: Settings, report: Report
) -> None:
    commits = int(os.environ.get("PROOF_COMMITS", COMMITS))
    of_each = ROWS // commits
    table = Table(
        f"proof{uuid.uuid4().hex[:6]}.readings",
        {"day": "date", "n": "bigint", "text": "string"},
        ("n",),
        "day",
        retention=Retention(held_for=HELD),
    )
    writer = Appendable(open_lake(spark_server), table)
    # The first commits are measured beside the last ones, on a table of their own, so that the machine is the same.
    new = Appendable(open_lake(spark_server), replace(table, name=f"{table.name}_new"))
    first, last, results, maintenance = list[float](), list[float](), dict[str, int](), 0.0
    with DagsterInstance.ephemeral() as instance:

        def maintain() -> None:
            nonlocal maintenance
            began = time.monotonic()
            work = MaintenanceWork(
                instance, spark_server, {table.name: table}, MaintenancePolicy(), "proof", logging.getLogger(__name__)
            )
            work.work([table.name])
            assert not work.said, work.said
            maintenance += time.monotonic() - began
            for result, count in work.done.items():
                results[result] = results.get(result, 0) + count
            writer.refresh()

        for n in range(commits):
            # Random text: bytes that do not shrink when many rows are in one file.
            rows = [
                {"day": date(2026, 10, 1), "n": n * of_each + i, "text": os.urandom(200).hex()} for i in range(of_each)
            ]
            change = TableCommit(rows=rows_of(writer.schema, rows), properties={"tidemark.kafka.x": str(n)})
            last.append(seconds(lambda change=change: writer.commit(change)))  # type: ignore[misc]
            if n >= commits - FIRST:
                first.append(seconds(lambda change=change: new.commit(change)))  # type: ignore[misc]
            if n % 50 == 49:
                writer.expire(keep=60, batch=25)  # as a shift does
            if n % BETWEEN == BETWEEN - 1:
                maintain()
        maintain()
        time.sleep(HELD.total_seconds() + 1)
        # The newest commit has the position of the stream, so the one before the last compaction stays until the next.
        writer.commit(TableCommit(rows=rows_of(writer.schema, rows[:1]), properties={"tidemark.kafka.x": "end"}))
        time.sleep(HELD.total_seconds() + 1)
        maintain()
    copy = replace(table, name=f"{table.name}_fresh")
    catalog.ensure(spark, copy)
    spark.sql(f"INSERT INTO {copy.identifier} SELECT * FROM {table.identifier}")
    fresh = copy.identifier
    of_fresh, of_kept = scans(spark, fresh, table.identifier)
    logical = spark.sql(f"SELECT sum(file_size_in_bytes) AS size FROM {table.identifier}.files").collect()[0]["size"]
    stored = sum(path.stat().st_size for path in folder(spark_server, table).rglob("*") if path.is_file())
    found = {
        "at": datetime.now(UTC).isoformat(timespec="minutes"),
        "commits": commits,
        "seconds of the first 100 commits (median)": round(median(first), 4),
        "seconds of the last 100 commits (median)": round(median(last[-FIRST:]), 4),
        "last commit / first": round(median(last[-FIRST:]) / median(first), 3),
        "seconds of scans": [round(of_kept, 4), round(of_fresh, 4)],
        "data files, snapshots": [counted(spark, f"{table.identifier}.{each}") for each in ("files", "snapshots")],
        "data files of the fresh table": counted(spark, f"{fresh}.files"),
        "scan / scan of a fresh table": round(of_kept / of_fresh, 3),
        "stored bytes / logical bytes": round(stored / logical, 3),
        "logical bytes": logical,
        "actions": results,
        "seconds of maintenance": round(maintenance, 1),
    }
    report("maintenance", found)
    assert sorted(r.n for r in spark.sql(f"SELECT n FROM {table.identifier}").collect())[-1] == commits * of_each - 1
    assert found["last commit / first"] <= 1.5
    assert found["scan / scan of a fresh table"] <= 1.1
    assert found["stored bytes / logical bytes"] <= 1.5


def test_no_load_fails_because_of_maintenance_of_its_table(
    spark: SparkSession, spark_server: Settings, report: Report
) -> None:
    """The worst case: compaction without a pause, of the partition that every load changes."""
    table = Table(
        f"proof{uuid.uuid4().hex[:6]}.orders",
        {"day": "date", "n": "bigint"},
        ("n",),
        "day",
        retention=Retention(held_for=HELD),
    )
    catalog.ensure(spark, table)
    ended, failed, done = threading.Event(), list[str](), Counter[str]()

    def within(of: str | None) -> str:
        return f"{of}.day = DATE '2026-10-01'" if of else "day = DATE '2026-10-01'"

    def merge(n: int) -> None:
        new = spark.createDataFrame([(n,)], "n bigint").selectExpr("DATE '2026-10-01' AS day", "n")
        run = str(n)
        until_committed(
            lambda: write.merge(new, table, within=within, on="t.n = s.n", wins="true", run_id=run), table.name
        )

    def load() -> None:
        try:
            for n in range(LOADS):
                merge(n)
        except Exception as error:
            failed.append(str(error))
        finally:
            ended.set()

    loads = threading.Thread(target=load)
    loads.start()
    with DagsterInstance.ephemeral() as instance:
        while not ended.is_set():
            policy = replace(MaintenancePolicy().at_once(), small_files=2, together=2)
            log = logging.getLogger(__name__)
            work = MaintenanceWork(instance, spark_server, {table.name: table}, policy, "proof", log)
            work.work([table.name])
            done += work.done
    loads.join()
    report("maintenance_beside_loads", {"loads": LOADS, "loads failed": len(failed), "actions": dict(done)})
    assert failed == []
    assert sorted(row.n for row in spark.table(table.identifier).collect()) == list(range(LOADS))


def scans(spark: SparkSession, *tables: str) -> list[float]:
    """Seconds of a scan of each table: the smallest of several, in turns, so that the machine's noise hits both."""
    best = [float("inf")] * len(tables)
    for _ in range(25):
        for at, table in enumerate(tables):
            best[at] = min(
                best[at], seconds(lambda table=table: spark.sql(f"SELECT sum(n), max(text) FROM {table}").collect())
            )  # type: ignore[misc]
    return best


def counted(spark: SparkSession, table: str) -> int:
    return spark.table(table).count()


def seconds(work: Callable[[], object]) -> float:
    began = time.monotonic()
    work()
    return time.monotonic() - began


def folder(settings: Settings, table: Table) -> Path:
    return Path(settings.warehouse) / table.name.replace(".", "/")
