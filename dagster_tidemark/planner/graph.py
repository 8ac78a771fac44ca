"""Asset graph for planning: plain names, inputs, and the mapping between partitions.

Belongs here: the types that the planner works with. Does not belong here: Dagster (`asset_graph.planner_graph` makes a
graph from an asset graph; tests write a graph by hand).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from dagster_tidemark.planner.connected_components import connected
from dagster_tidemark.planner.contracts import SHORTEST_WINDOW, Contract, InputPromise, LagContract, Window
from dagster_tidemark.sources.feed import Partition

Target = tuple[str, Partition]
"""An asset (`core/orders`) and one of its partitions."""


@dataclass
class Moment:
    """Time and dynamic keys, which the results of partitions definitions and mappings depend on.

    Args:
        now: Unix seconds.
        dynamic: From the name of a dynamic partitions definition to the keys that exist.
        revision: Number that increases whenever the dynamic keys change.
        loaded_after: Storage id of the last event when the planning process loaded this code; infinite if no process
            has loaded it.
        defined_at: By asset, the time when it got its present partitions definition (Unix seconds).
        inputs_since: By asset, the time when each of its required inputs was declared (Unix seconds).
        inputs_added: The inputs of `inputs_since` that were declared after another input of the same asset. If all were
            declared together, the asset is new, or nothing is known of its earlier declarations.
    """

    now: float = 0.0
    dynamic: Mapping[str, Sequence[str]] = field(default_factory=dict)
    revision: int = 0
    loaded_after: float = float("inf")
    defined_at: Mapping[str, float] = field(default_factory=dict)
    inputs_since: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    inputs_added: Mapping[str, Mapping[str, float]] = field(default_factory=dict)

    def moves_to(self, now: float, dynamic: Mapping[str, Sequence[str]] | None = None) -> None:
        """Set the time and, if given, the dynamic keys that exist."""
        self.now = now
        if dynamic is not None and dynamic != self.dynamic:
            self.dynamic, self.revision = dynamic, self.revision + 1

    def added_at(self, reader: str, key: str) -> float:
        """Return when a deploy added a required input to an asset (Unix seconds); 0 if none did."""
        added = self.inputs_added.get(reader)
        return added.get(key, 0.0) if added else 0.0


@dataclass(frozen=True)
class Input:
    """Dependency of an asset on another asset. Any of its functions may raise: a mapping can be user code.

    Args:
        key: The asset it reads.
        upstream: Returns the input's partitions that a partition of the reader reads. None means all.
        downstream: Returns the reader's partitions that read a partition of the input. None means all.
        missing_inputs: Returns the reason to refuse a run of a reader's partition that needs missing partitions; empty
            if there is none.
        stamp: Returns a value that changes when the mapping changes; None if the mapping does not depend on time.
        broad: True if all partitions of the reader read it. The input then does not determine which ones to build.
        ripple_days: Only for an unpartitioned input: a change makes this many days stale, up to the day of its arrival.
        use_latest: True if it only has to exist. Its changes make the reader neither pending nor late.
        joinable: True if one run can build both assets: their partitions are the same, and each reads the same key.
        optional: True if a partition of the reader is built without this input when the input has nothing for it.
        on_missing: `wait` or `build`: what the reader does while an expected delivery of this input is missing; empty
            if it declares nothing. See `planner.deliveries`.
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
    on_missing: str = ""


