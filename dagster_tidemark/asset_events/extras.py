"""The extras of an asset's last event: a small JSON object that travels with it."""

from collections.abc import Mapping
from typing import Any

import dagster as dg

from dagster_tidemark.asset_events.receive import EXTRAS

Context = dg.AssetExecutionContext | dg.OpExecutionContext | dg.AssetCheckExecutionContext | dg.SensorEvaluationContext


def event_extras(context: Context, asset: dg.AssetKey | str, partition: str | None = None) -> Mapping[str, Any]:
    """Return the extras of the last materialization or observation of an asset; empty if it has none.

    A sender sets `AssetEvent.extras`. An asset of this code location sets the metadata `extras`:
    `context.add_output_metadata({"extras": {"rows_expected": 10}})`.

    Args:
        asset: Key of the asset: `finance/rates`.
        partition: Key of the partition; None for the last event of any partition.
    """
    key = dg.AssetKey.from_user_string(asset) if isinstance(asset, str) else asset
    wanted = dg.AssetRecordsFilter(key, asset_partitions=None if partition is None else [partition])
    records = [
        *context.instance.fetch_observations(wanted, limit=1).records,
        *context.instance.fetch_materializations(wanted, limit=1).records,
    ]
    if not records:
        return {}
    last = max(records, key=lambda record: record.storage_id)
    said = last.asset_observation or last.asset_materialization
    return extras_in(said.metadata if said is not None else {})


def extras_in(metadata: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the extras in the metadata of an event; empty if they are missing or no JSON object."""
    value = metadata.get(EXTRAS)
    found = value.value if isinstance(value, dg.JsonMetadataValue) else None
    return found if isinstance(found, dict) else {}
