"""Check that the partitioning of each table agrees with its asset's partitions definition.

If the two differ, a run writes rows into partitions that Dagster does not record as built. So loading the code location
fails, with a line for each asset. Does not belong here: the declarations themselves
(`lakehouse.partitioning`).
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import dagster as dg

from dagster_tidemark.errors import Terminal
from dagster_tidemark.lakehouse.partitioning import ByDimensions, ByKey, ByTime, Partitioning
from dagster_tidemark.lakehouse.table import Table


class DeclarationRefused(Terminal):
    """Declarations of assets, feeds or tables are unusable. A line for each names it and the remedy."""


class PartitionsDiffer(DeclarationRefused):
    """Partitions of assets differ from those of their tables or feeds. A line for each names both and the remedy."""


def require_equal_partitions(assets: Iterable[Any], tables: Mapping[str, Table]) -> None:
    """Raise if a table's partitions differ from its asset's.

    Args:
        tables: Tables by name: the parts of the asset key, joined by dots.

    Raises:
        PartitionsDiffer: the partitions of one or more tables differ.
    """
    wrong = []
    for asset, spec in [(each, spec) for each in assets for spec in _specs(each)]:
        table = tables.get(".".join(spec.key.path))
        if table and _is_cut_for_itself_alone(asset, table):
            continue
        if table and (why := _difference(spec.partitions_def, table.partitioning, table.columns)):
            wrong.append(f"asset {spec.key.to_user_string()}, table {table.name}: {why}")
    if wrong:
        raise PartitionsDiffer("\n".join(wrong))


def _is_cut_for_itself_alone(asset: Any, table: Table) -> bool:
    """Return True if the table's keys are not Dagster partitions, as for the deliveries of an external asset."""
    return isinstance(asset, dg.AssetSpec) and asset.partitions_def is None and isinstance(table.partitioning, ByKey)


def _specs(asset: Any) -> Iterable[dg.AssetSpec]:
    """Return the specs that an asset declares. An external asset is its own spec."""
    if isinstance(asset, dg.AssetSpec):
        return [asset]
    return asset.specs if isinstance(asset, dg.AssetsDefinition) else ()


def _difference(
    definition: dg.PartitionsDefinition[Any] | None, by: Partitioning | None, columns: Mapping[str, str]
) -> str:
    """Return the difference and the remedy; empty if there is none."""
    match definition, by:
        case None, None:
            return ""
        case None, _:
            return "the asset has no partitions, but the table has: give the asset a partitions_def, or the table none"
        case dg.MultiPartitionsDefinition(), ByDimensions():
            return _of_dimensions(definition, by, columns)
        case dg.MultiPartitionsDefinition(), _:
            names = ", ".join(sorted(definition.partition_dimension_names))
            return f"the asset has the dimensions {names}: write ByDimensions({{...}}) with a column for each"
        case dg.TimeWindowPartitionsDefinition(), ByTime():
            return _of_time(definition, by, columns)
        case dg.TimeWindowPartitionsDefinition(), _:
            return f"the asset is partitioned by time ({definition.fmt}): write partitioned_by=ByTime(<column>)"
        case ((dg.StaticPartitionsDefinition() | dg.DynamicPartitionsDefinition()), ByKey()):
            return ""
        case ((dg.StaticPartitionsDefinition() | dg.DynamicPartitionsDefinition()), _):
            return "the asset is partitioned by keys other than times: write partitioned_by=ByKey(<string column>)"
    return f"a table cannot be partitioned by a {type(definition).__name__}; use time, keys or several dimensions"


def _of_dimensions(definition: dg.MultiPartitionsDefinition, by: ByDimensions, columns: Mapping[str, str]) -> str:
    declared, ours = set(definition.partition_dimension_names), set(by.dimensions)
    if declared != ours:
        return f"the asset has the dimensions {', '.join(sorted(declared))}, the table {', '.join(sorted(ours))}"
    for dimension in definition.partitions_defs:
        if why := _difference(dimension.partitions_def, by.dimensions[dimension.name], columns):
            return f"dimension {dimension.name}: {why}"
    return ""


def _of_time(definition: dg.TimeWindowPartitionsDefinition, by: ByTime, columns: Mapping[str, str]) -> str:
    form = by.format_of(columns)
    if form != definition.fmt:
        wanted = f"write ByTime(..., format={definition.fmt!r})"
        return f"the asset's keys are written {definition.fmt}, the table's {form}: {wanted}"
    if columns[by.column] == "timestamp" and by.timezone != definition.timezone:
        return f"the asset has the time zone {definition.timezone}: write ByTime(..., timezone={definition.timezone!r})"
    return ""


def keys_of(assets: Iterable[Any]) -> Iterator[dg.AssetKey]:
    """Yield the keys of assets. Checks have none."""
    for asset in assets:
        if isinstance(asset, dg.AssetsDefinition):
            yield from asset.keys
        elif isinstance(asset, dg.AssetSpec | dg.SourceAsset):
            yield asset.key


def stored_by(io_manager: str, assets: Iterable[Any]) -> Iterator[dg.AssetKey]:
    """Yield the keys of the materializable assets that have an IO manager."""
    for asset in assets:
        if isinstance(asset, dg.AssetsDefinition) and asset.is_materializable:
            yield from (key for key in asset.keys if asset.get_io_manager_key_for_asset_key(key) == io_manager)
