"""ml/scores: what was answered to those who asked for a score."""

import dagster as dg

scores = dg.AssetSpec(
    key=["ml", "scores"],
    deps=[["raw", "scoring_requests"], ["ml", "demand_model"]],
    group_name="ml",
    kinds={"iceberg", "scikitlearn"},
    owners=["team:forecasting"],
    description="One row per request that the runs of `shift_scoring` have answered: the score, or why there is none.",
)
