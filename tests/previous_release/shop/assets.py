"""The assets of the shop."""

from collections.abc import Iterable, Iterator
from datetime import timedelta
from itertools import groupby
from operator import itemgetter

import dagster as dg
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from dagster_tidemark import LakehouseResource, feed_assets, shipped
from shop import feeds, streams, tables

HOURS = dg.HourlyPartitionsDefinition("2026-11-23-00:00", end_offset=1)
DAYS = dg.DailyPartitionsDefinition("2026-11-23", end_offset=1)
WEEKS = dg.WeeklyPartitionsDefinition("2026-11-23", day_offset=1, end_offset=1)
WITHIN = dg.TimeWindowPartitionMapping(allow_nonexistent_upstream_partitions=True)
EPISODES = pa.schema(
    {"device_id": pa.string(), "started_at": pa.timestamp("us", "UTC"), "last_at": pa.timestamp("us", "UTC")}
)

raw_sales, core_sales = feed_assets(
    feeds.SALES,
    tables.SALES,
    partitions_def=HOURS,
    code_version="1",
    freshness_policy=dg.FreshnessPolicy.time_window(fail_window=timedelta(minutes=30)),
    tags={"tidemark/pace": "asap"},
)


@dg.asset(
    key=["marts", "daily"],
    ins={"sales": dg.AssetIn(key=["core", "sales"], partition_mapping=WITHIN)},
    partitions_def=DAYS,
    freshness_policy=dg.FreshnessPolicy.time_window(fail_window=timedelta(hours=24)),
    backfill_policy=dg.BackfillPolicy.single_run(),
    code_version="1",
    tags={"tidemark/pace": "asap"},
    check_specs=[dg.AssetCheckSpec("some", asset=["marts", "daily"], blocking=True)],
)
def daily(context: dg.AssetExecutionContext, sales: DataFrame) -> Iterator[dg.Output[DataFrame] | dg.AssetCheckResult]:
    """One row per day: its sales."""
    by_day = sales.groupBy(F.to_date("hour").alias("day"))
    yield dg.Output(
        by_day.agg(F.count("*").alias("sales"), F.sum("amount_usd").cast("decimal(18,2)").alias("amount_usd"))
    )
    yield dg.AssetCheckResult(passed=True, check_name="some", asset_key=["marts", "daily"])


@dg.asset(
    key=["marts", "weekly"],
    ins={"daily": dg.AssetIn(key=["marts", "daily"], partition_mapping=WITHIN)},
    partitions_def=WEEKS,
    freshness_policy=dg.FreshnessPolicy.cron(deadline_cron="0 9 * * 1", lower_bound_delta=timedelta(hours=1)),
    backfill_policy=dg.BackfillPolicy.single_run(),
    code_version="1",
)
def weekly(daily: DataFrame) -> DataFrame:
    """One row per week: its sales."""
    return daily.groupBy(F.date_trunc("week", "day").cast("date").alias("week")).agg(F.sum("sales").alias("sales"))


readings = dg.AssetSpec(key=["raw", "readings"], partitions_def=HOURS)


@dg.asset(
    key=["alerts", "warm"],
    deps=[dg.AssetDep(["raw", "readings"], metadata={"use_latest": True})],
    code_version="1",
    tags={"tidemark/pace": "asap"},
)
def alerts_warm(context: dg.AssetExecutionContext, lakehouse: LakehouseResource) -> dg.MaterializeResult:  # type: ignore[type-arg]
    """One row per alert."""
    return lakehouse.reevaluate(context, streams.READINGS, _episodes)


def _episodes(messages: DataFrame) -> DataFrame:
    read = messages.select("device_id", "read_at", "temperature_c")
    by_sensor = read.repartition("device_id").sortWithinPartitions("device_id", "read_at")
    return by_sensor.mapInArrow(shipped(_found), "device_id string, started_at timestamp, last_at timestamp")


def _found(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    rows = (row for batch in batches for row in batch.to_pylist())
    found = [
        {"device_id": device, "started_at": episode.started_at, "last_at": episode.last_at}
        for device, of_sensor in groupby(rows, key=itemgetter("device_id"))
        for episode in streams.warm(of_sensor)
    ]
    yield pa.RecordBatch.from_pylist(found, EPISODES)


ASSETS = [raw_sales, core_sales, daily, weekly, readings, alerts_warm]
