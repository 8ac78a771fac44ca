"""Offers: the customers that a day's prices can be offered to.

Belongs here: customers against the assortment. Does not belong here: the customers' orders.
"""

from dagster_tidemark import shaped_as
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pipelines.schemas.marts import OFFER_REACH
from pipelines.transforms.order_stats import UNKNOWN_SEGMENT


def offer_reach(prices: DataFrame, customers: DataFrame) -> DataFrame:
    """Return one row per day with prices and customer segment: number of priced products, number of customers.

    Args:
        prices: core/prices of any number of days.
        customers: core/customers. A customer without a segment counts as 'unknown'.
    """
    segments = customers.groupBy(F.coalesce("segment", F.lit(UNKNOWN_SEGMENT)).alias("segment")).agg(
        F.count(F.lit(1)).alias("customers")
    )
    assortments = prices.groupBy("day").agg(F.count(F.lit(1)).alias("products"))
    # Every day with every segment.
    return shaped_as(assortments.join(segments, how="cross"), OFFER_REACH.columns)
