"""Partitions whose files a load reads again although the table has them, because a person asked for a rebuild.

Belongs here: the run tag, and rebuilds that the run's partitions still owe. Does not belong here: which steps follow
(`lakehouse.loading.load_plan`).
"""

from collections.abc import Sequence

import dagster as dg

from dagster_tidemark.asset_graph.partition_keys import KeysOf
from dagster_tidemark.dagster_internals import event_time
from dagster_tidemark.engine.override_store import owed_again
from dagster_tidemark.planner.graph import Moment
from dagster_tidemark.sources.feed import Partition
from dagster_tidemark.tags import REBUILD


def partitions_of(context: dg.AssetExecutionContext) -> list[Partition]:
    """Return the partitions of a run, as plain texts; None stands for an asset without partitions."""
    has_partitions = context.has_partition_key_range or context.has_partition_key
    # Dagster passes a multi-partition key as an object, not as a plain text.
    return [str(key) for key in context.partition_keys] if has_partitions else [None]


def partitions_to_read_again(context: dg.AssetExecutionContext) -> frozenset[Partition]:
    """Return the run's partitions to read again: all if the run has the tag, else those of unfinished rebuilds."""
    partitions = partitions_of(context)
    if REBUILD in context.run.tags:
        return frozenset(partitions)
    return frozenset(owed(context.instance, context.asset_key, _definition(context), partitions))


def owed(
    instance: dg.DagsterInstance,
    key: dg.AssetKey,
    definition: dg.PartitionsDefinition | None,
    partitions: Sequence[Partition],
) -> list[Partition]:
    """Return the partitions of an asset that an unfinished rebuild covers."""
    keys = KeysOf(Moment(event_time.now()))(definition)
    with dg.partition_loading_context(dynamic_partitions_store=instance):
        return owed_again(instance, key.to_user_string(), partitions, lambda each, one: each.covers(keys, one))


def _definition(context: dg.AssetExecutionContext) -> dg.PartitionsDefinition | None:
    found: dg.PartitionsDefinition | None = context.assets_def.specs_by_key[context.asset_key].partitions_def
    return found
