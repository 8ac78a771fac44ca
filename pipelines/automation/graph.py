"""The asset graph as planning needs it: plain names, inputs, and which partition follows from which.

Belongs here: the types the planner thinks in. Does not belong here: Dagster (`automation.adapter` makes a
graph from an asset graph; tests make one by hand).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from pipelines.automation.contracts import Contract, LagContract, Window
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
        use_latest: It only has to exist; a change of it makes the reader neither pending nor late.
        joinable: The two can be built in one run: same partitions, same key.
    """

    key: str
    upstream: Callable[[Partition], Sequence[Partition]] | None
    downstream: Callable[[Partition], Sequence[Partition]] | None
    ripple_days: int | None = None
    use_latest: bool = False
    joinable: bool = False


@dataclass(frozen=True)
class Node:
    """An asset.

    Args:
        ordinal: From a partition to its place in the order of partitions; consecutive ones are contiguous.
        window: From a partition to the time it is about; None where partitions are not of time.
        exists_from: From a partition to the time (Unix seconds) from which on it can be asked for.
        problem: Why a partition key is none of this asset's; None for a good one.
        automated: Whether the planner decides when it runs; sources and assets left to people are not.
        conditional: Its own condition has the last word: only that condition asks for runs of it.
        contract: The promise on its freshness.
        asap: It runs as soon as something is pending; the contract is only what is reported.
        requires_all: It runs only when every input has changed.
        code_version: Of today's code.
    """

    key: str
    inputs: Sequence[Input] = ()
    ordinal: Callable[[Partition], int] = lambda _: 0
    window: Callable[[Partition], Window | None] = lambda _: None
    exists_from: Callable[[Partition], float] = lambda _: float("-inf")
    problem: Callable[[Partition], str | None] = lambda _: None
    partitioned: bool = False
    automated: bool = True
    conditional: bool = False
    contract: Contract | None = None
    asap: bool = False
    requires_all: bool = False
    code_version: str | None = None


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

    @cached_property
    def models(self) -> frozenset[str]:
        """Assets that read all partitions of a partitioned input."""
        return frozenset(
            node.key
            for node in self.nodes.values()
            if any(self._reads_all(read) and not read.use_latest for read in node.inputs)
        )

    @cached_property
    def sources_of(self) -> Mapping[str, frozenset[str]]:
        """From an asset to the sources its data comes from, at any depth."""
        found: dict[str, frozenset[str]] = {}
        for key, node in self.nodes.items():
            above = [found.get(read.key, frozenset({read.key})) for read in node.inputs]
            found[key] = frozenset().union(*above) if above else frozenset({key})
        return found

    @cached_property
    def strictest(self) -> float | None:
        """Seconds of the shortest lag contract, or None."""
        lags = [n.contract.fail for n in self.nodes.values() if isinstance(n.contract, LagContract)]
        return min(lags, default=None)

    def _reads_all(self, read: Input) -> bool:
        upstream = self.nodes.get(read.key)
        return read.upstream is None and upstream is not None and upstream.partitioned
