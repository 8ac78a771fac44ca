"""The tables in a preview: the preview's own rows on branches, and other tables as of the preview's beginning.

Belongs here: the resource `lakehouse` and the IO manager of a preview's runs. Does not belong here: the runs
(`preview.preview_runs`).
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, NoReturn

import dagster as dg
from dagster import DagsterInstance
from pyspark.sql import DataFrame, SparkSession

from dagster_tidemark.dagster_internals import event_storage
from dagster_tidemark.errors import Terminal
from dagster_tidemark.execution.io_manager import NoSuchTable
from dagster_tidemark.execution.load_asset import load_partitions
from dagster_tidemark.execution.metadata import partition_metadata
from dagster_tidemark.lakehouse import branches, catalog
from dagster_tidemark.lakehouse.content import content_of
from dagster_tidemark.lakehouse.loading.load import Landing, Load
from dagster_tidemark.lakehouse.loading.quarantine_table import QUARANTINE
from dagster_tidemark.lakehouse.model_store import Given, Learner, ModelStore, Told
from dagster_tidemark.lakehouse.read import Snapshot, as_declared
from dagster_tidemark.lakehouse.table import Table
from dagster_tidemark.lakehouse.table_changes import Stored
from dagster_tidemark.lakehouse.write import current_snapshot
from dagster_tidemark.preview import quarantined
from dagster_tidemark.preview.manifest import PreviewManifest
from dagster_tidemark.settings import Settings
from dagster_tidemark.sources.feed import Feed

FROM_MESSAGES = (
    "is computed from messages and sends its results, which a branch cannot do; deploy it with `tidemark plan --apply`"
)


class NotOnABranch(Terminal):
    """An asset does more in its run than write its own table, which a preview cannot try on branches."""


class PreviewLake:
    """The tables of a preview, and the resource `lakehouse` of its assets."""

    def __init__(
        self,
        spark: SparkSession,
        tables: Mapping[str, Table],
        manifest: PreviewManifest,
        settings: Settings,
        *,
        landing: Callable[[], Landing] | None = None,
        instance: DagsterInstance | None = None,
    ) -> None:
        """Args:
        settings: Settings of the deployment.
        landing: Function that opens the landing bucket, for assets that are loaded from files.
        instance: Instance whose event log has the observations of the bucket.
        """
        self.spark, self.tables, self.manifest = spark, tables, manifest
        self._settings = settings
        self._landing, self._instance = landing, instance
        self._pins: dict[str, int | None] = {}
        self._stored: dict[str, Stored] = {}

    def table(self, asset: str) -> Table:
        """Return the table of an asset.

        Raises:
            NoSuchTable: the asset has no declared table.
        """
        name = asset.replace("/", ".")
        if name not in self.tables:
            raise NoSuchTable(f"asset {asset} has no declared table {name!r}")
        return self.tables[name]

    def pin(self, table: Table) -> int | None:
        """Return the snapshot of a table that the preview reads: the current snapshot at the first call."""
        if table.name not in self._pins:
            if not branches.exists(self.spark, table):
                catalog.ensure(self.spark, table)
            self._pins[table.name] = current_snapshot(self.spark, table)
        return self._pins[table.name]

    def snapshot(self, table: Table, partitions: Collection[str] | None = None) -> Snapshot:
        """Return the rows of some partitions, from the branch if the preview has written to the table.

        Args:
            partitions: None means all partitions.
        """
        own = next((each for each in self.manifest.tables if each.table == table.name and each.head), None)
        at = own.head if own else self.pin(table)
        if table.name not in self._stored:
            self._stored[table.name] = catalog.as_it_is(self.spark, table)
        rows = branches.rows_of(self.spark, table, partitions, at)
        return Snapshot(as_declared(rows, table, self._stored[table.name]), at)

    def read(self, table: Table) -> DataFrame:
        """Return all rows of a table; see `LakehouseResource.read`."""
        return self.snapshot(table).rows

    def models(self, name: str, learner: Learner[Given, Told]) -> ModelStore[Given, Told]:
        """Return the store of a model's versions. Storing a version in it does not put the version into use."""
        return ModelStore(name, learner, self._settings)

    def load(
        self,
        context: dg.AssetExecutionContext,
        feed: Feed,
        table: Table,
        transform: Callable[[DataFrame], DataFrame] = lambda rows: rows,
    ) -> dg.MaterializeResult[None]:
        """Load files as `LakehouseResource.load` does, into the branches of the table and of the quarantine.

        Raises:
            NotOnABranch: the table is not the asset's own, or the preview has no landing bucket.
        """
        asset, branch = context.asset_key.to_user_string(), self.manifest.branch
        own = self.manifest.of(asset)
        if table.name != own.table:
            raise NotOnABranch(f"{asset} loads into {table.name}, but its preview has only a branch of {own.table}")
        if self._landing is None or self._instance is None:
            raise NotOnABranch(f"{asset} is loaded from files, but this preview has no landing bucket")
        quarantined.begin(self.spark, self.manifest)
        code_version = context.assets_def.code_versions_by_key[context.asset_key] or ""
        into = replace(table, branch=branch)
        load = Load(feed, into, transform, code_version, replace(QUARANTINE, branch=branch))
        own.is_loaded = True
        # Misplaced folders belong to no partition, so a preview ignores them.
        result = load_partitions(
            context,
            self.spark,
            self._landing(),
            load,
            self._instance,
            start=self._settings.start_date,
            misplaced=None,
        )
        own.standing = self._standing(feed, result.check_results)
        own.head = current_snapshot(self.spark, into)
        self.manifest.quarantine_head = current_snapshot(self.spark, load.quarantine)
        return result

    def _standing(self, feed: Feed, results: Sequence[dg.AssetCheckResult]) -> list[str]:
        """Return the failed checks that are no worse than at the table's last load, such as for damaged files."""
        found = []
        for result in (result for result in results if not result.passed):
            assert self._instance and result.asset_key and result.check_name
            key = dg.AssetCheckKey(result.asset_key, result.check_name)
            last = event_storage.latest_check_metadata(self._instance, key) or {}
            if not is_worse(last, {name: value.value for name, value in result.metadata.items()}, feed):
                found.append(result.check_name)
        return found

    def reevaluate(self, context: dg.AssetExecutionContext, *_: Any, **__: Any) -> NoReturn:
        """Refuse, because alerts are not computed on branches."""
        raise NotOnABranch(f"{context.asset_key.to_user_string()} {FROM_MESSAGES}")

    def keeps(self, source: str) -> bool:
        """Return True if a source is a table of the lake. Such a source contains a stream's messages, not files."""
        return source.replace("/", ".") in self.tables


