"""marts/margin_hourly: what was earned."""

from datetime import timedelta

import dagster as dg
from pyspark.sql import DataFrame

from pipelines.lakehouse.io_manager import table_metadata
from pipelines.partitions import HOURS, WITHIN
from pipelines.schemas import marts
from pipelines.transforms import margin


@dg.asset(
    key=["marts", "margin_hourly"],
    ins={
        "orders": dg.AssetIn(key=["core", "orders"]),
        "prices": dg.AssetIn(key=["core", "prices"], partition_mapping=WITHIN),
    },
    group_name="marts",
    kinds={"iceberg", "pyspark"},
    owners=["team:purchasing"],
    partitions_def=HOURS,
    freshness_policy=dg.FreshnessPolicy.time_window(fail_window=timedelta(hours=2)),
    backfill_policy=dg.BackfillPolicy.single_run(),
    code_version="1",
    metadata=table_metadata(marts.MARGIN_HOURLY),
)
def margin_hourly(orders: DataFrame, prices: DataFrame) -> DataFrame:
    """A product's hour."""
    return margin.margin_hourly(orders, prices)
