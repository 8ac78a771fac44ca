"""Branches of a table: readers see nothing of one until it is the table."""

import uuid
from dataclasses import replace

import pytest
from pyspark.sql import DataFrame, SparkSession

from pipelines.tidemark.lakehouse import branches, catalog, write
from pipelines.tidemark.lakehouse.tables import Table
from pipelines.tidemark.lakehouse.write import CommitConflict, current_snapshot

DAYS = ["2026-10-01", "2026-10-02"]


@pytest.fixture
def x(spark: SparkSession) -> Table:
    made = Table(f"t{uuid.uuid4().hex[:8]}.x", {"day": "date", "n": "bigint"}, ("day",), "day")
    catalog.ensure(spark, made)
    return made


def rows(spark: SparkSession, n: int, *days: str) -> DataFrame:
    return spark.createDataFrame([(day, n) for day in days], "d string, n bigint").selectExpr("date(d) AS day", "n")


def seen(spark: SparkSession, x: Table) -> list[tuple[str, int]]:
    return sorted((str(row.day), row.n) for row in spark.table(x.identifier).collect())


@pytest.mark.parametrize("has_rows", [True, False])
def test_a_branch_becomes_the_table_at_once(spark: SparkSession, x: Table, has_rows: bool) -> None:
    if has_rows:
        write.overwrite(rows(spark, 1, *DAYS), x, DAYS, run_id="1")
    before, base = seen(spark, x), current_snapshot(spark, x)
    branches.create(spark, x, "preview_a", base)
    head = branches.overwrite(rows(spark, 2, DAYS[0]), x, "preview_a", DAYS[:1], run_id="2")
    assert seen(spark, x) == before and current_snapshot(spark, x) == base
    assert head is not None and head == branches.head(spark, x, "preview_a")
    assert [r.n for r in branches.rows_of(spark, x, DAYS[:1], head).collect()] == [2]
    assert not branches.has_in_its_past(spark, x, head)
    branches.fast_forward(spark, x, "preview_a")
    assert seen(spark, x) == [(DAYS[0], 2), *before[1:]]
    assert current_snapshot(spark, x) == head and branches.has_in_its_past(spark, x, head)
    assert branches.rows_at(spark, x, head) == (2 if has_rows else 1)
    assert branches.was_committed_by(spark, x, "2") and not branches.was_committed_by(spark, x, "3")
    branches.drop(spark, x, "preview_a")
    branches.drop(spark, x, "preview_a")
    assert branches.head(spark, x, "preview_a") is None


@pytest.mark.parametrize("has_rows", [True, False])
def test_what_others_have_committed_is_not_lost(spark: SparkSession, x: Table, has_rows: bool) -> None:
    if has_rows:
        write.overwrite(rows(spark, 1, *DAYS), x, DAYS, run_id="1")
    branches.create(spark, x, "preview_a", current_snapshot(spark, x))
    branches.overwrite(rows(spark, 2, DAYS[0]), x, "preview_a", DAYS[:1], run_id="2")
    write.overwrite(rows(spark, 3, DAYS[1]), x, DAYS[1:], run_id="3")
    before = seen(spark, x)
    with pytest.raises(CommitConflict):
        branches.fast_forward(spark, x, "preview_a")
    assert seen(spark, x) == before


def test_a_branch_expires_by_itself_and_a_table_made_for_one_goes_with_it(spark: SparkSession, x: Table) -> None:
    branches.create(spark, x, "preview_a", None)
    [ref] = spark.sql(f"SELECT max_reference_age_in_ms AS age FROM {x.identifier}.refs").collect()
    assert ref.age == 2 * 86_400_000
    branches.drop_unused(spark, x)
    assert not spark.catalog.tableExists(x.identifier)
    branches.drop(spark, x, "preview_a")
    catalog.ensure(spark, x)
    write.overwrite(rows(spark, 1, *DAYS), x, DAYS, run_id="1")
    branches.drop_unused(spark, x)
    assert spark.catalog.tableExists(x.identifier)


def test_a_table_with_other_columns_than_declared_is_refused(spark: SparkSession, x: Table) -> None:
    assert branches.require_declared_columns(spark, x)
    with pytest.raises(branches.ColumnsDiffer, match="lacks the declared columns more"):
        branches.require_declared_columns(spark, replace(x, columns={**x.columns, "more": "string"}))
    with pytest.raises(branches.ColumnsDiffer, match="n"):
        branches.require_declared_columns(spark, replace(x, columns={"day": "date", "n": "string"}))
