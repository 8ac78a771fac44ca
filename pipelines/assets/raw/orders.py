"""raw/orders: the files below orders/."""

import dagster as dg
from dagster_tidemark import LandingResource, observe_partitions

from pipelines.feeds.orders import ORDERS
from pipelines.partitions import HOURS


@dg.observable_source_asset(
    key=["raw", "orders"],
    description="The order files of each hour, below orders/ in the landing bucket.",
    group_name="raw",
    partitions_def=HOURS,
    tags={"dagster/kind/s3": ""},
)
def orders(context: dg.OpExecutionContext, landing: LandingResource) -> dg.DataVersionsByPartition:
    return observe_partitions(context, landing, ORDERS)
