"""Order statistics per customer segment.

Belongs here: order lines grouped by their customers. Does not belong here: sales per store or product.
"""

from dagster_tidemark import shaped_as
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pipelines.schemas.marts import ORDER_STATS

UNKNOWN_SEGMENT = "unknown"


def order_stats(orders: DataFrame, customers: DataFrame) -> DataFrame:
    """Return one row per customer segment and UTC day: distinct orders, lines, distinct buyers, revenue in USD.

    Args:
        orders: core/orders of any number of hours.
        customers: core/customers. A customer that is missing or has no segment counts as 'unknown'.
    """
    lines = orders.select(F.to_date("hour").alias("day"), "order_id", "customer_id", "revenue_usd")
    segments = customers.select("customer_id", "segment")
    # Many lines to at most one customer: customer_id is the row key of core/customers.
    segmented = lines.join(segments, on="customer_id", how="left").withColumn(
        "segment", F.coalesce(F.col("segment"), F.lit(UNKNOWN_SEGMENT))
    )
    stats = segmented.groupBy("day", "segment").agg(
        F.count_distinct("order_id").alias("orders"),
        F.count(F.lit(1)).alias("lines"),
        F.count_distinct("customer_id").alias("buyers"),
        F.sum("revenue_usd").alias("revenue_usd"),
    )
    return shaped_as(stats, ORDER_STATS.columns)
