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
    comment="A store's product at the end of a day: what is known then of its demand",
    column_comments={
        "day": "The day, UTC: the partition",
        "store_id": "The store",
        "product_id": "The product, sold there within these 14 days",
        "quantity": "Units ordered that day, returns left out; null where nobody ordered anything that day",
        "quantity_6_days_before": "The same six days before: on the weekday of the day that comes",
        "quantity_13_days_before": "The same a week before that",
        "mean_of_7_days": "Units a day, over those of the last 7 days that had orders",
        "mean_of_14_days": "Units a day, over those of the last 14 days that had orders",
        "unit_price_usd": "The last price asked within these 14 days, before discounts, USD",
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
        "mean_absolute_error": "Of the forecasts for the days held out, units",
        "naive_error": "The same, had each forecast been the units of the same day last week; null without such days",
        "replaced_error": "The same of the version that served when this one was fitted; null where there was none",
        "trained_from": "First day whose demand it was fitted to",
        "trained_through": "Last day whose demand it was fitted to",
        "tested_from": "First day held out",
        "tested_through": "Last day held out",
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
    comment="A store's product on the day after: its expected demand",
    column_comments={
        "day": "The day at whose end it is made: the partition",
        "forecast_day": "The day after it: the one that is forecast",
        "store_id": "The store",
        "product_id": "The product",
        "quantity": "Expected units",
        "model_version": "Which version of ml/demand_model forecast it",
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
    comment="A request that was answered",
    column_comments={
        "request_id": "The request, as its sender names it; see raw/scoring_requests",
        "score": "Expected units; null where the request could not be scored",
        "model_version": "Which version of ml/demand_model scored it; null where none did",
        "scored_at": "When it was answered, UTC",
        "error": "Why it could not be scored; null where it was",
    },
)
