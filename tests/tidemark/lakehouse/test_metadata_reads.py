"""What is seen past Spark is what Spark says; what cannot be seen so, Spark is asked for."""

import logging
import uuid
from functools import partial
from pathlib import Path

import pytest
from pyiceberg.catalog import load_catalog
from pyspark.sql import SparkSession

from dagster_tidemark.lakehouse import catalog, metadata_reads, write
from dagster_tidemark.lakehouse.loading import provenance, quarantine_actions, quarantine_counts
from dagster_tidemark.lakehouse.loading.load import Load
from dagster_tidemark.lakehouse.loading.load_plan import Where
from dagster_tidemark.lakehouse.loading.provenance import Known, known_files
from dagster_tidemark.lakehouse.loading.quarantine_table import QUARANTINE
from dagster_tidemark.lakehouse.read import SnapshotExpired
from dagster_tidemark.lakehouse.session import new_session
from dagster_tidemark.lakehouse.table import Table
from dagster_tidemark.lakehouse.table_changes import NOT_DECLARED
from dagster_tidemark.settings import Settings
from tests.tidemark.lakehouse.conftest import HOUR, Delete, Loading, Put, a_second, csv, key, line

NEXT = "2026-10-01-08:00"
BAD = "1,1,3,4,5,none,1.25,0.1,2026-10-01T07:15:00Z"


def by_spark(spark: SparkSession, load: Load, snapshot_id: int | None, *partitions: str) -> Known:
    found = provenance._queried(spark, load, partitions, snapshot_id)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(provenance, "_looked_up", lambda *_: None)
        patched.setattr(provenance, "_queried", lambda *_: found)
        return known_files(spark, load, partitions, snapshot_id)


def same(spark: SparkSession, load: Load, snapshot_id: int | None, *partitions: str) -> Known:
    """What is known, seen both ways."""
    assert provenance._looked_up(spark, load, partitions, snapshot_id) is not None
    seen, said = known_files(spark, load, partitions, snapshot_id), by_spark(spark, load, snapshot_id, *partitions)
    assert (seen.files, seen.rows) == (said.files, said.rows)
    assert sorted(seen.entries, key=repr) == sorted(said.entries, key=repr)
    return seen


def test_known_files_read_from_metadata_equal_those_read_by_spark(
    spark: SparkSession, orders: Load, loading: Loading, put: Put, delete: Delete
) -> None:
    put(key(orders, "a.csv"), csv(line(1), line(2), BAD))
    put(key(orders, "bad.csv"), csv("x", header="unknown"))
    put(key(orders, "late.csv", NEXT), csv(line(9, at="2026-10-01T08:15:00Z")))
    first = loading(orders, HOUR, NEXT)
    a_second()
    put(key(orders, "b.csv"), csv(line(2, quantity=7), line(3)))  # takes a row from a.csv: a position delete
    second = loading(orders, HOUR)
    delete(key(orders, "late.csv", NEXT))
    known = same(spark, orders, second.snapshot_id, HOUR, NEXT)
    rows = {file.rpartition("/")[2]: count for (_, file, _), count in known.rows.items()}
    assert rows == {"a.csv": 1, "b.csv": 2, "late.csv": 1}
    assert sorted(entry.file.where for entry in known.entries) == [Where.REJECTED_ROWS, Where.WHOLE_FILE]
    before = same(spark, orders, first.snapshot_id, HOUR)
    assert {file.rpartition("/")[2]: count for (_, file, _), count in before.rows.items()} == {"a.csv": 2}
    assert not same(spark, orders, None, HOUR).rows, "before the first commit nothing was known"


def test_metadata_read_counts_all_rows_of_an_unpartitioned_table(
    spark: SparkSession, customers: Load, loading: Loading, put: Put
) -> None:
    put(
        customers.feed.prefix,
        csv("1,Ann,a@b,x,de,2026-01-01", header="customer_id,name,email,segment,nation,signed_up_at"),
    )
    loaded = loading(customers, None)
    assert provenance._looked_up(spark, customers, [None], loaded.snapshot_id)
    known = known_files(spark, customers, [None], loaded.snapshot_id)
    assert list(known.rows.values()) == [1]


