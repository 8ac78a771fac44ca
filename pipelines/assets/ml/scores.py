"""ml/scores: the answers to requests for scores."""

import dagster as dg

scores = dg.AssetSpec(
    key=["ml", "scores"],
    deps=[["raw", "scoring_requests"], ["ml", "demand_features"], ["ml", "demand_model"]],
    group_name="ml",
    kinds={"sqs", "iceberg", "scikitlearn"},
    owners=["team:forecasting"],
    description="One row per request that was answered, by the runs of `shift_scoring` within a second.",
)
