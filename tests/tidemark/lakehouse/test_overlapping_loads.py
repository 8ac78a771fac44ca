"""Two loads of the same partitions at once, each of which may die at each of its boundaries.

The planner never starts a second run beside one in flight; the UI and backfills do. Whoever looks first, commits first
and dies: nothing that was committed is missing at any time, and the next load makes all of it what a fresh one makes.
"""

from functools import partial

import pytest
from pyspark.sql import SparkSession

from dagster_tidemark.lakehouse.loading.load import Load
from dagster_tidemark.sources.s3 import S3Bucket
from tests.tidemark.lakehouse.conftest import Loading, Put, a_second, csv, key, line, quantities, quarantined
from tests.tidemark.lakehouse.histories import HOURS, assert_loads_once_more_into_what_is_fresh
from tests.tidemark.lakehouse.overlapping import DEATHS, Run, overlap

Cell = tuple[str, int, str | None]
"""The turns, and which of the two dies where."""

SEVEN, EIGHT = HOURS
AT = {SEVEN: "2026-10-01T07:15:00Z", EIGHT: "2026-10-01T08:15:00Z"}
TURNS = {
    "the first commits first": (0, 1, 0, 0, 0, 1, 1, 1),
    "the second commits first": (0, 1, 1, 1, 1, 0, 0, 0),
    "step by step": (0, 1, 0, 1, 0, 1, 0, 1),
}
CELLS = [(turns, who, at) for turns in TURNS for who, at in [(0, None), *((w, at) for w in (0, 1) for at in DEATHS)]]
A_FEW = [("the second commits first", 0, "after_commit")]
"""The one that lost rows; all of them are played in tests/proof."""


@pytest.fixture(params=A_FEW, ids=str)
def cell(request: pytest.FixtureRequest) -> Cell:
    found: Cell = request.param
    return found


@pytest.mark.proof  # all cells: tests/proof/test_overlapping_loads.py
def test_overlapping_loads_lose_nothing_if_either_dies(
    spark: SparkSession,
    other_spark: SparkSession,
    put: Put,
    loading: Loading,
    landing: S3Bucket,
    orders: Load,
    cell: Cell,
) -> None:
    play_cell(spark, other_spark, put, loading, landing, orders, cell)


def play_cell(
    spark: SparkSession,
    other_spark: SparkSession,
    put: Put,
    loading: Loading,
    landing: S3Bucket,
    orders: Load,
    cell: Cell,
) -> None:
    """One run finds an hour to replace and one to add to, the other comes later and finds more of both."""

    def file(hour: str, name: str, *lines: str) -> None:
        put(key(orders, name, hour), csv(*(line.replace("AT", AT[hour]) for line in lines)))

    def good(order: int, quantity: int = 3) -> str:
        return line(order, quantity, at="AT")

    bad = "99,1,3,4,5,many,1.25,0.1,AT"
    file(SEVEN, "a.csv", good(1), good(2), bad)
    file(EIGHT, "a.csv", bad, good(11))
    loading(orders, *HOURS)
    a_second()

    def before_the_first() -> None:
        file(SEVEN, "a.csv", good(1, 4), bad, good(2, 4), bad)
        file(EIGHT, "b.csv", good(12), bad)
        put(key(orders, "junk.parquet", EIGHT), b"no parquet")

    def before_the_second() -> None:
        file(SEVEN, "c.csv", bad, bad, good(3))
        put(key(orders, "more.parquet", SEVEN), b"no parquet")
        file(EIGHT, "d.csv", good(13), bad)

    committed: set[int] = set(quantities(spark, orders))
    missing: list[tuple[str, set[int]]] = []

    def watch(session: SparkSession, boundary: str) -> None:
        held = set(quantities(session, orders))
        if committed - held:
            missing.append((boundary, committed - held))
        if boundary == "after_commit":
            committed.update(held)

    turns, who, at = cell
    runs = [
        Run(session, orders, HOURS, at if who == n else None, before, partial(watch, session))
        for n, (session, before) in enumerate([(spark, before_the_first), (other_spark, before_the_second)])
    ]
    overlap(landing, runs, TURNS[turns])
    watch(spark, "the end")
    assert missing == []
    assert_loads_once_more_into_what_is_fresh(spark, landing, orders)
    assert quantities(spark, orders) == {1: 4, 2: 4, 3: 3, 11: 3, 12: 3, 13: 3}
    names = ["a.csv", "a.csv", "a.csv", "b.csv", "c.csv", "c.csv", "d.csv", "junk.parquet", "more.parquet"]
    assert [name for name, *_ in quarantined(spark, orders)] == names
