"""From Dagster's asset graph to the plain one the planner thinks in.

What an asset declares is read here, once, when the location loads. An asset of which something cannot be read is set
aside with the reason (`Node.refused`); every other one is complete. Belongs here: where in Dagster's graph to look.
Does not belong here: what may be declared (`asset_graph.declarations`, `asset_graph.partition_keys`,
`asset_graph.partition_mappings`). Not everything used of Dagster is annotated as public:
tests/tidemark/automation/test_adapter.py holds a test for each.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeVar
from zlib import crc32

import dagster as dg
from dagster._core.definitions.assets.graph.asset_graph import AssetGraph
from dagster._core.definitions.assets.graph.base_asset_graph import BaseAssetGraph

from dagster_tidemark.asset_graph.declarations import (
    ASAP,
    EVERY_INPUT_CHANGED,
    checks_elsewhere_of,
    contract_of,
    most_of,
    optional_of,
    ripple_days_of,
    tagged,
    use_latest_of,
)
from dagster_tidemark.asset_graph.dep_metadata import dep_metadata
from dagster_tidemark.asset_graph.edges import Edge, Ends
from dagster_tidemark.asset_graph.partition_keys import Keys, KeysOf
from dagster_tidemark.asset_graph.partition_mappings import edge_of
from dagster_tidemark.asset_graph.refusal import Refused, told
from dagster_tidemark.asset_graph.sensor_names import sensor_names
from dagster_tidemark.event_log import adapter
from dagster_tidemark.planner.graph import Graph, Input, Moment, Node
from dagster_tidemark.tags import PACE, REQUIRES

_LONGEST = 120  # characters of a definition in words

PLANNERS = "is_the_planners"
"""What the planner's own condition has as an attribute."""

_LASTING = {
    "BackfillInProgressAutomationCondition",
    "CheckResultCondition",
    "Derived",
    "ExecutionFailedAutomationCondition",
    "InLatestTimeWindowCondition",
    "MissingAutomationCondition",
    "RunInProgressAutomationCondition",
    "WillBeRequestedCondition",
}
"""Conditions without parts that stay true while nothing happens. One of a user's own may be of either kind."""

_MOMENTARY = {"NewlyTrueCondition", "SinceCondition"}
"""Conditions with parts that are true for a moment, or that remember one."""

AnyGraph = BaseAssetGraph[Any]
_T = TypeVar("_T")


def graph_of(asset_graph: AnyGraph, *, contract_scale: float = 1.0) -> Graph:
    """The plain graph of a code location's assets. Its moment is now, until it moves.

    A run over a range of several assets may build as many partitions as the strictest of their backfill policies says.

    Args:
        contract_scale: Multiplies the windows of lag contracts.
    """
    keys_of = KeysOf(Moment(adapter.now()))
    nodes = {}
    for key in asset_graph.toposorted_asset_keys:
        node = _node(asset_graph, key, keys_of)
        if node.key not in nodes or node.refused:  # of two that are spelled alike the one that is refused stands
            nodes[node.key] = replace(node, contract=node.contract.scaled(contract_scale)) if node.contract else node
    sensors = sensor_names(nodes.values())
    found = {k: replace(n, sensor=sensors.get(k, n.sensor)) for k, n in nodes.items()}
    return Graph(found, keys_of.moment, dynamic_names(asset_graph))


def loaded(definitions: Iterable[Any]) -> AnyGraph:
    """Dagster's graph of all assets and checks of a code location, as it will be once that is loaded.

    Not through definitions: those would ask for the resources of all assets.
    """
    every = [dg.AssetsDefinition(specs=[each]) if isinstance(each, dg.AssetSpec) else each for each in definitions]
    return AssetGraph.from_assets(AssetGraph.normalize_assets(every))


def dynamic_names(asset_graph: AnyGraph) -> frozenset[str]:
    """The names of the dynamic partitions definitions in use: a moment has to know the keys of each."""
    found = (_dynamic_in(asset_graph.get(key).partitions_def) for key in asset_graph.toposorted_asset_keys)
    return frozenset(name for names in found for name in names)


def _dynamic_in(definition: dg.PartitionsDefinition | None) -> Iterator[str]:
    if isinstance(definition, dg.MultiPartitionsDefinition):
        for dimension in definition.partitions_defs:
            yield from _dynamic_in(dimension.partitions_def)
    elif isinstance(definition, dg.DynamicPartitionsDefinition) and definition.name is not None:
        yield definition.name


