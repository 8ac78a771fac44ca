"""Declaration of a derived table's asset in a short form of `dg.asset`."""

from collections.abc import Callable, Iterable, Mapping, Set
from datetime import timedelta
from functools import partial
from typing import Any

import dagster as dg

from dagster_tidemark.errors import shown
from dagster_tidemark.lakehouse.table import Table
from dagster_tidemark.table_partitions import DeclarationRefused
from dagster_tidemark.tags import IO_MANAGER

_Decorator = Callable[[Callable[..., Any]], dg.AssetsDefinition]
_ANY_NUMBER = dg.BackfillPolicy.single_run()
"""Policy of tables that declare none. It is compared by identity, so that a declared policy stays."""


def table_asset(
    table: Table,
    *,
    ins: Mapping[str, str | dg.AssetIn] | None = None,
    partitions: dg.PartitionsDefinition[str] | None = None,
    fresh: timedelta | dg.FreshnessPolicy | None = None,
    **options: Any,
) -> _Decorator:
    """Return the decorator of a function that computes a table from other tables.

        @table_asset(SALES_DAILY, ins={"orders": "core/orders"}, partitions=DAYS, fresh=timedelta(hours=24))
        def sales_daily(orders: DataFrame) -> DataFrame: ...

    The asset's key is the table's name. Group, kinds and backfill policy follow from the table and the partitions.

    Args:
        ins: The asset that each parameter reads, as `namespace/table`. From a table with a different time
            partitioning, all partitions in the window are read; give a `dg.AssetIn` for any other mapping.
        fresh: Longest time until new data is in the table, or a policy. None: as soon as its readers need it.
        options: Other arguments of `dg.asset`. They take precedence over the derived ones.

    Raises:
        DeclarationRefused: the table, `ins` or `fresh` has another type.
    """
    _require_types(table, ins, fresh)
    key = table.name.split(".")
    derived = {
        "key": key,
        "ins": {name: _input(read) for name, read in (ins or {}).items()},
        "group_name": key[0],
        "kinds": {"iceberg", "pyspark"},
        "partitions_def": partitions,
        "freshness_policy": _policy(fresh),
        "io_manager_key": IO_MANAGER,
        "backfill_policy": _ANY_NUMBER if partitions else None,
    }
    # Typed, because with options as keywords the decorator has no type.
    decorator: _Decorator = dg.asset(**(derived | options))
    return decorator


def _require_types(table: Any, ins: Any, fresh: Any) -> None:
    """Raise if an argument has a type that would fail later, without the name of the asset."""
    if not isinstance(table, Table):
        raise DeclarationRefused(
            f"table_asset: expected a Table, found {shown(table)}: write @table_asset(TABLE, ins=..., fresh=...)"
        )
    asset = f"asset {table.name.replace('.', '/')}"
    if not isinstance(ins or {}, Mapping):
        raise DeclarationRefused(
            f'{asset}: expected ins as a mapping, found {ins!r}: write {{"orders": "core/orders"}}, with the parameter '
            "and the asset that it reads"
        )
    for name, read in (ins or {}).items():
        if not isinstance(read, str | dg.AssetIn):
            raise DeclarationRefused(
                f"{asset}: ins: {name}: expected a key such as 'core/orders' or a dg.AssetIn, found {shown(read)}"
            )
    if not isinstance(fresh, timedelta | dg.FreshnessPolicy | None):
        raise DeclarationRefused(
            f"{asset}: fresh: expected a timedelta or a dg.FreshnessPolicy, found {fresh!r}: write timedelta(hours=1)"
        )


def _policy(fresh: timedelta | dg.FreshnessPolicy | None) -> dg.FreshnessPolicy | None:
    return dg.FreshnessPolicy.time_window(fail_window=fresh) if isinstance(fresh, timedelta) else fresh


def _input(read: str | dg.AssetIn) -> dg.AssetIn:
    return dg.AssetIn(key=dg.AssetKey.from_user_string(read)) if isinstance(read, str) else read


def fitted_to_partitions(assets: Iterable[Any], others: Iterable[Any] = ()) -> list[Any]:
    """Return the assets with the partition mappings and backfill policies that the partitions of their inputs need.

    - An input with a different time partitioning gets a mapping by time. Dagster's default mapping is the same, but it
      fails while the last partitions of the window do not exist yet.
    - A table that loads partitions of the location's other assets gets one partition per run. An IO manager of the
      location returns a value for one partition, and usually a dictionary for several, which the function of a table
      does not expect.

    Declared mappings and policies stay.

    Args:
        others: All other assets of the code location, which the assets may read.
    """
    assets, of_others = list(assets), _partitions(others)
    mapped = partial(_mapped, partitions=of_others | _partitions(assets))
    partitioned = {key for key, partitions in of_others.items() if partitions is not None}
    return [_fitted(each, mapped, partitioned) if isinstance(each, dg.AssetsDefinition) else each for each in assets]


def _fitted(
    asset: dg.AssetsDefinition, mapped: Callable[[dg.AssetSpec], dg.AssetSpec], partitioned: Set[dg.AssetKey]
) -> dg.AssetsDefinition:
    asset = asset.map_asset_specs(mapped)
    if _loads(asset, partitioned):
        return asset.with_attributes(backfill_policy=dg.BackfillPolicy.multi_run(1))
    return asset


def _partitions(assets: Iterable[Any]) -> dict[dg.AssetKey, Any]:
    """Return the partitions definition of each asset, None for assets without partitions."""
    found: dict[dg.AssetKey, Any] = {}
    for asset in assets:
        if isinstance(asset, dg.AssetsDefinition):
            found |= {spec.key: spec.partitions_def for spec in asset.specs}
        elif isinstance(asset, dg.AssetSpec | dg.SourceAsset):
            found[asset.key] = asset.partitions_def
    return found


def _mapped(spec: dg.AssetSpec, partitions: Mapping[dg.AssetKey, Any]) -> dg.AssetSpec:
    deps = [_by_time(dep, spec.partitions_def, partitions.get(dep.asset_key)) for dep in spec.deps]
    return spec if deps == list(spec.deps) else spec.replace_attributes(deps=deps)


def _by_time(dep: dg.AssetDep, own: Any, read: Any) -> dg.AssetDep:
    times = dg.TimeWindowPartitionsDefinition
    if dep.partition_mapping or own == read or not (isinstance(own, times) and isinstance(read, times)):
        return dep
    mapping = dg.TimeWindowPartitionMapping(allow_nonexistent_upstream_partitions=True)
    return dg.AssetDep(dep.asset_key, partition_mapping=mapping, metadata=dep.metadata)


def _loads(asset: dg.AssetsDefinition, keys: Set[dg.AssetKey]) -> bool:
    """Return True if a table without a declared backfill policy loads one of some assets as an argument."""
    if asset.backfill_policy is not _ANY_NUMBER:
        return False
    inputs = asset.op.input_dict.items()
    return any(asset.keys_by_input_name[name] in keys for name, each in inputs if not each.dagster_type.is_nothing)
