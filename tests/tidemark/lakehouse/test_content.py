"""Content versions: equal for equal rows, different for anything else that a consumer could see."""

import dataclasses
import uuid

import pytest
from pyspark.sql import SparkSession

from dagster_tidemark.lakehouse import catalog, write
from dagster_tidemark.lakehouse.content import content_of
from dagster_tidemark.lakehouse.table import LINEAGE, Table


@pytest.fixture
def table(spark: SparkSession) -> Table:
    columns = {"day": "date", "a": "string", "b": "string"} | LINEAGE
    table = Table(f"test.t{uuid.uuid4().hex[:8]}", columns, row_key=("day", "a"), partitioned_by="day")
    catalog.ensure(spark, table)
    return table


def version(spark: SparkSession, table: Table, *rows: tuple[str | None, str | None], file: str = "f") -> str:
    values = ", ".join(
        f"(DATE '2026-10-01', {_sql(a)}, {_sql(b)}, '{file}', 'v', TIMESTAMP '2026-10-01 00:00:00', '1')"
        for a, b in rows
    )
    source = f"VALUES {values}" if rows else f"SELECT * FROM {table.identifier} LIMIT 0"
    frame = spark.sql(f"SELECT * FROM ({source}) AS t({', '.join(table.columns)})")
    commit = write.overwrite(frame, table, ["2026-10-01"], run_id=str(uuid.uuid4()))
    return content_of(spark, table, ["2026-10-01"], commit.snapshot_id)["2026-10-01"].version


def _sql(value: str | None) -> str:
    return "CAST(NULL AS STRING)" if value is None else f"'{value}'"


def test_content_version_ignores_row_order_and_source_file(spark: SparkSession, table: Table) -> None:
    assert version(spark, table, ("x", "1"), ("y", None)) == version(spark, table, ("y", None), ("x", "1"), file="g")


def test_content_version_distinguishes_nulls_in_different_columns(spark: SparkSession, table: Table) -> None:
    assert version(spark, table, (None, "a")) != version(spark, table, ("a", None))


def test_content_version_counts_duplicate_rows(spark: SparkSession, table: Table) -> None:
    once = version(spark, table, ("x", "1"))
    thrice = version(spark, table, ("x", "1"), ("x", "1"), ("x", "1"))
    none = version(spark, table)
    assert len({once, thrice, none}) == 3


def test_content_version_changes_with_an_added_null_column(spark: SparkSession, table: Table) -> None:
    before = version(spark, table, ("x", "1"))
    wider = Table(table.name, table.columns | {"c": "string"}, table.row_key, table.partitioned_by)
    catalog.ensure(spark, wider)
    snapshot = write.current_snapshot(spark, wider)
    assert content_of(spark, wider, ["2026-10-01"], snapshot)["2026-10-01"].version != before


def test_content_version_ignores_load_added_columns_without_values(spark: SparkSession, table: Table) -> None:
    before = version(spark, table, ("x", "1"))
    wider = dataclasses.replace(table, columns=table.columns | {"null": "string"}, added=("null",))

    def now() -> str:
        return content_of(spark, wider, ["2026-10-01"], write.current_snapshot(spark, wider))["2026-10-01"].version

    catalog.add_texts(spark, table, ["null"], "not declared")
    assert now() == before
    spark.sql(f"UPDATE {table.identifier} SET `null` = 'y'")
    assert now() != before


def test_content_of_a_table_without_commits_is_empty(spark: SparkSession, table: Table) -> None:
    assert content_of(spark, table, ["2026-10-01"], None)["2026-10-01"].rows == 0
