"""marts/order_stats: orders and revenue per customer segment."""

from datetime import timedelta

import dagster as dg
from pyspark.sql import DataFrame

from pipelines.partitions import DAYS, WITHIN
from pipelines.transforms.order_stats import order_stats as transform


@dg.asset(
    key=["marts", "order_stats"],
    ins={
        "orders": dg.AssetIn(key=["core", "orders"], partition_mapping=WITHIN),
        # A new customers file changes the statistics of the last days, not of earlier years.
        "customers": dg.AssetIn(key=["core", "customers"], metadata={"ripple_days": 7}),
    },
    group_name="marts",
    kinds={"iceberg", "pyspark"},
    owners=["team:sales"],
    partitions_def=DAYS,
    freshness_policy=dg.FreshnessPolicy.time_window(fail_window=timedelta(hours=24)),
    backfill_policy=dg.BackfillPolicy.single_run(),
    code_version="1",
)
def order_stats(orders: DataFrame, customers: DataFrame) -> DataFrame:
    """One row per customer segment and day: orders, lines, buyers and revenue; `unknown` without a customer."""
    return transform(orders, customers)
