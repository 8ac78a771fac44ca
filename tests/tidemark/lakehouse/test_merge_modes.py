"""The merge mode of a table belongs to its owner: merging works in both modes and keeps the mode."""

import dataclasses
import uuid
from collections.abc import Callable, Iterator
from itertools import product

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from dagster_tidemark.lakehouse import catalog, write
from dagster_tidemark.lakehouse.loading import load, quarantine_actions
from dagster_tidemark.lakehouse.loading.load import Load
from dagster_tidemark.lakehouse.loading.quarantine_actions import Selection
from dagster_tidemark.lakehouse.loading.quarantine_table import QUARANTINE, WAIVERS
from dagster_tidemark.lakehouse.readers import small_files
from dagster_tidemark.lakehouse.table import Table
from tests.sampling import sample
from tests.tidemark.lakehouse.conftest import HOUR, Loading, Put, csv, key, line, quantities, quarantined

BAD = line(9).replace(",0.1,", ",7,")  # a discount of seven


def set_mode(spark: SparkSession, table: Table, mode: str) -> None:
    catalog.ensure(spark, table)
    statements = ("merge", "update", "delete")
    properties = ", ".join(f"'write.{statement}.mode'='{mode}'" for statement in statements)
    spark.sql(f"ALTER TABLE {table.identifier} SET TBLPROPERTIES ({properties})")


def mode_of(spark: SparkSession, table: Table) -> str:
    [found] = spark.sql(f"SHOW TBLPROPERTIES {table.identifier} ('write.merge.mode')").collect()
    return str(found.value)


@pytest.fixture
def mode(spark: SparkSession) -> Iterator[str]:
    """Set copy-on-write for the tables that all assets share. The other tests of this folder run in merge-on-read."""
    for table in (QUARANTINE, WAIVERS):
        set_mode(spark, table, "copy-on-write")
    yield "copy-on-write"
    for table in (QUARANTINE, WAIVERS):
        set_mode(spark, table, "merge-on-read")


def test_loads_and_waivers_are_merged_and_keep_the_tables_merge_mode(
    spark: SparkSession, put: Put, loading: Loading, orders: Load, mode: str, size: str
) -> None:
    set_mode(spark, orders.table, mode)
    put(key(orders, "a.csv"), csv(line(1), line(2), line(2, quantity=4), BAD))
    loading(orders, HOUR)
    put(key(orders, "b.csv"), csv(line(3), BAD, line(4)))
    loading(orders, HOUR)
    assert quantities(spark, orders) == {1: 3, 2: 4, 3: 3, 4: 3}
    reason = "discount_out_of_range"
    assert quarantined(spark, orders) == [("a.csv", 4, reason), ("b.csv", 2, reason)]

    everything = Selection(asset=orders.asset)
    assert quarantine_actions.waive(spark, everything, "known", run_id=str(uuid.uuid4())) == 2
    assert quarantine_actions.unwaive(spark, everything) == 2
    assert quarantine_actions.send_back(spark, everything, orders) == [HOUR]
    loading(orders, HOUR)
    assert quarantined(spark, orders) == [("a.csv", 4, reason), ("b.csv", 2, reason)]
    assert {mode_of(spark, table) for table in (orders.table, QUARANTINE, WAIVERS)} == {mode}


