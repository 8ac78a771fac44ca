"""raw/readings: the unchanged messages of the cold chain's sensors."""

import dagster as dg

from pipelines.partitions import HOURS

readings = dg.AssetSpec(
    key=["raw", "readings"],
    partitions_def=HOURS,
    group_name="raw",
    kinds={"sqs", "kafka", "iceberg"},
    owners=["team:operations"],
    description="One row per message of a cold-chain sensor, written unchanged by the runs of `shift_readings`.",
)
