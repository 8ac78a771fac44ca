"""A day of 500 small files an hour, arriving in order: the bytes that leave the landing bucket."""

import time

import boto3
from pyspark.sql import SparkSession

from dagster_tidemark.lakehouse.loading.load import Load
from dagster_tidemark.settings import Settings
from dagster_tidemark.sources.s3 import S3Bucket
from tests.proof.conftest import Report
from tests.tidemark.lakehouse.arriving import arrive
from tests.tidemark.lakehouse.conftest import renamed
from tests.toys import feeds, schemas
from tests.toys.schemas import order_lines


def test_a_day_of_small_files_is_fetched_about_once(spark: SparkSession, cloud: Settings, report: Report) -> None:
    landing = S3Bucket(lambda: boto3.client("s3", **cloud.aws_options()), cloud.landing_bucket)
    orders = renamed(Load(feeds.ORDERS, schemas.ORDERS, order_lines, code_version="1"))
    hours = [f"2026-10-01-{h:02}:00" for h in range(24)]
    begun = time.monotonic()
    fetched = arrive(spark, landing, orders, cloud, hours=hours, files=500, at_once=25)
    report(
        "bytes",
        {
            "files": 24 * 500,
            "loads": fetched.loads,
            "bytes that arrived": fetched.arrived,
            "bytes of GET bodies, at the server": fetched.fetched,
            "ratio": round(fetched.ratio, 4),
            "seconds": round(time.monotonic() - begun),
        },
    )
    assert fetched.rows == 24 * 500 * 40
    assert fetched.ratio <= 1.2
