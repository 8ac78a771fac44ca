"""Commits replace whole partitions, and two writers of the same one never mix."""

import uuid
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from dagster_tidemark.lakehouse import catalog, write
from dagster_tidemark.lakehouse.read import read, read_snapshot
from dagster_tidemark.lakehouse.table import SchemaDiffers, Table
from dagster_tidemark.lakehouse.table_changes import TableChange, TableChangeKind

DAYS = ("2026-10-01", "2026-10-02")


@pytest.fixture
def table(spark: SparkSession) -> Table:
    table = Table(
        f"test.t{uuid.uuid4().hex[:8]}", {"day": "date", "n": "bigint"}, row_key=("day",), partitioned_by="day"
    )
    catalog.ensure(spark, table)
    return table


def rows(spark: SparkSession, *numbers: tuple[str, int]) -> DataFrame:
    return spark.createDataFrame(list(numbers) or [], "day string, n bigint").selectExpr("CAST(day AS DATE) day", "n")


def held(spark: SparkSession, table: Table, *days: str) -> list[tuple[str, int]]:
    return sorted((str(r.day), r.n) for r in read(spark, table, list(days) or None).collect())


def run_id() -> str:
    return str(uuid.uuid4())


def test_overwrite_replaces_only_the_named_partitions(spark: SparkSession, table: Table) -> None:
    write.overwrite(rows(spark, (DAYS[0], 1), (DAYS[1], 2)), table, DAYS, run_id=run_id())
    write.overwrite(rows(spark, (DAYS[0], 3)), table, DAYS[:1], run_id=run_id())
    assert held(spark, table) == [(DAYS[0], 3), (DAYS[1], 2)]
    assert held(spark, table, DAYS[1]) == [(DAYS[1], 2)]


def test_overwrite_without_rows_clears_the_partition_in_one_commit(spark: SparkSession, table: Table) -> None:
    first = write.overwrite(rows(spark, (DAYS[0], 1)), table, DAYS[:1], run_id=run_id())
    second = write.overwrite(rows(spark), table, DAYS[:1], run_id=run_id())
    assert held(spark, table) == []
    assert second.snapshot_id not in (None, first.snapshot_id)


def test_commit_records_its_run_id(spark: SparkSession, table: Table) -> None:
    run = run_id()
    commit = write.overwrite(rows(spark, (DAYS[0], 1)), table, DAYS[:1], run_id=run)
    (row,) = spark.sql(f"SELECT snapshot_id, summary FROM {table.identifier}.snapshots").collect()
    assert (row.snapshot_id, row.summary[write.RUN_ID]) == (commit.snapshot_id, run)


