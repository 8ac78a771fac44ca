"""The component for a feed and the table that is loaded from the feed."""

from collections.abc import Sequence
from typing import Any

import dagster as dg
from pydantic import Field

from dagster_tidemark.components.attributes import Duration, FileForm, partitions_by, partitions_of, transform_named
from dagster_tidemark.components.base_component import BaseComponent
from dagster_tidemark.components.scaffolding import FeedScaffolder
from dagster_tidemark.lakehouse.partitioning import ByDimensions, ByKey, ByTime, Partitioning, partitioning_of
from dagster_tidemark.lakehouse.table import LINEAGE, SOURCE_ROW, Table
from dagster_tidemark.sources.feed import Feed, Grain, NewColumns, OnRemoval
from dagster_tidemark.sources.times import TYPES

_SAME_IN_FEED = (
    "name", "grain", "columns", "rules", "quarantine_share", "removals", "allow_empty", "encoding", "multiline",
    "exact", "new_columns", "folders", "keys", "timezone", "time_name", "names",
)  # fmt: skip
"""Attributes of the component that are passed unchanged to the feed."""


@dg.scaffold_with(FeedScaffolder)
class FeedComponent(BaseComponent):
    """A feed of files, its source asset, and the table that is loaded from the feed, as in `feed_assets`."""

    name: str = Field(description="The feed's name; its source asset is `raw/<name>`.", examples=["returns"])
    grain: Grain = Field(description="Time partitions of its files.")
    columns: dict[str, str] = Field(description="SQL type of each column of the files.")
    key: list[str] = Field(
        description="Columns that identify a row of a partition; they are required. If empty, a row is identified by "
        "its file and its position in the file."
    )
    prefix: str | None = Field(
        None, description="Folder of its files, ending in /; default `<name>/`. With grain `none`: key of its object."
    )
    suffixes: list[str] | None = None
    format: FileForm | str | None = Field(
        None,
        description="Format of all its files: `csv`, `json` or `fixed_width` with options, or the name of a registered "
        "format.",
    )
    names: dict[str, list[str]] = Field({}, description="Other names of each column in files.")
    required: list[str] = Field([], description="More required columns; rows with null in one are rejected.")
    rules: dict[str, str] = Field({}, description="SQL condition that valid rows meet, by reason of rejection.")
    quarantine_share: float = Feed.quarantine_share
    removals: OnRemoval = Feed.removals
    follow_for: Duration = Duration(days=Feed.follow_for.days)
    allow_empty: bool = Feed.allow_empty
    encoding: str = Feed.encoding
    multiline: bool = Feed.multiline
    exact: bool = Feed.exact
    new_columns: NewColumns = Feed.new_columns
    folders: str | None = None
    keys: dict[str, list[str]] = Field({}, description="Keys of each further dimension, by its name.")
    timezone: str = Feed.timezone
    time_name: str | None = None
    table: str | None = Field(None, description="Name of the table; default `core.<name>`.")
    table_columns: dict[str, str] | None = Field(
        None, description="All columns of the table; default: the partition columns, `columns` and the lineage."
    )
    transform: str | None = Field(
        None,
        description="Function from rows with the landing columns to rows of the table.",
        examples=["shop.transforms.returns:with_reason"],
    )
    partitions: str | None = Field(
        None, description="Partitions definition in Python, as `package.module:NAME`; default: that of the grain."
    )

    def _feed(self) -> Feed:
        if unknown := [column for column in self.key if column not in self.columns]:
            raise ValueError(f"feed {self.name}: key has {', '.join(unknown)}, which is not in columns; add it there")
        return Feed(
            prefix=self._prefix(),
            required=tuple(dict.fromkeys([*self.key, *self.required])),
            suffixes=None if self.suffixes is None else tuple(self.suffixes),
            format=self.format.format if isinstance(self.format, FileForm) else self.format,
            follow_for=self.follow_for.length,
            **{name: getattr(self, name) for name in _SAME_IN_FEED},
        )

    def _prefix(self) -> str:
        if self.prefix is not None:
            return self.prefix
        if self.grain is Grain.NONE and not self.keys:
            raise ValueError(f"feed {self.name}: prefix is missing; with grain none it is the key of its object")
        return f"{self.name}/"

    def _table(self, feed: Feed | None) -> Table:
        options = self._table_options()
        by = partitioning_of(options["partitioned_by"]) or self._partitioning()
        types = self._types(by)
        place = {} if self.key else SOURCE_ROW
        return Table(
            self.table or f"core.{self.name}",
            self.table_columns or types | self.columns | place | LINEAGE,
            (*types, *(self.key or ("source_file", *SOURCE_ROW))),
            **options | {"partitioned_by": by},
        )

    def _partitioning(self) -> Partitioning | None:
        """Return the partition columns: one for the time, named after the grain by default, and one for each key."""
        zone = self.timezone if TYPES.get(self.grain) == "timestamp" else "UTC"
        parts: dict[str, ByTime | ByKey] = {name: ByKey(name) for name in self.keys}
        if self.grain is not Grain.NONE:
            parts[self.time_name or self.grain.value] = ByTime(self.grain.value, timezone=zone)
        return ByDimensions(parts) if len(parts) > 1 else next(iter(parts.values()), None)

    def _types(self, by: Partitioning | None) -> dict[str, str]:
        """Return the partition columns with their types."""
        match by:
            case ByTime(column):
                return {column: TYPES.get(self.grain, "date")}
            case ByKey(column):
                return {column: "string"}
            case ByDimensions(dimensions):
                parts = [self._types(part) for _, part in sorted(dimensions.items())]
                return {column: kind for part in parts for column, kind in part.items()}
        return {}

    def _assets(self) -> Sequence[dg.AssetsDefinition | dg.SourceAsset]:
        from dagster_tidemark.feed_factory import feed_assets

        feed, options = self.declaration.feed, self._asset_options()
        assert feed is not None
        if self.transform:
            options["transform"] = transform_named(self.transform)
        # Dagster adds the reference to defs.yaml. `feed_assets` would add a reference to a line of this module.
        no_references = dg.CodeReferencesMetadataValue(code_references=[])
        source, table = feed_assets(
            feed,
            self.declaration.table,
            partitions_def=self._partitions_definition(),
            metadata={"dagster/code_references": no_references},
            **options,
        )
        # The table comes first, because Dagster reports missing resources of the first asset. For the table it reports
        # the placeholder of `pending`, but for the source only that some resource is missing.
        return [table, source]

    def _partitions_definition(self) -> dg.PartitionsDefinition[Any] | None:
        if self.partitions:
            return partitions_of(self.partitions)
        keys: dict[str, dg.PartitionsDefinition[Any]] = {
            name: dg.StaticPartitionsDefinition(each) for name, each in self.keys.items()
        }
        if self.grain is not Grain.NONE:
            keys[self.time_name or self.grain.value] = partitions_by(self.grain, self.timezone)
        return dg.MultiPartitionsDefinition(keys) if len(keys) > 1 else next(iter(keys.values()), None)
