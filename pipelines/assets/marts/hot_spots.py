"""marts/hot_spots: sensors that were too warm, and for how long."""

from datetime import UTC, datetime, timedelta

import dagster as dg
from pyspark.sql import DataFrame

from pipelines.partitions import HOURS, WITH_HOUR_BEFORE
from pipelines.transforms.hot_spots import hot_spots as transform


@dg.asset(
    key=["marts", "hot_spots"],
    # The last reading of an hour is still valid in the next hour.
    ins={"readings": dg.AssetIn(key=["core", "readings"], partition_mapping=WITH_HOUR_BEFORE)},
    group_name="marts",
    kinds={"iceberg", "pyspark"},
    owners=["team:operations"],
    partitions_def=HOURS,
    freshness_policy=dg.FreshnessPolicy.time_window(fail_window=timedelta(minutes=30)),
    backfill_policy=dg.BackfillPolicy.single_run(),
    code_version="1",
)
def hot_spots(context: dg.AssetExecutionContext, readings: DataFrame) -> DataFrame:
    """One row per sensor and hour: how long it was above 8 degrees Celsius, and the highest reading."""
    hours = [datetime.strptime(hour, "%Y-%m-%d-%H:%M").replace(tzinfo=UTC) for hour in context.partition_keys]
    return transform(readings, hours=hours)
