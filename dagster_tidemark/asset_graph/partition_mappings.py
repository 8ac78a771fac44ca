"""Maps partitions of a reader to partitions of its input, and back.

There is one function for each of Dagster's partition mappings; docs/partition-mappings.md lists the rules. Belongs
here: the mapping between two definitions. Does not belong here: the definitions themselves
(`asset_graph.partition_keys`).

Time mappings are evaluated as of a distant future, when every window exists, so that their results never change.
Mappings to "the last" or "all" partitions, and user-defined mappings, are evaluated as of the planner's moment.

Multi-partitions are mapped dimension by dimension. A dimension without a mapping contributes all of its partitions. To
map one key, Dagster's implementation lists all partitions of both assets. This module combines the edges of the
dimensions instead.
"""

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache, partial
from itertools import product

import dagster as dg

from dagster_tidemark.asset_graph.declarations import Refused, in_one_line
from dagster_tidemark.asset_graph.edges import Edge, Ends, Way, kept
from dagster_tidemark.asset_graph.partition_keys import Keys, joined, split
from dagster_tidemark.dagster_internals.partitions import LATER, PartitionsSubset, as_of
from dagster_tidemark.planner.user_code import Raised, called
from dagster_tidemark.sources.feed import Partition

_MANY = 100_000
_BUILT_IN = (
    dg.AllPartitionMapping,
    dg.LastPartitionMapping,
    dg.SpecificPartitionsPartitionMapping,
    dg.IdentityPartitionMapping,
    dg.TimeWindowPartitionMapping,
    dg.StaticPartitionMapping,
    dg.MultiToSingleDimensionPartitionMapping,
    dg.MultiPartitionMapping,
)
_ALLOW = "TimeWindowPartitionMapping(allow_nonexistent_upstream_partitions=True)"
ByDimension = dg.MultiToSingleDimensionPartitionMapping | dg.MultiPartitionMapping
"""Partition mappings supported by this module."""
_Dimension = str | None  # None for keys with only one dimension


def edge_of(mapping: dg.PartitionMapping, ends: Ends) -> Edge:
    """Return the mapping between a reader's partitions and an input's, in both directions.

    Raises:
        Refused: the mapping does not fit the partitions of the two assets.
    """
    ours, theirs = ends.ours, ends.theirs
    whole = None if ours.definition else _to_whole
    if theirs.definition is None:
        return Edge(_to_whole, whole, broad=whole is None, identity=whole is not None)
    if type(mapping) not in _BUILT_IN:
        return _anybodys(mapping, ends)
    match mapping:
        case dg.AllPartitionMapping():
            return Edge(None, whole, broad=whole is None)
        case dg.LastPartitionMapping():
            return _last(ends)
        case dg.SpecificPartitionsPartitionMapping():
            return _specific(mapping, ends)
    if ours.definition is None:
        raise Refused(f"{_says(mapping, ends)} needs a partitioned reader; use AllPartitionMapping")
    match mapping:
        case dg.IdentityPartitionMapping():
            return _identity(ends)
        case dg.TimeWindowPartitionMapping():
            return _of_time(mapping, ends)
        case dg.MultiToSingleDimensionPartitionMapping() | dg.MultiPartitionMapping():
            return by_dimension(mapping, ends, edge_of)
    return _asked_once(mapping, ends)


def _says(mapping: dg.PartitionMapping, ends: Ends) -> str:
    return f"{type(mapping).__name__} of {ends.name}"


def _to_whole(_partition: Partition) -> Sequence[Partition]:
    return (None,)


def _itself(partition: Partition) -> Sequence[Partition]:
    return (partition,)


def _last(ends: Ends) -> Edge:
    def _upstream(_partition: Partition) -> Sequence[Partition]:
        return ends.theirs.ends()[-1:]

    def _downstream(partition: Partition) -> Sequence[Partition]:
        return ends.ours.keys() if partition in ends.theirs.ends()[-1:] else ()

    return Edge(_upstream, _downstream, stamp=lambda: tuple(ends.theirs.ends()[-1:]), broad=True)


