"""Partitions to build that no event announces.

Most partitions are built because an input has data for them. Some follow only from a definition: the partitions of an
asset without inputs, or of an asset that reads only unpartitioned tables. Dynamic keys are added and removed without
any event. A table that reads its own past also needs windows without data that lie between windows with data.

Belongs here: these partitions, and the time since when they exist. Does not belong here: pending data
(`planner.staleness`).
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dagster_tidemark.planner.graph import Graph, Input, Node, Target
from dagster_tidemark.planner.history import History
from dagster_tidemark.planner.user_code import Raised, called
from dagster_tidemark.sources.feed import Partition

_BETWEEN_LOOKS = 60.0
"""Seconds between checks of definitions that depend on time: a window begins, or a mapping selects other partitions."""

_NEWEST = 200
"""Number of a reader's newest partitions to compute again after a mapping changed with time."""

_NEVER = float("-inf")


@dataclass
class Candidates:
    """Partitions to build that follow from a definition, or from the asset's own past.

    Args:
        failed: Assets whose partitions cannot be listed, with the reason.
        odd: Dynamic keys that are not valid partitions, by asset, each with the reason.
    """

    graph: Graph
    history: History
    failed: dict[str, str] = field(default_factory=dict)
    odd: dict[str, Mapping[Partition, str]] = field(default_factory=dict)
    _keys: dict[str, tuple[Sequence[Partition] | None, frozenset[Partition]]] = field(default_factory=dict)
    _stamps: dict[str, tuple[object, ...]] = field(default_factory=dict)
    _keys_before: dict[str, frozenset[str]] = field(default_factory=dict)
    _looked_at: float = _NEVER
    _revision: int = -1
    _first: dict[tuple[str, Any], Any] = field(default_factory=dict)
    _last: dict[tuple[str, Any], Any] = field(default_factory=dict)
    _asked_by: dict[Target, float] = field(default_factory=dict)
    _timed: bool = field(init=False)

    def __post_init__(self) -> None:
        nodes = [node for node in self.graph.nodes.values() if not node.refused]
        self._timed = any(node.enumerated or any(read.stamp for read in node.inputs) for node in nodes)

    @property
    def look_again_at(self) -> float:
        """Time of the next check of definitions if no event arrives (Unix seconds)."""
        return self._looked_at + _BETWEEN_LOOKS if self._timed else float("inf")

    def moved(self, now: float) -> list[Target]:
        """Return partitions that appeared or were removed since the last call, and readers whose mapping changed."""
        keys_changed = self.graph.moment.revision != self._revision
        if not keys_changed and now < self._looked_at + _BETWEEN_LOOKS:
            return []
        self._looked_at, self._revision = now, self.graph.moment.revision
        self._keys_before = {name: frozenset(keys) for name, keys in self.history.keys.existing.items()}
        found: list[Target] = []
        for key, node in self.graph.nodes.items():
            if not node.refused and (node.enumerated or (node.dynamic and keys_changed)):
                found += [(key, partition) for partition in self._others(node)]
        self.history.keys.existing = dict(self.graph.moment.dynamic)
        return found + self._moving()

    def begins(self, node: Node, target: Target) -> float:
        """Return when a partition can be built: it exists and, for an asset without inputs, its window has ended."""
        window = node.window(target[1]) if not node.inputs else None
        return max(node.exists_from(target[1]), window.end if window else _NEVER)

    def since(self, key: str) -> float:
        """Return when the planner first saw an asset that waits for no data (Unix seconds)."""
        return self.history.first_seen.setdefault(key, self.graph.moment.now)

    def was_never(self, target: Target) -> bool:
        """Return True if a partition has never existed, as far as the history shows: neither built nor removed."""
        return target not in self.history.keys.removed and not self.history.facts.is_built(target)

    def needs_none(self, node: Node, read: Input, partition: Partition) -> bool:
        """Return True if a partition reads no partition of an input, and so does not wait for the input."""
        if read.upstream is None:
            return False
        wanted = read.upstream(partition)
        return not wanted or (read.key == node.key and not self._after_first(node, partition, wanted))

    # A table that reads its own past.

    def note(self, node: Node, partition: Partition) -> None:
        """Record that a partition is built, or has all inputs except the table's own past."""
        if node.reads_itself:
            group, place = node.place(partition)
            at = (node.key, group)
            self._first[at] = min(self._first.get(at, place), place)
            self._last[at] = max(self._last.get(at, place), place)

    def ask_for_past(self, node: Node, target: Target, mark: Callable[[Target], None]) -> None:
        """Mark the earlier partitions that a partition reads, unless they are built or already marked."""
        arrival = self._asked_by.get(target, self.graph.moment.now)
        for past in self._past(node, target[1]):
            known = self.history.facts.is_built((node.key, past)) or (node.key, past) in self._asked_by
            if not known and self._after_first(node, target[1], [past]):
                self._asked_by[(node.key, past)] = arrival
                mark((node.key, past))

    def gap(
        self, node: Node, target: Target, entries: Mapping[Partition, Any], mark: Callable[[Target], None]
    ) -> float | None:
        """Return the arrival that makes a window without data due, or None if no later window needs the window."""
        group, place = node.place(target[1])
        if place >= self._last.get((node.key, group), place):
            return None
        arrivals = []
        for past in self._past(node, target[1]):
            if not self._after_first(node, target[1], [past]):
                continue
            if past in entries:
                arrivals.append(entries[past].arrival)
            elif self.history.facts.is_built((node.key, past)):
                arrivals.append(self.history.facts.first_arrival((node.key, past)))
        if not arrivals:
            if target in self._asked_by:
                self.ask_for_past(node, target, mark)
            return None
        known = [arrival for arrival in (*arrivals, self._asked_by.get(target)) if arrival is not None]
        return min(known, default=self.graph.moment.now)

    def _past(self, node: Node, partition: Partition) -> Iterator[Partition]:
        for read in node.inputs:
            if read.key == node.key and read.upstream is not None:
                yield from (p for p in read.upstream(partition) if not node.problem(p))

    def _after_first(self, node: Node, partition: Partition, past: Collection[Partition]) -> bool:
        """Return True if a past partition is not older than the table's first partition, which has no past."""
        group, place = node.place(partition)
        first = min(self._first.get((node.key, group), place), place)
        return any(node.place(one)[1] >= first for one in past)

    def _others(self, node: Node) -> Collection[Partition]:
        listed = called(node.keys) if node.partitioned else (None,)
        if isinstance(listed, Raised):
            self.failed[node.key] = f"its partitions cannot be listed: {listed.error!r}"
            return ()
        self.failed.pop(node.key, None)
        if node.dynamic:
            self.odd[node.key] = node.odd()
        before, known = self._keys.get(node.key, (None, frozenset()))
        if listed is before:
            return ()
        keys = frozenset(listed)
        now = self.graph.moment.now
        came = keys - known if before is not None else [p for p in keys if self._came_meanwhile(node, p)]
        if node.dynamic:
            targets = ((node.key, partition) for partition in came)
            self.history.keys.appeared |= {
                target: (self.history.keys.removed.get(target, 0.0), now) for target in targets
            }
        self._keys[node.key] = listed, keys
        self.history.keys.removed |= {(node.key, partition): now for partition in known - keys}
        return keys ^ known

    def _came_meanwhile(self, node: Node, partition: Partition) -> bool:
        """Return True if a partition did not exist at the last check by an earlier process or by earlier code."""
        if node.dynamic is None or not self._keys_before:
            return False
        parts = ((self._keys_before.get(name), key) for name, key in node.dynamic(partition))
        return any(before is not None and key not in before for before, key in parts)

    def _moving(self) -> list[Target]:
        """Return the newest partitions of assets with a mapping that has changed with time."""
        found: list[Target] = []
        for key, node in self.graph.nodes.items():
            stamps = () if node.refused else tuple(_asked(read.stamp) for read in node.inputs if read.stamp)
            if stamps and stamps != self._stamps.get(key):
                self._stamps[key] = stamps
                known = [p for p in self.history.facts.with_content(key) if not node.problem(p)]
                newest = sorted(known, key=node.order, reverse=True)[:_NEWEST]
                found += [(key, partition) for partition in (newest if node.partitioned else [None])]
        return found


def _asked(stamp: Callable[[], object]) -> object:
    found = called(stamp)
    return object() if isinstance(found, Raised) else found  # a new object: the readers are computed
