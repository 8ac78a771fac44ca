"""raw/orders: the files below orders/."""

import dagster as dg

from pipelines import feeds
from pipelines.partitions import HOURS
from pipelines.tidemark import LandingResource, observe_partitions


@dg.observable_source_asset(key=["raw", "orders"], group_name="raw", partitions_def=HOURS, tags={"dagster/kind/s3": ""})
def orders(context: dg.OpExecutionContext, landing: LandingResource) -> dg.DataVersionsByPartition:
    """The order files of an hour, as they lie in the landing bucket."""
    return observe_partitions(context, landing.open(), feeds.ORDERS)
