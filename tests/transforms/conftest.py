"""The inner loop: `pytest tests/transforms` needs Java and a few seconds, no server and no jars."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession, is_remote

from dagster_tidemark.lakehouse.session import new_session
from dagster_tidemark.lakehouse.table import Table
from dagster_tidemark.testing import frame_of, local_session

HERE = Path(__file__).parent
MakeFrame = Callable[..., DataFrame]


@pytest.fixture(scope="package")
def spark(request: pytest.FixtureRequest) -> Iterator[SparkSession]:
    """A local session; the shared server's where another test of this process already speaks Spark Connect.

    One process cannot mix the two: once it speaks Connect, `functions` builds Connect columns only. Stopped after
    this folder's tests, so that later ones may still connect.
    """
    if is_remote():
        session = new_session(request.getfixturevalue("spark_server"))
        yield session
        session.stop()
    else:
        with local_session() as session:
            yield session


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    # A classic session's collect() leaves the socket it read from to the garbage collector.
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"))


def frames_of(spark: SparkSession, table: Table, defaults: Mapping[str, object]) -> MakeFrame:
    """Makes frames of a table from rows that name only the columns a test is about."""

    def make(*rows: Mapping[str, object]) -> DataFrame:
        return frame_of(spark, table, *[{**defaults, **row} for row in rows])

    return make