def _specific(mapping: dg.SpecificPartitionsPartitionMapping, ends: Ends) -> Edge:
    keys: tuple[Partition, ...] = tuple(mapping.partition_keys)
    for key in keys:
        if problem := ends.theirs.problem(key):
            raise Refused(f"{_says(mapping, ends)} names a partition that cannot exist: {problem}")
    return Edge(lambda _: keys, lambda p: ends.ours.keys() if p in keys else (), broad=True)


def _identity(ends: Ends) -> Edge:
    ours, theirs = ends.ours, ends.theirs
    if ours.definition == theirs.definition:
        return Edge(_itself, _itself, identity=True)

    def _lacking(partition: Partition) -> str:
        if problem := theirs.problem(partition):
            return f"{ends.name} has no such partition: {problem}"
        return "" if theirs.exists(partition) else f"{ends.name} has no partition {partition} yet"

    return Edge(
        lambda p: () if theirs.problem(p) else (p,),
        lambda p: () if ours.problem(p) else (p,),
        _lacking,
    )


def _of_time(mapping: dg.TimeWindowPartitionMapping, ends: Ends) -> Edge:
    ours, theirs = ends.ours.definition, ends.theirs.definition
    for definition in (ours, theirs):
        if not isinstance(definition, dg.TimeWindowPartitionsDefinition):
            raise Refused(f"{_says(mapping, ends)} is for time partitions, not for a {type(definition).__name__}")
    assert isinstance(ours, dg.TimeWindowPartitionsDefinition) and isinstance(theirs, dg.TimeWindowPartitionsDefinition)
    if ours.timezone != theirs.timezone:
        raise Refused(
            f"{_says(mapping, ends)}: its time zone is {theirs.timezone}, the reader's is {ours.timezone};"
            " give both the same"
        )
    if ours == theirs and mapping.start_offset == mapping.end_offset == 0:
        return Edge(_itself, _itself, identity=True)
    upstream = lru_cache(maxsize=_MANY)(partial(_upstream, mapping, ends, at=LATER))
    downstream = lru_cache(maxsize=_MANY)(
        partial(_over_gaps, mapping, ends, theirs, upstream)
        if ours.exclusions or theirs.exclusions
        else partial(_downstream, mapping, ends, at=LATER)
    )
    if mapping.allow_nonexistent_upstream_partitions:
        return Edge(upstream, downstream)

    @lru_cache(maxsize=_MANY)
    def _never(partition: Partition) -> str:
        missing = _required_in_vain(mapping, ends, partition, LATER)
        return f"needs {missing} of {ends.name}, which never exists; {_ALLOW} reads the others" if missing else ""

    @lru_cache(maxsize=_MANY)
    def _complete_from(partition: Partition) -> float:
        return max((ends.theirs.exists_from(p) for p in upstream(partition)), default=float("-inf"))

    def _lacking(partition: Partition) -> str:
        if (never := _never(partition)) or _complete_from(partition) <= ends.moment.now:
            return never
        missing = _required_in_vain(mapping, ends, partition, ends.moment.now)
        return f"needs {missing} of {ends.name}, which does not exist yet; {_ALLOW} reads the others" if missing else ""

    return Edge(upstream, downstream, _lacking)


def _over_gaps(
    mapping: dg.TimeWindowPartitionMapping,
    ends: Ends,
    theirs: dg.TimeWindowPartitionsDefinition,
    upstream: Way,
    partition: Partition,
) -> Sequence[Partition]:
    """Return the partitions that read a window, if either definition has gaps.

    Dagster adds a gap to the window before it in one direction only, so its own result would be incomplete.
    """
    window = ends.theirs.window(partition)
    assert window is not None
    start, end = (datetime.fromtimestamp(at, UTC) for at in (window.start, window.end))
    before = theirs.get_prev_partition_window(start, respect_bounds=False) or dg.TimeWindow(start, end)
    after = theirs.get_next_partition_window(end, respect_bounds=False) or dg.TimeWindow(start, end)
    around = theirs.get_partition_subset_in_time_window(dg.TimeWindow(before.start, after.end))
    return [p for p in _mapped_down(mapping, ends, around, LATER) if partition in upstream(p)]


