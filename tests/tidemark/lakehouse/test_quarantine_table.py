"""What goes from the quarantine was seen by the run that takes it out; all else stays, and nothing is written twice."""

import uuid
from datetime import UTC, datetime, timedelta

import pytest
from pyspark.sql import SparkSession

from dagster_tidemark.lakehouse.loading import load as load_module
from dagster_tidemark.lakehouse.loading import quarantine_table
from dagster_tidemark.lakehouse.loading.load import Load
from dagster_tidemark.lakehouse.loading.load_plan import KnownFile, Where
from dagster_tidemark.lakehouse.loading.quarantine_table import QUARANTINE
from dagster_tidemark.lakehouse.readers.files import FileFault, SourceFile
from tests.tidemark.lakehouse.conftest import (
    HOUR,
    Delete,
    Loading,
    Put,
    csv,
    key,
    line,
    quantities,
    quarantined,
    renamed,
)
from tests.tidemark.lakehouse.overlapping import Died

BAD = "99,1,3,4,5,many,1.25,0.1,2026-10-01T07:15:00Z"


def commits(spark: SparkSession) -> int:
    return spark.sql(f"SELECT * FROM {QUARANTINE.identifier}.snapshots").count()


def test_existing_quarantine_entries_are_not_written_again(
    spark: SparkSession, put: Put, loading: Loading, orders: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(key(orders, "a.csv"), csv(BAD, line(1)))
    put(key(orders, "junk.parquet"), b"no parquet")

    def die(boundary: str) -> None:
        if boundary == "before_commit":
            raise Died

    with monkeypatch.context() as patched, pytest.raises(Died):
        patched.setattr(load_module, "reached", die)
        loading(orders, HOUR)
    before = commits(spark)
    loading(orders, HOUR)
    assert quantities(spark, orders) == {1: 3}
    assert quarantined(spark, orders) == [("a.csv", 1, "bad_type"), ("junk.parquet", 0, "unreadable")]
    assert commits(spark) == before


def test_quarantine_entries_a_run_did_not_read_are_kept(spark: SparkSession, loading: Loading, orders: Load) -> None:
    loading(orders, HOUR)  # the table is there

    def fault(name: str, version: str) -> FileFault:
        file = SourceFile(key(orders, name), version, datetime(2026, 10, 1, tzinfo=UTC), HOUR)
        return FileFault(file, "unreadable", version)

    def enter(faults: list[FileFault], *gone: FileFault) -> None:
        entries = quarantine_table.of_files(spark, orders.asset, "1", faults)
        seen = [KnownFile(f.file.key, f.file.version, "1", Where.WHOLE_FILE) for f in gone]
        quarantine_table.replace(entries, orders.asset, {HOUR: seen}, run_id=uuid.uuid4().hex)

    enter([fault("a.csv", "v1"), fault("b.csv", "v1")])
    # Somebody else enters a newer version of the same file, and another file, before this run writes.
    enter([fault("a.csv", "v2"), fault("c.csv", "v1")])
    enter([fault("a.csv", "v3")], fault("a.csv", "v1"))
    enter([fault("a.csv", "v3")])  # twice the same
    found = spark.table(QUARANTINE.identifier).where(f"asset = '{orders.asset}'").collect()
    told = sorted((r.source_file.rpartition("/")[2], r.source_version) for r in found)
    assert told == [("a.csv", "v2"), ("a.csv", "v3"), ("b.csv", "v1"), ("c.csv", "v1")]


def test_entries_of_an_expired_file_without_rows_are_removed(
    spark: SparkSession, put: Put, delete: Delete, loading: Loading, orders: Load
) -> None:
    kept = renamed(orders, follow_for=timedelta(days=1))
    put(key(kept, "a.csv"), csv(line(1), BAD))
    put(key(kept, "bad.csv"), csv(BAD))
    put(key(kept, "junk.parquet"), b"no parquet")
    put(key(kept, "still.parquet"), b"no parquet")
    loading(kept, HOUR)
    assert [name for name, *_ in quarantined(spark, kept)] == [
        "a.csv", "bad.csv", "bad.csv", "junk.parquet", "still.parquet"
    ]  # fmt: skip
    for name in ("a.csv", "bad.csv", "junk.parquet"):
        delete(key(kept, name))
    after = loading(kept, HOUR)
    # Of a.csv a row stays in the table, and what is missing beside it stays known.
    stays = [("a.csv", 2, "bad_type"), ("still.parquet", 0, "unreadable")]
    assert quarantined(spark, kept) == stays
    told = sorted((key.rpartition("/")[2], b.reason) for b in after.backlog for key in b.files)
    assert told == [(name, reason) for name, _, reason in stays]
    assert quantities(spark, kept) == {1: 3}
    before = commits(spark)
    again = loading(kept, HOUR)
    assert (again.read_again, again.added_to, commits(spark)) == ((), (), before)
