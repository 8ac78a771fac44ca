"""The asset graph as planning needs it: plain names, inputs, and which partition follows from which.

Belongs here: the types the planner thinks in. Does not belong here: Dagster (`event_log.adapter` makes a
graph from an asset graph; tests make one by hand).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from dagster_tidemark.planner.connected_components import connected
from dagster_tidemark.planner.contracts import SHORTEST_WINDOW, Contract, LagContract, Window
from dagster_tidemark.sources.feed import Partition

Target = tuple[str, Partition]
"""An asset (`core/orders`) and one of its partitions."""


@dataclass
class Moment:
    """What the answers of partition definitions and mappings depend on besides the partition.

    Args:
        now: Unix seconds.
        dynamic: From the name of a dynamic partitions definition to the keys that exist.
        revision: Another one whenever the dynamic keys are others.
        loaded_after: The storage id of the last event when the process that plans loaded this code. By default no
            process has loaded it yet.
        defined_at: By asset, the time since when it has its present partitions definition (Unix seconds).
    """

    now: float = 0.0
    dynamic: Mapping[str, Sequence[str]] = field(default_factory=dict)
    revision: int = 0
    loaded_after: float = float("inf")
    defined_at: Mapping[str, float] = field(default_factory=dict)

    def moves_to(self, now: float, dynamic: Mapping[str, Sequence[str]] | None = None) -> None:
        """Time has passed; and these dynamic keys exist, if they were asked for."""
        self.now = now
        if dynamic is not None and dynamic != self.dynamic:
            self.dynamic, self.revision = dynamic, self.revision + 1


@dataclass(frozen=True)
class Input:
    """An asset's dependency on another. Any of its functions may raise: a mapping can be anybody's code.

    Args:
        key: The asset it reads.
        upstream: From a partition of the reader to the partitions it reads. None where it reads all of them.
        downstream: From a partition of the input to the partitions that read it. None where all do.
        missing_inputs: Why a run over a partition of the reader would be refused, as it needs partitions that do not
            exist. Empty: it would not.
        stamp: Where the partitions it gives depend on the moment and not on the partition alone: they are others once
            this gives another value.
        broad: It says nothing of which partitions of the reader there are to build: all of them read it.
        ripple_days: Of an unpartitioned input: a change makes only so many days stale, up to the day it arrived.
        use_latest: It only has to exist; a change of it makes the reader neither pending nor late.
        joinable: The two can be built in one run: same partitions, same key.
        optional: A partition of the reader is built without this input if the input has nothing for it.
    """

    key: str
    upstream: Callable[[Partition], Sequence[Partition]] | None
    downstream: Callable[[Partition], Sequence[Partition]] | None
    ripple_days: int | None = None
    use_latest: bool = False
    joinable: bool = False
    missing_inputs: Callable[[Partition], str] = lambda _: ""
    stamp: Callable[[], object] | None = None
    broad: bool = False
    optional: bool = False


@dataclass(frozen=True)
class Node:
    """An asset.

    Args:
        order: From a partition to a sort key, the oldest first. Of several dimensions a tuple, time first.
        follows: Whether Dagster's own range from the first partition to the second holds just those two. By default
            those whose `order` is one apart.
        window: From a partition to the time it is about; None where partitions are not of time.
        exists_from: From a partition to the time (Unix seconds) from which on it can be asked for.
        problem: Why a partition key is none of this asset's; None for a good one.
        exists: Whether a key that is no problem exists at the graph's moment: dynamic ones come and go.
        keys: All partitions that exist at the graph's moment; asked only where no input says which there are. What was
            given once stays as it is: the same object says that they are the same.
        automated: Whether the planner decides when it runs; sources and assets left to people are not.
        conditional: Its own condition has the last word: only that condition asks for runs of it.
        momentary: Its own condition allows a run only at moments (a tick of a cron): a request cannot wait for a slot.
        contract: The promise on its freshness.
        asap: It runs as soon as something is pending; the contract is only what is reported.
        requires_all: It runs only when every input has changed.
        code_version: Of today's code.
        cut: Its partitions definition, in Dagster's words; empty where it has none.
        dynamic: From a partition to those of its keys that people add and remove while the code stays, each with the
            name of its definition. None: it has no such partitions, along no dimension.
        odd: Keys that people added at the graph's moment and that are no partitions of it, each with the reason.
        source: Its data comes from outside: it is observed, or others report its builds. It has no inputs here.
        refused: Why the planner cannot look after it; it is set aside with this reason. Empty: it can.
        unplannable: Why only people can run it, who give its run config; then it is not `automated`.
        most: How many partitions its backfill policy allows in a run; None: any number.
        together: Assets that are always built in the same run with it (one operation that cannot be split).
        sensor: The automation sensor that looks after it.
        blocking: The names of its blocking checks.
        run_alone: Blocking checks that a separate run can evaluate, each with True if it has partitions.
        elsewhere: Blocking checks that other code locations evaluate, by declaration; they are in `blocking` too.
        run_later: Blocking checks that are not part of the asset's runs: their own condition requests them.
    """

    key: str
    inputs: Sequence[Input] = ()
    order: Callable[[Partition], Any] = lambda _: 0
    window: Callable[[Partition], Window | None] = lambda _: None
    exists_from: Callable[[Partition], float] = lambda _: float("-inf")
    problem: Callable[[Partition], str | None] = lambda _: None
    partitioned: bool = False
    automated: bool = True
    conditional: bool = False
    momentary: bool = False
    contract: Contract | None = None
    asap: bool = False
    requires_all: bool = False
    code_version: str | None = None
    cut: str = ""
    follows: Callable[[Partition, Partition], bool] | None = None
    exists: Callable[[Partition], bool] = lambda _: True
    keys: Callable[[], Sequence[Partition]] = lambda: ()
    dynamic: Callable[[Partition], frozenset[tuple[str, Partition]]] | None = None
    odd: Callable[[], Mapping[Partition, str]] = dict
    source: bool = False
    refused: str = ""
    unplannable: str = ""
    most: int | None = None
    together: frozenset[str] = frozenset()
    sensor: str = "automation"
    blocking: frozenset[str] = frozenset()
    run_alone: Mapping[str, bool] = field(default_factory=dict)
    run_later: frozenset[str] = frozenset()
    elsewhere: frozenset[str] = frozenset()

    def promised_window(self, partition: Partition) -> Window | None:
        """The window a partition is promised for: it does not end before the partition can be asked for."""
        window = self.window(partition)
        if window is None:
            return None
        begins = self.exists_from(partition)
        return window if begins <= window.end else Window(window.start, begins)

    @property
    def left_out(self) -> str:
        """Why the planner asks for no run of it though it was meant to; empty: it does, or was not meant to."""
        return self.refused or self.unplannable

    def in_a_row(self, first: Partition, second: Partition) -> bool:
        """Whether a range from the first to the second holds just those two."""
        if self.follows is not None:
            return self.follows(first, second)
        return bool(self.order(second) - self.order(first) == 1)

    def place(self, partition: Partition) -> tuple[Any, Any]:
        """Where a partition lies: among which others (alike in all dimensions but the first), and where among those."""
        order = self.order(partition)
        return (order[1:], order[0]) if isinstance(order, tuple) and order else ((), order)

    @cached_property
    def reads_itself(self) -> bool:
        """Whether a partition is made from earlier ones of the same asset."""
        return any(read.key == self.key for read in self.inputs)

    @cached_property
    def enumerated(self) -> bool:
        """Whether only its definition says which partitions there are to build, as no input does."""
        drives = (r for r in self.inputs if not (r.broad or r.use_latest or r.key == self.key))
        return self.automated and (self.partitioned or not self.inputs) and not any(drives)


@dataclass(frozen=True)
class Graph:
    """Nodes in topological order.

    Args:
        moment: Shared with the functions of the nodes and inputs: what they answer holds at that moment.
        dynamic: The names of its dynamic partitions definitions, whose keys the moment has to know.
        elsewhere: By asset, blocking checks that other code locations declare: the history learns them from the log.
    """

    nodes: Mapping[str, Node]
    moment: Moment = field(default_factory=Moment)
    dynamic: frozenset[str] = frozenset()
    elsewhere: dict[str, set[str]] = field(default_factory=dict)
    readers: Mapping[str, Sequence[tuple[Node, Input]]] = field(init=False)

    def __post_init__(self) -> None:
        readers: dict[str, list[tuple[Node, Input]]] = {key: [] for key in self.nodes}
        for node in self.nodes.values():
            for read in node.inputs:
                readers.setdefault(read.key, []).append((node, read))
        object.__setattr__(self, "readers", readers)

    def without_runs_of(self, unplannable: Mapping[str, str]) -> "Graph":
        """The same graph, in which nobody but people runs some of the assets.

        Args:
            unplannable: From an asset to why.
        """
        nodes = {
            key: replace(node, automated=False, unplannable=unplannable[key]) if key in unplannable else node
            for key, node in self.nodes.items()
        }
        return Graph(nodes, self.moment, self.dynamic, self.elsewhere)

    def blocking(self, key: str) -> frozenset[str]:
        """Return the blocking checks of an asset, of this and of other code locations."""
        node, more = self.nodes.get(key), self.elsewhere.get(key)
        own = node.blocking if node is not None else frozenset[str]()
        return own | more if more else own

    def evaluated_elsewhere(self, key: str) -> frozenset[str]:
        """Return the blocking checks of an asset that only other code locations evaluate."""
        node = self.nodes.get(key)
        return frozenset(self.elsewhere.get(key, ())) | (node.elsewhere if node is not None else frozenset())

    def share_a_run(self, reader: Node, read: Input) -> bool:
        """Return True if one run builds a reader and an input when both are due for a partition.

        Due times (`planner.demand`) and requests (`planner.requests`) follow this one rule. If it returns False, the
        input's run comes first, and takes its time.
        """
        upstream = self.nodes.get(read.key)
        if upstream is None or not read.joinable or reader.conditional or upstream.conditional:
            return False
        if self.evaluated_elsewhere(read.key):
            return False
        return not reader.partitioned or (reader.most == 1) == (upstream.most == 1)

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
    def parts(self) -> Mapping[str, Sequence[str]]:
        """By asset, the connected assets without sources. An asset can share a run only with these."""
        built = [key for key, node in self.nodes.items() if not node.source]
        together = connected(built, lambda key: [*(r.key for r in self.nodes[key].inputs), *self.nodes[key].together])
        return {key: part for part in together for key in part}

    @cached_property
    def tightest(self) -> Mapping[str, float]:
        """By asset, the seconds of the tightest contract that needs it: its own, or a contract of its readers.

        An asset that runs as soon as anything is pending counts like an asset with the shortest contract.
        """
        found: dict[str, float] = {}
        for key, node in reversed(list(self.nodes.items())):
            readers = [reader.key for reader, read in self.readers[key] if not read.use_latest]
            needs = [found[reader] for reader in readers if reader in found]
            if isinstance(node.contract, LagContract):
                needs.append(node.contract.fail)
            elif node.contract is not None:
                needs.append(node.contract.bound)
            if node.asap:
                needs.append(SHORTEST_WINDOW)
            if needs:
                found[key] = max(SHORTEST_WINDOW, min(needs))
        return found

    @cached_property
    def strictest(self) -> float | None:
        """Seconds of the shortest lag contract, or None."""
        lags = [n.contract.fail for n in self.nodes.values() if isinstance(n.contract, LagContract)]
        return min(lags, default=None)

    def _reads_all(self, read: Input) -> bool:
        upstream = self.nodes.get(read.key)
        return read.upstream is None and upstream is not None and upstream.partitioned
