"""Branches of a table: readers see nothing of one until it is the table."""

import uuid
from dataclasses import replace

import pytest
from pyspark.sql import DataFrame, SparkSession

from dagster_tidemark.lakehouse import branches, catalog, write
from dagster_tidemark.lakehouse.commits import CommitConflict
from dagster_tidemark.lakehouse.read import as_declared, read
from dagster_tidemark.lakehouse.table import Table
from dagster_tidemark.lakehouse.write import current_snapshot

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
def test_fast_forward_publishes_a_branch_atomically(spark: SparkSession, x: Table, has_rows: bool) -> None:
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
def test_fast_forward_refuses_if_the_table_has_other_commits(spark: SparkSession, x: Table, has_rows: bool) -> None:
    if has_rows:
        write.overwrite(rows(spark, 1, *DAYS), x, DAYS, run_id="1")
    branches.create(spark, x, "preview_a", current_snapshot(spark, x))
    branches.overwrite(rows(spark, 2, DAYS[0]), x, "preview_a", DAYS[:1], run_id="2")
    write.overwrite(rows(spark, 3, DAYS[1]), x, DAYS[1:], run_id="3")
    before = seen(spark, x)
    with pytest.raises(CommitConflict):
        branches.fast_forward(spark, x, "preview_a")
    assert seen(spark, x) == before


def test_branch_has_an_expiry_and_its_unused_table_is_dropped(spark: SparkSession, x: Table) -> None:
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


def test_branch_gets_new_declared_columns_and_refuses_incompatible_ones(spark: SparkSession, x: Table) -> None:
    write.overwrite(rows(spark, 1, *DAYS), x, DAYS, run_id="1")
    branches.add_declared_columns(spark, x)
    more = replace(x, columns={**x.columns, "more": "string", "small": "int"})
    branches.require_branchable(spark, more)
    assert spark.table(x.identifier).columns == ["day", "n"], "only looked at"
    branches.add_declared_columns(spark, more)
    branches.create(spark, more, "preview_a", current_snapshot(spark, more))
    new = rows(spark, 2, DAYS[0]).selectExpr("*", "'x' AS more", "1 AS small")
    head = branches.overwrite(new, more, "preview_a", DAYS[:1], run_id="2")
    assert [row.more for row in branches.rows_of(spark, more, DAYS[:1], head).collect()] == ["x"]
    write.overwrite(rows(spark, 3, DAYS[1]), x, DAYS[1:], run_id="3")  # by the code that runs, which has no such column
    assert as_declared(spark.table(x.identifier), x, catalog.as_it_is(spark, x)).columns == ["day", "n"]
    assert read(spark, x).columns == ["day", "n"], "its readers are not shown the column"
    for other, why in (("string", "the types differ"), ("decimal(9,0)", "the types differ")):
        with pytest.raises(branches.ColumnsDiffer, match=why):
            branches.require_branchable(spark, replace(x, columns={"day": "date", "n": other}))
    wide = replace(more, columns={**more.columns, "small": "bigint"})
    branches.add_declared_columns(spark, wide)
    branches.create(spark, wide, "preview_b", current_snapshot(spark, wide))
    new = rows(spark, 2, DAYS[0]).selectExpr("*", "'x' AS more", f"{2**40} AS small")
    head = branches.overwrite(new, wide, "preview_b", DAYS[:1], run_id="4")
    assert [row.small for row in branches.rows_of(spark, wide, DAYS[:1], head).collect()] == [2**40]
    assert dict(read(spark, more).dtypes)["small"] == "int", "the code that runs goes on"
    with pytest.raises(branches.ColumnsDiffer, match="a table that is to be replaced cannot get a branch"):
        branches.require_branchable(spark, replace(more, generation=2))