@dataclass
class _Reading:
    """What could be read of one asset, and why the rest could not."""

    reasons: list[str] = field(default_factory=list)

    def of(self, what: str, read: Callable[[], _T], default: _T) -> _T:
        try:
            return read()
        except Refused as error:
            self.reasons.append(str(error))
        except Exception as error:  # anybody's code: it harms this asset alone
            self.reasons.append(f"{what} cannot be read: {told(error)}")
        return default


def _node(asset_graph: AnyGraph, key: dg.AssetKey, keys_of: KeysOf) -> Node:
    asset, name, reading = asset_graph.get(key), key.to_user_string(), _Reading()
    keys = reading.of("its partitions definition", lambda: _tried(keys_of(asset.partitions_def)), None)
    source = not asset.is_materializable
    # What an external asset depends on is told of, and never runs.
    parents = () if source else sorted(asset.parent_keys)
    inputs = [
        reading.of(f"how it reads {p.to_user_string()}", partial(input_of, asset_graph, key, p, keys_of), _unread(p))
        for p in parents
    ]
    contract = reading.of("its freshness policy", lambda: contract_of(asset.freshness_policy), None)
    asap = reading.of("its tags", lambda: tagged(asset.tags, PACE, ASAP), False)
    requires_all = reading.of("its tags", lambda: tagged(asset.tags, REQUIRES, EVERY_INPUT_CHANGED), False)
    automated = reading.of("its condition", lambda: _asks_the_planner(asset.automation_condition), True)
    if dg.AssetKey.from_user_string(name) != key:
        reading.reasons.append(f"a part of its key {key.path} holds a slash, so it could not be told from {name}")
    if asset.is_virtual:
        reading.reasons.append("a virtual asset is not supported; let its readers depend on what it is made from")
    blocking = [check for check in asset.check_keys if asset_graph.get(check).blocking]
    own = frozenset(check.name for check in blocking)
    elsewhere = reading.of("its metadata", lambda: checks_elsewhere_of(asset.metadata), frozenset[str]()) - own
    broken = f"its partitions definition cannot be read: {'; '.join(reading.reasons)}"
    node = Node(
        name,
        inputs,
        partitioned=asset.partitions_def is not None,
        automated=asset.is_materializable and automated,
        conditional=not getattr(asset.automation_condition, PLANNERS, False),
        momentary=_is_momentary(asset.automation_condition),
        contract=contract,
        asap=asap,
        requires_all=requires_all,
        code_version=asset.code_version,
        cut=reading.of("its partitions definition", lambda: _in_words(asset.partitions_def), ""),
        source=source,
        most=most_of(asset.backfill_policy),
        together=_together(asset_graph, key),
        blocking=own | elsewhere,
        elsewhere=elsewhere,
        run_alone={c.name: asset_graph.get(c).partitions_def is not None for c in blocking if _alone(asset_graph, c)},
        run_later=frozenset(check.name for check in blocking if asset_graph.get(check).automation_condition),
        refused="; ".join(dict.fromkeys(reading.reasons)),
        problem=lambda _: broken,
    )
    if keys is None:
        return node
    return replace(
        node,
        order=keys.order,
        follows=keys.follows,
        window=keys.window,
        exists_from=keys.exists_from,
        problem=keys.problem,
        exists=keys.exists,
        keys=keys.keys,
        dynamic=keys.dynamic if any(_dynamic_in(asset.partitions_def)) else None,
        odd=keys.odd,
    )


def _in_words(definition: dg.PartitionsDefinition | None) -> str:
    said = "" if definition is None else str(definition)
    # A thousand static keys are told by their beginning, and told apart by all of them.
    return said if len(said) <= _LONGEST else f"{said[:_LONGEST]}... ({crc32(said.encode()):08x})"


def _tried(keys: Keys) -> Keys:
    """Keys whose definition answers at all."""
    for partition in keys.ends():
        keys.problem(partition)
        keys.exists_from(partition)
    return keys


def _asks_the_planner(condition: dg.AutomationCondition[Any] | None) -> bool:
    if condition is None:
        return False
    return getattr(condition, PLANNERS, False) or any(_asks_the_planner(child) for child in condition.children)


