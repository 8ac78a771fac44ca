"""The parts of Dagster that are not annotated as public, behind plain functions.

Everything here may break with an upgrade; tests/automation/test_adapter.py says so loudly, one test an
attribute. Does not belong here: any decision.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any, Protocol

import dagster as dg
from dagster import (
    AssetRecordsFilter,
    DagsterEventType,
    DagsterInstance,
    DagsterRunStatus,
    EventLogRecord,
    EventRecordsResult,
    RunsFilter,
)
from dagster._core.definitions.assets.graph.base_asset_graph import BaseAssetGraph
from dagster._core.storage.runs import SqlRunStorage
from dagster._time import get_current_timestamp
from dagster._utils.warnings import disable_dagster_warnings

from pipelines.automation.graph import Graph, Input, Node
from pipelines.lakehouse.io_manager import CONTENT
from pipelines.sources.feed import Partition, start_of

DATA_VERSION = "dagster/data_version"
LISTED_AT = "tidemark/listed_at"
ARRIVED_AT = "tidemark/arrived_at"
RIPPLE_DAYS = "ripple_days"

AnyGraph = BaseAssetGraph[Any]

_PAGE = 1000
ENDED = (DagsterRunStatus.SUCCESS, DagsterRunStatus.FAILURE, DagsterRunStatus.CANCELED)


def now() -> float:
    """The time in Unix seconds, as the instance stamps its events with it: a simulation's clock, where there is one."""
    return get_current_timestamp()


def graph_of(asset_graph: AnyGraph) -> Graph:
    """The plain graph of a code location's assets."""
    nodes = {}
    for key in asset_graph.toposorted_asset_keys:
        node = asset_graph.get(key)
        inputs = [_input(asset_graph, key, parent) for parent in sorted(node.parent_keys)]
        name = key.to_user_string()
        nodes[name] = Node(
            name,
            inputs,
            ordinal=_ordinal(node.partitions_def),
            exists=_exists(node.partitions_def),
            partitioned=node.partitions_def is not None,
            automated=node.is_materializable and node.automation_condition is not None,
        )
    return Graph(nodes)


def _input(graph: AnyGraph, key: dg.AssetKey, parent: dg.AssetKey) -> Input:
    ours, theirs = graph.get(key).partitions_def, graph.get(parent).partitions_def
    name = parent.to_user_string()
    ripple_days = _input_metadata(graph, key, parent).get(RIPPLE_DAYS)
    # A source is observed, never run: nothing joins its run.
    joinable = graph.get(parent).is_materializable and ours == theirs
    if theirs is None:
        # Every partition of the reader reads the one partition there is.
        downstream = (lambda _partition: [None]) if ours is None else None
        return Input(name, lambda _partition: [None], downstream, ripple_days, joinable)
    if ours is None:
        return Input(name, None, lambda _partition: [None], ripple_days)
    mapping = graph.get_partition_mapping(key, parent)

    @lru_cache(maxsize=100_000)
    def _upstream(partition: Partition) -> Sequence[Partition]:
        with dg.partition_loading_context(_once_all_exist(partition)):
            subset = ours.subset_with_partition_keys([partition or ""])
            found = mapping.get_upstream_mapped_partitions_result_for_partitions(subset, ours, theirs)
            return list(found.partitions_subset.get_partition_keys())

    @lru_cache(maxsize=100_000)
    def _downstream(partition: Partition) -> Sequence[Partition]:
        with dg.partition_loading_context(_once_all_exist(partition)):
            subset = theirs.subset_with_partition_keys([partition or ""])
            return list(mapping.get_downstream_partitions_for_partitions(subset, theirs, ours).get_partition_keys())

    identity = joinable and isinstance(mapping, (dg.IdentityPartitionMapping, dg.TimeWindowPartitionMapping))
    return Input(name, _upstream, _downstream, ripple_days, identity and not getattr(mapping, "start_offset", 0))


def _once_all_exist(partition: Partition) -> datetime:
    # Mappings leave out what does not exist yet and remember the answer; as seen from later, they are complete.
    try:
        return start_of(partition or "") + timedelta(days=60)
    except ValueError:
        return datetime.now(UTC)


def _input_metadata(graph: AnyGraph, key: dg.AssetKey, parent: dg.AssetKey) -> dict[str, int]:
    node = graph.get(key)
    assets_def = getattr(node, "assets_def", None)
    if assets_def is None or not assets_def.is_executable:
        return {}
    for name, found in assets_def.keys_by_input_name.items():
        if found == parent:
            return dict(assets_def.node_def.input_dict[name].metadata)
    return {}


