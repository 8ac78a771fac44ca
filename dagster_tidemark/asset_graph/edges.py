"""The way between the partitions of a reader and those of its input: what is known of an edge of the graph.

Belongs here: the types. Does not belong here: how a partition mapping becomes one (`asset_graph.partition_mappings`).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from dagster_tidemark.asset_graph.partition_keys import Keys
from dagster_tidemark.planner.graph import Moment
from dagster_tidemark.sources.feed import Partition

Way = Callable[[Partition], Sequence[Partition]]


@dataclass(frozen=True)
class Ends:
    """The two assets of an edge: the keys of the reader, and those of its input, which texts call by its name."""

    ours: Keys
    theirs: Keys
    name: str
    moment: Moment


@dataclass(frozen=True)
class Edge:
    """The way between two assets' partitions; see `graph.Input`.

    Args:
        identity: A partition reads the one of the same key, and the definition is the same.
    """

    upstream: Way | None
    downstream: Way | None
    missing_inputs: Callable[[Partition], str] = lambda _: ""
    stamp: Callable[[], object] | None = None
    broad: bool = False
    identity: bool = False


def kept(way: Way, stamp: Callable[[], object] = lambda: None) -> Way:
    """The same way, which remembers what it found as long as the stamp stays the same."""
    known: tuple[object, dict[Partition, Sequence[Partition]]] = (None, {})

    def _of(partition: Partition) -> Sequence[Partition]:
        nonlocal known
        at = stamp()
        if known[0] != at:
            known = (at, {})
        found = known[1]  # of this stamp, whatever another thread puts in its place
        if partition not in found:
            found[partition] = way(partition)
        return found[partition]

    return _of
