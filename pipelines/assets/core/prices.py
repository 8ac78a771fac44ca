"""core/prices: the grocer's purchase costs."""

import dagster as dg
from dagster_tidemark import LakehouseResource, landed_checks

from pipelines.feeds.prices import PRICES
from pipelines.partitions import DAYS
from pipelines.schemas import core


@dg.asset(
    key=["core", "prices"],
    deps=[["raw", "prices"]],
    group_name="core",
    kinds={"iceberg", "pyspark"},
    owners=["team:purchasing"],
    partitions_def=DAYS,
    backfill_policy=dg.BackfillPolicy.single_run(),
    code_version="1",
    check_specs=landed_checks(PRICES, ["core", "prices"]),
)
def prices(context: dg.AssetExecutionContext, lakehouse: LakehouseResource) -> dg.MaterializeResult:  # type: ignore[type-arg]
    """One row per product and day: its purchase cost, from the price files of that day."""
    return lakehouse.load(context, PRICES, core.PRICES)
