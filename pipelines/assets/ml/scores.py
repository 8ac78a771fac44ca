"""ml/scores: the answers to requests for scores."""

import dagster as dg

scores = dg.AssetSpec(
    key=["ml", "scores"],
    deps=[["raw", "scoring_requests"], ["ml", "demand_features"], ["ml", "demand_model"]],
    group_name="ml",
    kinds={"sqs", "iceberg", "scikitlearn"},
    owners=["team:forecasting"],
    description="One row per answered request. The runs of `shift_scoring` answer within a second.",
)
