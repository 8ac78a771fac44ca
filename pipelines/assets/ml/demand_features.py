"""ml/demand_features: the demand known at the end of a day."""

from datetime import date

import dagster as dg
from pyspark.sql import DataFrame

from pipelines.partitions import DAYS, WITHIN_AND_13_DAYS_BEFORE
from pipelines.transforms import demand


@dg.asset(
    key=["ml", "demand_features"],
    ins={"orders": dg.AssetIn(key=["core", "orders"], partition_mapping=WITHIN_AND_13_DAYS_BEFORE)},
    group_name="ml",
    kinds={"iceberg", "pyspark"},
    owners=["team:forecasting"],
    partitions_def=DAYS,
    backfill_policy=dg.BackfillPolicy.single_run(),
    code_version="1",
)
def demand_features(context: dg.AssetExecutionContext, orders: DataFrame) -> DataFrame:
    """One row per store, product and day: its demand that day and in the 13 days before, from core/orders."""
    return demand.demand_features(orders, days=[date.fromisoformat(day) for day in context.partition_keys])
