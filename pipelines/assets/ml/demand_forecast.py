"""ml/demand_forecast: the expected demand of the next day."""

from datetime import timedelta

import dagster as dg
from dagster_tidemark import LakehouseResource, shaped_as
from dagster_tidemark.models import current_version
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pipelines.models import demand
from pipelines.partitions import DAYS
from pipelines.schemas import ml


@dg.asset(
    key=["ml", "demand_forecast"],
    ins={
        "features": dg.AssetIn(key=["ml", "demand_features"]),
        # The latest version, whatever its age: a new model changes no earlier forecast.
        "versions": dg.AssetIn(key=["ml", "demand_model"], metadata={"use_latest": True}),
    },
    group_name="ml",
    kinds={"iceberg", "pyspark", "scikitlearn"},
    owners=["team:forecasting"],
    partitions_def=DAYS,
    # By nine o'clock of the day that is forecast, with everything that arrived by half past eight.
    freshness_policy=dg.FreshnessPolicy.cron(deadline_cron="0 9 * * *", lower_bound_delta=timedelta(minutes=30)),
    backfill_policy=dg.BackfillPolicy.single_run(),
    code_version="1",
)
def demand_forecast(
    context: dg.AssetExecutionContext, lakehouse: LakehouseResource, features: DataFrame, versions: DataFrame
) -> DataFrame:
    """One row per store, product and day: the expected demand of the next day, from the latest published model."""
    version = current_version(versions)
    context.log.info(f"forecast by version {version} of ml/demand_model" if version else "no model is published yet")
    known = features.toPandas()
    forecast = known[["day", "store_id", "product_id"]].assign(quantity=0.0)
    if version and len(known):
        forecast["quantity"] = lakehouse.models("demand", demand.DemandLearner()).load(version).predict(known)
    rows = features.sparkSession.createDataFrame(
        forecast, "day date, store_id bigint, product_id bigint, quantity double"
    )
    told = rows.withColumns({"forecast_day": F.date_add("day", 1), "model_version": F.lit(version)})
    return shaped_as(told.where(F.col("model_version").isNotNull()), ml.DEMAND_FORECAST.columns)
