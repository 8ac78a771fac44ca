"""Demand features of a store's product at the end of a day.

Belongs here: demand features from order lines. Does not belong here: their use by a model (`pipelines/models`).
"""

from collections.abc import Collection
from datetime import date

from dagster_tidemark import shaped_as
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pipelines.schemas.ml import DEMAND_FEATURES

WINDOW_DAYS = 14


def demand_features(orders: DataFrame, *, days: Collection[date]) -> DataFrame:
    """Return one row per day, store and product sold there within 14 days: the demand known at the end of the day.

    Demand is units ordered, without returns. On a day without any orders demand is unknown: its column is null, and
    means leave the day out. On any other day a product without orders has zero demand.

    Args:
        orders: core/orders of `days` and of the 13 days before each.
        days: The days of the result; the rows of other days are used for looking back only.
    """
    lines = orders.select(
        F.to_date("hour").alias("sold_on"),
        "store_id",
        "product_id",
        F.greatest("quantity", F.lit(0)).alias("units"),
        F.struct("ordered_at", "order_id", "line_number").alias("place"),
        "unit_price_usd",
    )
    daily = lines.groupBy("sold_on", "store_id", "product_id").agg(
        F.sum("units").alias("units"), F.max(F.struct("place", "unit_price_usd")).alias("price")
    )
    products = _as_seen_from(daily, days).groupBy("day", "store_id", "product_id")
    sums = products.agg(
        *(F.sum(F.when(_age() == age, F.col("units"))).alias(f"sold_{age}") for age in (0, 6, 13)),
        *(F.sum(F.when(_age() < length, F.col("units"))).alias(f"sold_in_{length}") for length in (7, 14)),
        F.max("price").alias("price"),
    )
    open_days = _as_seen_from(lines.select("sold_on").distinct(), days).groupBy("day")
    opened = open_days.agg(
        *(F.count_if(_age() == age).alias(f"open_{age}") for age in (0, 6, 13)),
        *(F.count_if(_age() < length).alias(f"open_in_{length}") for length in (7, 14)),
    )
    # Many products to one row per day.
    known = sums.join(opened, on="day", how="inner")
    features = known.select(
        "day",
        "store_id",
        "product_id",
        _demand(0).alias("quantity"),
        _demand(6).alias("quantity_6_days_before"),
        _demand(13).alias("quantity_13_days_before"),
        _mean(7).alias("mean_of_7_days"),
        _mean(14).alias("mean_of_14_days"),
        F.col("price.unit_price_usd").alias("unit_price_usd"),
    )
    return shaped_as(features, DEMAND_FEATURES.columns)


def _as_seen_from(of_days: DataFrame, days: Collection[date]) -> DataFrame:
    """Return each row once per day of `days` whose 14-day window includes it, with that day as `day`."""
    looks = F.explode(F.sequence(F.col("sold_on"), F.date_add("sold_on", WINDOW_DAYS - 1)))
    return of_days.withColumn("day", looks).where(F.col("day").isin(sorted(days)))


def _age() -> Column:
    return F.date_diff("day", "sold_on")


def _demand(age: int) -> Column:
    return F.when(F.col(f"open_{age}") > 0, F.coalesce(f"sold_{age}", F.lit(0)))


def _mean(length: int) -> Column:
    sold = F.coalesce(f"sold_in_{length}", F.lit(0)).cast("double")
    return F.when(F.col(f"open_in_{length}") > 0, sold / F.col(f"open_in_{length}"))