def _required_in_vain(mapping: dg.PartitionMapping, ends: Ends, partition: Partition, at: float) -> str:
    assert ends.theirs.definition is not None
    with as_of(ends.moment, at):
        found = mapping.get_upstream_mapped_partitions_result_for_partitions(
            ends.ours.subset(partition), ends.ours.definition, ends.theirs.definition
        )
        if found.required_but_nonexistent_subset.is_empty:
            return ""
        keys = list(found.required_but_nonexistent_subset.get_partition_keys())
    if not keys:  # the missing part belongs to a longer window
        return f"the partition for {partition}"
    return str(keys[0]) if len(keys) == 1 else f"{keys[0]} to {keys[-1]}"


def _asked_once(mapping: dg.PartitionMapping, ends: Ends) -> Edge:
    """Return the edge of a mapping whose results never change, and are therefore cached."""
    return Edge(
        lru_cache(maxsize=_MANY)(partial(_upstream, mapping, ends, at=LATER)),
        lru_cache(maxsize=_MANY)(partial(_downstream, mapping, ends, at=LATER)),
    )


def _anybodys(mapping: dg.PartitionMapping, ends: Ends) -> Edge:
    """Return the edge of a user-defined mapping as of the planner's moment. Invalid partition keys are left out."""

    def _stamp() -> object:
        return ends.moment.now, ends.moment.revision

    def _up(partition: Partition) -> Sequence[Partition]:
        found = _upstream(mapping, ends, partition, ends.moment.now)
        return [p for p in found if not ends.theirs.problem(p)]

    upstream = kept(_up, _stamp)

    def _down(partition: Partition) -> Sequence[Partition]:
        if ends.ours.definition is None:
            return (None,) if partition in upstream(None) else ()
        found = _downstream(mapping, ends, partition, ends.moment.now)
        return [p for p in found if not ends.ours.problem(p)]

    def _lacking(partition: Partition) -> str:
        missing = _required_in_vain(mapping, ends, partition, ends.moment.now)
        return f"{_says(mapping, ends)} needs {missing}, which does not exist" if missing else ""

    return Edge(upstream, kept(_down, _stamp), _lacking, stamp=_stamp)


def _upstream(mapping: dg.PartitionMapping, ends: Ends, partition: Partition, at: float) -> Sequence[Partition]:
    assert ends.theirs.definition is not None
    with as_of(ends.moment, at):
        found = mapping.get_upstream_mapped_partitions_result_for_partitions(
            ends.ours.subset(partition), ends.ours.definition, ends.theirs.definition
        )
        return _keys(found.partitions_subset)


def _downstream(mapping: dg.PartitionMapping, ends: Ends, partition: Partition, at: float) -> Sequence[Partition]:
    theirs = ends.theirs.subset(partition)
    assert theirs is not None
    return _mapped_down(mapping, ends, theirs, at)


def _mapped_down(mapping: dg.PartitionMapping, ends: Ends, theirs: PartitionsSubset, at: float) -> Sequence[Partition]:
    assert ends.theirs.definition is not None and ends.ours.definition is not None
    with as_of(ends.moment, at):
        found = mapping.get_downstream_partitions_for_partitions(theirs, ends.theirs.definition, ends.ours.definition)
        return _keys(found)


def _keys(subset: PartitionsSubset) -> list[Partition]:
    """Return the keys of a subset. Sets are sorted, because their order differs between processes."""
    found = subset.get_partition_keys()
    return [str(key) for key in (sorted(found) if isinstance(found, Set) else found)]


@dataclass(frozen=True)
class _Link:
    """Edge between a dimension of the reader and a dimension of the input."""

    ours: _Dimension
    theirs: _Dimension
    edge: Edge


