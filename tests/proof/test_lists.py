"""How many LISTs a load costs that has nothing to do, in a bucket with a long past and much beside its feed's files."""

import uuid
from concurrent.futures import ThreadPoolExecutor
from datetime import date, timedelta

import boto3
import pytest
from pyspark.sql import SparkSession

from dagster_tidemark.lakehouse.loading.load import Load, Loaded, run_load
from dagster_tidemark.settings import Settings
from dagster_tidemark.sources.s3 import S3Bucket
from tests.proof.conftest import Report
from tests.tidemark.lakehouse.conftest import csv, line, renamed
from tests.toys import feeds, schemas
from tests.toys.schemas import order_lines

START, OBJECTS, MOST = date(2026, 9, 28), 3_000, 10


class Counted:
    """A bucket, and the LIST requests that were sent."""

    def __init__(self, settings: Settings) -> None:
        self.lists = 0
        client = boto3.client("s3", **settings.aws_options())
        client.meta.events.register("before-send.s3.ListObjectsV2", self._count)
        self.bucket = S3Bucket(lambda: client, settings.landing_bucket)

    def _count(self, **_: object) -> None:
        self.lists += 1


@pytest.fixture
def counted(cloud: Settings) -> Counted:
    return Counted(cloud)


def test_load_without_changes_lists_no_more_with_a_long_history(
    counted: Counted, cloud: Settings, spark: SparkSession, report: Report
) -> None:
    load = renamed(Load(feeds.ORDERS, schemas.ORDERS, order_lines, "1"))
    hours = [f"{START + timedelta(days=d)}-{h:02}:00" for d in range(3) for h in range(24)]
    past = [
        f"{load.feed.prefix}dt={START - timedelta(days=n // 24 + 1)}/hour={n % 24:02}/a.csv" for n in range(OBJECTS)
    ]
    beside = [f"{load.feed.prefix}backup/{n}/a.csv" for n in range(OBJECTS)]
    client = boto3.client("s3", **cloud.aws_options())
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda k: client.put_object(Bucket=cloud.landing_bucket, Key=k, Body=b"x"), past + beside))
    for n, hour in enumerate(hours):
        key = f"{load.feed.prefix_of(hour)}a.csv"
        client.put_object(Bucket=cloud.landing_bucket, Key=key, Body=csv(line(n)).encode())
    figures = {}
    for name, partitions in {"an hour": hours[-1:], "ten hours": hours[-10:], "three days": hours}.items():
        _loaded(load, counted, spark, partitions)
        counted.lists = 0
        done = _loaded(load, counted, spark, partitions)
        assert not done.read_again and not done.added_to
        figures[name] = counted.lists
    report("lists", {"objects before the start": OBJECTS, "objects beside": OBJECTS, "LISTs of a load": figures})
    assert max(figures.values()) <= MOST


def _loaded(load: Load, counted: Counted, spark: SparkSession, partitions: list[str]) -> Loaded:
    return run_load(spark, counted.bucket, load, partitions, run_id=str(uuid.uuid4()))
