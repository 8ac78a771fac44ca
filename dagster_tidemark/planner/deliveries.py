"""Missing deliveries: expected data of an input that is due and did not arrive.

Pure. Belongs here: the missing deliveries that a partition would be built without. Does not belong here: the effect on
its run (`planner.waiting`), and incidents about them (`incidents.causes`).
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from enum import StrEnum

from dagster_tidemark.planner.graph import Graph, Input, Node, Target
from dagster_tidemark.planner.history import History
from dagster_tidemark.planner.wording import name
from dagster_tidemark.sources.feed import Partition

LOOK_BACK = 7 * 86_400.0
"""Seconds after the due time for which a delivery counts as missing."""


class OnMissing(StrEnum):
    """What happens to a reader while an expected delivery of an input is missing."""

    WAIT = "wait"
    BUILD = "build"


@dataclass(frozen=True)
class MissingDelivery:
    """Expected data of a source partition that did not arrive.

    Args:
        due_at: When it was due (Unix seconds).
        said: The delivery in words.
    """

    source: Target
    due_at: float
    said: str


@dataclass
class Deliveries:
    """The missing deliveries of a graph at one time."""

    graph: Graph
    history: History
    now: float
    _of_source: dict[str, dict[Partition, MissingDelivery]] = field(default_factory=dict)
    _sources_above: dict[str, frozenset[str]] = field(default_factory=dict)

    def lacking(self, node: Node, partition: Partition, what: OnMissing) -> list[MissingDelivery]:
        """Return the missing deliveries of inputs that declare `on_missing` as given, the earliest first.

        Deliveries of an input's own sources count too, at any depth.
        """
        reads = [read for read in node.inputs if read.on_missing == what]
        found: dict[Target, MissingDelivery] = {}
        for read in reads:
            found |= {each.source: each for each in self._below(read, partition)}
        return sorted(found.values(), key=lambda each: (each.due_at, each.source[0], str(each.source[1])))

    def _below(self, read: Input, partition: Partition) -> Iterable[MissingDelivery]:
        """Yield the missing deliveries of an input for a partition of its reader."""
        stack: list[tuple[Input, Collection[Partition] | None]] = [(read, [partition])]
        seen = set[tuple[str, Partition]]()
        while stack:
            one, of_reader = stack.pop()
            node = self.graph.nodes.get(one.key)
            if node is None or not self._may_lack(one.key):
                continue
            # None stands for all partitions.
            wanted: Collection[Partition] | None = None
            if of_reader is not None and one.upstream is not None:
                wanted = dict.fromkeys(p for each in of_reader for p in one.upstream(each))
            missing = self._missing_of(node)
            for lacked in missing if wanted is None else (p for p in wanted if p in missing):
                if (one.key, lacked) not in seen:
                    seen.add((one.key, lacked))
                    yield missing[lacked]
            stack += [(above, wanted) for above in node.inputs if not (above.use_latest or above.key == one.key)]

    def _may_lack(self, key: str) -> bool:
        """Return True if an asset, or an asset that it reads at any depth, has a missing delivery."""
        if key not in self._sources_above:
            seen, stack = {key}, [key]
            while stack:
                node = self.graph.nodes.get(stack.pop())
                new = [read.key for read in node.inputs if read.key not in seen] if node else []
                seen.update(new)
                stack += new
            self._sources_above[key] = frozenset(k for k in seen if k in self.graph.nodes)
        return any(self._missing_of(self.graph.nodes[k]) for k in self._sources_above[key])

    def _missing_of(self, node: Node) -> dict[Partition, MissingDelivery]:
        """Return the missing deliveries of a source, by partition."""
        if node.key not in self._of_source:
            self._of_source[node.key] = self._found(node) if node.promises and node.partitioned else {}
        return self._of_source[node.key]

    def _found(self, node: Node) -> dict[Partition, MissingDelivery]:
        known = self.history.known.get(node.key, set())
        # Before its first event, a source is not known to deliver anything.
        earliest = max(self.now - LOOK_BACK, self.history.first_seen.get(node.key, float("inf")))
        found: dict[Partition, MissingDelivery] = {}
        existing = node.keys()
        for partition in existing:
            window = node.window(partition) if partition not in known else None
            for promise in node.promises if window is not None else ():
                due = promise.due_at(window) if window is not None else None
                if due is not None and earliest <= due <= self.now:
                    said = f"{name((node.key, partition))} ({promise.said})"
                    found[partition] = MissingDelivery((node.key, partition), due, said)
        return found
