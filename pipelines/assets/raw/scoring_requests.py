"""raw/scoring_requests: the unchanged messages that ask for scores."""

import dagster as dg

scoring_requests = dg.AssetSpec(
    key=["raw", "scoring_requests"],
    group_name="raw",
    kinds={"sqs", "iceberg"},
    owners=["team:forecasting"],
    description="One row per request for a score, written unchanged by the runs of `shift_scoring`.",
)
