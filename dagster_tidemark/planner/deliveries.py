"""Missing deliveries: expected data of an input that is due and did not arrive.

Pure. Belongs here: the missing deliveries that a partition would be built without. Does not belong here: the effect on
its run (`planner.waiting`), and incidents about them (`incidents.causes`).
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field, replace
from enum import StrEnum

from dagster_tidemark.planner.graph import Graph, Input, Node, Target
from dagster_tidemark.planner.history import History
from dagster_tidemark.planner.staleness import PendingWork
from dagster_tidemark.planner.wording import name
from dagster_tidemark.sources.feed import Partition
from dagster_tidemark.sources.listing import lacks_files

LOOK_BACK = 7 * 86_400.0
"""A delivery counts as missing for this time after it was due, in seconds."""


class OnMissing(StrEnum):
    """Behaviour of a reader while an expected delivery of an input is missing."""

    WAIT = "wait"
    BUILD = "build"


@dataclass(frozen=True)
class DueDelivery:
    """Expected data of a source partition that is due.

    Args:
        due_at: When it was due (Unix seconds).
        said: The delivery in words.
        arrived_at: When it arrived; None if it is missing.
    """

    source: Target
    due_at: float
    said: str
    arrived_at: float | None


@dataclass
class DueDeliveries:
    """The expected deliveries of a graph that are due at one time."""

    graph: Graph
    history: History
    backlog: PendingWork
    now: float
    _of_source: dict[str, dict[Partition, DueDelivery]] = field(default_factory=dict)
    _expects: dict[str, bool] = field(default_factory=dict)

    def lacking(self, node: Node, partition: Partition, what: OnMissing) -> list[DueDelivery]:
        """Return the deliveries that inputs lack which declare `on_missing` as given, the earliest first.

        Deliveries of an input's own sources count too, at any depth. A reader that waits also waits until its input
        contains a delivery that has arrived.
        """
        found: dict[Target, DueDelivery] = {}
        for read in (read for read in node.inputs if read.on_missing == what):
            found |= {each.source: each for each in self._below(read, partition) if each.arrived_at is None}
            if what is OnMissing.WAIT:
                found |= {each.source: each for each in self._on_its_way(read, partition)}
        return sorted(found.values(), key=lambda each: (each.due_at, each.source[0], str(each.source[1])))

    def _on_its_way(self, read: Input, partition: Partition) -> Iterator[DueDelivery]:
        """Yield the deliveries that have arrived, but that an input does not contain."""
        node, entries = self.graph.nodes.get(read.key), self.backlog.of.get(read.key, {})
        if node is None or not entries or not self._has_expectations(read.key):
            return
        for one in list(entries) if read.upstream is None else read.upstream(partition):
            pending = entries.get(one)
            if pending is None or pending.arrival is None:
                continue
            for above in _required(node):
                for each in self._below(above, one):
                    arrived = each.arrived_at
                    if arrived is not None and (not pending.built or pending.arrival <= arrived):
                        yield replace(each, said=f"{each.said}, which {name((read.key, one))} does not contain yet")

    def _below(self, read: Input, partition: Partition) -> Iterator[DueDelivery]:
        """Yield the due deliveries that an input consists of, for a partition of its reader."""
        stack: list[tuple[Input, Collection[Partition] | None]] = [(read, [partition])]
        seen = set[tuple[str, Partition]]()
        while stack:
            one, of_reader = stack.pop()
            node = self.graph.nodes.get(one.key)
            if node is None or not self._has_expectations(one.key):
                continue
            wanted: Collection[Partition] | None = None  # all partitions
            if of_reader is not None and one.upstream is not None:
                wanted = dict.fromkeys(p for each in of_reader for p in one.upstream(each))
            due = self._due_of(node)
            for found in due if wanted is None else (p for p in wanted if p in due):
                if (one.key, found) not in seen:
                    seen.add((one.key, found))
                    yield due[found]
            stack += [(above, wanted) for above in _required(node)]

    def _has_expectations(self, key: str) -> bool:
        """Return True if an asset, or an asset that it reads at any depth, has expected deliveries."""
        if key not in self._expects:
            sources = self.graph.sources_of.get(key, frozenset())
            self._expects[key] = any(self.graph.nodes[k].promises for k in sources if k in self.graph.nodes)
        return self._expects[key]

    def _due_of(self, node: Node) -> dict[Partition, DueDelivery]:
        """Return the due deliveries of a source, by partition."""
        if node.key not in self._of_source:
            self._of_source[node.key] = dict(self._found(node)) if node.promises and node.partitioned else {}
        return self._of_source[node.key]

    def _found(self, node: Node) -> Iterator[tuple[Partition, DueDelivery]]:
        known = self.history.facts.with_content(node.key)
        # Before its first event, a source is not known to deliver anything.
        earliest = max(self.now - LOOK_BACK, self.history.first_seen.get(node.key, float("inf")))
        oldest = earliest - max(promise.longest for promise in node.promises)
        for partition in reversed(node.keys()):
            window = node.window(partition)
            if window is not None and window.end < oldest and _is_ordered_by_time(node, partition):
                return
            if window is None or window.end < oldest:
                continue
            for promise in node.promises:
                due = promise.due_at(window) if promise.is_about(partition) else None
                if due is not None and earliest <= due <= self.now:
                    target = (node.key, partition)
                    facts = self.history.facts.of(target)
                    has_come = partition in known and not lacks_files(facts.version or "")
                    arrived = (facts.first_arrival or due) if has_come else None
                    yield partition, DueDelivery(target, due, f"{name(target)} ({promise.said})", arrived)


def _is_ordered_by_time(node: Node, partition: Partition) -> bool:
    """Return True if a node lists its time windows oldest first. With several dimensions, it does not."""
    return not isinstance(node.order(partition), tuple)


def _required(node: Node) -> list[Input]:
    return [read for read in node.inputs if not (read.use_latest or read.key == node.key)]
