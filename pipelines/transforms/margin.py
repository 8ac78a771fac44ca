"""Margins: revenue against what the goods cost to buy.

Belongs here: order lines against purchase costs. Does not belong here: the severity of a missing cost (a check).
"""

from dagster_tidemark import shaped_as
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pipelines.schemas.marts import MARGIN_HOURLY


def margin_hourly(orders: DataFrame, prices: DataFrame) -> DataFrame:
    """Return one row per product and hour: revenue, purchase cost of the units sold, and their difference, in USD.

    The unit cost is the cost on the hour's UTC day. A product without a price on that day has a revenue, and null as
    cost and margin.

    Args:
        orders: core/orders of any number of hours.
        prices: core/prices of their days.
    """
    sold = (
        orders.groupBy("hour", "product_id")
        .agg(F.sum("quantity").alias("quantity"), F.sum("revenue_usd").alias("revenue_usd"))
        .withColumn("day", F.to_date("hour"))
    )
    unit_costs = prices.select("day", "product_id", F.col("cost_usd").alias("unit_cost_usd"))
    # Many product hours to at most one cost: (day, product_id) is the row key of core/prices.
    costed = sold.join(unit_costs, on=["day", "product_id"], how="left")
    # 19 + 18 digits plus one are 38, the maximum of a decimal: the product is exact with its 4 places.
    cost = (F.col("quantity").cast("decimal(19,0)") * F.col("unit_cost_usd")).cast("decimal(18,4)")
    margins = costed.withColumn("cost_usd", cost).withColumn("margin_usd", F.col("revenue_usd") - F.col("cost_usd"))
    return shaped_as(margins, MARGIN_HOURLY.columns)
