"""Old snapshots expire in the wake of commits; a run that still holds one begins again or fails by name."""

import dataclasses
import logging
import uuid
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from dagster_tidemark.lakehouse import catalog, commits, write
from dagster_tidemark.lakehouse.content import content_of
from dagster_tidemark.lakehouse.loading import load as load_module
from dagster_tidemark.lakehouse.loading.load import Load, run_load
from dagster_tidemark.lakehouse.loading.load_state import LoadState
from dagster_tidemark.lakehouse.read import SnapshotExpired, read
from dagster_tidemark.lakehouse.table import Retention, Table
from dagster_tidemark.sources.s3 import S3Bucket
from tests.tidemark.lakehouse.conftest import HOUR, Delete, Loading, Put, csv, key, line, quantities

DAY = "2026-10-01"
FEW = Retention(newest=1, held_for=timedelta(0), batch=1)


def made(spark: SparkSession, retention: Retention) -> Table:
    name = f"test.t{uuid.uuid4().hex[:8]}"
    table = Table(name, {"day": "date", "n": "bigint"}, ("day",), "day", retention=retention)
    catalog.ensure(spark, table)
    return table


def rows(spark: SparkSession, number: int) -> DataFrame:
    return spark.createDataFrame([(DAY, number)], "day string, n bigint").selectExpr("CAST(day AS DATE) day", "n")


def commit(spark: SparkSession, table: Table, *numbers: int) -> list[write.Commit]:
    return [write.overwrite(rows(spark, n), table, [DAY], run_id=str(uuid.uuid4())) for n in numbers]


def snapshots(spark: SparkSession, table: Table) -> list[int | None]:
    found = spark.sql(f"SELECT snapshot_id FROM {table.identifier}.snapshots ORDER BY committed_at")
    return [row.snapshot_id for row in found.collect()]


def ids(commits: list[write.Commit]) -> list[int | None]:
    return [commit.snapshot_id for commit in commits]


def files(spark: SparkSession, table: Table) -> dict[str, int]:
    """How many files of each kind lie on the disk."""
    (entry, *_) = spark.sql(f"SELECT file FROM {table.identifier}.metadata_log_entries").collect()
    folder = Path(entry.file.removeprefix("file:")).parent.parent
    return {
        "manifest lists": len(list(folder.glob("metadata/snap-*.avro"))),
        "manifests": len(list(folder.glob("metadata/*-m*.avro"))),
        "data": len(list(folder.glob("data/**/*.parquet"))),
    }


def test_old_snapshots_expire_with_their_files_and_the_newest_are_kept(spark: SparkSession) -> None:
    table = made(spark, Retention(newest=2, held_for=timedelta(0), batch=2))
    commits = commit(spark, table, 1, 2, 3)
    assert snapshots(spark, table) == ids(commits), "one more than are kept, and no batch"
    commits += commit(spark, table, 4)
    assert snapshots(spark, table) == ids(commits)[-2:]
    # Of each of the two that stay its rows, and what it added and took away.
    assert files(spark, table) == {"manifest lists": 2, "manifests": 4, "data": 2}
    assert [r.n for r in read(spark, table).collect()] == [4]


def test_snapshots_expire_in_batches_and_a_failure_is_not_retried_every_commit() -> None:
    keeps = Retention(newest=1_000, held_for=timedelta(0), batch=500)
    due = [n for n in range(2_000) if write.expiry_cutoff(keeps, range(n), now=n) is not None]
    assert due == list(range(1_500, 2_000, 50))


def test_snapshots_current_within_the_last_hour_are_not_expired(spark: SparkSession) -> None:
    minutes_ago = lambda *minutes: [-m * 60_000 for m in minutes]  # noqa: E731
    keeps = Retention(newest=1, batch=2)
    assert write.expiry_cutoff(keeps, minutes_ago(200, 190, 61, 3, 2, 1), now=0) == -61 * 60_000, "current until -3"
    assert write.expiry_cutoff(keeps, minutes_ago(200, 61, 5, 3, 2, 1), now=0) is None, "one alone is no batch"
    table = made(spark, Retention())
    commits = commit(spark, table, 1, 2, 3)
    at = spark.sql(f"SELECT unix_millis(committed_at) AS at FROM {table.identifier}.snapshots ORDER BY at").collect()
    write.expire_snapshots(spark, dataclasses.replace(table, retention=FEW), [row.at for row in at], now=at[1].at + 1)
    assert snapshots(spark, table) == ids(commits)[1:]


