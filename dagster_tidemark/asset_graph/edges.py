"""Edges of the asset graph: mappings between the partitions of a reader and the partitions of its input.

Belongs here: the types. Does not belong here: making edges from partition mappings (`asset_graph.partition_mappings`).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from dagster_tidemark.asset_graph.partition_keys import Keys
from dagster_tidemark.planner.graph import Moment
from dagster_tidemark.sources.feed import Partition

Way = Callable[[Partition], Sequence[Partition]]


@dataclass(frozen=True)
class Ends:
    """The two assets of an edge: the reader's partitions, the input's partitions, and the input's name for messages."""

    ours: Keys
    theirs: Keys
    name: str
    moment: Moment


@dataclass(frozen=True)
class Edge:
    """Mapping between two assets' partitions; see `graph.Input`.

    Args:
        identity: True if both assets have the same partitions and each partition reads the one with the same key.
    """

    upstream: Way | None
    downstream: Way | None
    missing_inputs: Callable[[Partition], str] = lambda _: ""
    stamp: Callable[[], object] | None = None
    broad: bool = False
    identity: bool = False


def kept(way: Way, stamp: Callable[[], object] = lambda: None) -> Way:
    """Return the mapping with a cache. The cache is emptied when the value of `stamp` changes."""
    known: tuple[object, dict[Partition, Sequence[Partition]]] = (None, {})

    def _of(partition: Partition) -> Sequence[Partition]:
        nonlocal known
        at = stamp()
        if known[0] != at:
            known = (at, {})
        found = known[1]  # belongs to this stamp, even if another thread replaces `known`
        if partition not in found:
            found[partition] = way(partition)
        return found[partition]

    return _of