@pytest.mark.proof
def test_transform_with_random_values_loads_in_both_merge_modes(
    spark: SparkSession, put: Put, loading: Loading, orders: Load, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(small_files, "SMALL", 0)  # files are scanned by Spark
    random = Load(
        orders.feed,
        orders.table,
        lambda rows: orders.transform(rows.withColumn("discount", F.rand().cast("decimal(18,8)"))),
        code_version="1",
    )
    set_mode(spark, orders.table, mode)
    for name in ("a.csv", "b.csv"):
        put(key(orders, name), csv(line(1), line(2)))
        loading(random, HOUR)
    assert set(quantities(spark, orders)) == {1, 2}


@pytest.mark.parametrize("mode", ["merge-on-read", "copy-on-write"])
def test_rows_with_generated_ids_and_times_are_merged_in_both_modes(spark: SparkSession, mode: str) -> None:
    table = Table(f"test.t{uuid.uuid4().hex[:8]}", {"n": "bigint", "at": "timestamp", "id": "bigint"}, row_key=("n",))
    set_mode(spark, table, mode)
    for many in (3, 5):
        rows = spark.range(many).selectExpr("id AS n", "now() AS at", "monotonically_increasing_id() AS id")
        write.merge(rows, table, within=lambda of: "true", on=table.same_key(), wins="true", run_id=str(uuid.uuid4()))
    assert sorted(row.n for row in spark.table(table.identifier).collect()) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("random", ["rand() < 0.5", "hash(uuid()) % 2 = 0"])
def test_random_source_of_a_merge_by_overwriting_is_evaluated_once(spark: SparkSession, random: str) -> None:
    table = Table(f"test.t{uuid.uuid4().hex[:8]}", {"n": "bigint", "v": "bigint"}, row_key=("n",))
    set_mode(spark, table, "copy-on-write")
    for rows in (spark.range(500), spark.range(500).where(random)):
        new = rows.selectExpr("id AS n", "1 AS v")
        write.merge(new, table, within=lambda of: "true", on=table.same_key(), wins="true", run_id=str(uuid.uuid4()))
    assert sorted(row.n for row in spark.table(table.identifier).collect()) == [*range(500)]


RANDOM: dict[str, Callable[[DataFrame], DataFrame]] = {
    "rand": lambda rows: rows.where("rand() < 0.5"),
    "uuid": lambda rows: rows.where("hash(uuid()) % 2 = 0"),
    "sample": lambda rows: rows.sample(0.5),
}


# Many rows are ranked the same way whichever way they are committed.
@pytest.mark.parametrize(
    ("replaced", "many", "kinds"),
    sample(
        [
            *product([False, True], [1, 1_000_000], [tuple(RANDOM)]),
            (False, 1, ("rand",)),
            (False, 1_000_000, ("uuid",)),
            (True, 1_000_000, ("sample",)),
        ],
        (False, 1, ("rand",)),
        (False, 1_000_000, ("uuid",)),
        (True, 1_000_000, ("sample",)),
    ),
)
def test_random_transform_loses_and_doubles_no_key(
    spark: SparkSession,
    put: Put,
    loading: Loading,
    orders: Load,
    replaced: bool,
    many: int,
    kinds: tuple[str, ...],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(small_files, "SMALL", 0)  # files are scanned by Spark
    monkeypatch.setattr(load, "_MANY_ROWS", many)
    earlier = "2026-10-01-06:00"
    put(key(orders, "a.csv"), csv(*map(line, range(200))))
    put(key(orders, "a.csv", earlier), csv(line(1000, at="2026-10-01T06:15:00Z")))
    loading(orders, HOUR, earlier)
    for quantity, kind in enumerate(kinds, 4):
        drawn = dataclasses.replace(orders, transform=_after(orders.transform, RANDOM[kind]))
        put(key(orders, f"{quantity}.csv"), csv(*(line(n, quantity=quantity) for n in range(200))))
        if replaced:  # with another partition that is read again, the load commits both by one overwrite
            put(key(orders, "a.csv", earlier), csv(line(1000 + quantity, at="2026-10-01T06:15:00Z")))
        loading(drawn, HOUR, earlier)
        found = quantities(spark, orders)  # checks that no key is there twice
        assert set(found) >= set(range(200))
        assert 0 < sum(of == quantity for of in found.values()) < 200


def _after(
    first: Callable[[DataFrame], DataFrame], second: Callable[[DataFrame], DataFrame]
) -> Callable[[DataFrame], DataFrame]:
    return lambda rows: second(first(rows))
