"""A landing bucket on the real cloud, and a way to run a load against the real Spark server."""

import dataclasses
import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import boto3
import pytest
from pyspark.sql import SparkSession

from dagster_tidemark.lakehouse.loading.load import Load, Loaded, run_load
from dagster_tidemark.lakehouse.loading.quarantine_table import QUARANTINE
from dagster_tidemark.lakehouse.readers import small_files
from dagster_tidemark.lakehouse.session import new_session
from dagster_tidemark.lakehouse.table import LINEAGE
from dagster_tidemark.settings import Settings
from dagster_tidemark.sources.feed import Feed, Partition
from dagster_tidemark.sources.s3 import S3Bucket
from tests.toys import feeds, schemas
from tests.toys.schemas import order_lines

HOUR = "2026-10-01-07:00"
HEADER = "order_id,line_number,customer_id,product_id,store_id,quantity,unit_price_usd,discount,ordered_at"

Put = Callable[[str, str | bytes], None]
Delete = Callable[[str], None]
Loading = Callable[..., Loaded]


@pytest.fixture(scope="session")
def landing(cloud: Settings) -> S3Bucket:
    return S3Bucket(lambda: boto3.client("s3", **cloud.aws_options()), cloud.landing_bucket)


@pytest.fixture
def put(landing: S3Bucket) -> Put:
    def _put(key: str, body: str | bytes) -> None:
        body = body if isinstance(body, bytes) else body.encode()
        landing._client.put_object(Bucket=landing.name, Key=key, Body=body)

    return _put


@pytest.fixture
def delete(landing: S3Bucket) -> Delete:
    return lambda key: landing._client.delete_object(Bucket=landing.name, Key=key) and None


@pytest.fixture
def loading(spark: SparkSession, landing: S3Bucket) -> Loading:
    def _load(load: Load, *partitions: Partition, **options: object) -> Loaded:
        return run_load(spark, landing, load, partitions, run_id=str(uuid.uuid4()), **options)  # type: ignore[arg-type]

    return _load


@pytest.fixture(scope="session")
def other_spark(spark_server: Settings) -> Iterator[SparkSession]:
    """A session for a load that overlaps with one on `spark`."""
    session = new_session(spark_server)
    yield session
    session.stop()


@pytest.fixture
def orders() -> Load:
    """The load of core/orders, on a feed and a table of its own."""
    return renamed(Load(feeds.ORDERS, schemas.ORDERS, order_lines, code_version="1"))


@pytest.fixture
def customers() -> Load:
    """The load of core/customers, a feed of one object, on a feed and a table of its own."""
    return renamed(Load(feeds.CUSTOMERS, schemas.CUSTOMERS, lambda rows: rows, code_version="1"))


def renamed(load: Load, **feed_options: object) -> Load:
    """The same load on a feed and table of its own, so that tests do not meet."""
    tag = f"t{uuid.uuid4().hex[:8]}"
    prefix = f"{tag}/{load.feed.prefix}"
    feed: Feed = dataclasses.replace(load.feed, name=tag, prefix=prefix, **feed_options)  # type: ignore[arg-type]
    return dataclasses.replace(load, feed=feed, table=dataclasses.replace(load.table, name=f"test.{tag}"))


def put_archived(landing: S3Bucket, name: str, body: str) -> None:
    """Put a file where it is kept and not given."""
    client: Any = landing._client
    client.put_object(Bucket=landing.name, Key=name, Body=body.encode(), StorageClass="GLACIER")


def a_second() -> None:
    """LastModified is in whole seconds on S3; the later of two files has to be one later."""
    time.sleep(1.1)


def key(load: Load, name: str, hour: str = HOUR) -> str:
    """The key of a file of an hour."""
    return load.feed.prefix_of(hour) + name


def csv(*lines: str, header: str = HEADER) -> str:
    """A CSV file of orders."""
    return "\n".join([header, *lines]) + "\n"


def line(order_id: int, quantity: int = 3, at: str = "2026-10-01T07:15:00Z") -> str:
    """A good line: the first of an order."""
    return f"{order_id},1,3,4,5,{quantity},1.25,0.1,{at}"


def rows(spark: SparkSession, load: Load) -> list[tuple[object, ...]]:
    """The rows of a load's table without their lineage, sorted."""
    columns = [c for c in load.table.columns if c not in LINEAGE]
    return sorted(tuple(r) for r in spark.table(load.table.identifier).select(*columns).collect())


def quantities(spark: SparkSession, load: Load) -> dict[int, int]:
    """Order to quantity."""
    found = spark.table(load.table.identifier).select("order_id", "quantity").collect()
    assert len({r.order_id for r in found}) == len(found), "a row key stands there twice"
    return {r.order_id: r.quantity for r in found}


def quarantined(spark: SparkSession, load: Load) -> list[tuple[str, int | None, str]]:
    """What was turned away: file name, row number (0: the file), reason."""
    found = spark.table(QUARANTINE.identifier).where(f"asset = '{load.asset}'").collect()
    return sorted((r.source_file.rpartition("/")[2], r.row_number or 0, r.reason) for r in found)


@pytest.fixture(params=["fetched", pytest.param("scanned", marks=pytest.mark.proof)])
def size(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Files are small and fetched whole, or large and scanned by Spark. Both go through one parser, so the second is a
    proof, except in tests with `both_sizes`.
    """
    if request.param == "scanned":
        monkeypatch.setattr(small_files, "SMALL", 0)
    return str(request.param)


both_sizes = pytest.mark.parametrize("size", ["fetched", "scanned"], indirect=True)
"""For a test of what depends on where files are read: in the process of the run, or on Spark's workers."""
