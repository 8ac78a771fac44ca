"""Which partitions there are to build, where no event says so.

Most partitions are built because an input of theirs has data. Some only their definition names: those of an asset
without inputs, and those that read nothing but a table without partitions. Dynamic keys come and go. And a table that
is made from its own past goes through the windows without data that lie between others.

Belongs here: which partitions that are, and since when. Does not belong here: what they lack (`planner.staleness`).
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dagster_tidemark.planner.graph import Graph, Input, Node, Target
from dagster_tidemark.planner.history import History
from dagster_tidemark.sources.feed import Partition

_BETWEEN_LOOKS = 60.0
"""Seconds between two looks at definitions that only time changes: a window begins, a mapping's last one is another."""

_NEWEST = 200
"""So many partitions of a reader are looked at again for an input of which the moment says what is read."""

_NEVER = float("-inf")


@dataclass
class Candidates:
    """The partitions that only their definition, or their own past, asks for.

    Args:
        failed: Assets of which the partitions cannot be listed, with the reason.
        odd: Keys that people added and that are no partitions of an asset, with the reason.
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
        """When definitions are to be looked at again though nothing happened (Unix seconds)."""
        return self._looked_at + _BETWEEN_LOOKS if self._timed else float("inf")

    def moved(self, now: float) -> list[Target]:
        """The partitions that have come into existence, or gone, since this was last asked; and who may read others."""
        keys_changed = self.graph.moment.revision != self._revision
        if not keys_changed and now < self._looked_at + _BETWEEN_LOOKS:
            return []
        self._looked_at, self._revision = now, self.graph.moment.revision
        self._keys_before = {name: frozenset(keys) for name, keys in self.history.keys.items()}
        found: list[Target] = []
        for key, node in self.graph.nodes.items():
            if not node.refused and (node.enumerated or (node.dynamic and keys_changed)):
                found += [(key, partition) for partition in self._others(node)]
        self.history.keys = dict(self.graph.moment.dynamic)
        return found + self._moving()

    def begins(self, node: Node, target: Target) -> float:
        """When a partition can be built: it exists; without any input, what it is about is over as well."""
        window = node.window(target[1]) if not node.inputs else None
        return max(node.exists_from(target[1]), window.end if window else _NEVER)

    def since(self, key: str) -> float:
        """When an asset that has no data to wait for was first looked at (Unix seconds)."""
        return self.history.first_seen.setdefault(key, self.graph.moment.now)

    def was_never(self, target: Target) -> bool:
        """Whether a dynamic partition was never there, as far as is known: one that was removed was given up."""
        return target not in self.history.removed and target not in self.history.built

    def needs_none(self, node: Node, read: Input, partition: Partition) -> bool:
        """Whether a partition reads nothing of an input: there is nothing to wait for."""
        if read.upstream is None:
            return False
        wanted = read.upstream(partition)
        return not wanted or (read.key == node.key and not self._after_first(node, partition, wanted))

    # A table that is made from its own past.

    def note(self, node: Node, partition: Partition) -> None:
        """A partition is built, or has all that it is made from but its past."""
        if node.reads_itself:
            group, place = node.place(partition)
            at = (node.key, group)
            self._first[at] = min(self._first.get(at, place), place)
            self._last[at] = max(self._last.get(at, place), place)

    def ask_for_past(self, node: Node, target: Target, mark: Callable[[Target], None]) -> None:
        """A partition needs its past: what of it nobody asks for yet is to be looked at."""
        arrival = self._asked_by.get(target, self.graph.moment.now)
        for past in self._past(node, target[1]):
            known = (node.key, past) in self.history.built or (node.key, past) in self._asked_by
            if not known and self._after_first(node, target[1], [past]):
                self._asked_by[(node.key, past)] = arrival
                mark((node.key, past))

    def gap(
        self, node: Node, target: Target, entries: Mapping[Partition, Any], mark: Callable[[Target], None]
    ) -> float | None:
        """When the data came for which a window that lacks its own is to be built, as later ones are made from it."""
        group, place = node.place(target[1])
        if place >= self._last.get((node.key, group), place):
            return None
        arrivals = []
        for past in self._past(node, target[1]):
            if not self._after_first(node, target[1], [past]):
                continue
            if past in entries:
                arrivals.append(entries[past].arrival)
            elif (node.key, past) in self.history.built:
                arrivals.append(self.history.first_arrival.get((node.key, past)))
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
        """Whether any of a partition's past lies after the first that there is; that one has no past to wait for."""
        group, place = node.place(partition)
        first = min(self._first.get((node.key, group), place), place)
        return any(node.place(one)[1] >= first for one in past)

    def _others(self, node: Node) -> Collection[Partition]:
        try:
            listed = node.keys() if node.partitioned else (None,)
        except Exception as error:  # a partitions definition can be anybody's code
            self.failed[node.key] = f"its partitions cannot be listed: {error!r}"
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
            self.history.appeared |= {target: (self.history.removed.get(target, 0.0), now) for target in targets}
        self._keys[node.key] = listed, keys
        self.history.removed |= {(node.key, partition): now for partition in known - keys}
        return keys ^ known

    def _came_meanwhile(self, node: Node, partition: Partition) -> bool:
        """Whether a partition was not there when an earlier process, or earlier code, looked last."""
        if node.dynamic is None or not self._keys_before:
            return False
        parts = ((self._keys_before.get(name), key) for name, key in node.dynamic(partition))
        return any(before is not None and key not in before for before, key in parts)

    def _moving(self) -> list[Target]:
        """The newest partitions of who reads others by now; all of who cannot say what it reads."""
        found: list[Target] = []
        for key, node in self.graph.nodes.items():
            stamps = () if node.refused else tuple(_asked(read.stamp) for read in node.inputs if read.stamp)
            if stamps and stamps != self._stamps.get(key):
                self._stamps[key] = stamps
                known = [p for p in self.history.known.get(key, ()) if not node.problem(p)]
                newest = sorted(known, key=node.order, reverse=True)[:_NEWEST]
                found += [(key, partition) for partition in (newest if node.partitioned else [None])]
        return found


def _asked(stamp: Callable[[], object]) -> object:
    try:
        return stamp()
    except Exception:  # anybody's partitions definition may raise; who reads by it is looked at each time
        return object()