def test_overtaken_writer_computes_its_rows_again(
    spark: SparkSession, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = Table(f"{table.name}_source", table.columns, table.row_key, table.partitioned_by)
    write_source = lambda n: write.overwrite(rows(spark, (DAYS[0], n)), source, DAYS[:1], run_id=run_id())  # noqa: E731
    catalog.ensure(spark, source)
    write_source(1)
    real, overtaken = write.current_snapshot, []

    def overtake(session: SparkSession, target: Table) -> int | None:
        before = real(session, target)
        if target is table and not overtaken:
            overtaken.append(True)
            write_source(2)
            rows(spark, (DAYS[0], 99)).writeTo(table.identifier).append()
        return before

    monkeypatch.setattr(write, "current_snapshot", overtake)
    write.overwrite(read(spark, source, DAYS[:1]), table, DAYS[:1], run_id=run_id())
    assert overtaken
    assert held(spark, table) == [(DAYS[0], 2)], "what the other wrote is replaced by what the inputs hold now"


def test_commit_to_another_partition_is_no_conflict(
    spark: SparkSession, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    write.overwrite(rows(spark, (DAYS[0], 1)), table, DAYS[:1], run_id=run_id())
    real, attempts = write.current_snapshot, []

    def count(session: SparkSession, target: Table) -> int | None:
        before = real(session, target)
        attempts.append(before)
        if len(attempts) == 1:
            rows(spark, (DAYS[1], 5)).writeTo(table.identifier).append()
        return before

    monkeypatch.setattr(write, "current_snapshot", count)
    write.overwrite(rows(spark, (DAYS[0], 2)), table, DAYS[:1], run_id=run_id())
    assert len(attempts) == 1
    assert held(spark, table) == [(DAYS[0], 2), (DAYS[1], 5)]


def test_table_declaration_may_add_a_column_but_not_change_a_type(spark: SparkSession, table: Table) -> None:
    wider = Table(table.name, table.columns | {"note": "string"}, table.row_key, table.partitioned_by)
    assert "note" in read(spark, wider).columns
    other = Table(table.name, {"day": "date", "n": "string", "note": "string"}, table.row_key, table.partitioned_by)
    with pytest.raises(SchemaDiffers, match="'n': 'bigint'"):
        catalog.ensure(spark, other)


def test_writer_widens_columns_and_keeps_undeclared_ones_for_older_readers(spark: SparkSession, table: Table) -> None:
    wide = Table(table.name, {**table.columns, "small": "int", "gone": "string"}, table.row_key, "day")
    catalog.ensure(spark, wide)
    write.overwrite(rows(spark, (DAYS[0], 1)).selectExpr("*", "1 AS small", "'x' AS gone"), wide, DAYS, run_id=run_id())
    later = Table(table.name, {**table.columns, "small": "bigint"}, table.row_key, "day")
    catalog.ensure(spark, later)

    write.overwrite(rows(spark, (DAYS[1], 2)).selectExpr("*", f"{2**40} AS small"), later, DAYS[1:], run_id=run_id())
    more = rows(spark, (DAYS[0], 1), (DAYS[1], 3)).selectExpr("*", "CAST(7 AS bigint) AS small")
    write.merge(more, later, within=lambda _: "true", on="t.n = s.n", wins="true", run_id=run_id())

    found = spark.sql(f"SELECT n, small, gone FROM {table.identifier} ORDER BY n").collect()
    assert [tuple(row) for row in found] == [(1, 7, "x"), (2, 2**40, None), (3, 7, None)]
    assert read(spark, later).columns == ["day", "n", "small"], "who still reads it fails, and reads no nulls"
    comments = {f.name: (f.metadata or {}).get("comment") for f in spark.table(table.identifier).schema.fields}
    assert comments["gone"] == "no longer declared: null in new rows"
    catalog.ensure(spark, Table(table.name, {**later.columns, "gone": "string"}, table.row_key, "day"))
    assert read(spark, Table(table.name, {**later.columns, "gone": "string"}, table.row_key, "day")).count() == 3
    with pytest.raises(SchemaDiffers, match="the declared type is narrower, and Iceberg can only widen"):
        catalog.ensure(spark, wide)


def test_column_widened_by_a_preview_reads_as_declared_until_deployed(spark: SparkSession, table: Table) -> None:
    narrow = Table(table.name, {**table.columns, "small": "int"}, table.row_key, "day")
    wide = Table(table.name, {**table.columns, "small": "bigint"}, table.row_key, "day")
    catalog.ensure(spark, narrow)
    catalog.widen_for_preview(spark, wide, [TableChange(TableChangeKind.WIDENED, "small", "int", "bigint")])

    write.overwrite(rows(spark, (DAYS[0], 1)).selectExpr("*", "1 AS small"), narrow, DAYS, run_id=run_id())
    assert dict(read(spark, narrow).dtypes)["small"] == "int"
    assert dict(read_snapshot(spark, narrow).rows.dtypes)["small"] == "int"
    catalog.ensure(spark, wide)
    write.overwrite(rows(spark, (DAYS[0], 1)).selectExpr("*", f"{2**40} AS small"), wide, DAYS, run_id=run_id())
    assert read(spark, wide).collect()[0].small == 2**40
    with pytest.raises(SchemaDiffers, match="the declared type is narrower"):
        catalog.ensure(spark, narrow)


def test_new_table_generation_replaces_the_table_once(spark: SparkSession, table: Table) -> None:
    write.overwrite(rows(spark, (DAYS[0], 1)), table, DAYS, run_id=run_id())
    text = Table(table.name, {"day": "date", "n": "string"}, table.row_key, "day", generation=2)
    catalog.ensure(spark, text)
    write.overwrite(rows(spark, (DAYS[1], 2)).selectExpr("day", "CAST(n AS string) n"), text, DAYS, run_id=run_id())
    catalog.ensure(spark, text)
    assert [row.n for row in read(spark, text).collect()] == ["2"]
    assert [row.n for row in spark.table(f"lake.{table.name}_generation_1").collect()] == [1]
    with pytest.raises(SchemaDiffers):
        catalog.ensure(spark, table)


def test_column_dropped_by_hand_is_not_added_again(spark: SparkSession, table: Table) -> None:
    catalog.ensure(spark, wider := Table(table.name, table.columns | {"note": "string"}, table.row_key, "day"))
    write.overwrite(rows(spark, (DAYS[0], 1)).selectExpr("*", "'x' AS note"), wider, DAYS, run_id=run_id())
    spark.sql(f"ALTER TABLE {table.identifier} DROP COLUMN note")
    with pytest.raises(SchemaDiffers, match="the declared column note was dropped by hand"):
        catalog.ensure(spark, wider)
    assert "note" not in spark.table(table.identifier).columns
    spark.sql(f"ALTER TABLE {table.identifier} ADD COLUMNS (`note` string)")
    assert catalog.ensure(spark, wider) == ()


def test_write_the_table_refuses_is_not_reported_as_a_conflict(spark: SparkSession, table: Table) -> None:
    spark.sql(f"ALTER TABLE {table.identifier} REPLACE PARTITION FIELD day WITH months(day)")
    write.overwrite(rows(spark, (DAYS[0], 1), (DAYS[1], 2)).coalesce(1), table, None, run_id=run_id())
    with pytest.raises(PySparkException, match="some, but not all, rows match"):
        write.overwrite(rows(spark, (DAYS[0], 3)), table, DAYS[:1], run_id=run_id())


def properties(spark: SparkSession, table: Table) -> dict[str, str]:
    return {r.key: r.value for r in spark.sql(f"SHOW TBLPROPERTIES {table.identifier}").collect()}


def test_new_and_existing_tables_keep_few_metadata_versions(spark: SparkSession, table: Table) -> None:
    ours = ("write.metadata.delete-after-commit.enabled", "write.metadata.previous-versions-max")
    write.overwrite(rows(spark, (DAYS[0], 0)), table, DAYS[:1], run_id=run_id())
    made = properties(spark, table)
    spark.sql(f"ALTER TABLE {table.identifier} UNSET TBLPROPERTIES ('{ours[0]}', '{ours[1]}')")
    spark.sql(f"ALTER TABLE {table.identifier} SET TBLPROPERTIES ('theirs'='stays')")
    write.overwrite(rows(spark, (DAYS[0], 0)), table, DAYS[:1], run_id=run_id())
    snapshot = "current-snapshot-id"
    assert properties(spark, table) == made | {"theirs": "stays", snapshot: properties(spark, table)[snapshot]}
    for n in range(8):
        write.overwrite(rows(spark, (DAYS[0], n)), table, DAYS[:1], run_id=run_id())
    entries = spark.sql(f"SELECT file FROM {table.identifier}.metadata_log_entries").collect()
    assert len(entries) == int(made[ours[1]]) + 1, "the one in force and the ones before it"
    folder = Path(entries[0].file.removeprefix("file:")).parent
    assert len(list(folder.glob("*.metadata.json"))) == len(entries), "the others are deleted"
    catalog.set_properties(spark, table)
    assert spark.sql(f"SELECT file FROM {table.identifier}.metadata_log_entries").collect() == entries, "no commit"
