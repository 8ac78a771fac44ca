"""Loading a feed into its core table, as an asset sees it."""

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NoReturn

import dagster as dg
from pyspark.sql import DataFrame

from pipelines.tidemark.event_log import adapter
from pipelines.tidemark.event_log.observations import EventLog, holds_files
from pipelines.tidemark.execution.load_check import landed_results, told_columns
from pipelines.tidemark.execution.metadata import COLUMNS, column_schema, partition_metadata, table_state
from pipelines.tidemark.execution.watermark import through
from pipelines.tidemark.failpoints import reached
from pipelines.tidemark.lakehouse.loading.load import Load, Loaded, Observed, run_load
from pipelines.tidemark.lakehouse.models import Given, Learner, ModelStore, Told
from pipelines.tidemark.lakehouse.read import read
from pipelines.tidemark.lakehouse.session import naming_the_server
from pipelines.tidemark.lakehouse.tables import Table
from pipelines.tidemark.resources.aws import LandingResource
from pipelines.tidemark.resources.spark import SparkResource
from pipelines.tidemark.settings import load_settings
from pipelines.tidemark.sources.feed import Feed, Partition
from pipelines.tidemark.sources.removals import ACCEPTED
from pipelines.tidemark.streams.stream import Stream
from pipelines.tidemark.tags import CODE_VERSION, LISTED_AT, OUTCOME

_TOLD = 20  # files that are spelled out in the metadata of a run


class LakehouseResource(dg.ConfigurableResource[None]):
    """The lake: where core assets load their files into, and where models are kept."""

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
        has_partitions = context.has_partition_key_range or context.has_partition_key
        # Of several dimensions a key is more than a text to Dagster.
        partitions = [str(key) for key in context.partition_keys] if has_partitions else [None]
        code_version = context.assets_def.code_versions_by_key[context.asset_key] or ""
        load = Load(feed, table, transform, code_version)
        misplaced = EventLog(context.instance).misplaced(feed)
        spark = self.spark.session
        with naming_the_server(spark):
            loaded = run_load(
                spark,
                self.landing.open(),
                load,
                partitions,
                run_id=context.run.run_id,
                observed=lambda: observed_removals(context.instance, feed),
                misplaced=None if misplaced is None else misplaced.values(),
            )
        counted = _counted(loaded)
        said = {
            partition: partition_metadata(partition, content)
            | through(loaded.arrived_through.get(partition))
            | counted.get(partition, {})
            for partition, content in loaded.content.items()
        }
        context.log.info(
            f"{loaded.files_read} files read, {len(loaded.files_rejected)} of them turned away; "
            f"{loaded.rows_read} rows, {loaded.rows_rejected} turned away; "
            f"{len(loaded.read_again)} partitions read again, {len(loaded.added_to)} added to"
        )
        declared = {check.name for check in context.assets_def.check_keys}

        def before(check: str) -> Mapping[str, object]:
            return adapter.latest_check_metadata(context.instance, dg.AssetCheckKey(context.asset_key, check)) or {}

        results = landed_results(feed, context.asset_key, loaded, before, datetime.now(UTC))
        checks = [r for r in results if r.check_name in declared]
        if loaded.unavailable:
            _say_what_is_loaded(context, said, loaded, code_version, checks)
        for partition, metadata in said.items():
            context.add_asset_metadata(metadata, partition_key=partition)
        reached("before_recorded")
        return dg.MaterializeResult(
            metadata=table_state(loaded.snapshot_id, loaded.table_rows)
            | _lists(loaded)
            | _columns_beside(table, loaded),
            check_results=checks,
        )

    def read(self, table: Table) -> DataFrame:
        """All rows of a table. Of the asset's own: what earlier runs left."""
        spark = self.spark.session
        with naming_the_server(spark):
            return read(spark, table)

    def reevaluate(
        self, context: dg.AssetExecutionContext, stream: Stream, episodes: Callable[[DataFrame], DataFrame]
    ) -> dg.MaterializeResult[None]:
        """Bring the alerts on a stream up to what today's rule finds in all of its messages.

        The runs of the stream go on meanwhile, and send what becomes of it.

        Args:
            stream: Its reaction is the `Alerting` of these alerts.
            episodes: From the rows of the stream's table to the episodes that are worth an alert: the alert's key and
                facts, `started_at` and `last_at` (timestamps).
        """
        # Here, because pyiceberg takes a second to import, which every load of the code location would pay.
        from pipelines.tidemark.execution.reevaluation import reevaluate

        return reevaluate(context, self.spark.session, stream, episodes)

    def models(self, name: str, learner: Learner[Given, Told]) -> ModelStore[Given, Told]:
        """The versions of a model."""
        return ModelStore(name, learner, load_settings())


