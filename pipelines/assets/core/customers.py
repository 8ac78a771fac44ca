"""core/customers: the customers."""

import dagster as dg
from dagster_tidemark import LakehouseResource, landed_checks

from pipelines.feeds.customers import CUSTOMERS
from pipelines.schemas import core


@dg.asset(
    key=["core", "customers"],
    deps=[["raw", "customers"]],
    group_name="core",
    kinds={"iceberg", "pyspark"},
    owners=["team:customers"],
    code_version="1",
    check_specs=landed_checks(CUSTOMERS, ["core", "customers"]),
)
def customers(context: dg.AssetExecutionContext, lakehouse: LakehouseResource) -> dg.MaterializeResult:  # type: ignore[type-arg]
    """One row per customer, from the accounts file that the shop overwrites."""
    return lakehouse.load(context, CUSTOMERS, core.CUSTOMERS)
