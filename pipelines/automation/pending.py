"""What each partition does not contain yet, through the graph back to the sources.

Belongs here: the incremental computation of it, from the history alone. Does not belong here: when it is due
(`automation.demand`) and what is done about it (`automation.planner`).

Only what an event may have moved is computed again, in topological order, and passed on only where the result is
another: an idle tick looks at nothing, one change at the partitions that follow from it.
"""

import heapq
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from pipelines.automation.graph import Graph, Input, Node, Target
from pipelines.automation.history import History
from pipelines.automation.records import reaches
from pipelines.sources.feed import Partition

_AT_ONCE = 500
"""Between two looks at the clock."""


@dataclass(frozen=True, slots=True)
class Pending:
    """What a partition does not contain.

    Args:
        arrival: Of the oldest data it does not contain (never built: when the last required input had data).
        behind: Inputs that have something pending themselves, to the arrival of the oldest of it that concerns this.
        news: Arrival of the oldest change of an input that lies there and is not contained.
        stale: Why it has to be rebuilt though nothing arrived. Empty: it has not.
        restless: Whether it, or anything it is made from, is stale.
        absent: Required inputs without any data.
        unchanged: Where all inputs have to change: those that have not.
        built: Whether it was ever built.
    """

    arrival: float | None = None
    behind: Mapping[Target, float] = field(default_factory=dict)
    news: float | None = None
    stale: str = ""
    restless: bool = False
    absent: tuple[str, ...] = ()
    unchanged: tuple[str, ...] = ()
    built: bool = True


@dataclass
class _OfInput:
    """What one input says to one partition."""

    present: bool = False
    first: float | None = None
    oldest: float | None = None
    rebuilt: str = ""
    there: float | None = None
    restless: bool = False
    behind: dict[Target, float] = field(default_factory=dict)


