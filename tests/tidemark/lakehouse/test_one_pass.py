"""A load that reads its files once leaves what a load leaves that keeps its rows, and gives up where it cannot."""

import dataclasses
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from pyiceberg.exceptions import RESTError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from dagster_tidemark.lakehouse import append, data_files, write
from dagster_tidemark.lakehouse.commits import CommitConflict
from dagster_tidemark.lakehouse.loading import first_pass, one_pass
from dagster_tidemark.lakehouse.loading import load as loads
from dagster_tidemark.lakehouse.loading.load import Load
from dagster_tidemark.lakehouse.loading.quarantine_table import QUARANTINE
from dagster_tidemark.lakehouse.parsing import spark_tasks
from dagster_tidemark.lakehouse.partitioning import ByKey
from dagster_tidemark.lakehouse.readers import batch, small_files
from dagster_tidemark.lakehouse.table import LINEAGE, Table
from dagster_tidemark.sources.feed import Feed, Grain
from tests.sampling import sample
from tests.tidemark.lakehouse.conftest import HOUR, Loading, Put, csv, key, line, quantities, renamed, rows

OTHER = "2026-10-01-08:00"
HOURS = (HOUR, OTHER)
TOO_MANY = 9_999_999_999


class Passes:
    """The loads that ended in one pass, and those that were given up."""

    def __init__(self) -> None:
        self.written: list[one_pass.UncommittedLoad | None] = []

    @property
    def last(self) -> one_pass.UncommittedLoad | None:
        return self.written[-1]


@pytest.fixture
def passes(monkeypatch: pytest.MonkeyPatch) -> Passes:
    """All files are large."""
    monkeypatch.setattr(small_files, "SMALL", 0)
    found, write = Passes(), one_pass.write_in_one_pass

    def spied(*arguments: Any) -> one_pass.UncommittedLoad | None:
        found.written.append(write(*arguments))
        return found.last

    monkeypatch.setattr(loads, "write_in_one_pass", spied)
    return found


def at(hour: str) -> str:
    """A time in an hour."""
    return f"2026-10-01T{hour[11:13]}:15:00Z"


def lines_of(hour: str, numbers: range, seed: int) -> list[str]:
    """Lines of orders, some of them bad in one way or another."""
    ways = [
        lambda n: line(n, at=at(hour)),
        lambda n: line(n, quantity=TOO_MANY, at=at(hour)),
        lambda n: f"{n},1,3,4,5,3.0,1.250,0.1,{at(hour)}",
        lambda n: f"{n},1,x,4,5,3,1.25,0.1,{at(hour)}",
        lambda n: f"{n},1,3,4",
    ]
    chosen = random.Random(seed)
    return [chosen.choices(ways, [20, 1, 1, 1, 1])[0](n) for n in numbers]


def put_hours(put: Put, load: Load, seed: int = 1, count: int = 3_000) -> None:
    """Two files for each hour, and no two rows of one key."""
    for n, hour in enumerate(HOURS):
        for half in (0, 1):
            begin = (2 * n + half) * count
            put(key(load, f"{half}.csv", hour), csv(*lines_of(hour, range(begin, begin + count), seed + begin)))


def entries(spark: SparkSession, load: Load) -> list[tuple[object, ...]]:
    found = spark.table(QUARANTINE.identifier).where(f"asset = '{load.asset}'")
    return sorted(
        tuple(r)
        for r in found.selectExpr(
            "partition", "element_at(split(source_file, '/'), -1)", "row_number", "content", "reason", "message"
        ).collect()
    )


def with_lineage(spark: SparkSession, load: Load) -> list[tuple[object, ...]]:
    table = spark.table(load.table.identifier)
    names = [c for c in load.table.columns if c not in ("source_file", "source_version", "arrived_at")]
    of_file = "element_at(split(source_file, '/'), -1)"
    return sorted(tuple(r) for r in table.selectExpr(*names, of_file, "isnotnull(source_version)").collect())


def stray_files(spark: SparkSession, load: Load) -> set[str]:
    """Parquet files in the table's folder that no snapshot has."""
    found = data_files.metadata_reads.loaded(spark, load.table)
    assert found is not None
    folder = Path(urlsplit(found.location()).path) / "data"
    known = {Path(urlsplit(path).path).name for path in found.inspect.all_data_files()["file_path"].to_pylist()}
    return {file.name for file in folder.rglob("*.parquet")} - known