class BranchIOManager(dg.IOManager):
    """IO manager that reads and writes a preview's tables."""

    def __init__(self, lake: PreviewLake) -> None:
        self._lake = lake

    def handle_output(self, context: dg.OutputContext, obj: DataFrame) -> None:
        lake, asset = self._lake, context.asset_key.to_user_string()
        table, own = lake.table(asset), lake.manifest.of(asset)
        partitions = list(context.asset_partition_keys) if context.has_asset_partitions else None
        own.head = branches.overwrite(obj, table, lake.manifest.branch, partitions, run_id=context.run_id)
        contents = content_of(lake.spark, table, partitions, own.head)
        for partition, content in contents.items():
            said = partition_metadata(partition, content)
            context.step_context.add_asset_metadata(said, context.asset_key, partition)

    def load_input(self, context: dg.InputContext) -> DataFrame | Snapshot:
        table = self._lake.table(context.asset_key.to_user_string())
        partitions = list(context.asset_partition_keys) if context.has_asset_partitions else None
        found = self._lake.snapshot(table, partitions)
        return found if context.dagster_type.typing_type is Snapshot else found.rows


def is_worse(last: Mapping[str, Any], now: Mapping[str, Any], feed: Feed) -> bool:
    """Return True if a check on a load (`execution.load_check`) found more problems than at the last load."""
    if set(now.get("files", ())) - set(last.get("files", ())):
        return True
    if now.get("largest share", 0.0) > max(feed.quarantine_share, last.get("largest share", 0.0)):
        return True
    return any(now.get(count, 0) > last.get(count, 0) for count in ("files held", "rows unaccounted for"))
