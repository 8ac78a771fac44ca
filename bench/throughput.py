"""Rows per second of core/orders and marts/sales_daily, against two scripts, on the same Spark server.

Contestants: this project; a script that validates as the project does (`plain`); for core/orders also a script without
validation (`naive`), whose time is the cost of reading and writing. Method: in turns, all read the same 24 CSV files of
one day from S3 into empty tables. A figure is the time of the asset's run in this process, including Dagster's events,
listing, validation, quarantine, commit and content version, or the time of the script's function. Each creates its own
session and stops it. The tables of the first two must hold the same rows, including rejected ones.
"""

import logging
import os
import statistics
import time
from collections.abc import Callable
from random import Random
from typing import Any

import boto3
import dagster as dg
from pyspark.sql import SparkSession

from bench import naive, plain
from dagster_tidemark import build_definitions
from dagster_tidemark.lakehouse.session import new_session
from dagster_tidemark.settings import Settings
from pipelines.definitions import ASSETS, TABLES
from pipelines.feeds import FEEDS

Work = Callable[[], object]

DAY = "2026-10-05"
_HOURS = [f"{DAY}-{hour:02}:00" for hour in range(24)]
_BAD_EVERY = 5_000
_SAME = """SELECT count(*), sum(revenue_usd), sum(quantity), bit_xor(xxhash64(order_id, line_number, customer_id,
    product_id, store_id, quantity, unit_price_usd, discount, ordered_at, hour, revenue_usd, source_file,
    source_version, arrived_at)) FROM lake.core.orders"""
_SOLD = """SELECT count(*), sum(revenue_usd), bit_xor(xxhash64(day, product_id, quantity, revenue_usd))
    FROM lake.marts.sales_daily"""
_REJECTED = "SELECT count(*), bit_xor(xxhash64(source_file, row_number, content, reason)) FROM lake.ops.quarantine"


def measure(settings: Settings, *, lines: int, rounds: int, warm_up: bool = True) -> dict[str, Any]:
    """Return the rows per second of each contestant, and the ratios of the medians.

    Args:
        settings: Settings of an idle local cloud and Spark server.

    Raises:
        AssertionError: the project and the validating script made different tables.
    """
    os.environ.update(settings.exports())
    logging.getLogger("dagster").setLevel(logging.WARNING)
    s3 = boto3.client("s3", **settings.aws_options())
    _put_day(s3, settings.landing_bucket, lines)
    checks = {"core/orders": (_SAME, _REJECTED), "marts/sales_daily": (_SOLD,)}
    spark = new_session(settings)
    try:
        with dg.DagsterInstance.ephemeral() as instance:
            work = _contestants(settings, s3, instance)
            seconds = _rounds(spark, work, checks, range(0 if warm_up else 1, rounds + 1))
    finally:
        spark.stop()  # an open session would wait for minutes after its server has ended
    return {
        "what": f"{lines} order lines of one day in 24 CSV files",
        "tables": {table: _summary(by, lines) for table, by in seconds.items()},
    }


def _rounds(
    spark: SparkSession, work: dict[str, dict[str, Work]], checks: dict[str, tuple[str, ...]], numbers: range
) -> dict[str, dict[str, list[float]]]:
    """Return the seconds of each round, by table and contestant, without round 0, which warms up."""
    seconds: dict[str, dict[str, list[float]]] = {table: {name: [] for name in by} for table, by in work.items()}
    names = ["naive", "script", "tidemark"]
    for number in numbers:
        made: dict[str, list[Any]] = {}
        for name in reversed(names) if number % 2 else names:
            _drop_tables(spark)
            for table, by in work.items():
                if name not in by:
                    continue
                begun = time.monotonic()
                by[name]()
                took = time.monotonic() - begun
                print(f"round {number} {table} {name}: {took:.1f} s", flush=True)
                if number:
                    seconds[table][name].append(took)
                if name == "naive":
                    continue
                found = [tuple(spark.sql(query).collect()[0]) for query in checks[table]]
                assert made.setdefault(table, found) == found, f"{table}: expected {made[table]}, found {found}"
    return seconds


def _contestants(settings: Settings, s3: Any, instance: dg.DagsterInstance) -> dict[str, dict[str, Work]]:
    """Return the functions to time, by table and contestant."""
    job = build_definitions(settings, ASSETS, FEEDS, TABLES).resolve_implicit_global_asset_job_def()
    day_of_hours = {"dagster/asset_partition_range_start": _HOURS[0], "dagster/asset_partition_range_end": _HOURS[-1]}

    def asset(key: str, tags: dict[str, str]) -> Work:
        chosen = [dg.AssetKey.from_user_string(key)]
        return lambda: job.execute_in_process(asset_selection=chosen, instance=instance, tags=tags)

    def script(work: Callable[[SparkSession], None]) -> Work:
        def run() -> None:
            spark = plain.new_session(settings.spark_remote or "")
            try:
                plain.create_tables(spark)
                work(spark)
            finally:
                spark.stop()

        return run

    return {
        "core/orders": {
            "tidemark": asset("core/orders", day_of_hours),
            "script": script(lambda spark: plain.load_orders(spark, s3, settings.landing_bucket, _HOURS)),
            "naive": script(lambda spark: naive.load_orders(spark, s3, settings.landing_bucket, _HOURS)),
        },
        "marts/sales_daily": {
            "tidemark": asset("marts/sales_daily", {"dagster/partition": DAY}),
            "script": script(lambda spark: plain.sales_daily(spark, [DAY])),
        },
    }


def _summary(seconds: dict[str, list[float]], lines: int) -> dict[str, Any]:
    rates = {name: lines / statistics.median(values) for name, values in seconds.items()}
    return {
        "ratio": {name: round(rates["tidemark"] / rate, 2) for name, rate in rates.items() if name != "tidemark"},
        "rows per second": {name: round(rate) for name, rate in rates.items()},
        "raw seconds": {name: [round(s, 2) for s in values] for name, values in seconds.items()},
    }


def _drop_tables(spark: SparkSession) -> None:
    """Drop the tables of the previous contestant, so that each creates its own."""
    for table in ("core.orders", "ops.quarantine", "marts.sales_daily"):
        spark.sql(f"DROP TABLE IF EXISTS lake.{table} PURGE")


def _put_day(s3: Any, bucket: str, lines: int) -> None:
    random = Random(0)
    for hour in range(24):
        rows = [",".join(plain.COLUMNS)]
        for line in range(lines // 24):
            product = random.randrange(500)
            discount = "2" if line % _BAD_EVERY == 1 else random.choice(("0", "0.1", "0.25"))
            rows.append(
                f"{hour * lines + line // 4},{line % 4},{random.randrange(10_000)},{product},{random.randrange(20)},"
                f"{random.randrange(1, 9)},{product % 30}.{random.randrange(10_000):04},{discount},"
                f"{DAY}T{hour:02}:{line % 60:02}:{line % 59:02}Z"
            )
        body = "\n".join(rows).encode() + b"\n"
        s3.put_object(Bucket=bucket, Key=f"orders/dt={DAY}/hour={hour:02}/till.csv", Body=body)
