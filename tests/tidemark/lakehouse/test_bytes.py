"""Every byte leaves the bucket once: counted at the server, whoever asked."""

import pytest
from pyspark.sql import SparkSession

from dagster_tidemark.lakehouse.loading.load import Load
from dagster_tidemark.lakehouse.readers import small_files
from dagster_tidemark.settings import Settings
from dagster_tidemark.sources.s3 import S3Bucket
from tests.sampling import sample
from tests.tidemark.lakehouse.arriving import arrive


def test_small_files_are_fetched_from_s3_exactly_once(
    spark: SparkSession, landing: S3Bucket, orders: Load, cloud: Settings
) -> None:
    fetched = arrive(spark, landing, orders, cloud, hours=["2026-10-01-07:00"], files=16, at_once=5)
    assert fetched.rows == 16 * 40
    assert fetched.fetched == fetched.arrived


@pytest.mark.parametrize(
    ("endings", "lines"),
    # The head of a large file, 64 KB, is fetched twice. A large file has more than 1 MB, and these have less.
    sample(
        [((".csv", ".parquet"), 15_000), ((".csv.gz",), 30_000), ((".jsonl",), 15_000)], ((".csv", ".parquet"), 15_000)
    ),
)
def test_large_files_are_fetched_with_at_most_20_percent_overhead(
    spark: SparkSession,
    landing: S3Bucket,
    orders: Load,
    cloud: Settings,
    monkeypatch: pytest.MonkeyPatch,
    endings: tuple[str, ...],
    lines: int,
) -> None:
    monkeypatch.setattr(small_files, "SMALL", 0)
    # With this seed the Parquet file has integers wide enough for so many lines.
    arrived = {"files": 2, "at_once": 2, "lines": lines, "endings": endings, "seed": 2}
    fetched = arrive(spark, landing, orders, cloud, hours=["2026-10-01-07:00"], **arrived)  # type: ignore[arg-type]
    assert fetched.rows == 2 * lines
    assert fetched.ratio <= 1.2
