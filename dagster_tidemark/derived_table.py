"""Declaration of a derived table's asset in a short form of `dg.asset`."""

from collections.abc import Callable, Iterable, Mapping, Set
from datetime import timedelta
from functools import partial
from typing import Any

import dagster as dg

from dagster_tidemark.lakehouse.table import Table
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
    """
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


def _policy(fresh: timedelta | dg.FreshnessPolicy | None) -> dg.FreshnessPolicy | None:
    return dg.FreshnessPolicy.time_window(fail_window=fresh) if isinstance(fresh, timedelta) else fresh


def _input(read: str | dg.AssetIn) -> dg.AssetIn:
    return dg.AssetIn(key=dg.AssetKey.from_user_string(read)) if isinstance(read, str) else read


def with_window_mappings(assets: Iterable[Any], others: Iterable[Any] = ()) -> list[Any]:
    """Return the assets with a partition mapping by time for inputs with a different time partitioning.

    Declared mappings stay. Dagster's default mapping is the same, but it fails while the last partitions of the window
    do not exist yet.

    Args:
        others: All other assets of the code location, which the assets may read.
    """
    assets = list(assets)
    partitions = _partitions([*others, *assets])
    mapped = partial(_mapped, partitions=partitions)
    return [each.map_asset_specs(mapped) if isinstance(each, dg.AssetsDefinition) else each for each in assets]


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


def with_single_partitions(assets: Iterable[Any], others: Iterable[Any]) -> list[Any]:
    """Return the assets, with one partition per run for tables that load partitions of the location's other assets.

    An IO manager of the location returns a value for one partition, and usually a dictionary for several, which the
    function of a table does not expect. A declared backfill policy stays.

    Args:
        others: All other assets of the code location.
    """
    partitioned = {key for key, partitions in _partitions(others).items() if partitions is not None}
    return [_in_single_partitions(each) if _loads(each, partitioned) else each for each in assets]


def _in_single_partitions(asset: dg.AssetsDefinition) -> dg.AssetsDefinition:
    return asset.with_attributes(backfill_policy=dg.BackfillPolicy.multi_run(1))


def _loads(asset: Any, keys: Set[dg.AssetKey]) -> bool:
    """Return True if a table without a declared backfill policy loads one of some assets as an argument."""
    if not isinstance(asset, dg.AssetsDefinition) or asset.backfill_policy is not _ANY_NUMBER:
        return False
    inputs = asset.op.input_dict.items()
    return any(asset.keys_by_input_name[name] in keys for name, each in inputs if not each.dagster_type.is_nothing)