def _counted(loaded: Loaded) -> dict[Partition, Counter[str]]:
    """What became of the rows of the files that a load has read, or that lost rows to them: numbers of each partition,
    because Dagster plots them by partition."""
    counts: dict[Partition, Counter[str]] = defaultdict(Counter)
    for account in loaded.accounts:
        of_file = {"rows landed": account.landed, "rows turned away": account.rejected}
        counts[account.partition].update({"files read": 1, **of_file, "rows superseded": account.superseded})
    return counts


def _lists(loaded: Loaded) -> dict[str, Any]:
    """What is told by name; nothing of what is empty."""
    told: dict[str, Any] = {
        "files turned away": [f"{fault.file.key}: {fault.message}" for fault in loaded.files_rejected[:_TOLD]],
        "new columns": told_columns(loaded),
        "columns added": list(loaded.additions.added),
    }
    return {what: names for what, names in told.items() if names}


def _columns_beside(table: Table, loaded: Loaded) -> dict[str, Any]:
    """What the UI is to show as the table's columns, where it has more than are declared."""
    if not loaded.additions.there:
        return {}
    return {COLUMNS: column_schema(table, dict.fromkeys(loaded.additions.there, "string"))}


def _say_what_is_loaded(
    context: dg.AssetExecutionContext,
    said: Mapping[Partition, Mapping[str, Any]],
    loaded: Loaded,
    code_version: str,
    checks: Sequence[dg.AssetCheckResult],
) -> NoReturn:
    """Fail for the partitions that lack a file which is not given; the others of the run are loaded, and say so.

    Neither is the file judged: its partition is pending, and tried again with growing pauses.
    """
    lacking = {file.partition for file in loaded.unavailable}
    for partition, metadata in said.items():
        if partition not in lacking:
            event = dg.AssetMaterialization(
                context.asset_key, partition=partition, metadata=metadata, tags={CODE_VERSION: code_version}
            )
            context.log_event(event)
    for check in checks:  # a step that fails has no results
        context.instance.report_runless_asset_event(
            dg.AssetCheckEvaluation(
                asset_key=context.asset_key,
                check_name=check.check_name or "",
                passed=check.passed,
                metadata=check.metadata,
                severity=check.severity,
                description=check.description,
            )
        )
    files = "; ".join(f"{file.key}: {reason}" for file, reason in list(loaded.unavailable.items())[:_TOLD])
    raise dg.Failure(f"{len(loaded.unavailable)} files are there and cannot be read; all others are loaded. {files}")


def observed_removals(instance: dg.DagsterInstance, feed: Feed) -> Observed:
    """What the latest observations of a feed's partitions say about removals."""
    latest = EventLog(instance, load_settings().start_date).latest(feed)
    return Observed(
        vanished={
            partition: datetime.fromtimestamp(float(tags[LISTED_AT]), UTC)
            for partition, tags in latest.items()
            if not holds_files(tags) and OUTCOME not in tags and LISTED_AT in tags
        },
        accepted=[partition for partition, tags in latest.items() if tags.get(OUTCOME) == ACCEPTED],
        holding=[partition for partition, tags in latest.items() if holds_files(tags)],
    )
