"""raw/prices: the files below prices/."""

import dagster as dg
from dagster_tidemark import LandingResource, observe_partitions

from pipelines.feeds.prices import PRICES
from pipelines.partitions import DAYS


@dg.observable_source_asset(
    key=["raw", "prices"],
    description="The purchase price files of each day, below prices/ in the landing bucket.",
    group_name="raw",
    partitions_def=DAYS,
    tags={"dagster/kind/s3": ""},
)
def prices(context: dg.OpExecutionContext, landing: LandingResource) -> dg.DataVersionsByPartition:
    return observe_partitions(context, landing, PRICES)
