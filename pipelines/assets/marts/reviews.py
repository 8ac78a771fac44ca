"""marts/executive_rollup and marts/weekly_review: reports that are due at nine o'clock."""

from datetime import date, timedelta

import dagster as dg
from pyspark.sql import DataFrame

from pipelines.partitions import DAYS, WEEKS, WITHIN, WITHIN_AND_WEEK_BEFORE
from pipelines.transforms import reviews


@dg.asset(
    key=["marts", "executive_rollup"],
    ins={
        "orders": dg.AssetIn(key=["core", "orders"], partition_mapping=WITHIN),
        "margins": dg.AssetIn(key=["marts", "margin_hourly"], partition_mapping=WITHIN),
    },
    group_name="marts",
    kinds={"iceberg", "pyspark"},
    owners=["team:sales"],
    partitions_def=DAYS,
    # By nine o'clock, with everything that arrived by half past eight.
    freshness_policy=dg.FreshnessPolicy.cron(deadline_cron="0 9 * * *", lower_bound_delta=timedelta(minutes=30)),
    backfill_policy=dg.BackfillPolicy.single_run(),
    code_version="1",
)
def executive_rollup(orders: DataFrame, margins: DataFrame) -> DataFrame:
    """One row per day: orders, revenue, margin and the store that sold most, from core/orders and margin_hourly."""
    return reviews.executive_rollup(orders, margins)


@dg.asset(
    key=["marts", "weekly_review"],
    ins={"orders": dg.AssetIn(key=["core", "orders"], partition_mapping=WITHIN_AND_WEEK_BEFORE)},
    group_name="marts",
    kinds={"iceberg", "pyspark"},
    owners=["team:sales"],
    partitions_def=WEEKS,
    # Mondays by nine o'clock, with everything that arrived by eight.
    freshness_policy=dg.FreshnessPolicy.cron(deadline_cron="0 9 * * 1", lower_bound_delta=timedelta(hours=1)),
    backfill_policy=dg.BackfillPolicy.single_run(),
    code_version="1",
)
def weekly_review(context: dg.AssetExecutionContext, orders: DataFrame) -> DataFrame:
    """One row per store and week: orders, revenue, and its change against the week before, from core/orders."""
    return reviews.weekly_review(orders, weeks=[date.fromisoformat(week) for week in context.partition_keys])
