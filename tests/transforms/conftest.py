"""The inner loop: `pytest tests/transforms` needs Java and a few seconds, no server and no jars."""

import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession, is_remote

from dagster_tidemark.lakehouse.session import new_session
from dagster_tidemark.lakehouse.tables import Table

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
    else:
        with pytest.MonkeyPatch.context() as patch:
            patch.delenv("SPARK_REMOTE", raising=False)
            session = _local_session()
    yield session
    session.stop()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    # A classic session's collect() leaves the socket it read from to the garbage collector.
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"))


def _local_session() -> SparkSession:
    builder = SparkSession.builder.master("local[2]").appName("tests/transforms")
    conf: dict[str, bool | float | int | str | None] = {
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "1",
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        # For four rows it is compiling that costs: Java's second compiler and Spark's generated classes.
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xshare:auto",
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    }
    session = builder.config(map=conf).getOrCreate()
    session.sparkContext.pythonExec = sys.executable
    return session


_ARROW = {
    "bigint": pa.int64(),
    "int": pa.int32(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "string": pa.string(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "decimal(18,4)": pa.decimal128(18, 4),
    "decimal(18,8)": pa.decimal128(18, 8),
}


def frames_of(spark: SparkSession, table: Table, defaults: Mapping[str, object]) -> MakeFrame:
    """Makes frames of a table from rows that name only the columns a test is about."""
    schema = pa.schema([(name, _ARROW[sql_type]) for name, sql_type in table.columns.items()])

    def make(*rows: Mapping[str, object]) -> DataFrame:
        for row in rows:
            assert row.keys() <= table.columns.keys(), f"{table.name} has no such column: {row}"
        # Through Arrow: plain rows would start a Python worker, which costs more than the test.
        return spark.createDataFrame(pa.Table.from_pylist([{**defaults, **row} for row in rows], schema))

    return make
