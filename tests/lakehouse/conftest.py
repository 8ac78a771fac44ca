"""A landing bucket on the real cloud, and a way to run a load against the real Spark server."""

import dataclasses
import uuid
from collections.abc import Callable

import boto3
import pytest
from pyspark.sql import SparkSession

from pipelines.lakehouse.load import Load, Loaded, run_load
from pipelines.settings import Settings
from pipelines.sources.feed import Feed, Partition
from pipelines.sources.s3 import S3Bucket


@pytest.fixture(scope="session")
def landing(cloud: Settings) -> S3Bucket:
    return S3Bucket(boto3.client("s3", **cloud.aws_options()), cloud.landing_bucket)


@pytest.fixture
def put(landing: S3Bucket) -> Callable[[str, str | bytes], None]:
    def _put(key: str, body: str | bytes) -> None:
        body = body if isinstance(body, bytes) else body.encode()
        landing._client.put_object(Bucket=landing.name, Key=key, Body=body)

    return _put


@pytest.fixture
def loading(spark: SparkSession, landing: S3Bucket) -> Callable[..., Loaded]:
    def _load(load: Load, *partitions: Partition) -> Loaded:
        return run_load(spark, landing, load, partitions, run_id=str(uuid.uuid4()))

    return _load


def renamed(load: Load) -> Load:
    """The same load on a feed and table of its own, so that tests do not meet."""
    tag = f"t{uuid.uuid4().hex[:8]}"
    prefix = f"{tag}/{load.feed.prefix}"
    feed: Feed = dataclasses.replace(load.feed, name=tag, prefix=prefix)
    return dataclasses.replace(load, feed=feed, table=dataclasses.replace(load.table, name=f"test.{tag}"))
