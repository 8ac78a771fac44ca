"""Converts Dagster's asset graph into the planner's plain graph.

Reads each asset's declarations once, when the code location loads. If a declaration is invalid, the asset's node has
the reason (`Node.refused`), and the planner ignores the asset. Belongs here: finding the declarations in Dagster's
graph. Does not belong here: the valid values (`asset_graph.declarations`, `asset_graph.partition_keys`,
`asset_graph.partition_mappings`).
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeVar
from zlib import crc32

import dagster as dg

from dagster_tidemark.asset_graph.declarations import (
    ASAP,
    EVERY_INPUT_CHANGED,
    OPTIONAL,
    USE_LATEST,
    Refused,
    checks_elsewhere_of,
    contract_of,
    dep_metadata,
    flag_of,
    in_one_line,
    most_of,
    on_missing_of,
    promises_of,
    ripple_days_of,
    tagged,
)
from dagster_tidemark.asset_graph.edges import Edge, Ends
from dagster_tidemark.asset_graph.partition_keys import Keys, KeysOf
from dagster_tidemark.asset_graph.partition_mappings import edge_of
from dagster_tidemark.asset_graph.sensor_names import sensor_names
from dagster_tidemark.dagster_internals import event_time
from dagster_tidemark.dagster_internals.asset_graph import AnyGraph
from dagster_tidemark.planner.graph import Graph, Input, Moment, Node
from dagster_tidemark.planner.user_code import Raised, called
from dagster_tidemark.tags import PACE, REQUIRES

_LONGEST = 120  # maximum characters in the description of a partitions definition

PLANNERS = "is_the_planners"
"""Name of an attribute that only the planner's own condition has."""

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
"""Dagster's basic conditions that stay true until something changes. User-defined conditions may be momentary."""

_MOMENTARY = {"NewlyTrueCondition", "SinceCondition"}
"""Conditions with operands that are true for one evaluation only, or that depend on the time of an event."""

_T = TypeVar("_T")


def graph_of(asset_graph: AnyGraph, *, contract_scale: float = 1.0) -> Graph:
    """Return the planner's graph of a code location's assets.

    Its `Moment` is the present time, until the caller changes it.

    If a run builds a range of several assets, the strictest backfill policy limits the number of partitions.

    Args:
        contract_scale: Factor for the time windows of lag contracts.
    """
    keys_of = KeysOf(Moment(event_time.now()))
    nodes = {}
    for key in asset_graph.toposorted_asset_keys:
        node = _node(asset_graph, key, keys_of)
        if node.key not in nodes or node.refused:  # if two keys are spelled alike, keep the refused node
            nodes[node.key] = replace(node, contract=node.contract.scaled(contract_scale)) if node.contract else node
    sensors = sensor_names(nodes.values())
    found = {k: replace(n, sensor=sensors.get(k, n.sensor)) for k, n in nodes.items()}
    return Graph(found, keys_of.moment, dynamic_names(asset_graph))


def dynamic_names(asset_graph: AnyGraph) -> frozenset[str]:
    """Return the names of the dynamic partitions definitions in use. A `Moment` must contain the keys of each."""
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
    """Reader of one asset's declarations. Collects the errors of invalid declarations."""

    reasons: list[str] = field(default_factory=list)

    def of(self, what: str, read: Callable[[], _T], default: _T) -> _T:
        found = called(read)
        if not isinstance(found, Raised):
            return found
        refused = isinstance(found.error, Refused)
        self.reasons.append(str(found.error) if refused else f"{what} cannot be read: {in_one_line(found.error)}")
        return default


