"""Assets of a declared feed: the source asset, and the table loaded from it, with its checks."""

import sys
from collections.abc import Callable, Sequence
from typing import Any

import dagster as dg
from pyspark.sql import DataFrame

from dagster_tidemark.derived_table import table_asset
from dagster_tidemark.execution.lakehouse_resource import LakehouseResource
from dagster_tidemark.execution.load_check import landed_checks
from dagster_tidemark.lakehouse.table import Table
from dagster_tidemark.resources.aws import LandingResource
from dagster_tidemark.sensors.on_demand import observe_file, observe_partitions
from dagster_tidemark.sources.feed import Feed
from dagster_tidemark.table_partitions import DeclarationRefused


def feed_assets(
    feed: Feed,
    table: Table,
    *,
    partitions_def: dg.PartitionsDefinition[str] | None = None,
    transform: Callable[[DataFrame], DataFrame] = lambda rows: rows,
    code_version: str = "1",
    owners: Sequence[str] = (),
    **core: Any,
) -> list[dg.AssetsDefinition | dg.SourceAsset]:
    """Return the source asset `raw/<feed>` and the table's asset, whose key is the table's name.

    Args:
        partitions_def: The definition that other assets of this grain use. Assets share runs only if it is the same.
        transform: Returns the table's rows from rows with the landing columns. Lineage columns pass through.
        code_version: Version of the transform and the feed's rules. A new version causes every file to be read again.
        core: Other arguments of `table_asset` for the table's asset: `fresh`, `tags`, `automation_condition`.

    Raises:
        DeclarationRefused: the first argument is no feed, or the second is no table.
        ValueError: the feed has partitions and the asset has none, or the other way round.
    """
    if not (isinstance(feed, Feed) and isinstance(table, Table)):
        found = f"{type(feed).__name__} and {type(table).__name__}"
        raise DeclarationRefused(f"feed_assets: expected a Feed and a Table, found {found}")
    if (partitions_def is None) is not feed.is_one_object:
        raise ValueError(f"feed {feed.name} is by {feed.layout.by}: give feed_assets the partitions_def of that grain")
    raw, key = ["raw", feed.name], table.name.split(".")

    @table_asset(
        table,
        partitions=partitions_def,
        deps=[raw],
        owners=owners,
        code_version=code_version,
        description=_one_row(feed, table),
        metadata={"dagster/code_references": _caller(), **core.pop("metadata", {})},
        check_specs=landed_checks(feed, key),
        **core,
    )
    def _table(context: dg.AssetExecutionContext, tidemark_lakehouse: LakehouseResource) -> dg.MaterializeResult:  # type: ignore[type-arg]
        return tidemark_lakehouse.load(context, feed, table, transform)

    return [_source(feed, raw, partitions_def), _table]


def _one_row(feed: Feed, table: Table) -> str:
    if not table.comment:
        return f"One row is a row of the files in {feed.prefix} in the bucket."
    return f"One row is {table.comment[:1].lower()}{table.comment[1:]}, from {feed.prefix} in the bucket."


def _caller() -> dg.CodeReferencesMetadataValue:
    """Return the line where a user's module called `feed_assets`, for the link in the UI."""
    frame = sys._getframe(2)
    where = dg.LocalFileCodeReference(file_path=frame.f_code.co_filename, line_number=frame.f_lineno)
    return dg.CodeReferencesMetadataValue(code_references=[where])


def _source(feed: Feed, key: list[str], partitions_def: dg.PartitionsDefinition[str] | None) -> dg.SourceAsset:
    what = (
        f"The object {feed.prefix}"
        if partitions_def is None
        else f"The files of each {feed.layout.by}, below {feed.prefix}"
    )
    as_source: Callable[[Callable[..., Any]], dg.SourceAsset] = dg.observable_source_asset(
        key=key,
        description=f"{what} in the landing bucket.",
        group_name="raw",
        partitions_def=partitions_def,
        tags={"dagster/kind/s3": ""},
    )
    if partitions_def is None:

        @as_source
        def _file(context: dg.OpExecutionContext, tidemark_landing: LandingResource) -> dg.ObserveResult:
            return observe_file(tidemark_landing.open(), feed, context.instance)

        return _file

    @as_source
    def _partitions(context: dg.OpExecutionContext, tidemark_landing: LandingResource) -> dg.DataVersionsByPartition:
        return observe_partitions(context, tidemark_landing, feed)

    return _partitions
