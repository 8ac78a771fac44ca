"""marts/sales_hourly and marts/sales_daily: sales per store and hour, and per product and day."""

from datetime import timedelta

import dagster as dg
from pyspark.sql import DataFrame

from pipelines.partitions import DAYS, HOURS, WITHIN
from pipelines.transforms import sales


@dg.asset(
    key=["marts", "sales_hourly"],
    ins={"orders": dg.AssetIn(key=["core", "orders"])},
    group_name="marts",
    kinds={"iceberg", "pyspark"},
    owners=["team:sales"],
    partitions_def=HOURS,
    freshness_policy=dg.FreshnessPolicy.time_window(fail_window=timedelta(minutes=60)),
    backfill_policy=dg.BackfillPolicy.single_run(),
    code_version="1",
)
def sales_hourly(orders: DataFrame) -> DataFrame:
    """One row per store and hour: its orders, order lines, units and revenue, from core/orders."""
    return sales.sales_hourly(orders)


@dg.asset(
    key=["marts", "sales_daily"],
    ins={"orders": dg.AssetIn(key=["core", "orders"], partition_mapping=WITHIN)},
    group_name="marts",
    kinds={"iceberg", "pyspark"},
    owners=["team:sales"],
    partitions_def=DAYS,
    freshness_policy=dg.FreshnessPolicy.time_window(fail_window=timedelta(hours=24)),
    backfill_policy=dg.BackfillPolicy.single_run(),
    code_version="1",
)
def sales_daily(orders: DataFrame) -> DataFrame:
    """One row per product and day: units and revenue, from the day's 24 hours of core/orders."""
    return sales.sales_daily(orders)
