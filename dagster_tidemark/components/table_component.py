"""The component for a table that is computed from other tables."""

from collections.abc import Sequence

import dagster as dg
from pydantic import Field

from dagster_tidemark.components.attributes import ComponentInput, named, partitions_of, transform_named
from dagster_tidemark.components.base_component import BaseComponent
from dagster_tidemark.components.scaffolding import TableScaffolder
from dagster_tidemark.derived_table import table_asset
from dagster_tidemark.lakehouse.table import Table
from dagster_tidemark.sources.feed import Feed


@dg.scaffold_with(TableScaffolder)
class TableComponent(BaseComponent):
    """A table that is computed from other tables, and its asset, as in `table_asset`."""

    name: str = Field(description="`namespace.table`; the asset's key is `namespace/table`.", examples=["marts.sales"])
    columns: dict[str, str] = Field(description="Column name to Spark SQL type, in order.")
    row_key: list[str] = Field(description="Columns that identify a row.")
    transform: str = Field(
        description="Function that computes the table: a parameter for each of `ins`, the rows as its result.",
        examples=["shop.transforms.sales:sales_daily"],
    )
    ins: dict[str, str | ComponentInput] = Field({}, description="Asset that each parameter of the transform reads.")
    partitions: str | None = Field(
        None,
        description="`hour`, `day`, `week` or `month`, from the location's start date on, or a partitions definition "
        "in Python, as `package.module:NAME`.",
    )

    def _table(self, feed: Feed | None) -> Table:
        return Table(self.name, self.columns, tuple(self.row_key), **self._table_options())

    def _assets(self) -> Sequence[dg.AssetsDefinition | dg.SourceAsset]:
        table = self.declaration.table
        ins = {name: self._input(each) for name, each in self.ins.items()}
        partitions = partitions_of(self.partitions)
        declare = table_asset(table, ins=ins, partitions=partitions, **self._asset_options())
        return [declare(transform_named(self.transform))]

    def _input(self, given: str | ComponentInput) -> str | dg.AssetIn:
        if isinstance(given, str):
            return given
        mapping = named("partition_mapping", given.partition_mapping) if given.partition_mapping else None
        key = dg.AssetKey.from_user_string(given.key)
        return dg.AssetIn(key, partition_mapping=mapping, metadata=given.metadata or None)
