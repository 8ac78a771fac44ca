"""The toy's assets: three feeds, their tables, and marts that join, aggregate and wait. Marts are only planned."""

from datetime import timedelta
from typing import Any

import dagster as dg

from dagster_tidemark import LakehouseResource, LandingResource, landed_checks, observe_file, observe_partitions
from tests.toys import feeds, schemas
from tests.toys.partitions import DAYS, HOURS, WEEKS, WITHIN


@dg.observable_source_asset(key=["raw", "orders"], partitions_def=HOURS)
def raw_orders(context: dg.OpExecutionContext, landing: LandingResource) -> dg.DataVersionsByPartition:
    return observe_partitions(context, landing, feeds.ORDERS)


@dg.observable_source_asset(key=["raw", "customers"])
def raw_customers(context: dg.OpExecutionContext, landing: LandingResource) -> dg.ObserveResult:
    return observe_file(landing.open(), feeds.CUSTOMERS, context.instance)


@dg.observable_source_asset(key=["raw", "prices"], partitions_def=DAYS)
def raw_prices(context: dg.OpExecutionContext, landing: LandingResource) -> dg.DataVersionsByPartition:
    return observe_partitions(context, landing, feeds.PRICES)


@dg.asset(
    key=["core", "orders"],
    deps=[["raw", "orders"]],
    partitions_def=HOURS,
    freshness_policy=dg.FreshnessPolicy.time_window(fail_window=timedelta(minutes=5)),
    backfill_policy=dg.BackfillPolicy.single_run(),
    code_version="1",
    tags={"tidemark/pace": "asap"},
    check_specs=landed_checks(feeds.ORDERS, ["core", "orders"]),
)
def core_orders(context: dg.AssetExecutionContext, lakehouse: LakehouseResource) -> dg.MaterializeResult:  # type: ignore[type-arg]
    return lakehouse.load(context, feeds.ORDERS, schemas.ORDERS, schemas.order_lines)


@dg.asset(
    key=["core", "customers"],
    deps=[["raw", "customers"]],
    code_version="1",
    check_specs=landed_checks(feeds.CUSTOMERS, ["core", "customers"]),
)
def core_customers(context: dg.AssetExecutionContext, lakehouse: LakehouseResource) -> dg.MaterializeResult:  # type: ignore[type-arg]
    return lakehouse.load(context, feeds.CUSTOMERS, schemas.CUSTOMERS)


@dg.asset(
    key=["core", "prices"],
    deps=[["raw", "prices"]],
    partitions_def=DAYS,
    backfill_policy=dg.BackfillPolicy.single_run(),
    code_version="1",
    check_specs=landed_checks(feeds.PRICES, ["core", "prices"]),
)
def core_prices(context: dg.AssetExecutionContext, lakehouse: LakehouseResource) -> dg.MaterializeResult:  # type: ignore[type-arg]
    return lakehouse.load(context, feeds.PRICES, schemas.PRICES)


def _mart(name: str, *deps: dg.AssetDep, by: dg.PartitionsDefinition[str], **more: Any) -> dg.AssetsDefinition:
    @dg.asset(
        key=["marts", name],
        deps=deps,
        partitions_def=by,
        backfill_policy=dg.BackfillPolicy.single_run(),
        code_version="1",
        **more,
    )
    def _planned_only() -> None: ...

    return _planned_only


def _within(hours: int) -> dg.FreshnessPolicy:
    return dg.FreshnessPolicy.time_window(fail_window=timedelta(hours=hours))


ORDERS = dg.AssetDep(["core", "orders"], partition_mapping=WITHIN)
PRICES = dg.AssetDep(["core", "prices"], partition_mapping=WITHIN)
CUSTOMERS = dg.AssetDep(["core", "customers"], metadata={"ripple_days": 7})
MARGINS = dg.AssetDep(["marts", "margin_hourly"], partition_mapping=WITHIN)
NINE = dg.FreshnessPolicy.cron(deadline_cron="0 9 * * 1", lower_bound_delta=timedelta(hours=1))

ASSETS = [
    raw_orders,
    raw_customers,
    raw_prices,
    core_orders,
    core_customers,
    core_prices,
    _mart("sales_hourly", dg.AssetDep(["core", "orders"]), by=HOURS, freshness_policy=_within(1)),
    _mart("sales_daily", ORDERS, by=DAYS, freshness_policy=_within(24)),
    _mart("margin_hourly", dg.AssetDep(["core", "orders"]), PRICES, by=HOURS, freshness_policy=_within(2)),
    _mart("order_stats", ORDERS, CUSTOMERS, by=DAYS, freshness_policy=_within(24)),
    _mart("weekly_review", ORDERS, by=WEEKS, freshness_policy=NINE),
]
