"""The lake, as a resource of assets.

Methods import the parts that only a run needs: pandas and pyiceberg would delay each load of the code location by a
second. Does not belong here: the load of files (`load_asset`), and the re-evaluation of alerts (`alert_episodes`).
"""

from collections.abc import Callable

import dagster as dg
from pyspark.sql import DataFrame

from dagster_tidemark.event_log.observations import ObservationLedger
from dagster_tidemark.lakehouse.model_store import Given, Learner, ModelStore, Told
from dagster_tidemark.lakehouse.read import read
from dagster_tidemark.lakehouse.session import naming_the_server
from dagster_tidemark.lakehouse.table import Table
from dagster_tidemark.resources.aws import LandingResource
from dagster_tidemark.resources.spark import SparkResource
from dagster_tidemark.sources.feed import Feed
from dagster_tidemark.streams.stream_declaration import Stream


class LakehouseResource(dg.ConfigurableResource[None]):
    """The lake, as a resource: assets load files into tables, read tables, and store models."""

    spark: dg.ResourceDependency[SparkResource]
    landing: dg.ResourceDependency[LandingResource]

    def load(
        self,
        context: dg.AssetExecutionContext,
        feed: Feed,
        table: Table,
        transform: Callable[[DataFrame], DataFrame] = lambda rows: rows,
    ) -> dg.MaterializeResult[None]:
        """Update the run's partitions of a table to the current content of the feed's files.

        Returns:
            The materialization. Its metadata has the numbers of rows and files that were read and rejected, and the
            content version of each partition.
        """
        from dagster_tidemark.execution.load_asset import load_partitions, partitions_to_read_again
        from dagster_tidemark.lakehouse.loading.load import Load

        code_version = context.assets_def.code_versions_by_key[context.asset_key] or ""
        return load_partitions(
            context,
            self.spark.session,
            self.landing.open(),
            Load(feed, table, transform, code_version, read_again=partitions_to_read_again(context)),
            context.instance,
            start=self.spark.settings.start_date,
            misplaced=ObservationLedger(context.instance).misplaced(feed),
        )

    def read(self, table: Table) -> DataFrame:
        """Return all rows of a table. If it is the asset's own table, these are the rows of earlier runs."""
        spark = self.spark.session
        with naming_the_server(spark):
            return read(spark, table)

    def reevaluate(
        self, context: dg.AssetExecutionContext, stream: Stream, episodes: Callable[[DataFrame], DataFrame]
    ) -> dg.MaterializeResult[None]:
        """Update the alerts on a stream by applying today's rule to all of the stream's messages.

        The stream's runs continue during this, and send the changed alerts.

        Args:
            stream: A stream whose reaction is the `Alerting` for this table.
            episodes: Function from the rows of the stream's table to the episodes that need an alert. Columns of the
                result: the alert's key and facts, `started_at` and `last_at` (timestamps).
        """
        from dagster_tidemark.execution.alert_episodes import reevaluate

        return reevaluate(context, self.spark.session, self.spark.settings, stream, episodes)

    def models(self, name: str, learner: Learner[Given, Told]) -> ModelStore[Given, Told]:
        """Return the store of a model's versions."""
        return ModelStore(name, learner, self.spark.settings)
