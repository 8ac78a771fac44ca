"""Reviews: key figures of a day and of a week.

Belongs here: figures over a whole day or week for the management. Does not belong here: sums by the hour (`sales.py`).
"""

from collections.abc import Collection
from datetime import date

from dagster_tidemark import shaped_as
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pipelines.schemas.marts import EXECUTIVE_ROLLUP, WEEKLY_REVIEW


def executive_rollup(orders: DataFrame, margins: DataFrame) -> DataFrame:
    """Return one row per UTC day with orders: distinct orders, revenue and margin in USD, store with the most revenue.

    The margin covers the products whose cost is known; it is null if no cost is known. Among stores with equal
    revenue, the smallest id is the top store.

    Args:
        orders: core/orders of any number of hours.
        margins: marts/margin_hourly of the same hours.
    """
    lines = orders.select(F.to_date("hour").alias("day"), "order_id", "store_id", "revenue_usd")
    totals = lines.groupBy("day").agg(
        F.count_distinct("order_id").alias("orders"), F.sum("revenue_usd").alias("revenue_usd")
    )
    stores = lines.groupBy("day", "store_id").agg(F.sum("revenue_usd").alias("store_revenue_usd"))
    rank = F.struct(F.col("store_revenue_usd"), -F.col("store_id"))
    tops = stores.groupBy("day").agg(F.max_by("store_id", rank).alias("top_store_id"))
    earned = margins.groupBy(F.to_date("hour").alias("day")).agg(F.sum("margin_usd").alias("margin_usd"))
    # One row per day on each side.
    joined = totals.join(tops, on="day", how="left").join(earned, on="day", how="left")
    return shaped_as(joined, EXECUTIVE_ROLLUP.columns)


def weekly_review(orders: DataFrame, *, weeks: Collection[date]) -> DataFrame:
    """Return one row per store and week with orders: distinct orders, revenue in USD, and its change in a week.

    The change is a share (0.1: a tenth more), rounded half up to 4 places. It is null if the store had no revenue, or
    only returns, in the week before.

    Args:
        orders: core/orders of `weeks` and of the week before each.
        weeks: Mondays of the weeks in the result; other weeks are used for comparison only.
    """
    by_week = orders.groupBy(F.to_date(F.date_trunc("week", "hour")).alias("week"), "store_id").agg(
        F.count_distinct("order_id").alias("orders"), F.sum("revenue_usd").cast("decimal(18,4)").alias("revenue_usd")
    )
    before = by_week.select(
        F.date_add("week", 7).alias("week"), "store_id", F.col("revenue_usd").alias("revenue_before_usd")
    )
    # At most one earlier row for each: (week, store_id) is unique on both sides.
    compared = by_week.where(F.col("week").isin(sorted(weeks))).join(before, on=["week", "store_id"], how="left")
    change = (F.col("revenue_usd") - F.col("revenue_before_usd")).cast("decimal(18,4)") / F.col("revenue_before_usd")
    share = F.when(F.col("revenue_before_usd") > 0, F.round(change, 4))
    return shaped_as(compared.withColumn("revenue_change", share), WEEKLY_REVIEW.columns)
