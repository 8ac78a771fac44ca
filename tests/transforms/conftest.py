"""The inner loop: `pytest tests/transforms` needs Java and a few seconds, no server and no jars."""

from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession, is_remote

from pipelines.schemas.core import CUSTOMERS, ORDERS, PRICES
from pipelines.tidemark.lakehouse.session import new_session
from pipelines.tidemark.lakehouse.tables import Table

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
    return builder.config(map=conf).getOrCreate()


_ARROW = {
    "bigint": pa.int64(),
    "string": pa.string(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "decimal(18,4)": pa.decimal128(18, 4),
    "decimal(18,8)": pa.decimal128(18, 8),
}


def _frames(spark: SparkSession, table: Table, defaults: Mapping[str, object]) -> MakeFrame:
    schema = pa.schema([(name, _ARROW[sql_type]) for name, sql_type in table.columns.items()])

    def make(*rows: Mapping[str, object]) -> DataFrame:
        for row in rows:
            assert row.keys() <= table.columns.keys(), f"{table.name} has no such column: {row}"
        # Through Arrow: plain rows would start a Python worker, which costs more than the test.
        return spark.createDataFrame(pa.Table.from_pylist([{**defaults, **row} for row in rows], schema))

    return make


@pytest.fixture
def orders(spark: SparkSession) -> MakeFrame:
    """Makes core/orders from rows that name only the columns a test is about."""
    defaults = {
        "order_id": 1,
        "line_number": 1,
        "customer_id": 1,
        "product_id": 1,
        "store_id": 1,
        "quantity": 1,
        "unit_price_usd": Decimal("1"),
        "discount": Decimal("0"),
        "ordered_at": datetime(2026, 11, 20, 7, 30, tzinfo=UTC),
        "hour": datetime(2026, 11, 20, 7, tzinfo=UTC),
        "revenue_usd": Decimal("1"),
    }
    return _frames(spark, ORDERS, defaults)


@pytest.fixture
def customers(spark: SparkSession) -> MakeFrame:
    """Makes core/customers."""
    return _frames(spark, CUSTOMERS, {"customer_id": 1, "segment": "household"})


@pytest.fixture
def prices(spark: SparkSession) -> MakeFrame:
    """Makes core/prices."""
    return _frames(spark, PRICES, {"product_id": 1, "cost_usd": Decimal("0.5")})
