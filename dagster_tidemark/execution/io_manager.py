"""DataFrames in and out of assets: the Iceberg IO manager.

The output of a partitioned asset replaces the run's partitions in one commit. An input has only the partitions of the
upstream table that the mapping selects. An input annotated as `Snapshot` is read as of one commit.
"""

from collections.abc import Mapping
from typing import Any

import dagster as dg
from pyspark.sql import DataFrame

from dagster_tidemark.engine.missing_inputs import missing_metadata
from dagster_tidemark.errors import Terminal
from dagster_tidemark.execution.metadata import partition_metadata, table_state
from dagster_tidemark.execution.watermark import InputArrivals
from dagster_tidemark.lakehouse import catalog, read, write
from dagster_tidemark.lakehouse.content import content_of
from dagster_tidemark.lakehouse.session import naming_the_server
from dagster_tidemark.lakehouse.table import Table


class NoSuchTable(Terminal):
    """An asset has no declared table.

    Declare a table in `schemas`. Its name must be the parts of the asset key, joined by dots.
    """


class NotADataFrame(Terminal):
    """The function of a table's asset returned something else than a Spark DataFrame."""


class IcebergIOManager(dg.IOManager):
    """IO manager for the lake's tables.

    Args:
        tables: Every declared table by name. The asset key `core/orders` has the table `core.orders`.
        spark: The resource whose attribute `session` is the run's session, created on first use.
    """

    def __init__(self, tables: Mapping[str, Table], spark: Any) -> None:
        self._tables = tables
        self._spark = spark
        self._inputs = InputArrivals()

    def handle_output(self, context: dg.OutputContext, obj: DataFrame) -> None:
        table = self._table(context.asset_key)
        if not isinstance(obj, DataFrame):
            raise NotADataFrame(
                f"asset {context.asset_key.to_user_string()}: expected a Spark DataFrame from its function, found "
                f"{type(obj).__module__}.{type(obj).__name__}: return spark.createDataFrame(...) of it"
            )
        partitions = list(context.asset_partition_keys) if context.has_asset_partitions else None
        spark = self._spark.session
        with naming_the_server(spark):
            catalog.ensure(spark, table)
            commit = write.overwrite(obj, table, partitions, run_id=context.run_id)
            content = content_of(spark, table, partitions, commit.snapshot_id)
        context.add_output_metadata(table_state(commit.snapshot_id, commit.rows))
        missing = missing_metadata(context.step_context.dagster_run.tags, context.asset_key.to_user_string())
        for partition, held in content.items():
            said = {
                **missing,
                **partition_metadata(partition, held),
                **self._inputs.said_of(context, partition),
            }
            context.step_context.add_asset_metadata(said, context.asset_key, partition)

    def load_input(self, context: dg.InputContext) -> DataFrame | read.Snapshot:
        table = self._table(context.asset_key)
        partitions = list(context.asset_partition_keys) if context.has_asset_partitions else None
        self._inputs.about_to_read(context)
        spark = self._spark.session
        with naming_the_server(spark):
            if context.dagster_type.typing_type is read.Snapshot:
                return read.read_snapshot(spark, table, partitions)
            return read.read(spark, table, partitions)

    def _table(self, key: dg.AssetKey) -> Table:
        name = ".".join(key.path)
        if name not in self._tables:
            raise NoSuchTable(
                f"asset {key.to_user_string()} has no table: declare Table(name={name!r}, ...), and pass it in `tables`"
            )
        return self._tables[name]


def iceberg_io_manager(tables: Mapping[str, Table], *, spark: str = "spark") -> dg.IOManagerDefinition:
    """Return the definition of an IO manager for these tables.

    Args:
        spark: The key of the resource with the Spark session.
    """

    @dg.io_manager(required_resource_keys={spark})
    def _build(context: dg.InitResourceContext) -> IcebergIOManager:
        return IcebergIOManager(tables, getattr(context.resources, spark))

    return _build
