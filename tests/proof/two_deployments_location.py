"""Two code locations for two deployments: `finance` builds rates and publishes them, `sales` converts by them.

`DEPLOYMENT` names the one that is loaded. Belongs here: what each declares. Does not belong here: how they are started
and stopped, and what is measured (`tests.proof.test_two_deployments`).
"""

import os
from datetime import timedelta

import dagster as dg

from dagster_tidemark import AssetEvents, PublishTo, build_definitions, event_extras, listener, load_settings
from dagster_tidemark.settings import Settings

QUEUE = "rates-events"
CONTRACT = timedelta(minutes=3)
QUOTES, RATES, CONVERTED = "raw/quotes", "rates/daily", "sales/converted"
RATES_IN_SALES = "finance/rates"
DAYS = dg.DailyPartitionsDefinition("2026-10-01", end_date="2026-11-01")


@dg.asset(
    key=RATES.split("/"),
    deps=[QUOTES.split("/")],
    partitions_def=DAYS,
    tags={"tidemark/pace": "asap"},
    freshness_policy=dg.FreshnessPolicy.time_window(fail_window=CONTRACT),
)
def daily(context: dg.AssetExecutionContext) -> None:
    """One row per currency and day. The extras name the run, so that the reader can prove which rates it read."""
    context.add_output_metadata({"extras": {"built by": context.run_id}})


@dg.asset(
    key=CONVERTED.split("/"),
    deps=[RATES_IN_SALES.split("/")],
    partitions_def=DAYS,
    freshness_policy=dg.FreshnessPolicy.time_window(fail_window=CONTRACT),
)
def converted(context: dg.AssetExecutionContext) -> None:
    """One row per sale in dollars. The metadata names the run of the other deployment whose rates it read."""
    extras = event_extras(context, RATES_IN_SALES, context.partition_key)
    context.add_output_metadata({"rates built by": str(extras.get("built by"))})


def finance(settings: Settings) -> dg.Definitions:
    """The first deployment: it publishes every materialization of its rates."""
    quotes = dg.AssetSpec(QUOTES.split("/"), partitions_def=DAYS)
    to_sales = listener(assets=[RATES], name="to_sales")(PublishTo(QUEUE, {RATES: RATES_IN_SALES}))
    return build_definitions(settings, [quotes, daily], [], [], listeners=[to_sales])


def sales(settings: Settings) -> dg.Definitions:
    """The second deployment: it knows the rates as an external asset."""
    rates = dg.AssetSpec(RATES_IN_SALES.split("/"), partitions_def=DAYS)
    return build_definitions(settings, [rates, converted], [], [], asset_events=AssetEvents(QUEUE, [RATES_IN_SALES]))


if "DEPLOYMENT" in os.environ:
    defs = {"finance": finance, "sales": sales}[os.environ["DEPLOYMENT"]](load_settings())
