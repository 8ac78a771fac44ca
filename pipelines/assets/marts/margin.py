"""marts/margin_hourly: margins per product and hour."""

from collections.abc import Iterator
from datetime import timedelta

import dagster as dg
from dagster_tidemark import counting_missing, filled_check, filled_result
from pyspark.sql import DataFrame

from pipelines.partitions import HOURS, WITHIN
from pipelines.transforms import margin

_UNPRICED = "hours of products without a purchase cost"


@dg.asset(
    key=["marts", "margin_hourly"],
    ins={
        "orders": dg.AssetIn(key=["core", "orders"]),
        "prices": dg.AssetIn(key=["core", "prices"], partition_mapping=WITHIN),
    },
    group_name="marts",
    kinds={"iceberg", "pyspark"},
    owners=["team:purchasing"],
    partitions_def=HOURS,
    freshness_policy=dg.FreshnessPolicy.time_window(fail_window=timedelta(hours=2)),
    backfill_policy=dg.BackfillPolicy.single_run(),
    code_version="1",
    check_specs=[filled_check(["marts", "margin_hourly"], "cost_usd", _UNPRICED)],
)
def margin_hourly(orders: DataFrame, prices: DataFrame) -> Iterator[dg.Output[DataFrame] | dg.AssetCheckResult]:
    """One row per product and hour: revenue, purchase cost and margin; null where the product has no price."""
    margins, unpriced = counting_missing(margin.margin_hourly(orders, prices), "cost_usd")
    yield dg.Output(margins)  # the rows are written before the next line runs
    yield filled_result("cost_usd", _UNPRICED, unpriced())
