"""Many small files that arrive one after the other, and what a load fetches of them."""

import json
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from random import Random

from pyspark.sql import SparkSession

from dagster_tidemark.lakehouse.loading.load import Load, run_load
from dagster_tidemark.settings import Settings
from dagster_tidemark.sources.s3 import S3Bucket
from tests.toys.files import ORDER_FORMATS, OrderLine


@dataclass(frozen=True)
class Fetched:
    """Bytes that arrived, and bytes the server handed out for them; rows, and how many loads there were."""

    arrived: int
    fetched: int
    rows: int
    loads: int

    @property
    def ratio(self) -> float:
        return self.fetched / self.arrived


def arrive(
    spark: SparkSession,
    landing: S3Bucket,
    load: Load,
    cloud: Settings,
    *,
    hours: Sequence[str],
    files: int,
    at_once: int,
    lines: int = 40,
    endings: Sequence[str] = tuple(suffix for suffix, _ in ORDER_FORMATS),
    seed: int = 7,
) -> Fetched:
    """Put files into each hour, in order, and load the hour after every `at_once` of them."""
    formats = [of for of in ORDER_FORMATS if of[0] in endings]
    random = Random(seed)
    arrived = rows = loads = number = 0
    for hour in hours:
        begin = load.feed.layout.times.window(hour)[0]
        for n in range(files):
            suffix, encode = formats[number % len(formats)]
            body = encode(_lines(number, begin, lines, random), random)
            landing._client.put_object(Bucket=landing.name, Key=f"{load.feed.prefix_of(hour)}{n:05}{suffix}", Body=body)
            arrived += len(body)
            number += 1
            if (n + 1) % at_once == 0 or n + 1 == files:
                held = run_load(spark, landing, load, [hour], run_id=f"{load.table.name}-{loads}").content[hour]
                loads += 1
        rows += held.rows
    return Fetched(arrived, _fetched(cloud, load), rows, loads)


def _lines(number: int, start: datetime, count: int, random: Random) -> list[OrderLine]:
    return [
        OrderLine(
            order_id=number,
            line_number=n,
            customer_id=random.randint(1, 99),
            product_id=random.randint(1, 99),
            store_id=random.randint(1, 9),
            quantity=random.randint(1, 9),
            unit_price_usd=Decimal(random.randint(1, 99_999)) / 10_000,
            discount=Decimal(random.randint(0, 50)) / 100,
            ordered_at=start + timedelta(seconds=random.randint(0, 3_599)),
        )
        for n in range(1, count + 1)
    ]


def _fetched(cloud: Settings, load: Load) -> int:
    with urllib.request.urlopen(f"{cloud.aws_endpoint_url}/_fetched") as reply:
        found: dict[str, int] = json.load(reply)
    return found[load.feed.prefix.partition("/")[0]]