@pytest.mark.parametrize(
    ("task_bytes", "small", "together"),
    [
        pytest.param(10_000, 0, 0, marks=pytest.mark.proof),
        pytest.param(spark_tasks.TASK_BYTES, 0, 0, marks=pytest.mark.proof),
        pytest.param(
            10_000, small_files.SMALL, small_files.TOGETHER, id="small files of many rows", marks=pytest.mark.proof
        ),
        pytest.param(10_000, small_files.SMALL, 400_000, id="small and large files of one hour"),
    ],
)
def test_one_pass_load_gives_the_same_result_as_a_cached_load(
    spark: SparkSession,
    put: Put,
    loading: Loading,
    orders: Load,
    passes: Passes,
    monkeypatch: pytest.MonkeyPatch,
    task_bytes: int,
    small: int,
    together: int,
) -> None:
    monkeypatch.setattr(batch, "TASK_BYTES", task_bytes)
    monkeypatch.setattr(small_files, "SMALL", small)
    monkeypatch.setattr(small_files, "TOGETHER", together)
    other = renamed(orders)
    for load in (orders, other):
        put_hours(put, load)
    once = loading(orders, *HOURS)
    assert passes.last is not None
    monkeypatch.setattr(loads, "write_in_one_pass", lambda *_: None)
    twice = loading(other, *HOURS)
    assert with_lineage(spark, orders) == with_lineage(spark, other)
    assert entries(spark, orders) == entries(spark, other) != []
    assert once.content == twice.content
    assert (once.rows_read, once.rows_rejected, once.files_read) == (twice.rows_read, twice.rows_rejected, 4)
    assert [a.unaccounted for a in once.accounts] == [0] * 4
    assert once.table_rows == twice.table_rows
    assert loads.held_at(spark, orders.table, list(HOURS), once.snapshot_id).content == once.content
    assert stray_files(spark, orders) == set()


def test_one_pass_load_of_a_new_code_version_replaces_partitions(
    spark: SparkSession, put: Put, loading: Loading, orders: Load, passes: Passes
) -> None:
    put(key(orders, "a.csv"), csv(*(line(n) for n in range(1, 50))))
    put(key(orders, "b.csv", OTHER), csv(line(99, at=at(OTHER))))
    loading(orders, *HOURS)
    newer = dataclasses.replace(orders, code_version="2", transform=_doubled(orders.transform))
    loading(newer, HOUR)
    assert passes.last is not None
    assert quantities(spark, orders) == dict.fromkeys(range(1, 50), 6) | {99: 3}


def _doubled(transform: Callable[[DataFrame], DataFrame]) -> Callable[[DataFrame], DataFrame]:
    return lambda rows: transform(rows).withColumn("quantity", F.col("quantity") * 2)


@pytest.mark.parametrize("task_bytes", sample([200, spark_tasks.TASK_BYTES], 200))
def test_later_of_two_rows_with_one_key_is_kept_without_one_pass(
    spark: SparkSession,
    put: Put,
    loading: Loading,
    orders: Load,
    passes: Passes,
    monkeypatch: pytest.MonkeyPatch,
    task_bytes: int,
) -> None:
    monkeypatch.setattr(batch, "TASK_BYTES", task_bytes)
    put(key(orders, "a.csv"), csv(*(line(n) for n in range(1, 21)), line(1, quantity=9)))
    loading(orders, HOUR)
    assert passes.last is None
    assert quantities(spark, orders) == dict.fromkeys(range(2, 21), 3) | {1: 9}
    assert stray_files(spark, orders) == set()


def _astray(rows: DataFrame) -> DataFrame:
    return rows.withColumn("hour", F.col("hour") + F.expr("INTERVAL 1 HOUR"))


def _narrowed(rows: DataFrame) -> DataFrame:
    return rows.drop("_file")


def _retyped(rows: DataFrame) -> DataFrame:
    return rows.withColumn("quantity", F.col("quantity").cast("smallint"))


def _shuffled(rows: DataFrame) -> DataFrame:
    return rows.repartition(2)


@pytest.mark.parametrize("change", sample([_narrowed, _retyped, _shuffled], _shuffled))
def test_transform_that_narrows_retypes_or_shuffles_is_loaded_without_one_pass(
    spark: SparkSession,
    put: Put,
    loading: Loading,
    orders: Load,
    passes: Passes,
    change: Callable[[DataFrame], DataFrame],
) -> None:
    put(key(orders, "a.csv"), csv(*(line(n) for n in range(1, 21))))
    transform = orders.transform
    loading(dataclasses.replace(orders, transform=lambda rows: change(transform(rows))), HOUR)
    assert passes.last is None
    assert quantities(spark, orders) == dict.fromkeys(range(1, 21), 3)
    assert stray_files(spark, orders) == set()