def _ordinal(partitions_def: dg.PartitionsDefinition | None) -> Callable[[Partition], int]:
    if isinstance(partitions_def, dg.TimeWindowPartitionsDefinition):
        hour_zero, window = partitions_def.start, _length_of_a_window(partitions_def)
        return lambda p: round((start_of(p or "") - hour_zero) / window)
    if partitions_def is None:
        return lambda _: 0
    keys = {key: i for i, key in enumerate(partitions_def.get_partition_keys())}
    return lambda p: keys[p or ""]


def _length_of_a_window(partitions_def: dg.TimeWindowPartitionsDefinition) -> timedelta:
    first = partitions_def.get_first_partition_window()
    return first.end - first.start if first else timedelta(hours=1)


def _exists(partitions_def: dg.PartitionsDefinition | None) -> Callable[[Partition, float], bool]:
    if partitions_def is None:
        return lambda partition, _now: partition is None
    if not isinstance(partitions_def, dg.TimeWindowPartitionsDefinition):
        return lambda partition, _now: partition in partitions_def.get_partition_keys()
    first = partitions_def.start.timestamp()

    def _begun(partition: Partition, now: float) -> bool:
        return partition is not None and first <= start_of(partition).timestamp() <= now

    return _begun


class Fetch(Protocol):
    """`fetch_observations`, `fetch_materializations` or `fetch_planned_materializations` of an instance."""

    def __call__(
        self, records_filter: AssetRecordsFilter, limit: int, cursor: str | None = ..., ascending: bool = ...
    ) -> EventRecordsResult: ...


def events_after(fetch: Fetch, key: str, after: int) -> Iterator[EventLogRecord]:
    """Events of one asset in the order of their storage ids, from after an id on."""
    records_filter = AssetRecordsFilter(dg.AssetKey.from_user_string(key), after_storage_id=after or None)
    cursor = None
    while True:
        page = fetch(records_filter, limit=_PAGE, cursor=cursor, ascending=True)
        yield from page.records
        if not page.has_more:
            return
        cursor = page.cursor


def fetch_planned(instance: DagsterInstance) -> Fetch:
    """The instance's planned materializations, which Dagster says go away in 2.0: said here, once."""

    def _fetch(
        records_filter: AssetRecordsFilter, limit: int, cursor: str | None = None, ascending: bool = False
    ) -> EventRecordsResult:
        with disable_dagster_warnings():
            return instance.fetch_planned_materializations(records_filter, limit, cursor, ascending)

    return _fetch


def planned_partitions(record: EventLogRecord) -> list[Partition]:
    """The partitions a planned event is about."""
    planned = record.event_log_entry.get_dagster_event().asset_materialization_planned_data
    if planned.partitions_subset is not None:
        return list(planned.partitions_subset.get_partition_keys())
    return [planned.partition]


def observation_tags(record: EventLogRecord) -> Mapping[str, str]:
    """The tags of an observation."""
    observation = record.asset_observation
    return observation.tags if observation else {}


def identity_of(instance: DagsterInstance) -> str:
    """What tells one instance's storage from another's, for as long as it lives."""
    storage = instance.run_storage
    assert isinstance(storage, SqlRunStorage)
    return storage.get_run_storage_id()


def content_version(record: EventLogRecord) -> str | None:
    """The content version a materialization was written with, or none."""
    materialization = record.asset_materialization
    value = materialization.metadata.get(CONTENT) if materialization else None
    return str(value.value) if value is not None else None


def latest_observations(
    instance: DagsterInstance, key: dg.AssetKey, partitions: set[str] | None = None
) -> dict[Partition, dict[str, str]]:
    """Partition to the tags of its latest observation (all partitions, or these), in two queries."""
    ids = instance.event_log_storage.get_latest_storage_id_by_partition(
        key, DagsterEventType.ASSET_OBSERVATION, partitions
    )
    found: dict[Partition, dict[str, str]] = {}
    for start in range(0, len(ids), _PAGE):
        some = list(ids.values())[start : start + _PAGE]
        records = instance.fetch_observations(AssetRecordsFilter(key, storage_ids=some), limit=len(some)).records
        found |= {r.partition_key: dict(observation_tags(r)) for r in records}
    if not ids and partitions is None:
        records = instance.fetch_observations(key, limit=1).records
        found |= {r.partition_key: dict(observation_tags(r)) for r in records}
    return found


def ended_runs(instance: DagsterInstance, run_ids: Sequence[str]) -> dict[str, float]:
    """Those of these runs that have ended (or were deleted), with when, in Unix seconds."""
    if not run_ids:
        return {}
    records = instance.get_run_records(RunsFilter(run_ids=list(run_ids)))
    ended = {
        r.dagster_run.run_id: r.end_time or r.update_timestamp.timestamp()
        for r in records
        if r.dagster_run.status in ENDED
    }
    deleted = set(run_ids) - {r.dagster_run.run_id for r in records}
    return ended | dict.fromkeys(deleted, now())
