"""From Dagster's asset graph to the plain one the planner thinks in.

What an asset declares is read here, once: its freshness policy, its tags `tidemark/pace` and `tidemark/requires`, the
metadata `ripple_days` and `use_latest` of its dependencies, its partitions and their mappings. Not everything used of
Dagster is annotated as public: tests/automation/test_adapter.py holds a test for each.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any

import dagster as dg
from dagster._core.definitions.assets.graph.base_asset_graph import BaseAssetGraph
from dagster._core.definitions.freshness import CronFreshnessPolicy, TimeWindowFreshnessPolicy
from dagster._core.definitions.partitions.context import partition_loading_context

from pipelines.automation.contracts import Contract, CronContract, LagContract, Window
from pipelines.automation.graph import Graph, Input, Node
from pipelines.sources.feed import Partition, start_of

RIPPLE_DAYS = "ripple_days"
USE_LATEST = "use_latest"
PACE = "tidemark/pace"
ASAP = "asap"
REQUIRES = "tidemark/requires"
EVERY_INPUT_CHANGED = "every_input_changed"

PLANNERS = "is_the_planners"
"""What the planner's own condition has as an attribute."""

AnyGraph = BaseAssetGraph[Any]

_MONTH = timedelta(days=30.436875)
_FAR = timedelta(days=400)


class UnknownDeclaration(Exception):
    """An asset declares something of the automation that does not exist. The message names it and what there is."""


def graph_of(asset_graph: AnyGraph, *, contract_scale: float = 1.0) -> Graph:
    """The plain graph of a code location's assets.

    Args:
        contract_scale: Multiplies the windows of lag contracts.

    Raises:
        UnknownDeclaration: an asset has a tag or policy that means nothing here.
    """
    nodes = {}
    for key in asset_graph.toposorted_asset_keys:
        node, name = asset_graph.get(key), key.to_user_string()
        contract = _contract(name, node.freshness_policy)
        nodes[name] = Node(
            name,
            [input_of(asset_graph, key, parent) for parent in sorted(node.parent_keys)],
            ordinal=_ordinal(node.partitions_def),
            window=_window(node.partitions_def),
            exists_from=_exists_from(node.partitions_def),
            problem=_problem(node.partitions_def),
            partitioned=node.partitions_def is not None,
            automated=node.is_materializable and _asks_the_planner(node.automation_condition),
            conditional=not getattr(node.automation_condition, PLANNERS, False),
            contract=contract.scaled(contract_scale) if contract else None,
            asap=_declared(name, node.tags, PACE, ASAP),
            requires_all=_declared(name, node.tags, REQUIRES, EVERY_INPUT_CHANGED),
            code_version=node.code_version,
        )
    return Graph(nodes)


def _asks_the_planner(condition: dg.AutomationCondition[Any] | None) -> bool:
    if condition is None:
        return False
    return getattr(condition, PLANNERS, False) or any(_asks_the_planner(child) for child in condition.children)


def _contract(asset: str, policy: dg.FreshnessPolicy | None) -> Contract | None:
    if policy is None:
        return None
    if isinstance(policy, TimeWindowFreshnessPolicy):
        warn = policy.warn_window.to_timedelta().total_seconds() if policy.warn_window else None
        return LagContract(policy.fail_window.to_timedelta().total_seconds(), warn)
    if isinstance(policy, CronFreshnessPolicy):
        return CronContract(policy.deadline_cron, policy.lower_bound_delta.total_seconds(), policy.timezone)
    raise UnknownDeclaration(f"{asset}: a {type(policy).__name__} is no contract; use time_window or cron")


def _declared(asset: str, tags: Mapping[str, str], tag: str, value: str) -> bool:
    if tags.get(tag, value) != value:
        raise UnknownDeclaration(f"{asset}: tag {tag}={tags[tag]!r} is not known; there is {value!r}")
    return tag in tags


def input_of(graph: AnyGraph, key: dg.AssetKey, parent: dg.AssetKey) -> Input:
    """What an asset declares of one it reads."""
    ours, theirs = graph.get(key).partitions_def, graph.get(parent).partitions_def
    name = parent.to_user_string()
    declared = _input_metadata(graph, key, parent)
    ripple_days, use_latest = declared.get(RIPPLE_DAYS), bool(declared.get(USE_LATEST))
    # A source is observed, never run: nothing joins its run.
    joinable = graph.get(parent).is_materializable and ours == theirs
    if theirs is None:
        # Every partition of the reader reads the one partition there is.
        downstream = (lambda _partition: [None]) if ours is None else None
        return Input(name, lambda _partition: [None], downstream, ripple_days, use_latest, joinable)
    if ours is None:
        return Input(name, None, lambda _partition: [None], ripple_days, use_latest)
    mapping = graph.get_partition_mapping(key, parent)
    if ours == theirs and _is_identity(mapping):
        return Input(name, _itself, _itself, ripple_days, use_latest, joinable)

    @lru_cache(maxsize=100_000)
    def _upstream(partition: Partition) -> Sequence[Partition]:
        with partition_loading_context(_once_all_exist(partition)):
            subset = ours.subset_with_partition_keys([partition or ""])
            found = mapping.get_upstream_mapped_partitions_result_for_partitions(subset, ours, theirs)
            return list(found.partitions_subset.get_partition_keys())

    @lru_cache(maxsize=100_000)
    def _downstream(partition: Partition) -> Sequence[Partition]:
        with partition_loading_context(_once_all_exist(partition)):
            subset = theirs.subset_with_partition_keys([partition or ""])
            return list(mapping.get_downstream_partitions_for_partitions(subset, theirs, ours).get_partition_keys())

    return Input(name, _upstream, _downstream, ripple_days, use_latest)


