"""The tables of the demand model: its features, its versions, its forecasts, and its scores on request."""

from dagster_tidemark import MODEL_VERSIONS, Table

DEMAND_FEATURES = Table(
    name="ml.demand_features",
    columns={
        "day": "date",
        "store_id": "bigint",
        "product_id": "bigint",
        "quantity": "bigint",
        "quantity_6_days_before": "bigint",
        "quantity_13_days_before": "bigint",
        "mean_of_7_days": "double",
        "mean_of_14_days": "double",
        "unit_price_usd": "decimal(18,4)",
    },
    partitioned_by="day",
    row_key=("day", "store_id", "product_id"),
    comment="Demand of a product in a store, as known at the end of a day",
    column_comments={
        "day": "The day, UTC: the partition",
        "store_id": "The store",
        "product_id": "The product, sold in the store within the last 14 days",
        "quantity": "Units ordered that day, without returns; null if the day has no orders at all",
        "quantity_6_days_before": "Units ordered six days earlier: on the weekday of the next day",
        "quantity_13_days_before": "Units ordered thirteen days earlier",
        "mean_of_7_days": "Mean units per day, over those of the last 7 days that had orders",
        "mean_of_14_days": "Mean units per day, over those of the last 14 days that had orders",
        "unit_price_usd": "The last price within the last 14 days, before discounts, USD",
    },
)

DEMAND_MODEL = Table(
    name="ml.demand_model",
    columns=MODEL_VERSIONS
    | {
        "mean_absolute_error": "double",
        "naive_error": "double",
        "replaced_error": "double",
        "trained_from": "date",
        "trained_through": "date",
        "tested_from": "date",
        "tested_through": "date",
        "features_snapshot_id": "bigint",
    },
    row_key=("version", "fitted_at"),
    comment="A fitted version of the demand model",
    column_comments={
        "mean_absolute_error": "Mean absolute error of the forecasts for the held-out days, units",
        "naive_error": "Error of predicting the units of the same day last week; null without such days",
        "replaced_error": "Error of the version that served when this one was fitted; null if there was none",
        "trained_from": "First day whose demand it was fitted to",
        "trained_through": "Last day whose demand it was fitted to",
        "tested_from": "First held-out day",
        "tested_through": "Last held-out day",
        "features_snapshot_id": "The Iceberg snapshot of ml/demand_features that was read",
    },
)

DEMAND_FORECAST = Table(
    name="ml.demand_forecast",
    columns={
        "day": "date",
        "forecast_day": "date",
        "store_id": "bigint",
        "product_id": "bigint",
        "quantity": "double",
        "model_version": "string",
    },
    partitioned_by="day",
    row_key=("day", "store_id", "product_id"),
    comment="Expected demand of a product in a store on the next day",
    column_comments={
        "day": "The day at whose end the forecast is made: the partition",
        "forecast_day": "The next day, which is forecast",
        "store_id": "The store",
        "product_id": "The product",
        "quantity": "Expected units",
        "model_version": "The version of ml/demand_model that made the forecast",
    },
)

SCORES = Table(
    name="ml.scores",
    columns={
        "request_id": "string",
        "score": "double",
        "model_version": "string",
        "scored_at": "timestamp",
        "error": "string",
    },
    row_key=("request_id",),
    comment="An answered request",
    column_comments={
        "request_id": "Id of the request, set by its sender; see raw/scoring_requests",
        "score": "Expected units; null if the request could not be scored",
        "model_version": "The version of ml/demand_model that made the score; null if none did",
        "scored_at": "When it was answered, UTC",
        "error": "Why it could not be scored; null if it was",
    },
)
