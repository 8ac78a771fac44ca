"""core/readings: the readings of the cold chain's sensors."""

from datetime import timedelta

import dagster as dg
from pyspark.sql import DataFrame

from pipelines.partitions import HOURS
from pipelines.transforms.readings import readings as transform


@dg.asset(
    key=["core", "readings"],
    ins={"messages": dg.AssetIn(key=["raw", "readings"])},
    group_name="core",
    kinds={"iceberg", "pyspark"},
    owners=["team:operations"],
    partitions_def=HOURS,
    freshness_policy=dg.FreshnessPolicy.time_window(fail_window=timedelta(minutes=5)),
    backfill_policy=dg.BackfillPolicy.single_run(),
    code_version="1",
    tags={"tidemark/pace": "asap"},
)
def readings(messages: DataFrame) -> DataFrame:
    """One row per reading of a sensor, from the hour's messages; the last message wins if a reading is repeated."""
    return transform(messages)
