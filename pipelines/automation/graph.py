"""The asset graph as planning needs it: plain names, inputs, and which partition follows from which.

Belongs here: the types the planner thinks in. Does not belong here: Dagster (`automation.adapter` makes a
graph from an asset graph; tests make one by hand).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from pipelines.sources.feed import Partition

Target = tuple[str, Partition]
"""An asset (`core/orders`) and one of its partitions."""


@dataclass(frozen=True)
class Input:
    """An asset's dependency on another.

    Args:
        key: The asset it reads.
        upstream: From a partition of the reader to the partitions it reads. None where it reads all of them.
        downstream: From a partition of the input to the partitions that read it. None where all do.
        ripple_days: Of an unpartitioned input: a change makes only so many days stale, up to the day it arrived.
        joinable: The two can be built in one run: same partitions, same key.
    """

    key: str
    upstream: Callable[[Partition], Sequence[Partition]] | None
    downstream: Callable[[Partition], Sequence[Partition]] | None
    ripple_days: int | None = None
    joinable: bool = False


@dataclass(frozen=True)
class Node:
    """An asset.

    Args:
        ordinal: From a partition to its place in the order of partitions; consecutive ones are contiguous.
        exists: Whether a partition exists at a time (Unix seconds).
        automated: Whether the planner decides when it runs; sources and assets left to people are not.
    """

    key: str
    inputs: Sequence[Input] = ()
    ordinal: Callable[[Partition], int] = lambda _: 0
    exists: Callable[[Partition, float], bool] = lambda _partition, _now: True
    partitioned: bool = False
    automated: bool = True


@dataclass(frozen=True)
class Graph:
    """Nodes in topological order."""

    nodes: Mapping[str, Node]
    readers: Mapping[str, Sequence[tuple[Node, Input]]] = field(init=False)

    def __post_init__(self) -> None:
        readers: dict[str, list[tuple[Node, Input]]] = {key: [] for key in self.nodes}
        for node in self.nodes.values():
            for read in node.inputs:
                readers.setdefault(read.key, []).append((node, read))
        object.__setattr__(self, "readers", readers)
