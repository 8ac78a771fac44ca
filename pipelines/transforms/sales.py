"""Sales per store and hour, and per product and day.

Belongs here: sums over order lines alone. Does not belong here: joins with other tables.
"""

from dagster_tidemark import shaped_as
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pipelines.schemas.marts import SALES_DAILY, SALES_HOURLY


def sales_hourly(orders: DataFrame) -> DataFrame:
    """Return one row per store and hour: distinct orders, their lines, units and revenue in USD.

    Args:
        orders: core/orders of any number of hours.
    """
    sold = orders.groupBy("hour", "store_id").agg(
        F.count_distinct("order_id").alias("orders"),
        F.count(F.lit(1)).alias("lines"),
        F.sum("quantity").alias("quantity"),
        F.sum("revenue_usd").alias("revenue_usd"),
    )
    return shaped_as(sold, SALES_HOURLY.columns)


def sales_daily(orders: DataFrame) -> DataFrame:
    """Return one row per product and UTC day: units and revenue in USD.

    Args:
        orders: core/orders of any number of hours; a day is as complete as its hours are.
    """
    sold = orders.groupBy(F.to_date("hour").alias("day"), "product_id").agg(
        F.sum("quantity").alias("quantity"),
        F.sum("revenue_usd").alias("revenue_usd"),
    )
    return shaped_as(sold, SALES_DAILY.columns)