def test_rows_moved_to_another_partition_by_a_transform_prevent_one_pass_loading(
    put: Put, loading: Loading, orders: Load, passes: Passes, spark: SparkSession
) -> None:
    put(key(orders, "a.csv"), csv(*(line(n) for n in range(1, 21))))
    transform = orders.transform
    loading(dataclasses.replace(orders, transform=lambda rows: _astray(transform(rows))), HOUR)
    assert passes.last is None
    assert stray_files(spark, orders) == set()


@pytest.mark.parametrize("held", [4_000, pytest.param(10, marks=pytest.mark.proof)])
def test_nondeterministic_rule_loses_no_row(
    spark: SparkSession,
    put: Put,
    loading: Loading,
    orders: Load,
    passes: Passes,
    monkeypatch: pytest.MonkeyPatch,
    held: int,
) -> None:
    monkeypatch.setattr(first_pass, "_MOST_ROWS", 2 * held)
    put(key(orders, "a.csv"), csv(*(line(n) for n in range(1, 4_001))))
    drawn = dataclasses.replace(orders, feed=dataclasses.replace(orders.feed, rules={"drawn": "rand() < 0.5"}))
    loaded = loading(drawn, HOUR)
    # Rows that the first pass returns are judged once. A second pass would judge them differently.
    assert (passes.last is None) == (held == 10)
    assert len(rows(spark, orders)) + len(entries(spark, orders)) == 4_000 == loaded.rows_read
    assert stray_files(spark, orders) == set()


