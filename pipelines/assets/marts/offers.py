"""marts/offer_reach: an example of a table that waits until every one of its inputs has changed."""

from datetime import timedelta

import dagster as dg
from pyspark.sql import DataFrame

from pipelines.partitions import DAYS
from pipelines.transforms import offers


@dg.asset(
    key=["marts", "offer_reach"],
    ins={
        "prices": dg.AssetIn(key=["core", "prices"]),
        # A new customers file changes today's offers only: the offers of earlier days are already out.
        "customers": dg.AssetIn(key=["core", "customers"], metadata={"ripple_days": 1}),
    },
    group_name="marts",
    kinds={"iceberg", "pyspark"},
    owners=["team:purchasing"],
    partitions_def=DAYS,
    freshness_policy=dg.FreshnessPolicy.time_window(fail_window=timedelta(hours=24)),
    backfill_policy=dg.BackfillPolicy.single_run(),
    code_version="1",
    # A change of prices alone is a correction, and no reason to count again.
    tags={"tidemark/requires": "every_input_changed"},
)
def offer_reach(prices: DataFrame, customers: DataFrame) -> DataFrame:
    """One row per customer segment and day: how many customers it has, and how many products have a price that day."""
    return offers.offer_reach(prices, customers)