def _itself(partition: Partition) -> Sequence[Partition]:
    return (partition,)


def _is_identity(mapping: dg.PartitionMapping) -> bool:
    if isinstance(mapping, dg.TimeWindowPartitionMapping):
        return mapping.start_offset == mapping.end_offset == 0
    return isinstance(mapping, dg.IdentityPartitionMapping)


def _once_all_exist(partition: Partition) -> datetime:
    # Mappings leave out what does not exist yet and remember the answer; as seen from later, they are complete.
    try:
        return start_of(partition or "") + _FAR
    except ValueError:
        return datetime.now(UTC) + _FAR


def _input_metadata(graph: AnyGraph, key: dg.AssetKey, parent: dg.AssetKey) -> dict[str, int]:
    assets_def = getattr(graph.get(key), "assets_def", None)
    if assets_def is None or not assets_def.is_executable:
        return {}
    of_deps = [dep.metadata for dep in assets_def.specs_by_key[key].deps if dep.asset_key == parent]
    found = dict(of_deps[0] or {}) if of_deps else {}
    for name, read in assets_def.keys_by_input_name.items():
        if read == parent:
            found |= assets_def.node_def.input_dict[name].metadata
    return found


# Assets of one definition share what was found out about a key, which takes Dagster 100 microseconds.
@lru_cache
def _window(partitions_def: dg.PartitionsDefinition | None) -> Callable[[Partition], Window | None]:
    if not isinstance(partitions_def, dg.TimeWindowPartitionsDefinition):
        return lambda _partition: None

    @lru_cache(maxsize=100_000)
    def _of(partition: Partition) -> Window | None:
        window = partitions_def.time_window_for_partition_key(partition or "")
        return Window(window.start.timestamp(), window.end.timestamp())

    return _of


@lru_cache
def _exists_from(partitions_def: dg.PartitionsDefinition | None) -> Callable[[Partition], float]:
    if not isinstance(partitions_def, dg.TimeWindowPartitionsDefinition):
        return lambda _partition: float("-inf")
    window_of, offset = _window(partitions_def), partitions_def.end_offset

    def _from(partition: Partition) -> float:
        window = window_of(partition)
        assert window is not None
        return window.end - offset * (window.end - window.start)

    return _from


@lru_cache
def _problem(partitions_def: dg.PartitionsDefinition | None) -> Callable[[Partition], str | None]:
    if partitions_def is None:
        return lambda p: None if p is None else f"a partition {p!r} of an asset that has none"
    if isinstance(partitions_def, (dg.DynamicPartitionsDefinition, dg.MultiPartitionsDefinition)):
        return lambda p: "no partition, though the asset has some" if p is None else None
    if not isinstance(partitions_def, dg.TimeWindowPartitionsDefinition):
        keys = frozenset(partitions_def.get_partition_keys())
        return lambda p: None if p in keys else f"{p!r} is none of the asset's partitions"
    first = partitions_def.start.timestamp()

    @lru_cache(maxsize=100_000)
    def _of(partition: Partition) -> str | None:
        try:
            window = partitions_def.time_window_for_partition_key(partition or "")
        except (ValueError, dg.DagsterInvariantViolationError, dg.DagsterInvalidInvocationError) as error:
            return f"{partition!r} is no partition key here: {error}"
        if partitions_def.get_partition_key_for_timestamp(window.start.timestamp()) != partition:
            return f"{partition!r} is not the beginning of a window"
        return None if window.start.timestamp() >= first else f"{partition!r} is before the first partition"

    return _of


@lru_cache
def _ordinal(partitions_def: dg.PartitionsDefinition | None) -> Callable[[Partition], int]:
    if isinstance(partitions_def, dg.TimeWindowPartitionsDefinition):
        window_of, zero = _window(partitions_def), partitions_def.start.timestamp()
        length = _length_of_a_window(partitions_def).total_seconds()

        def _place(partition: Partition) -> int:
            window = window_of(partition)
            # Rounded: with daylight saving a day may begin an hour off.
            return round((window.start - zero) / length) if window else 0

        return _place
    if partitions_def is None or isinstance(partitions_def, dg.DynamicPartitionsDefinition):
        return lambda _: 0
    keys = {key: i for i, key in enumerate(partitions_def.get_partition_keys())}
    return lambda p: keys.get(p or "", 0)


def _length_of_a_window(partitions_def: dg.TimeWindowPartitionsDefinition) -> timedelta:
    first = partitions_def.get_first_partition_window()
    if first is None:
        return timedelta(hours=1)
    length = first.end - first.start
    return _MONTH if length > timedelta(days=27) else length