def by_dimension(mapping: ByDimension, ends: Ends, edge_of: Callable[[dg.PartitionMapping, Ends], Edge]) -> Edge:
    """Return the edge between two assets. At least one of the assets has multi-partitions.

    Args:
        edge_of: Function that returns the edge between two dimensions.

    Raises:
        Refused: the mapping does not fit the dimensions.
    """
    ours, theirs = _dimensions(ends.ours), _dimensions(ends.theirs)
    links = _links(mapping, ends, ours, theirs, edge_of)
    # A dimension without a mapping contributes all partitions that exist at the planner's moment.
    all_ours = {d for d in ours if not any(link.ours == d and link.edge.downstream for link in links)}
    all_theirs = {d for d in theirs if not any(link.theirs == d and link.edge.upstream for link in links)}
    moving = [k for k in (*_of(ours, all_ours), *_of(theirs, all_theirs)) if k.moving]
    stamps = [link.edge.stamp for link in links if link.edge.stamp is not None]

    def _upstream(partition: Partition) -> Sequence[Partition]:
        parts = _parts(ends.ours, partition)
        ways = {link.theirs: (link.edge.upstream, link.ours) for link in links}
        return _product(theirs, {d: way(parts[of]) for d, (way, of) in ways.items() if way})

    def _downstream(partition: Partition) -> Sequence[Partition]:
        parts = _parts(ends.theirs, partition)
        ways = {link.ours: (link.edge.downstream, link.theirs) for link in links}
        return _product(ours, {d: way(parts[of]) for d, (way, of) in ways.items() if way})

    def _stamp() -> object:
        of_links = tuple(stamp() for stamp in stamps)
        return of_links, ends.moment.revision, tuple(tuple(keys.ends()) for keys in moving)

    def _lacking(partition: Partition) -> str:
        parts = _parts(ends.ours, partition)
        return next((text for link in links if (text := link.edge.missing_inputs(parts[link.ours]))), "")

    follows_ours = {link.ours for link in links if not link.edge.broad}
    return Edge(
        kept(_upstream, _stamp),
        kept(_downstream, _stamp),
        _lacking,
        stamp=_stamp if moving or stamps else None,
        broad=any(keys.moving for d, keys in ours.items() if d not in follows_ours),
    )


def _links(
    mapping: ByDimension,
    ends: Ends,
    ours: Mapping[_Dimension, Keys],
    theirs: Mapping[_Dimension, Keys],
    edge_of: Callable[[dg.PartitionMapping, Ends], Edge],
) -> list[_Link]:
    assert ends.ours.definition is not None and ends.theirs.definition is not None
    found = called(mapping.get_dimension_dependencies, ends.theirs.definition, ends.ours.definition)
    if isinstance(found, Raised):
        what = f"{type(mapping).__name__} of {ends.name}"
        raise Refused(f"{what} does not fit its partitions: {in_one_line(found.error)}") from found.error
    links = []
    for one in found:
        our, their = one.downstream_dimension_name, one.upstream_dimension_name
        between = Ends(ours[our], theirs[their], ends.name if their is None else f"{ends.name} ({their})", ends.moment)
        links.append(_Link(our, their, edge_of(one.partition_mapping, between)))
    return links


def _dimensions(keys: Keys) -> Mapping[_Dimension, Keys]:
    return {name: keys.dimensions[name] for name in keys.dimensions} or {None: keys}


def _of(dimensions: Mapping[_Dimension, Keys], names: set[_Dimension]) -> list[Keys]:
    return [keys for name, keys in dimensions.items() if name in names]


def _parts(keys: Keys, partition: Partition) -> Mapping[_Dimension, Partition]:
    if not keys.dimensions:
        return {None: partition}
    return dict(zip(keys.dimensions, split(partition), strict=True))


def _product(
    dimensions: Mapping[_Dimension, Keys], found: Mapping[_Dimension, Sequence[Partition]]
) -> Sequence[Partition]:
    choices = [found[name] if name in found else keys.keys() for name, keys in dimensions.items()]
    return choices[0] if len(choices) == 1 else [joined(parts) for parts in product(*choices)]
