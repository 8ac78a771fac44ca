"""Runs that report published partitions and compute nothing: their assets, metadata and check results.

Belongs here: the parts of such a run. Does not belong here: starting it and choosing the partitions
(`preview.publish`).
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

import dagster as dg
from dagster import DagsterInstance

from dagster_tidemark.dagster_internals import event_storage
from dagster_tidemark.execution.watermark import THROUGH, through
from dagster_tidemark.planner.graph import Node
from dagster_tidemark.preview.manifest import RunPreview
from dagster_tidemark.preview.preview_runs import events
from dagster_tidemark.sources.feed import Partition


def arrivals(instance: DagsterInstance, node: Node, partitions: Sequence[Partition]) -> dict[Partition, dict[str, Any]]:
    """Return metadata for each partition: the newest arrival time of data that its inputs contain."""
    of = {
        read.key: event_storage.latest_metadata(instance, dg.AssetKey.from_user_string(read.key), THROUGH)
        for read in node.inputs
    }
    found: dict[Partition, dict[str, Any]] = {}
    for partition in partitions:
        told: list[float] = []
        for read in node.inputs:
            said = of[read.key]
            wanted: Collection[Partition] = list(said) if read.upstream is None else read.upstream(partition)
            told += [at for p in wanted if isinstance(at := said.get(p), float)]
        found[partition] = through(datetime.fromtimestamp(max(told), UTC) if told else None)
    return found


def results(run: RunPreview, asset: str) -> list[dg.AssetCheckResult]:
    """Return the check results of an asset from the preview's run."""
    return [
        dg.AssetCheckResult(
            passed=e.passed,
            asset_key=e.asset_key,
            check_name=e.check_name,
            metadata=e.metadata,
            severity=e.severity,
            description=e.description,
        )
        for e in events(run.checks)
        if e.asset_key.to_user_string() == asset
    ]


def reporting(
    definitions: dg.Definitions,
    keys: Sequence[dg.AssetKey],
    run: RunPreview,
    body: Callable[[dg.AssetExecutionContext], Iterator[dg.MaterializeResult[None]]],
) -> dg.AssetsDefinition:
    """Return assets with the specs of the real assets, and a body that only reports."""
    of_keys = {spec.key: spec for spec in definitions.resolve_all_asset_specs() if spec.key in keys}
    checks = {(e.asset_key, e.check_name) for e in events(run.checks)}

    @dg.multi_asset(
        name="published",
        specs=[of_keys[key] for key in keys],
        check_specs=[dg.AssetCheckSpec(name, asset=key) for key, name in sorted(checks, key=str)],
        backfill_policy=dg.BackfillPolicy.single_run(),
    )
    def _published(context: dg.AssetExecutionContext) -> Iterator[dg.MaterializeResult[None]]:
        yield from body(context)

    return _published


def others(definitions: dg.Definitions, keys: Sequence[dg.AssetKey]) -> list[dg.AssetSpec]:
    """Return the specs of the assets' inputs, so that Dagster can record the data versions of the inputs."""
    specs = {spec.key: spec for spec in definitions.resolve_all_asset_specs()}
    read = {dep.asset_key for key in keys for dep in specs[key].deps} - set(keys)
    return [dg.AssetSpec(key, partitions_def=specs[key].partitions_def) for key in sorted(read) if key in specs]


def partitions_of(run: dg.DagsterRun, definitions: dg.Definitions, node: Node) -> set[Partition]:
    """Return the partitions of a run."""
    if not node.partitioned:
        return {None}
    first, last = run.tags.get("dagster/asset_partition_range_start"), run.tags.get("dagster/asset_partition_range_end")
    if first is None or last is None:
        return {run.tags["dagster/partition"]}
    by = definitions.resolve_asset_graph().get(dg.AssetKey.from_user_string(node.key)).partitions_def
    assert by is not None
    return set(by.get_partition_keys_in_range(dg.PartitionKeyRange(first, last)))
