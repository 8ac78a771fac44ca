"""alerts/cold_chain: alerts of sensors that are too warm."""

import dagster as dg
from dagster_tidemark import LakehouseResource
from pyspark.sql import DataFrame

from pipelines.streams.readings import READINGS
from pipelines.transforms.cold_chain_history import episodes_too_warm
from pipelines.transforms.readings import readings


@dg.asset(
    key=["alerts", "cold_chain"],
    # The runs of shift_readings evaluate new readings within a second. This asset evaluates all earlier readings: at
    # first, and after a change of the rule.
    deps=[dg.AssetDep(["raw", "readings"], metadata={"use_latest": True})],
    group_name="alerts",
    kinds={"iceberg", "pyspark"},
    owners=["team:operations"],
    code_version="1",
    tags={"tidemark/pace": "asap"},
)
def cold_chain(context: dg.AssetExecutionContext, lakehouse: LakehouseResource) -> dg.MaterializeResult:  # type: ignore[type-arg]
    """One row per alert of a sensor that was too warm: when the episode started, and whether it was retracted."""
    return lakehouse.reevaluate(context, READINGS, _episodes)


def _episodes(messages: DataFrame) -> DataFrame:
    return episodes_too_warm(readings(messages))