def test_second_pass_that_rejects_as_many_other_rows_loses_no_row(
    spark: SparkSession, put: Put, loading: Loading, orders: Load, passes: Passes, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(key(orders, "a.csv"), csv(*(line(n) for n in range(1, 21))))
    judge, rejected = one_pass.judge, [5, 7]

    def differently(read: DataFrame, feed: Feed, table: Table) -> DataFrame:
        rule = {"drawn": f"order_id <> {rejected.pop(0)}"}
        return judge(read, dataclasses.replace(feed, rules=rule), table)

    monkeypatch.setattr(one_pass, "judge", differently)
    monkeypatch.setattr(first_pass, "_MOST_BYTES", 1)
    loaded = loading(orders, HOUR)
    assert passes.last is None and not rejected
    assert len(rows(spark, orders)) == loaded.rows_read == 20 and entries(spark, orders) == []


@pytest.mark.proof
def test_many_long_rejected_rows_fit_into_the_messages_of_spark(
    spark: SparkSession, put: Put, loading: Loading, orders: Load, passes: Passes
) -> None:
    long = "\U0001f600" * 3_700
    put(key(orders, "a.csv"), csv(line(1), *(f"{n},1,3,4,5,{long},1.25,0.1,{at(HOUR)}" for n in range(2, 5_002))))
    loaded = loading(orders, HOUR)
    assert passes.last is not None
    assert (loaded.rows_read, loaded.rows_rejected, len(rows(spark, orders))) == (5_001, 5_000, 1)


@pytest.mark.parametrize(
    "limits",
    [
        pytest.param({"_MOST_ROWS": 100}, id="more rows than the first pass returns"),
        pytest.param({"_MOST_BYTES": 3_000}, id="more bytes than the first pass returns", marks=pytest.mark.proof),
        pytest.param({"_MOST_ROWS": 100, "_MOST_CHUNKS": 10}, id="more chunks than the first pass returns"),
    ],
)
def test_rejected_rows_of_a_second_pass_equal_those_of_the_first_pass(
    spark: SparkSession,
    put: Put,
    loading: Loading,
    orders: Load,
    passes: Passes,
    monkeypatch: pytest.MonkeyPatch,
    limits: dict[str, int],
) -> None:
    monkeypatch.setattr(batch, "TASK_BYTES", 30_000)
    other = renamed(orders)
    for load in (orders, other):
        put_hours(put, load, count=1_000)
    counted: list[Any] = []
    rows_of = batch.FileBatch.rows

    def spied(reading: batch.FileBatch, **options: Any) -> DataFrame:
        counted.append(options.get("chunks"))
        return rows_of(reading, **options)

    monkeypatch.setattr(batch.FileBatch, "rows", spied)
    once = loading(orders, *HOURS)
    assert passes.last is not None and counted == [None]
    for limit, value in limits.items():
        monkeypatch.setattr(first_pass, limit, value)
    twice = loading(other, *HOURS)
    assert passes.last is not None and [bool(chunks) for chunks in counted] == [False, False, True]
    assert any({-1} < set(of) for of in counted[-1].values()) == ("_MOST_CHUNKS" in limits)
    assert entries(spark, orders) == entries(spark, other) != []
    assert once.rows_rejected == twice.rows_rejected > 100
    assert once.content == twice.content


@pytest.mark.proof
def test_one_pass_load_quarantines_all_of_many_rejected_rows(
    spark: SparkSession,
    put: Put,
    loading: Loading,
    orders: Load,
    passes: Passes,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(first_pass, "_MOST_ROWS", 10)
    monkeypatch.setattr(one_pass, "FEW", 10)
    bad = [line(n, quantity=TOO_MANY) for n in range(2_000, 4_000)]
    put(key(orders, "a.csv"), csv(*(line(n) for n in range(1, 2_000)), *bad))
    loaded = loading(orders, HOUR)
    assert passes.last is not None
    assert (loaded.rows_read, loaded.rows_rejected) == (3_999, 2_000)
    assert [number for _, _, number, *_ in entries(spark, orders)] == list(range(2_000, 4_000))


PROPERTIES = {
    "write.object-storage.enabled": "true",
    "write.format.default": "orc",
    "write.parquet.row-group-size-bytes": "1000000",
    "write.distribution-mode": "hash",
    "write.wap.enabled": "true",
}


def test_table_with_custom_write_properties_is_written_by_spark(
    spark: SparkSession, put: Put, loading: Loading, orders: Load, passes: Passes
) -> None:
    put(key(orders, "a.csv"), csv(line(1)))
    loading(orders, HOUR)
    name, table = orders.table.identifier, orders.table
    values = [table.partition_values(OTHER)]
    for property, value in PROPERTIES.items():
        spark.sql(f"ALTER TABLE {name} SET TBLPROPERTIES ('{property}' = '{value}')")
        assert data_files.target_of(spark, table, values, None) is None, property
        spark.sql(f"ALTER TABLE {name} UNSET TBLPROPERTIES ('{property}')")
    assert data_files.target_of(spark, table, values, None) is not None
    spark.sql(f"ALTER TABLE {name} WRITE ORDERED BY order_id")
    put(key(orders, "b.csv", OTHER), csv(line(2, at=at(OTHER))))
    loading(orders, OTHER)
    assert passes.last is None
    assert quantities(spark, orders) == {1: 3, 2: 3}


def test_one_pass_load_uses_the_compression_codec_of_the_table(
    spark: SparkSession, put: Put, loading: Loading, orders: Load, passes: Passes
) -> None:
    put(key(orders, "a.csv"), csv(line(1)))
    loading(orders, HOUR)
    spark.sql(f"ALTER TABLE {orders.table.identifier} SET TBLPROPERTIES ('write.parquet.compression-codec' = 'gzip')")
    put(key(orders, "b.csv", OTHER), csv(line(2, at=at(OTHER))))
    loading(orders, OTHER)
    assert passes.last is not None
    (report,) = passes.last._reports
    assert data_files.pq.read_metadata(report.path).row_group(0).column(0).compression == "GZIP"


def test_partitions_with_position_deletes_are_written_by_spark(
    spark: SparkSession, put: Put, loading: Loading, orders: Load, passes: Passes
) -> None:
    put(key(orders, "a.csv"), csv(*(line(n) for n in range(1, 21))))
    loading(orders, HOUR)
    put(key(orders, "b.csv"), csv(line(1, quantity=9)))
    loading(orders, HOUR)  # added by a MERGE
    loading(dataclasses.replace(orders, code_version="2"), HOUR)
    assert passes.last is None
    assert quantities(spark, orders) == dict.fromkeys(range(2, 21), 3) | {1: 9}


@pytest.mark.parametrize("touched", sample([1, 3], 1))
def test_one_pass_load_keeps_a_concurrent_commit(
    spark: SparkSession,
    put: Put,
    loading: Loading,
    orders: Load,
    passes: Passes,
    monkeypatch: pytest.MonkeyPatch,
    touched: int,
) -> None:
    third = "2026-10-01-09:00"
    for number, hour in enumerate((HOUR, OTHER, third), start=1):
        put(key(orders, "a.csv", hour), csv(line(number, at=at(hour))))
    loading(orders, HOUR, OTHER, third)
    reached, done = loads.reached, list[str]()
    reading: list[int] = []

    def interrupting(boundary: str) -> None:
        reached(boundary)
        if boundary == "before_commit":
            reading.append(len(done))
            if not done:
                done.append(boundary)
                spark.sql(f"UPDATE {orders.table.identifier} SET quantity = 7 WHERE order_id = {touched}")

    monkeypatch.setattr(loads, "reached", interrupting)
    loading(dataclasses.replace(orders, code_version="2"), HOUR, OTHER)
    # A row of a partition that was replaced was replaced by a load that had looked again; another one stays.
    assert quantities(spark, orders) == {1: 3, 2: 3, 3: 7 if touched == 3 else 3}
    assert len(reading) == (2 if touched == 1 else 1)
    assert stray_files(spark, orders) == set()


def test_catalog_failure_during_the_commit_leaves_the_data_files(
    spark: SparkSession,
    put: Put,
    loading: Loading,
    orders: Load,
    passes: Passes,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    put(key(orders, "a.csv"), csv(line(1)))
    commit = append.commit_on_head

    def failing(*arguments: Any) -> None:
        commit(*arguments)
        raise append.CatalogUnavailable("lost on the way") from RESTError()

    monkeypatch.setattr(append, "commit_on_head", failing)
    with pytest.raises(append.CatalogUnavailable):
        loading(orders, HOUR)
    monkeypatch.setattr(append, "commit_on_head", commit)
    assert loading(orders, HOUR).files_read == 0, "it was committed"
    assert quantities(spark, orders) == {1: 3}


@pytest.mark.parametrize("is_replaced", sample([False, True], False))
def test_commit_that_a_catalog_reports_as_a_conflict_keeps_its_data_files(
    spark: SparkSession,
    put: Put,
    loading: Loading,
    orders: Load,
    passes: Passes,
    monkeypatch: pytest.MonkeyPatch,
    is_replaced: bool,
) -> None:
    put(key(orders, "a.csv"), csv(line(1), line(2)))
    commit = append.commit_on_head
    failed: list[int] = []

    def repeated(*arguments: Any) -> None:
        """Commit, and fail like a client that repeats a request without an answer."""
        commit(*arguments)
        if orders.table.name == ".".join(arguments[0].name()) and not failed:
            failed.append(1)
            if is_replaced:
                spark.sql(f"UPDATE {orders.table.identifier} SET quantity = 7 WHERE order_id = 1")
            raise CommitConflict("the table was changed by a concurrent request")

    monkeypatch.setattr(append, "commit_on_head", repeated)
    loaded = loading(orders, HOUR)
    assert failed and loaded.files_read == 1
    assert quantities(spark, orders) == {1: 7 if is_replaced else 3, 2: 3}
    assert len(spark.sql(f"SELECT * FROM {orders.table.identifier} VERSION AS OF {loaded.snapshot_id}").collect()) == 2
    assert stray_files(spark, orders) == set()


def test_one_pass_load_replaces_a_feed_of_one_object(
    spark: SparkSession, put: Put, loading: Loading, customers: Load, passes: Passes
) -> None:
    header = ",".join(customers.feed.columns)
    texts = {"date": "2026-01-01", "timestamp": "2026-01-01T00:00:00Z"}

    def body(count: int) -> str:
        lines = (
            ",".join(str(n) if kind in ("int", "bigint") else texts.get(kind, f"x{n}") for kind in kinds)
            for kinds in [list(customers.feed.columns.values())]
            for n in range(count)
        )
        return "\n".join([header, *lines]) + "\n"

    name = customers.feed.prefix
    put(name, body(100))
    assert loading(customers, None).table_rows == 100
    assert passes.last is not None
    put(name, body(40))
    assert loading(customers, None).table_rows == 40
    assert passes.last is not None


def test_one_pass_load_numbers_rows_by_their_place_in_the_file(
    spark: SparkSession, put: Put, loading: Loading, orders: Load, passes: Passes
) -> None:
    table = dataclasses.replace(
        orders.table,
        columns=orders.table.columns | {"source_row": "bigint"},
        row_key=("source_file", "source_row", "hour"),
    )
    numbered = dataclasses.replace(orders, table=table)
    put(key(orders, "a.csv"), csv(*(line(7) for _ in range(300))))
    loading(numbered, HOUR)
    assert passes.last is not None
    found = spark.table(table.identifier).select("source_row").collect()
    assert sorted(row.source_row for row in found) == list(range(1, 301))


def test_warehouse_not_writable_by_tasks_is_written_by_spark(
    spark: SparkSession,
    put: Put,
    loading: Loading,
    orders: Load,
    passes: Passes,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setattr(data_files.DataFileTarget, "folders", [str(tmp_path / "file")])
    put(key(orders, "a.csv"), csv(line(1)))
    loading(orders, HOUR)
    assert passes.last is None
    assert quantities(spark, orders) == {1: 3}


def test_one_pass_load_without_valid_rows_writes_no_data_file(
    spark: SparkSession, put: Put, loading: Loading, orders: Load, passes: Passes
) -> None:
    put(key(orders, "a.csv"), csv(*(line(n, quantity=TOO_MANY) for n in range(1, 21))))
    loaded = loading(orders, HOUR)
    assert passes.last is not None
    assert loaded.rows_rejected == 20 and rows(spark, orders) == []


def test_data_files_written_in_one_pass_have_exact_column_bounds(
    spark: SparkSession, put: Put, loading: Loading, orders: Load, passes: Passes
) -> None:
    put_hours(put, orders)
    loading(orders, *HOURS)
    files = spark.sql(
        f"SELECT record_count, readable_metrics.order_id m FROM {orders.table.identifier}.files"
    ).collect()
    assert passes.last is not None
    found = spark.table(orders.table.identifier).agg(F.min("order_id"), F.max("order_id"), F.count("*")).first()
    assert found is not None
    assert min(f.m.lower_bound for f in files) == found[0]
    assert max(f.m.upper_bound for f in files) == found[1]
    assert sum(f.record_count for f in files) == found[2]


REGIONS = ("a b", "x+y", "50%", "\u00fc", "q?#&", "a'b", "a%2Fb")


def test_tasks_that_spark_runs_twice_add_no_row(
    spark: SparkSession, put: Put, loading: Loading, orders: Load, passes: Passes, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(key(orders, "a.csv"), csv(*(line(n) for n in range(1, 21)), line(99, quantity=TOO_MANY)))
    collected, twice = one_pass._collected, list[int]()

    def running_twice(reports: DataFrame, **options: Any) -> Any:
        twice.append(len(reports.where("report IS NOT NULL").collect()))
        return collected(reports, **options)

    monkeypatch.setattr(one_pass, "_collected", running_twice)
    loaded = loading(orders, HOUR)
    assert passes.last is not None and twice == [1]
    assert quantities(spark, orders) == dict.fromkeys(range(1, 21), 3)
    assert (loaded.rows_read, loaded.rows_rejected, loaded.table_rows) == (21, 1, 20)
    assert len(stray_files(spark, orders)) == 1, "the file of the first attempt is in no snapshot"


def test_one_pass_load_writes_partitions_with_any_characters_in_their_keys(
    spark: SparkSession, put: Put, loading: Loading, passes: Passes
) -> None:
    columns = {"n": "bigint"}
    load = renamed(
        Load(
            Feed("regions", "regions/", Grain.NONE, columns, required=("n",), keys={"region": REGIONS}),
            Table("core.regions", {"region": "string"} | columns | LINEAGE, ("region", "n"), ByKey("region")),
            lambda landed: landed,
            code_version="1",
        )
    )
    for n, region in enumerate(REGIONS):
        put(load.feed.prefix_of(region) + "a.csv", f"n\n{n}\n{n + 100}\n")
    for version in "12":
        loading(dataclasses.replace(load, code_version=version), *REGIONS)
        assert passes.last is not None
        found = spark.table(load.table.identifier).select("region", "n", "loaded_by").collect()
        expected = [(region, n + more, version) for n, region in enumerate(REGIONS) for more in (0, 100)]
        assert sorted(map(tuple, found)) == sorted(expected)
        assert stray_files(spark, load) == set()
    for region in REGIONS:
        assert spark.table(load.table.identifier).where(F.col("region") == region).count() == 2, region
        assert loads.held_at(spark, load.table, [region], write.current_snapshot(spark, load.table)).content
