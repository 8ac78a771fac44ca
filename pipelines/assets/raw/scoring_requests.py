"""raw/scoring_requests: who asks for scores, as it comes."""

import dagster as dg

scoring_requests = dg.AssetSpec(
    key=["raw", "scoring_requests"],
    group_name="raw",
    kinds={"sqs", "iceberg"},
    owners=["team:forecasting"],
    description="One row per message that asks for a score, kept as it came by the runs of `shift_scoring`.",
)
