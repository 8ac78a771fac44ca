"""Two runs of one mart partition at once, a person's and the planner's: the table is a fresh build in the end.

The planner never starts a second run beside one in flight; the UI and backfills do. Whichever of the two looked first
and whichever commits first, the one that comes second finds that it was overtaken, and computes again.
"""

import threading
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import product

import pytest
from pyspark.sql import DataFrame, SparkSession

from dagster_tidemark.lakehouse import catalog, write
from dagster_tidemark.lakehouse.read import read
from dagster_tidemark.lakehouse.session import new_session
from dagster_tidemark.lakehouse.table import Table
from dagster_tidemark.settings import Settings
from tests.sampling import sample

DAY = "2026-10-01"


@pytest.fixture
def new_spark(spark_server: Settings) -> Iterator[Callable[[], SparkSession]]:
    """Makes sessions, one a run."""
    made: list[SparkSession] = []

    def make() -> SparkSession:
        made.append(new_session(spark_server))
        return made[-1]

    yield make
    for session in made:
        session.stop()


class Turns:
    """Steps of two threads in an order that is given; whoever asks waits for its turn."""

    def __init__(self, *order: tuple[str, str]) -> None:
        self._left = list(order)
        self._changed = threading.Condition()

    def wait_for(self, step: tuple[str, str]) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: self._left[0] == step, timeout=120), f"never came to {step}"

    def done(self) -> None:
        with self._changed:
            self._left.pop(0)
            self._changed.notify_all()


def days(spark: SparkSession, number: int) -> DataFrame:
    return spark.createDataFrame([(DAY, number)], "day string, n bigint").selectExpr("CAST(day AS DATE) day", "n")


# Both do the same, so the other two pairs show nothing else.
@pytest.mark.parametrize(
    ("looks_first", "commits_first"),
    sample(product(["person", "planner"], repeat=2), ("person", "person"), ("person", "planner")),
)
def test_overlapping_runs_of_a_partition_leave_the_result_of_a_fresh_build(
    new_spark: Callable[[], SparkSession], monkeypatch: pytest.MonkeyPatch, looks_first: str, commits_first: str
) -> None:
    other = {"person": "planner", "planner": "person"}
    turns = Turns(
        (looks_first, "look"), (other[looks_first], "look"), (commits_first, "commit"), (other[commits_first], "commit")
    )
    columns = {"day": "date", "n": "bigint"}
    name = f"test.t{uuid.uuid4().hex[:8]}"
    source, mart = (Table(f"{name}_{part}", columns, ("day",), "day") for part in ("source", "mart"))
    spark = new_spark()
    for table in (source, mart):
        catalog.ensure(spark, table)

    def lands(number: int) -> None:
        write.overwrite(days(spark, number), source, [DAY], run_id=str(uuid.uuid4()))

    real, looked, conflicts = write.current_snapshot, set[str](), []

    def look(session: SparkSession, table: Table) -> int | None:
        me = threading.current_thread().name
        if table is not mart:
            return real(session, table)
        if me in looked:
            conflicts.append(me)
            return real(session, table)
        looked.add(me)
        turns.wait_for((me, "look"))
        before = real(session, table)
        lands(10 + len(looked))  # something lands between the looks of the two
        turns.done()
        turns.wait_for((me, "commit"))
        return before

    def run(me: str) -> None:
        threading.current_thread().name = me
        session = new_spark()
        # Doubled, so that what is in the mart was computed and not copied.
        frame = read(session, source, [DAY]).selectExpr("day", "n * 2 AS n")
        write.overwrite(frame, mart, [DAY], run_id=me)
        lands(20 + len(conflicts)) if me == commits_first else None
        turns.done()

    lands(1)
    write.overwrite(days(spark, 0), mart, [DAY], run_id="before")
    monkeypatch.setattr(write, "current_snapshot", look)
    with ThreadPoolExecutor(2) as pool:
        for done in [pool.submit(run, me) for me in other]:
            done.result()
    fresh = [row.n * 2 for row in read(spark, source, [DAY]).collect()]
    assert [row.n for row in read(spark, mart, [DAY]).collect()] == fresh == [40]
    assert conflicts == [other[commits_first]], "the second was overtaken, once"
