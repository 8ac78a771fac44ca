"""Loading a feed into its core table, as an asset sees it."""

from collections.abc import Callable

import dagster as dg
from pyspark.sql import DataFrame

from pipelines.lakehouse.io_manager import partition_metadata, summary
from pipelines.lakehouse.load import Load, run_load
from pipelines.lakehouse.session import naming_the_server
from pipelines.lakehouse.tables import Table
from pipelines.resources.aws import LandingResource
from pipelines.resources.spark import SparkResource
from pipelines.sources.feed import Feed


class LakehouseResource(dg.ConfigurableResource[None]):
    """The lake: where core assets load their files into."""

    spark: dg.ResourceDependency[SparkResource]
    landing: dg.ResourceDependency[LandingResource]

    def load(
        self,
        context: dg.AssetExecutionContext,
        feed: Feed,
        table: Table,
        transform: Callable[[DataFrame], DataFrame] = lambda rows: rows,
    ) -> dg.MaterializeResult[None]:
        """Bring the run's partitions of a table up to what the feed's files hold now.

        Returns:
            The materialization, with what was read and turned away, and each partition's content version.
        """
        partitions = (
            list(context.partition_keys) if context.has_partition_key_range or context.has_partition_key else [None]
        )
        code_version = context.assets_def.code_versions_by_key[context.asset_key] or ""
        load = Load(feed, table, transform, code_version)
        spark = self.spark.session
        with naming_the_server(spark):
            loaded = run_load(spark, self.landing.open(), load, partitions, run_id=context.run_id)
        for partition, content in loaded.content.items():
            context.add_asset_metadata(partition_metadata(content), partition_key=partition)
        return dg.MaterializeResult(
            metadata=summary(loaded.content, loaded.snapshot_id)
            | {
                "partitions read": len(loaded.read_again),
                "files read": loaded.files_read,
                "rows rejected": loaded.rows_rejected,
                "files rejected": [f"{fault.file.key}: {fault.message}" for fault in loaded.files_rejected],
            }
        )
