"""raw/customers: the customers file."""

import dagster as dg
from dagster_tidemark import LandingResource, observe_file

from pipelines.feeds.customers import CUSTOMERS


@dg.observable_source_asset(
    key=["raw", "customers"],
    description="The accounts file, customers/latest.csv in the landing bucket, which the shop overwrites.",
    group_name="raw",
    tags={"dagster/kind/s3": ""},
)
def customers(context: dg.OpExecutionContext, landing: LandingResource) -> dg.ObserveResult:
    return observe_file(landing.open(), CUSTOMERS, context.instance)