@dataclass(frozen=True)
class Node:
    """An asset.

    Args:
        order: Returns the sort key of a partition, the oldest first. With several dimensions it is a tuple, time first.
        follows: Returns True if Dagster's range from the first partition to the second has only these two. By default
            True if their `order` differs by one.
        window: Returns the time that a partition covers; None if partitions are not time windows.
        exists_from: Returns the earliest time when a partition can be requested (Unix seconds).
        problem: Returns the reason why a partition key does not belong to this asset; None if it does.
        exists: Returns True if a valid key exists at the graph's moment: dynamic keys are added and removed.
        keys: Returns all partitions that exist at the graph's moment. Called only if no input determines them. A
            returned object never changes: the same object means the same partitions.
        automated: True if the planner decides when it runs. False for sources, and for assets that only people run.
        conditional: True if only its own automation condition requests its runs.
        momentary: True if its own condition allows runs only at moments (cron ticks): a request cannot wait for a slot.
        contract: Promised freshness.
        asap: True if it runs as soon as it has pending work; its contract is only reported.
        requires_all: True if it runs only when every input has changed.
        code_version: Version of today's code.
        cut: Dagster's description of its partitions definition; empty if it has none.
        dynamic: Returns a partition's dynamic keys, which are added and removed without a deploy, each with the name of
            its definition. None if no dimension has dynamic keys.
        odd: Returns the dynamic keys at the graph's moment that are not valid partitions, each with the reason.
        source: True if its data comes from outside: it is observed, or its builds are reported. It has no inputs here.
        refused: Reason why the planner cannot handle it and sets it aside; empty if it can.
        unplannable: Reason why only people can run it, with their own run config. It is then not `automated`.
        most: Most partitions that its backfill policy allows in a run; None if there is no limit.
        together: Assets that are always built in the same run with it (one operation that cannot be split).
        sensor: Its automation sensor.
        blocking: Names of its blocking checks.
        run_alone: Blocking checks that a separate run can evaluate, each with True if it has partitions.
        elsewhere: Blocking checks that other code locations evaluate, by declaration; they are in `blocking` too.
        promises: Expected arrivals of its data, if it is a source.
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
    promises: tuple[InputPromise, ...] = ()

    def promised_window(self, partition: Partition) -> Window | None:
        """Return a partition's window for its contract. Its end is extended to the time when the partition exists."""
        window = self.window(partition)
        if window is None:
            return None
        begins = self.exists_from(partition)
        return window if begins <= window.end else Window(window.start, begins)

    @property
    def left_out(self) -> str:
        """Reason why the planner should request its runs but cannot; empty if there is none."""
        return self.refused or self.unplannable

    @property
    def has_judged_contract(self) -> bool:
        """True if the planner evaluates its contract: it has one, is no source, and is not left out."""
        return self.contract is not None and not (self.source or self.left_out)

    def in_a_row(self, first: Partition, second: Partition) -> bool:
        """Return True if a range from the first partition to the second has only these two."""
        if self.follows is not None:
            return self.follows(first, second)
        return bool(self.order(second) - self.order(first) == 1)

    def place(self, partition: Partition) -> tuple[Any, Any]:
        """Return a partition's group (its dimensions except the first) and its position in that group."""
        order = self.order(partition)
        return (order[1:], order[0]) if isinstance(order, tuple) and order else ((), order)

    @cached_property
    def reads_itself(self) -> bool:
        """True if a partition is made from earlier partitions of the same asset."""
        return any(read.key == self.key for read in self.inputs)

    @cached_property
    def enumerated(self) -> bool:
        """True if only the asset's definition determines which partitions to build, because no input does."""
        drives = (r for r in self.inputs if not (r.broad or r.use_latest or r.key == self.key))
        return self.automated and (self.partitioned or not self.inputs) and not any(drives)


@dataclass(frozen=True)
class Graph:
    """Nodes in topological order.

    Args:
        moment: Shared with the functions of nodes and inputs, whose results are valid at that moment.
        dynamic: Names of the dynamic partitions definitions in use. The moment must have their keys.
        elsewhere: Blocking checks that other code locations declare, by asset. The history learns of them from the log.
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
        """Return the same graph, but with some assets that only people run.

        Args:
            unplannable: These assets, each with the reason.
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

        Due times (`planner.demand`) and requests (`planner.grouping`) both use this rule. If it returns False, the
        input runs first, and the due time allows for the duration of that run.
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
        """Direct and indirect sources of each asset."""
        found: dict[str, frozenset[str]] = {}
        for key, node in self.nodes.items():
            above = [found.get(read.key, frozenset({read.key})) for read in node.inputs]
            found[key] = frozenset().union(*above) if above else frozenset({key})
        return found

    @cached_property
    def parts(self) -> Mapping[str, Sequence[str]]:
        """Connected component of each asset, ignoring sources. An asset can share a run only with its component."""
        built = [key for key, node in self.nodes.items() if not node.source]
        together = connected(built, lambda key: [*(r.key for r in self.nodes[key].inputs), *self.nodes[key].together])
        return {key: part for part in together for key in part}

    @cached_property
    def tightest(self) -> Mapping[str, float]:
        """Seconds of the tightest contract that needs each asset: its own, or a contract of its readers.

        An asset that runs as soon as anything is pending counts as an asset with the shortest contract.
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