def test_metadata_read_leaves_missing_or_large_tables_to_spark(
    spark: SparkSession, orders: Load, loading: Loading, put: Put, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert metadata_reads.loaded(spark, orders.table) is None
    put(key(orders, "a.csv"), csv(line(1), line(2)))
    loaded = loading(orders, HOUR)
    at = loaded.snapshot_id
    assert provenance._looked_up(spark, orders, [HOUR], at) is not None
    with monkeypatch.context() as few:
        few.setattr(metadata_reads, "MOST_ROWS", 1)
        assert provenance._looked_up(spark, orders, [HOUR], at) is None
    with monkeypatch.context() as few:
        few.setattr(metadata_reads, "MOST_FILES", 0)
        assert provenance._looked_up(spark, orders, [HOUR], at) is None
    many = [f"2026-10-{day:02}-{hour:02}:00" for day in (1, 2, 3) for hour in range(24)]
    assert provenance._looked_up(spark, orders, many, at) is None
    assert sum(known_files(spark, orders, many, at).rows.values()) == 2


def test_reading_known_files_of_an_expired_snapshot_is_refused(
    spark: SparkSession, orders: Load, loading: Loading, put: Put
) -> None:
    put(key(orders, "a.csv"), csv(line(1)))
    loading(orders, HOUR)
    with pytest.raises(SnapshotExpired):
        known_files(spark, orders, [HOUR], 4711)


def test_commit_found_in_metadata_equals_the_one_found_by_spark(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = Table(f"test.t{uuid.uuid4().hex[:8]}", {"day": "date", "n": "bigint"}, ("day", "n"), "day")
    catalog.ensure(spark, table)
    assert write.current_snapshot(spark, table) is None
    rows = spark.sql("SELECT DATE '2026-10-01' AS day, id AS n FROM range(3)")
    write.overwrite(rows, table, ["2026-10-01"], run_id="one")
    taken = spark.sql("SELECT DATE '2026-10-01' AS day, 1L AS n")
    day = partial(table.predicate, ["2026-10-01"])
    write.merge(taken, table, within=day, on="t.n = s.n", wins="true", goes="true", run_id="two")
    seen = [write.commit_of(spark, table, run) for run in ("one", "two", "none")]
    assert [commit.rows for commit in seen] == [3, 2, None]
    assert metadata_reads.loaded(spark, table)
    monkeypatch.setattr(metadata_reads, "_seen", lambda *_: None)
    assert [write.commit_of(spark, table, run) for run in ("one", "two", "none")] == seen
    assert write.current_snapshot(spark, table) == seen[1].snapshot_id


def test_metadata_read_skips_a_catalog_other_than_the_servers(spark_server: Settings) -> None:
    elsewhere = spark_server.model_copy(update={"catalog_uri": "jdbc:sqlite:/nowhere/catalog.db"})
    session = new_session(elsewhere)
    try:
        assert metadata_reads.loaded(session, QUARANTINE) is None
        assert metadata_reads._lakes[session] is None
    finally:
        session.stop()


def test_unreachable_catalog_is_logged_once_and_not_asked_again(
    spark_server: Settings, orders: Load, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = new_session(spark_server)
    try:
        catalog.ensure(session, QUARANTINE)
        assert metadata_reads.loaded(session, QUARANTINE)
        asked = []

        def fails(name: str) -> None:
            asked.append(name)
            raise OSError("the store does not answer")

        monkeypatch.setattr(metadata_reads._lakes[session], "load_table", fails)
        for _ in range(3):
            write.current_snapshot(session, QUARANTINE)
        assert len(asked) == 1
        (told,) = [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]
        assert "the store does not answer" in told
    finally:
        session.stop()


def test_columns_read_from_metadata_equal_those_read_by_spark(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    columns = {
        "day": "date",
        "n": "bigint",
        "price": "decimal(18,4)",
        "at": "timestamp",
        "local": "timestamp_ntz",
        "tags": "array<string>",
        "of": "struct<a:int,b:map<string,double>>",
        "raw": "binary",
    }
    table = Table(f"test.t{uuid.uuid4().hex[:8]}", columns, ("day", "n"), "day")
    catalog.ensure(spark, table)
    spark.sql(f"ALTER TABLE {table.identifier} ALTER COLUMN raw COMMENT '{NOT_DECLARED}'")
    seen = catalog.as_it_is(spark, table)
    assert metadata_reads.stored(spark, table) is not None
    monkeypatch.setattr(metadata_reads, "_seen", lambda *_: None)
    assert catalog.as_it_is(spark, table) == seen


def test_backlog_read_from_metadata_equals_the_one_counted_by_spark(
    spark: SparkSession, orders: Load, loading: Loading, put: Put, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(key(orders, "a.csv"), csv(line(1), line(2), BAD, BAD, line(3).replace(",0.1,", ",7,")))
    put(key(orders, "b.csv"), csv(BAD))
    put(key(orders, "empty.csv"), csv())
    put(key(orders, "junk.parquet"), b"no parquet")
    put(key(orders, "late.csv", NEXT), csv(*(line(n, at="2026-10-01T08:15:00Z") for n in (7, 8)), BAD))
    loaded = loading(orders, HOUR, NEXT)
    rows = {HOUR: loaded.content[HOUR].rows}
    selection = quarantine_actions.Selection(orders.asset, ["bad_type"], key=key(orders, "b.csv"))
    quarantine_actions.waive(spark, selection, "known", run_id="w")

    def both() -> tuple[object, ...]:
        share = quarantine_counts.largest_share(spark, orders.table, orders.asset, rows)
        return quarantine_counts.backlog_of(spark, orders.asset), share

    assert quarantine_counts._few_entries(spark, orders.asset, QUARANTINE) is not None
    assert metadata_reads.rows_held(spark, orders.table, [orders.table.partition_values(NEXT)]) == [2]
    seen = both()
    monkeypatch.setattr(metadata_reads, "_seen", lambda *_: None)
    assert both() == seen
    assert seen[1] == 3 / 5
    assert quarantine_counts.largest_share(spark, orders.table, orders.asset, {HOUR: 1_000}) == 1 / 3
    said = [(of.where, of.reason, of.is_waived, of.count) for of in quarantine_counts.backlog_of(spark, orders.asset)]
    assert said == [
        (Where.REJECTED_ROWS, "bad_type", False, 3),
        (Where.REJECTED_ROWS, "bad_type", True, 1),
        (Where.REJECTED_ROWS, "discount_out_of_range", False, 1),
        (Where.WHOLE_FILE, "unreadable", False, 1),
    ]


def test_new_catalog_without_tables_is_read_again_later(
    spark_server: Settings, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    session = new_session(spark_server)
    try:
        catalog.ensure(session, QUARANTINE)
        lake = metadata_reads.catalog_of(session)
        new = load_catalog(
            "new",
            type="sql",
            uri=f"sqlite:///{tmp_path}/catalog.db",
            warehouse=str(tmp_path),
            init_catalog_tables="false",
        )
        monkeypatch.setitem(metadata_reads._lakes, session, new)
        assert metadata_reads.loaded(session, QUARANTINE) is None
        assert metadata_reads.catalog_of(session) is new
        monkeypatch.setitem(metadata_reads._lakes, session, lake)
        assert metadata_reads.loaded(session, QUARANTINE)
    finally:
        session.stop()
