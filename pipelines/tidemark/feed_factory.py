"""From one declaration of a feed to its assets: the source asset, and the table loaded from it, with its checks."""

from collections.abc import Callable, Sequence
from typing import Any

import dagster as dg
from pyspark.sql import DataFrame

from pipelines.tidemark.execution.io_manager import table_metadata
from pipelines.tidemark.execution.load_asset import LakehouseResource
from pipelines.tidemark.execution.load_check import landed_checks
from pipelines.tidemark.lakehouse.tables import Table
from pipelines.tidemark.resources.aws import LandingResource
from pipelines.tidemark.sensors.on_demand import observe_file, observe_partitions
from pipelines.tidemark.sources.feed import Feed, Grain


def feed_assets(
    feed: Feed,
    table: Table,
    *,
    partitions_def: dg.PartitionsDefinition[str] | None = None,
    transform: Callable[[DataFrame], DataFrame] = lambda rows: rows,
    code_version: str = "1",
    owners: Sequence[str] = (),
    **core: Any,
) -> list[dg.AssetsDefinition]:
    """The assets `raw/<feed>` (observed) and the table's own (loaded), whose key is the table's name.

    Args:
        partitions_def: The same definition as of the other assets by this grain: only then they share runs.
        transform: From a row of the landing columns to a row of the table: lineage columns pass through.
        code_version: Of the transform and of the feed's rules; another one has every file read again.
        core: More of what `dg.asset` takes for the table's asset: `freshness_policy`, `tags`, `automation_condition`.

    Raises:
        ValueError: the feed is cut into partitions and the table is not, or the other way round.
    """
    if (partitions_def is None) is not (feed.grain is Grain.NONE):
        raise ValueError(f"feed {feed.name} is by {feed.grain}: give feed_assets the partitions_def of that grain")
    raw, key = ["raw", feed.name], table.name.split(".")

    @dg.asset(
        key=key,
        deps=[raw],
        group_name=key[0],
        kinds={"iceberg", "pyspark"},
        owners=owners,
        partitions_def=partitions_def,
        backfill_policy=dg.BackfillPolicy.single_run() if partitions_def else None,
        code_version=code_version,
        description=f"One row per {table.comment[:1].lower()}{table.comment[1:]}, from {feed.prefix} in the bucket.",
        metadata=table_metadata(table),
        check_specs=landed_checks(feed, key),
        **core,
    )
    def _table(context: dg.AssetExecutionContext, lakehouse: LakehouseResource) -> dg.MaterializeResult:  # type: ignore[type-arg]
        return lakehouse.load(context, feed, table, transform)

    return [_source(feed, raw, partitions_def), _table]


def _source(feed: Feed, key: list[str], partitions_def: dg.PartitionsDefinition[str] | None) -> Any:
    declared: dict[str, Any] = {
        "key": key,
        "group_name": "raw",
        "description": f"What lies below {feed.prefix} in the landing bucket, by {feed.grain}.",
        "tags": {"dagster/kind/s3": ""},
    }
    if partitions_def is None:
        declared["description"] = f"The object {feed.prefix} of the landing bucket."

        @dg.observable_source_asset(**declared)
        def _file(context: dg.OpExecutionContext, landing: LandingResource) -> dg.ObserveResult:
            return observe_file(landing.open(), feed, context.instance)

        return _file

    @dg.observable_source_asset(partitions_def=partitions_def, **declared)
    def _partitions(context: dg.OpExecutionContext, landing: LandingResource) -> dg.DataVersionsByPartition:
        return observe_partitions(context, landing.open(), feed)

    return _partitions