@dataclass
class Backlog:
    """The pending of every partition that has any, kept up to date with a history.

    Args:
        of: By asset and partition; what is not here contains everything.
    """

    graph: Graph
    history: History
    of: dict[str, dict[Partition, Pending]] = field(default_factory=dict)
    moved: bool = True
    _dirty: dict[str, set[Partition]] = field(default_factory=dict)
    _asleep: list[tuple[float, str, str]] = field(default_factory=list)
    _sleeping: set[Target] = field(default_factory=set)

    @property
    def begins_next(self) -> float:
        """When the next window begins for which data is there already."""
        return self._asleep[0][0] if self._asleep else float("inf")

    def settle(self, now: float, stop: Callable[[], bool] = lambda: False) -> bool:
        """Compute again what events, or the beginning of a window, have moved.

        Args:
            stop: Asked now and then; once it says so the rest is left for the next time.

        Returns:
            Whether nothing was left.
        """
        self._collect(now)
        count = 0
        for key, node in self.graph.nodes.items():
            waiting = self._dirty.get(key)
            while waiting:
                partition = waiting.pop()
                if node.inputs:
                    self._look(node, partition, now)
                count += 1
                if count % _AT_ONCE == 0 and stop():
                    return False
        self._dirty.clear()
        return True

    def get(self, target: Target) -> Pending | None:
        """What a partition has pending, or None."""
        return self.of.get(target[0], {}).get(target[1])

    def readers(self, target: Target) -> Iterable[tuple[Input, Target, Pending]]:
        """Those with something pending that read a partition."""
        for node, read in self.graph.readers.get(target[0], ()):
            entries = self.of.get(node.key)
            if not entries:
                continue
            partitions = entries if read.downstream is None else read.downstream(target[1])
            for partition in list(partitions):
                if partition in entries:
                    yield read, (node.key, partition), entries[partition]

    def _collect(self, now: float) -> None:
        dirty, self.history.dirty = self.history.dirty, set()
        for target in dirty:
            self._mark(target)
            self._mark_readers(target)
        while self._asleep and self._asleep[0][0] <= now:
            _, key, partition = heapq.heappop(self._asleep)
            self._sleeping.discard((key, partition))
            self._mark((key, partition))
        self.moved = self.moved or bool(self._dirty)

    def _mark(self, target: Target) -> None:
        self._dirty.setdefault(target[0], set()).add(target[1])

    def _mark_readers(self, target: Target) -> None:
        for node, read in self.graph.readers.get(target[0], ()):
            marked = self._dirty.setdefault(node.key, set())
            if read.downstream is not None:
                marked.update(read.downstream(target[1]))
            elif node.partitioned:
                marked.update(self.history.known.get(node.key, ()), self.of.get(node.key, ()))
            else:
                marked.add(None)

    def _look(self, node: Node, partition: Partition, now: float) -> None:
        target = (node.key, partition)
        entries = self.of.setdefault(node.key, {})
        before = entries.get(partition)
        after = self._pending(node, target) if self._exists(node, target, now) else None
        if after == before:
            return
        if after is None:
            del entries[partition]
        else:
            entries[partition] = after
        self._mark_readers(target)

    def _exists(self, node: Node, target: Target, now: float) -> bool:
        if node.problem(target[1]):
            return False
        begins = node.exists_from(target[1])
        if begins > now and target not in self._sleeping:
            self._sleeping.add(target)
            heapq.heappush(self._asleep, (begins, target[0], str(target[1])))
        return begins <= now

    def _pending(self, node: Node, target: Target) -> Pending | None:
        said = [(read, self._of_input(read, target)) for read in node.inputs]
        behind = {source: arrival for _, of in said for source, arrival in of.behind.items()}
        absent = tuple(read.key for read, of in said if not of.present)
        restless = any(of.restless for _, of in said)
        built = self.history.built.get(target)
        if built is None:
            if len(absent) == len(said):
                return None
            first = [of.first for _, of in said if of.first is not None]
            arrival = None if absent else max(first, default=None)
            there = min((of.there for _, of in said if of.there is not None), default=None)
            return Pending(arrival, behind, there, "", restless, absent, (), built=False)
        arrivals = [of.oldest for _, of in said if of.oldest is not None]
        unchanged: tuple[str, ...] = ()
        if node.requires_all and arrivals:
            unchanged = tuple(r.key for r, of in said if of.oldest is None and not of.rebuilt and not r.use_latest)
            arrival = None if unchanged else max(arrivals)
        else:
            arrival = min(arrivals, default=None)
        stale = next((of.rebuilt for _, of in said if of.rebuilt), "")
        if built.code_version and node.code_version and built.code_version != node.code_version:
            stale = f"built by code {built.code_version}, today's is {node.code_version}"
        news = min((of.there for _, of in said if of.there is not None), default=None)
        if arrival is None and not (stale or unchanged or restless):
            return None
        return Pending(arrival, behind, news, stale, restless or bool(stale), absent, unchanged)

    def _of_input(self, read: Input, target: Target) -> _OfInput:
        found = _OfInput()
        built = target in self.history.built
        if built:
            for source, change in self.history.news(read, target):
                if change.arrived_at is None:
                    found.rebuilt = found.rebuilt or f"{_name(source)} was rebuilt with other content"
                else:
                    found.there = found.oldest = _min(found.oldest, change.arrived_at)
        first_arrival = self.history.first_arrival
        for source in self.history.inputs_of(read, target[1]):
            found.present = True
            if not built:
                found.there = found.first = _min(found.first, first_arrival.get(source))
        for source, pending in self.inputs(read, target[1]):
            found.restless = found.restless or pending.restless
            if pending.arrival is None or read.use_latest:
                continue
            if not pending.built:
                found.present = True
                found.first = _min(found.first, pending.arrival)
            if not built or reaches(read, pending.arrival, target[1]):
                found.behind[source] = pending.arrival
                found.oldest = _min(found.oldest, pending.arrival)
        return found

    def inputs(self, read: Input, partition: Partition) -> Iterable[tuple[Target, Pending]]:
        """The partitions of an input that a partition reads and that have something pending."""
        entries = self.of.get(read.key)
        if not entries:
            return []
        wanted = list(entries) if read.upstream is None else read.upstream(partition)
        return [((read.key, p), entries[p]) for p in wanted if p in entries]


def _min(one: float | None, other: float | None) -> float | None:
    if one is None or other is None:
        return other if one is None else one
    return min(one, other)


def _name(target: Target) -> str:
    return target[0] if target[1] is None else f"{target[0]} {target[1]}"
