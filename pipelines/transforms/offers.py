"""Offers: whom the prices of a day can be offered to.

Belongs here: customers against the assortment. Does not belong here: what they then buy.
"""

from dagster_tidemark import shaped_as
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pipelines.schemas.marts import OFFER_REACH
from pipelines.transforms.order_stats import UNKNOWN_SEGMENT


def offer_reach(prices: DataFrame, customers: DataFrame) -> DataFrame:
    """One row per day with prices and customer segment: how many products have a price, how many customers there are.

    Args:
        prices: core/prices of any number of days.
        customers: core/customers. Where a customer has no segment, it is 'unknown'.
    """
    segments = customers.groupBy(F.coalesce("segment", F.lit(UNKNOWN_SEGMENT)).alias("segment")).agg(
        F.count(F.lit(1)).alias("customers")
    )
    assortments = prices.groupBy("day").agg(F.count(F.lit(1)).alias("products"))
    # Every day with every segment.
    return shaped_as(assortments.join(segments, how="cross"), OFFER_REACH.columns)
