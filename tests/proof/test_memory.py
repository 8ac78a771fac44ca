"""What a run holds in memory, however many rows are in small files: Parquet makes a megabyte of millions."""

import dataclasses
import io
import multiprocessing
import os
import resource
import uuid
from concurrent.futures import ProcessPoolExecutor

import boto3
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from dagster_tidemark.lakehouse.loading.load import Load, run_load
from dagster_tidemark.lakehouse.readers import small_files
from dagster_tidemark.lakehouse.session import new_session
from dagster_tidemark.settings import Settings, load_settings
from dagster_tidemark.sources.s3 import S3Bucket
from tests.proof.conftest import Report
from tests.toys import feeds, schemas
from tests.toys.schemas import order_lines

DAYS, ROWS = 30, 90_000
_MOST_MB = 1_500
_DIFFERENT = 1 << 24, 1 << 14


@pytest.mark.timeout(1800)
def test_load_of_thirty_row_heavy_small_files_has_bounded_memory(
    cloud: Settings, spark_server: Settings, report: Report
) -> None:
    load = _load(f"t{uuid.uuid4().hex[:8]}")
    hours = [f"2026-10-{day:02}-07:00" for day in range(1, DAYS + 1)]
    client = boto3.client("s3", **cloud.aws_options())
    sizes = []
    for n, hour in enumerate(hours):
        body = _file(n, hour)
        sizes.append(len(body))
        client.put_object(Bucket=cloud.landing_bucket, Key=f"{load.feed.prefix_of(hour)}a.parquet", Body=body)
    # In a process of its own, since a process never tells less than the most it ever had.
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        rows, before, most = pool.submit(_loaded, spark_server.exports(), load.feed.name, hours).result()
    report(
        "memory",
        {
            "files": DAYS,
            "rows": rows,
            "largest file, MB": round(max(sizes) / 1e6, 2),
            "process before the load, MB": before,
            "most during the load, MB": most,
        },
    )
    assert rows == DAYS * ROWS
    assert 0.85 * small_files.SMALL < min(sizes) <= max(sizes) <= small_files.SMALL
    assert most <= _MOST_MB


def _load(tag: str) -> Load:
    feed = dataclasses.replace(feeds.ORDERS, name=tag, prefix=f"{tag}/orders/")
    return Load(feed, dataclasses.replace(schemas.ORDERS, name=f"test.{tag}"), order_lines, code_version="1")


def _file(n: int, hour: str) -> bytes:
    numbers, random = pa.array(range(ROWS)), np.random.default_rng(n)
    same = [pa.repeat(pa.scalar(value), ROWS) for value in (1, 5, 3)]
    # Such that a file has the megabyte up to which files are read in a run's memory.
    differing = [pa.array(random.integers(most, size=ROWS)) for most in _DIFFERENT]
    at = pa.repeat(pa.scalar(f"{hour[:10]}T07:15:00Z"), ROWS)
    names = ["order_id", "line_number", "customer_id", "product_id", "store_id", "quantity"]
    rest = {
        "unit_price_usd": pa.repeat(pa.scalar("1.25"), ROWS),
        "discount": pa.repeat(pa.scalar("0.1"), ROWS),
        "ordered_at": at,
    }
    table = pa.table(dict(zip(names, [pc.add(numbers, n * ROWS), same[0], *differing, *same[1:]], strict=True)) | rest)
    buffer = io.BytesIO()
    pq.write_table(table, buffer, compression="zstd")
    return buffer.getvalue()


def _loaded(environment: dict[str, str], tag: str, hours: list[str]) -> tuple[int, int, int]:
    """Load these hours in this process; the rows, and the most memory it ever had before and after, in MB."""
    os.environ.update(environment)
    settings = load_settings()
    load = _load(tag)
    landing = S3Bucket(lambda: boto3.client("s3", **settings.aws_options()), settings.landing_bucket)
    spark = new_session(settings)
    before = most_megabytes()
    try:
        loaded = run_load(spark, landing, load, hours, run_id="memory")
    finally:
        spark.stop()
    return sum(content.rows for content in loaded.content.values()), before, most_megabytes()


def most_megabytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
