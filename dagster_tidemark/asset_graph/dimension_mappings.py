"""Maps multi-partitions dimension by dimension. A dimension without a mapping contributes all of its partitions.

Belongs here: Dagster's MultiPartitionMapping and MultiToSingleDimensionPartitionMapping. To map one key, Dagster's
implementation lists all partitions of both assets. This module combines the edges of the dimensions instead.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

import dagster as dg

from dagster_tidemark.asset_graph.edges import Edge, Ends, kept
from dagster_tidemark.asset_graph.partition_keys import Keys, joined, split
from dagster_tidemark.asset_graph.refusal import Refused, told
from dagster_tidemark.planner.user_code import Raised, called
from dagster_tidemark.sources.feed import Partition

ByDimension = dg.MultiToSingleDimensionPartitionMapping | dg.MultiPartitionMapping
"""Partition mappings supported by this module."""

_Dimension = str | None  # None for keys with only one dimension


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
        raise Refused(f"{what} does not fit its partitions: {told(found.error)}") from found.error
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