def _node(asset_graph: AnyGraph, key: dg.AssetKey, keys_of: KeysOf) -> Node:
    asset, name, reading = asset_graph.get(key), key.to_user_string(), _Reading()
    keys = reading.of("its partitions definition", lambda: _tried(keys_of(asset.partitions_def)), None)
    source = not asset.is_materializable
    # The inputs of an external asset are only informative, because no run builds the asset.
    parents = () if source else sorted(asset.parent_keys)
    inputs = [
        reading.of(f"its input {p.to_user_string()}", partial(input_of, asset_graph, key, p, keys_of), _unread(p))
        for p in parents
    ]
    contract = reading.of("its freshness policy", lambda: contract_of(asset.freshness_policy), None)
    asap = reading.of("its tags", lambda: tagged(asset.tags, PACE, ASAP), False)
    requires_all = reading.of("its tags", lambda: tagged(asset.tags, REQUIRES, EVERY_INPUT_CHANGED), False)
    automated = reading.of("its condition", lambda: _asks_the_planner(asset.automation_condition), True)
    if dg.AssetKey.from_user_string(name) != key:
        reading.reasons.append(f"a part of its key {key.path} contains a slash, so it could be confused with {name}")
    if asset.is_virtual:
        reading.reasons.append("virtual assets are not supported; let its readers depend on its inputs")
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
        promises=promises_of(name) if source else (),
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
    # A long list of static keys is shortened. The checksum distinguishes it from lists with the same beginning.
    return said if len(said) <= _LONGEST else f"{said[:_LONGEST]}... ({crc32(said.encode()):08x})"


def _tried(keys: Keys) -> Keys:
    """Call the functions of `keys` once, so that errors of the definition are raised here. Return `keys`."""
    for partition in keys.ends():
        keys.problem(partition)
        keys.exists_from(partition)
    return keys


def _asks_the_planner(condition: dg.AutomationCondition[Any] | None) -> bool:
    if condition is None:
        return False
    return getattr(condition, PLANNERS, False) or any(_asks_the_planner(child) for child in condition.children)


def _is_momentary(condition: dg.AutomationCondition[Any] | None) -> bool:
    """Return True if a condition may allow the planner's requests in one evaluation only, such as at a cron tick."""
    if condition is None:
        return False
    condition = getattr(condition, "condition", condition)  # unwrap the guard around the condition
    kind, parts = type(condition).__name__, condition.children
    if not parts:
        return kind not in _LASTING and not getattr(condition, PLANNERS, False)
    if kind == "OrAutomationCondition":  # only operands that contain the planner's condition matter
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
    """Return an asset's declared dependency on one of its inputs.

    Raises:
        Refused: the planner does not support a declaration.
        Exception: a user-defined mapping failed for the first or last existing partition.
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
        flag_of(metadata, USE_LATEST, name),
        # A source has no runs that a reader could join. A self-dependency is not joinable either.
        # If a blocking check is not evaluated in the input's run, the readers have to wait for it in another run.
        joinable=edge.identity
        and read.is_materializable
        and asset.is_materializable
        and key != parent
        and not any(asset_graph.get(c).blocking and asset_graph.get(c).automation_condition for c in read.check_keys),
        # Dagster requires existing partitions only of inputs that it loads.
        missing_inputs=edge.missing_inputs if loaded else lambda _: "",
        stamp=edge.stamp,
        broad=edge.broad,
        optional=flag_of(metadata, OPTIONAL, name),
        on_missing=on_missing_of(metadata, name),
    )


def edge_between(asset_graph: AnyGraph, key: dg.AssetKey, parent: dg.AssetKey, keys_of: KeysOf) -> Edge:
    """Return the mapping between the partitions of an asset and the partitions of its input.

    Raises:
        Refused: the mapping does not fit the partitions of the two assets.
    """
    ours, theirs = keys_of(asset_graph.get(key).partitions_def), keys_of(asset_graph.get(parent).partitions_def)
    mapping = asset_graph.get_partition_mapping(key, parent)
    return edge_of(mapping, Ends(ours, theirs, parent.to_user_string(), keys_of.moment))


def _declared(asset_graph: AnyGraph, key: dg.AssetKey, parent: dg.AssetKey) -> tuple[Mapping[str, Any], bool]:
    """Return the metadata of a dependency, and True if Dagster loads the input as an argument of the function."""
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
