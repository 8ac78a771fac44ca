"""core/orders: the order lines."""

from datetime import timedelta

import dagster as dg
from dagster_tidemark import LakehouseResource, landed_checks

from pipelines.feeds.orders import ORDERS
from pipelines.partitions import HOURS
from pipelines.schemas import core
from pipelines.transforms.orders import order_lines


@dg.asset(
    key=["core", "orders"],
    deps=[["raw", "orders"]],
    group_name="core",
    kinds={"iceberg", "pyspark"},
    owners=["team:orders"],
    partitions_def=HOURS,
    freshness_policy=dg.FreshnessPolicy.time_window(fail_window=timedelta(minutes=5)),
    backfill_policy=dg.BackfillPolicy.single_run(),
    code_version="1",
    tags={"tidemark/pace": "asap"},
    check_specs=landed_checks(ORDERS, ["core", "orders"]),
)
def orders(context: dg.AssetExecutionContext, lakehouse: LakehouseResource) -> dg.MaterializeResult:  # type: ignore[type-arg]
    """One row per order line, from the order files of an hour: typed, validated, without duplicates."""
    return lakehouse.load(context, ORDERS, core.ORDERS, order_lines)
