"""Rows landed = rows in the table + turned away + superseded, for every file of a load."""

import dataclasses
from collections.abc import Callable

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from dagster_tidemark.lakehouse.loading import load as loading_module
from dagster_tidemark.lakehouse.loading.load import Load, Loaded
from tests.tidemark.lakehouse.conftest import HOUR, Delete, Loading, Put, a_second, csv, key, line, quantities
from tests.tidemark.lakehouse.test_quarantine_actions import BAD


def accounts(loaded: Loaded) -> dict[str, tuple[int, int, int, int, int]]:
    """File name to landed, in the table, turned away, superseded, unaccounted for."""
    return {
        a.key.rpartition("/")[2]: (a.landed, a.in_table, a.rejected, a.superseded, a.unaccounted)
        for a in loaded.accounts
    }


def test_every_landed_row_is_counted_as_loaded_rejected_or_superseded(
    spark: SparkSession, put: Put, delete: Delete, loading: Loading, orders: Load
) -> None:
    put(key(orders, "a.csv"), csv(line(1), line(1, quantity=4), BAD, line(2), line(3)))
    put(key(orders, "b.csv"), csv(line(4)))
    put(key(orders, "header.csv"), csv())
    put(key(orders, "junk.parquet"), b"no parquet")
    assert accounts(loading(orders, HOUR)) == {
        "a.csv": (5, 3, 1, 1, 0), "b.csv": (1, 1, 0, 0, 0), "header.csv": (0, 0, 0, 0, 0)
    }  # fmt: skip
    a_second()
    put(key(orders, "c.csv"), csv(line(2, quantity=7), line(5)))
    added = accounts(loading(orders, HOUR))
    assert added == {"c.csv": (2, 2, 0, 0, 0), "a.csv": (3, 2, 0, 1, 0)}, "a row of a.csv lost to one of c.csv"
    put(key(orders, "A.csv"), csv(line(5)))
    a_second()
    put(key(orders, "b.csv"), csv(line(4, quantity=9), line(5, quantity=9)))
    replaced = accounts(loading(orders, HOUR))
    assert {name: left for name, (*_, left) in replaced.items()} == dict.fromkeys(replaced, 0)
    assert replaced["b.csv"] == (2, 2, 0, 0, 0)
    assert replaced["c.csv"] == (2, 1, 0, 1, 0)
    assert replaced["A.csv"] == (1, 0, 0, 1, 0)


def test_rows_given_one_key_by_a_transform_are_ranked_by_it(
    spark: SparkSession, put: Put, loading: Loading, orders: Load
) -> None:
    """Whether they meet within a file, in a load or in the table."""
    tens = dataclasses.replace(
        orders, transform=lambda rows: orders.transform(rows.withColumn("order_id", F.expr("order_id DIV 10 * 10")))
    )
    put(
        key(orders, "a.csv"),
        csv(line(11, quantity=1), line(12, quantity=2), line(29, quantity=3), line(21, quantity=4)),
    )
    assert accounts(loading(tens, HOUR)) == {"a.csv": (4, 2, 0, 2, 0)}
    assert quantities(spark, orders) == {10: 2, 20: 4}, "of a file the last"
    a_second()
    put(key(orders, "b.csv"), csv(line(13, quantity=5), line(31, quantity=6)))
    put(key(orders, "c.csv"), csv(line(32, quantity=7)))
    assert {a[-1] for a in accounts(loading(tens, HOUR)).values()} == {0}
    assert quantities(spark, orders) == {10: 5, 20: 4, 30: 7}
    versions = {row.source_version for row in spark.table(orders.table.identifier).select("source_version").collect()}
    assert not [version for version in versions if "\n" in version]
    assert loading(tens, HOUR).files_read == 0


def test_rows_dropped_by_a_transform_are_reported_as_unaccounted(loading: Loading, put: Put, orders: Load) -> None:
    put(key(orders, "a.csv"), csv(line(1), line(2), line(3)))
    put(key(orders, "b.csv"), csv(line(4)))
    wrong = dataclasses.replace(orders, transform=lambda rows: orders.transform(rows).where("order_id <> 2"))
    assert accounts(loading(wrong, HOUR)) == {"a.csv": (3, 2, 0, 0, 1), "b.csv": (1, 1, 0, 0, 0)}


def test_rows_lost_or_doubled_by_a_commit_are_reported_as_unaccounted(
    loading: Loading, put: Put, orders: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(key(orders, "a.csv"), csv(line(1), line(2), line(3)))
    commit = loading_module._commit

    def committing(change: Callable[[DataFrame], DataFrame], code_version: str) -> int:
        """How many rows of the file are unaccounted for when a commit changes rows."""
        monkeypatch.setattr(
            loading_module,
            "_commit",
            lambda load, found, good, run_id, **how: commit(load, found, change(good), run_id, **how),
        )
        return accounts(loading(dataclasses.replace(orders, code_version=code_version), HOUR))["a.csv"][-1]

    assert committing(lambda good: good.where("order_id <> 2"), "one lost") == 1
    assert committing(lambda good: good.where("order_id = 2"), "two lost") == 2
    assert committing(lambda good: good.unionAll(good), "twice") == -3


def test_rows_added_by_a_transform_are_counted_as_added(
    spark: SparkSession, put: Put, loading: Loading, orders: Load
) -> None:
    def with_halves(rows: DataFrame) -> DataFrame:
        halves = F.explode(F.array(F.col("line_number"), F.col("line_number") + 100))
        return orders.transform(rows.withColumn("line_number", halves))

    halved = dataclasses.replace(orders, transform=with_halves)
    put(key(orders, "a.csv"), csv(line(1), line(2), line(2, quantity=7), BAD))
    (account,) = loading(halved, HOUR).accounts
    assert (account.landed, account.added, account.in_table, account.rejected) == (4, 3, 4, 1)
    assert (account.superseded, account.unaccounted) == (2, 0)
    assert "the transform added 3, 4 are in the table" in str(account)