def _is_momentary(condition: dg.AutomationCondition[Any] | None) -> bool:
    """Return True if a condition may let the planner's requests pass for a moment only, like a tick of a cron."""
    if condition is None:
        return False
    condition = getattr(condition, "condition", condition)  # out of its guard
    kind, parts = type(condition).__name__, condition.children
    if not parts:
        return kind not in _LASTING and not getattr(condition, PLANNERS, False)
    if kind == "OrAutomationCondition":  # its other parts do not ask the planner
        parts = [part for part in parts if _asks_the_planner(part)]
    return kind in _MOMENTARY or any(map(_is_momentary, parts))


def _together(asset_graph: AnyGraph, key: dg.AssetKey) -> frozenset[str]:
    keys = asset_graph.get(key).execution_set_asset_keys if asset_graph.get(key).is_materializable else ()
    return frozenset(k.to_user_string() for k in keys) if len(keys) > 1 else frozenset()


def _alone(asset_graph: AnyGraph, check: dg.AssetCheckKey) -> bool:
    """Return True if the planner can request a run that evaluates only this check."""
    is_split = len(asset_graph.get_execution_set_asset_and_check_keys(check)) == 1
    return is_split and asset_graph.get(check).automation_condition is None


def _unread(parent: dg.AssetKey) -> Input:
    return Input(parent.to_user_string(), lambda _: (), lambda _: ())


def input_of(asset_graph: AnyGraph, key: dg.AssetKey, parent: dg.AssetKey, keys_of: KeysOf) -> Input:
    """What an asset declares of one it reads.

    Raises:
        Refused: it declares what cannot be followed.
        Exception: whatever somebody's own mapping raises for the first or the last partition there is.
    """
    asset, read, name = asset_graph.get(key), asset_graph.get(parent), parent.to_user_string()
    ours, theirs = keys_of(asset.partitions_def), keys_of(read.partitions_def)
    metadata, loaded = _declared(asset_graph, key, parent)
    edge = edge_between(asset_graph, key, parent, keys_of)
    for partition in ours.ends():
        edge.missing_inputs(partition)
        _ = edge.upstream and edge.upstream(partition)
    for partition in theirs.ends():
        _ = edge.downstream and edge.downstream(partition)
    return Input(
        name,
        edge.upstream,
        edge.downstream,
        ripple_days_of(metadata, name, whole=theirs.definition is None, timed=ours.timed),
        use_latest_of(metadata, name),
        # A source is observed, never run: nothing joins its run. Nor does a partition its own past's.
        # An input with a blocking check that its run does not evaluate cannot share a run with its readers.
        joinable=edge.identity
        and read.is_materializable
        and asset.is_materializable
        and key != parent
        and not any(asset_graph.get(c).blocking and asset_graph.get(c).automation_condition for c in read.check_keys),
        # What is not loaded, Dagster does not look for.
        missing_inputs=edge.missing_inputs if loaded else lambda _: "",
        stamp=edge.stamp,
        broad=edge.broad,
        optional=optional_of(metadata, name),
    )


def edge_between(asset_graph: AnyGraph, key: dg.AssetKey, parent: dg.AssetKey, keys_of: KeysOf) -> Edge:
    """Which partitions of an asset read which of another.

    Raises:
        Refused: the mapping cannot map the two.
    """
    ours, theirs = keys_of(asset_graph.get(key).partitions_def), keys_of(asset_graph.get(parent).partitions_def)
    mapping = asset_graph.get_partition_mapping(key, parent)
    return edge_of(mapping, Ends(ours, theirs, parent.to_user_string(), keys_of.moment))


def _declared(asset_graph: AnyGraph, key: dg.AssetKey, parent: dg.AssetKey) -> tuple[Mapping[str, Any], bool]:
    """The metadata of a dependency, and whether it is loaded as an argument of the function."""
    assets_def = getattr(asset_graph.get(key), "assets_def", None)
    if assets_def is None or not assets_def.is_executable:
        return {}, False
    found = dep_metadata(assets_def.specs_by_key[key], parent)
    loaded = False
    for name, read in assets_def.keys_by_input_name.items():
        if read == parent:
            declared = assets_def.node_def.input_dict[name]
            found |= declared.metadata or {}
            loaded = loaded or not declared.dagster_type.is_nothing
    return found, loaded
