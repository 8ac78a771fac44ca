"""New entries are committed without Spark, each once; Spark merges where entries change or go, or where that fails."""

import dataclasses
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from pyspark.sql import SparkSession

from dagster_tidemark.lakehouse import append, catalog, metadata_reads, write
from dagster_tidemark.lakehouse.loading.load import Load
from dagster_tidemark.lakehouse.loading.quarantine_table import QUARANTINE
from tests.tidemark.lakehouse.conftest import HOUR, Loading, Put, a_second, csv, key, line, quarantined

BAD = "99,1,3,4,5,many,1.25,0.1,2026-10-01T07:15:00Z"


@pytest.fixture
def merges(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The tables that Spark merged into."""
    found: list[str] = []
    merge = write.merge

    def spied(rows: Any, table: Any, **options: Any) -> write.Commit:
        found.append(table.name)
        return merge(rows, table, **options)

    monkeypatch.setattr(write, "merge", spied)
    yield found


def counted(spark: SparkSession, load: Load) -> tuple[int, int]:
    """The entries, and the different ones."""
    found = spark.table(QUARANTINE.identifier).where(f"asset = '{load.asset}'").drop("quarantined_at")
    return found.count(), found.distinct().count()


def test_new_entries_are_appended_without_a_merge(
    spark: SparkSession, put: Put, loading: Loading, orders: Load, merges: list[str]
) -> None:
    put(key(orders, "a.csv"), csv(line(1), BAD, line(2).replace(",0.1,", ",7,")))
    put(key(orders, "empty.csv"), csv())
    put(key(orders, "junk.parquet"), b"no parquet")
    loading(orders, HOUR)
    expected = [
        ("a.csv", 2, "bad_type"),
        ("a.csv", 3, "discount_out_of_range"),
        ("empty.csv", 0, "no rows"),
        ("junk.parquet", 0, "unreadable"),
    ]
    assert quarantined(spark, orders) == expected
    assert merges == []
    [of_first] = spark.sql(
        f"SELECT content, message, quarantined_at FROM {QUARANTINE.identifier} "
        f"WHERE asset = '{orders.asset}' AND reason = 'discount_out_of_range'"
    ).collect()
    assert '"discount":"7"' in of_first.content and of_first.quarantined_at is not None


def test_changed_and_removed_entries_are_merged_by_spark(
    spark: SparkSession, put: Put, loading: Loading, orders: Load, merges: list[str]
) -> None:
    put(key(orders, "a.csv"), csv(line(1), BAD))
    loading(orders, HOUR)
    a_second()
    put(key(orders, "a.csv"), csv(line(1), line(2), BAD))
    loading(orders, HOUR)
    assert merges.count(QUARANTINE.name) == 1, "the entry of the former version went in the commit of the new one"
    assert quarantined(spark, orders) == [("a.csv", 3, "bad_type")]
    put(key(orders, "a.csv"), csv(line(1)))
    loading(dataclasses.replace(orders, code_version="2"), HOUR)
    assert quarantined(spark, orders) == []


def test_entries_are_kept_if_another_writer_commits_at_the_same_time(
    spark: SparkSession,
    put: Put,
    loading: Loading,
    orders: Load,
    monkeypatch: pytest.MonkeyPatch,
    merges: list[str],
) -> None:
    put(key(orders, "a.csv"), csv(line(1), BAD))
    few_rows, others = metadata_reads.few_rows, list[int]()

    def interrupted(of: SparkSession, table: Any, columns: Any, where: Any, snapshot_id: int | None = None) -> Any:
        found = few_rows(of, table, columns, where, snapshot_id)
        if snapshot_id is not None and table.name == QUARANTINE.name and len(others) < 2:
            others.append(snapshot_id)
            _append(spark, orders.asset, f"other-{len(others)}.csv")
        return found

    _append(spark, f"{orders.asset} of others", "x.csv")  # the table has a snapshot
    monkeypatch.setattr(metadata_reads, "few_rows", interrupted)
    loading(orders, HOUR)
    names = [name for name, *_ in quarantined(spark, orders)]
    assert (names, merges) == (["a.csv", "other-1.csv", "other-2.csv"], [])
    assert len(set(others)) == 2


def _append(spark: SparkSession, asset: str, name: str) -> None:
    catalog.ensure(spark, QUARANTINE)
    lake = metadata_reads.catalog_of(spark)
    assert lake is not None
    table = append.Appendable(lake, QUARANTINE)
    entry: dict[str, object] = {"asset": asset, "partition": HOUR, "source_file": name, "reason": "unreadable"}
    entry["quarantined_at"] = datetime.now(UTC)  # other tests read the whole table
    table.commit(append.TableCommit(append.rows_of(table.schema, [entry])))


@pytest.mark.parametrize("is_committed", [True, False])
def test_entries_are_there_once_if_their_commit_fails(
    spark: SparkSession,
    put: Put,
    loading: Loading,
    orders: Load,
    monkeypatch: pytest.MonkeyPatch,
    merges: list[str],
    is_committed: bool,
) -> None:
    put(key(orders, "a.csv"), csv(line(1), BAD))
    commit = append.Appendable.commit

    def failing(table: append.Appendable, change: append.TableCommit) -> None:
        if is_committed:
            commit(table, change)
        raise append.CatalogUnavailable("lost on the way")

    monkeypatch.setattr(append.Appendable, "commit", failing)
    loading(orders, HOUR)
    assert merges == [QUARANTINE.name]
    assert quarantined(spark, orders) == [("a.csv", 2, "bad_type")]
    assert counted(spark, orders) == (1, 1)