def test_failed_snapshot_expiry_is_logged_and_fails_no_commit(
    spark: SparkSession, caplog: pytest.LogCaptureFixture
) -> None:
    table = made(spark, FEW)
    spark.sql(f"ALTER TABLE {table.identifier} SET TBLPROPERTIES ('gc.enabled'='false')")
    commits = commit(spark, table, 1, 2)
    assert snapshots(spark, table) == ids(commits)
    (warned,) = [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]
    assert warned.startswith(f"{table.name}: the old ones of 2 snapshots could not be expired:")
    assert "GC is disabled" in warned
    spark.sql(f"ALTER TABLE {table.identifier} SET TBLPROPERTIES ('gc.enabled'='true')")
    commits += commit(spark, table, 3)
    assert snapshots(spark, table) == ids(commits)[-1:]
    assert [r.n for r in read(spark, table).collect()] == [3]


def test_two_runs_can_expire_the_same_snapshots_concurrently(spark: SparkSession, other_spark: SparkSession) -> None:
    patient = made(spark, Retention())
    commits = commit(spark, patient, 1, 2, 3, 4)
    table = dataclasses.replace(patient, retention=FEW)
    with ThreadPoolExecutor(2) as pool:
        asked = [pool.submit(write.commit_of, session, table, "none") for session in (spark, other_spark)]
    assert [a.result().snapshot_id for a in asked] == ids(commits)[-1:] * 2
    assert snapshots(spark, table) == ids(commits)[-1:]
    assert [r.n for r in read(spark, table).collect()] == [4]


def test_reading_or_replacing_since_an_expired_snapshot_is_refused(spark: SparkSession) -> None:
    table = made(spark, FEW)
    (first, _) = commit(spark, table, 1, 2)
    elsewhere = rows(spark, 3).selectExpr("DATE '2026-10-02' AS day", "n")  # nothing in the writer's partition is left
    last = write.overwrite(elsewhere, table, ["2026-10-02"], run_id="elsewhere")
    assert snapshots(spark, table) == [last.snapshot_id]
    with pytest.raises(SnapshotExpired, match=table.name):
        content_of(spark, table, [DAY], first.snapshot_id)
    for held in (first.snapshot_id, None):  # None: the table was empty
        with pytest.raises(commits.CommitConflict, match="Cannot determine history"):
            write.replace_since(held, rows(spark, 9), table, table.predicate([DAY]), run_id="late")
    assert snapshots(spark, table) == [last.snapshot_id], "nothing was written"


def test_load_starts_again_if_its_base_snapshot_expires(
    spark: SparkSession,
    landing: S3Bucket,
    put: Put,
    delete: Delete,
    loading: Loading,
    orders: Load,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    orders = dataclasses.replace(orders, table=dataclasses.replace(orders.table, retention=FEW))
    for name, number in (("a.csv", 1), ("b.csv", 2)):
        put(key(orders, name), csv(line(number)))
    loading(orders, HOUR)
    current_snapshot, look = write.current_snapshot, load_module.look
    done = set[str]()

    def others_commit(when: str, *numbers: int) -> None:
        if when in done:
            return
        done.add(when)
        elsewhere = "2026-10-01-08:00"
        with monkeypatch.context() as patched:
            patched.setattr(write, "current_snapshot", current_snapshot)
            patched.setattr(load_module, "look", look)
            for number in numbers:
                put(key(orders, f"{number}.csv", elsewhere), csv(line(number, at="2026-10-01T08:15:00Z")))
                loading(orders, elsewhere)

    def after_the_snapshot(session: SparkSession, table: Table) -> int | None:
        snapshot = current_snapshot(session, table)
        if table is orders.table:
            others_commit("before it knows what is there", 11)
        return snapshot

    def after_the_look(*arguments: Any) -> LoadState:
        found = look(*arguments)
        others_commit("before it commits", 12, 13)
        return found

    monkeypatch.setattr(write, "current_snapshot", after_the_snapshot)
    monkeypatch.setattr(load_module, "look", after_the_look)
    delete(key(orders, "a.csv"))  # what goes is only what was seen
    caplog.set_level(logging.INFO)
    loaded = run_load(spark, landing, orders, [HOUR], run_id="late")
    began_again = [r.getMessage() for r in caplog.records if "starting again" in r.getMessage()]
    assert ["Cannot find snapshot" in m for m in began_again] == [True, False]
    assert ["Cannot determine history" in m for m in began_again] == [False, True]
    assert loaded.read_again == [HOUR]
    assert quantities(spark, orders).keys() == {2, 11, 12, 13}
