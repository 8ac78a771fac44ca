"""Runs to request for decisions: which partitions share a run, and which are requested as a range.

A run follows the backfill policies of its assets. A range is requested only if Dagster's own range contains exactly the
intended partitions. Belongs here: the runs to request for given partitions. Does not belong here: the choice of due
partitions.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from dagster_tidemark.planner.decisions import Asked, Decision, Request, State
from dagster_tidemark.planner.graph import Graph, Node, Target
from dagster_tidemark.planner.history import History
from dagster_tidemark.planner.user_code import Raised, called
from dagster_tidemark.sources.feed import Partition

SINGLES = 8
"""Most due partitions of an asset that get one run each. More partitions are requested as ranges."""

_RANGES_PER_TICK = 8
_SHARE_OF_A_REBUILD = 4
_LONGEST_REBUILD = 900.0
_HELD_BY_OTHERS = (State.NO_DATA, State.AWAITED, State.BLOCKED, State.BACKING_OFF, State.UNANSWERED, State.PAUSED)


@dataclass
class Requests:
    """Runs for the partitions that the planner found due.

    Args:
        aside: Assets whose runs could not be put together, with the reason.
        found: The result of `steps`: the runs to request, and changed decisions on partitions that wait or join another
            run.
    """

    graph: Graph
    history: History
    asked: Asked
    aside: dict[Target, str] = field(default_factory=dict)
    found: tuple[list[Request], dict[Target, Decision]] = field(default_factory=lambda: ([], {}))

    def steps(self, decisions: Mapping[Target, Decision]) -> Iterator[None]:
        """Find the runs in steps, and set `found`. The caller may pause between two steps.

        There is one rebuild at a time. A queued rebuild would block partitions that could get new data.
        """
        found = _Found(self.graph, self.history, self.asked, decisions)
        for key in self.graph.nodes:
            self._isolated(found, key)
            if key in found.arrived:
                yield
        found.rebuild(allowed=not self.asked.rebuilding)
        self.found = found.requests, found.changed

    def _isolated(self, found: "_Found", key: str) -> None:
        before = len(found.requests)
        raised = called(found.arrivals, key)
        if isinstance(raised, Raised):
            self.aside[(key, None)] = str(raised)
            del found.requests[before:]
            for partition in found.arrived.get(key, ()):
                found.throttle((key, partition), "set aside")


class _Found:
    def __init__(self, graph: Graph, history: History, asked: Asked, decisions: Mapping[Target, Decision]) -> None:
        self.graph, self.history, self.decisions = graph, history, decisions
        self.requests: list[Request] = []
        self.changed: dict[Target, Decision] = {}
        self.taken: set[Target] = set()
        self.arrived: dict[str, list[Partition]] = {}
        self.stale: dict[str, list[Partition]] = {}
        self.waiting: dict[Partition, set[str]] = {}
        # Manual runs do not count: a manual backfill must not delay new data.
        ours = {target for target, runs in history.running.items() if not runs <= asked.by_people}
        self.in_flight: dict[str, list[Partition]] = {}
        for key, partition in {*ours, *asked.reserved}:
            self.in_flight.setdefault(key, []).append(partition)
        for (key, partition), decision in decisions.items():
            if decision.state is State.REQUESTED:
                of = self.stale if decision.due_at is None else self.arrived
                of.setdefault(key, []).append(partition)
            elif decision.state is State.WAITING and decision.due_at is not None:
                self.waiting.setdefault(partition, set()).add(key)

    def arrivals(self, key: str) -> None:
        """Add the runs for an asset's due partitions. Assets that wait only for these partitions join the runs."""
        node = self.graph.nodes[key]
        # Partitions in `changed` are throttled already, together with the run that they would have joined.
        due = [p for p in self.arrived.get(key, ()) if (key, p) not in self.taken and (key, p) not in self.changed]
        newest_first = sorted(due, key=node.order, reverse=True)
        ready = [p for p in newest_first if not self._held_by_others((key, p))]
        alone = [p for p in ready if self._failed_often((key, p))]
        self._singly(node, alone, dict.fromkeys(alone))
        self._together(node, [p for p in ready if not self._failed_often((key, p))])

    def rebuild(self, *, allowed: bool) -> None:
        """Add at most one run for partitions that only code made stale: a short run of the newest partitions.

        Readers of rebuilt partitions come before older partitions, because the readers' partitions are newer.
        """
        newest: list[tuple[float, Node, list[Partition]]] = []
        for key, node in self.graph.nodes.items():
            due = [p for p in self.stale.get(key, ()) if (key, p) not in self.taken]
            stale = [p for p in sorted(due, key=node.order, reverse=True) if not self._held_by_others((key, p))]
            if node.conditional:  # its own condition also decides on rebuilds
                self._singly(node, stale, dict.fromkeys(stale))
            elif stale:
                window = node.window(stale[0])
                newest.append((math.inf if window is None else window.end, node, stale))
        for _, node, stale in sorted(newest, key=lambda found: -found[0]):  # equal ones stay in the order of the graph
            chosen: Sequence[Partition] = ()
            if allowed:
                assets = self._operation(node.key)
                most = min(self._most_of_a_rebuild(node.key), self._most(assets))
                chosen = _runs(node, stale)[0][-most:]
                allowed = False
                self._ask(Request(assets, tuple(chosen), as_range=True, rebuild=True))
            for partition in stale:
                if partition not in chosen:
                    self.throttle(
                        (node.key, partition),
                        "another rebuild runs first: one at a time, from the newest partition to the oldest",
                    )

    def throttle(self, target: Target, reason: str = "newer partitions first") -> None:
        """Mark a partition as due but not requested in this tick."""
        self.changed[target] = replace(self.decisions[target], state=State.THROTTLED, reason=reason)

    def _most_of_a_rebuild(self, key: str) -> int:
        bound = (self.graph.strictest or _LONGEST_REBUILD * _SHARE_OF_A_REBUILD) / _SHARE_OF_A_REBUILD
        return max(1, int(bound / self.history.durations.of_partition(key)))

    def _together(self, node: Node, ordered: Sequence[Partition]) -> None:
        joined = {p: self._joined(node.key, p) for p in ordered}
        fresh = [p for p in ordered if not self.history.facts.is_built((node.key, p))]
        few = len(ordered) <= SINGLES and len(fresh) <= 1
        if node.conditional or not node.partitioned or node.most == 1 or few:
            self._singly(node, ordered, joined)
            return
        ranges = []
        for run in _runs(node, ordered):
            assets = self._joined_by_all(node, run, joined)
            ranges += [Request(assets, tuple(part), as_range=True) for part in _parts(run, self._most(assets))]
        for request in ranges[:_RANGES_PER_TICK]:
            self._ask(request)
        for held in ranges[_RANGES_PER_TICK:]:
            for target in held.targets:
                self.throttle(target)

    def _singly(
        self, node: Node, ordered: Sequence[Partition], joined: Mapping[Partition, tuple[str, ...] | None]
    ) -> None:
        """Request one run per partition, up to `SINGLES` at a time."""
        # An asset with one partition per run can have thousands of due partitions, which would fill the queue. Only
        # runs of newer partitions count: a queued run of an older one may be stuck, and must not delay newer ones.
        bounded = node.most == 1 or node.conditional
        in_flight = [node.order(p) for p in self.in_flight.get(node.key, ()) if bounded and not node.problem(p)]
        for place, partition in enumerate(ordered):
            newer = sum(order >= node.order(partition) for order in in_flight)
            if place + newer >= SINGLES:
                self.throttle((node.key, partition), f"newer partitions first, {newer} of them under way")
                continue
            assets = joined[partition] or self._joined(node.key, partition)
            # A condition can request only assets of its own sensor. So the range sensor requests runs over two sensors.
            split = len({self.graph.nodes[asset].sensor for asset in assets}) > 1
            self._ask(Request(assets, (partition,), as_range=split, conditional=node.conditional))

    def _operation(self, key: str) -> tuple[str, ...]:
        """Return the asset and all assets that the same operation builds."""
        together = self.graph.nodes[key].together
        return (key, *(name for name in self.graph.nodes if name in together and name != key)) if together else (key,)

    def _joined(self, key: str, partition: Partition) -> tuple[str, ...]:
        """Return the asset, and all assets that wait only for assets of the same run.

        An asset that waits for several due assets (a1 and a2, both read by b) adds the others to the run.
        """
        assets = list(self._operation(key))
        waiting = self.waiting.get(partition, set())
        if self.graph.nodes[key].conditional or not waiting:
            return tuple(assets)
        for name in [n for n in self.graph.parts[key] if n in waiting]:
            more = self._with_what_it_waits_for(name, partition, assets) if name not in assets else None
            if more is not None:
                assets += more
        return tuple(assets)

    def _joined_by_all(
        self, node: Node, run: Sequence[Partition], joined: Mapping[Partition, tuple[str, ...]]
    ) -> tuple[str, ...]:
        """Return the assets that can share one run over all the partitions of `run`."""
        assets = [name for name in joined[run[0]] if all(name in joined[p] for p in run)]
        own = self._operation(node.key)
        while outside := [n for n in assets if n not in own and any(self._waits_outside(n, p, assets) for p in run)]:
            dropped = {one for name in outside for one in self._operation(name)}
            assets = [name for name in assets if name not in dropped]
        return tuple(assets)

    def _waits_outside(self, name: str, partition: Partition, assets: Sequence[str]) -> bool:
        decision = self.decisions.get((name, partition))
        if decision is None or decision.state is not State.WAITING:
            return False
        return any(source not in assets for source, _ in decision.wait_for)

    def _with_what_it_waits_for(self, name: str, partition: Partition, assets: Sequence[str]) -> list[str] | None:
        """Return the assets to add to a run so that a waiting asset joins it, or None if it cannot join.

        These are all assets of its operation, and other due assets that it waits for.
        """
        operation = self._operation(name)
        decided = [d for one in operation if (d := self.decisions.get((one, partition))) is not None]
        waits = {
            target for d in decided if d.state is State.WAITING for target in d.wait_for if target[0] not in operation
        }
        if any(d.attempts for d in decided) or not any(source in assets for source, _ in waits):
            return None
        if any(other != partition for _, other in waits):
            return None
        more: list[str] = []
        for source in sorted({source for source, _ in waits if source not in assets}):
            if source in more:
                continue
            if not self._is_due_alone((source, partition)):
                return None
            more += self._operation(source)
        inside = {*assets, *more}
        reads = [(node, r) for node in map(self.graph.nodes.__getitem__, operation) for r in node.inputs]
        if not all(self.graph.share_a_run(node, read) for node, read in reads if read.key in inside):
            return None
        if self._held_by_operation((name, partition)) is not None:
            return None
        return [*more, *operation]

    def _is_due_alone(self, target: Target) -> bool:
        """Return True if this pass requests a partition that is in no run yet and may share a run with others."""
        decision = self.decisions.get(target)
        if decision is None or decision.state is not State.REQUESTED or decision.due_at is None:
            return False
        free = target not in self.taken and target not in self.changed and self._held_by_operation(target) is None
        return free and not decision.attempts and not self.graph.nodes[target[0]].conditional

    def _most(self, assets: Sequence[str]) -> int:
        bounds = [most for asset in assets if (most := self.graph.nodes[asset].most) is not None]
        return min(bounds, default=1_000_000)

    def _ask(self, request: Request) -> None:
        self.requests.append(request)
        for target in request.targets:
            self.taken.add(target)
            decision = self.decisions.get(target)
            if decision is not None and request.conditional:
                self.changed[target] = replace(
                    decision, state=State.LEFT, reason=f"{decision.reason}, by its condition"
                )
            elif decision is not None and decision.state is not State.REQUESTED:
                with_ = request.assets[0]
                self.changed[target] = decision.but(state=State.REQUESTED, reason=f"in one run with {with_}")

    def _held_by_others(self, target: Target) -> bool:
        """Return True, and throttle the partition, if another asset of the same operation cannot be built now."""
        other = self._held_by_operation(target)
        if other is not None:
            self.throttle(target, f"built by one operation with {other.asset}: {other.state}, {other.reason}")
        return other is not None

    def _held_by_operation(self, target: Target) -> Decision | None:
        return held_by_operation(self.graph, self.decisions, target)

    def _failed_often(self, target: Target) -> bool:
        # In a range, a partition that always fails would block the others forever. It is requested alone instead.
        return self.decisions[target].attempts > 1


def held_by_operation(graph: Graph, decisions: Mapping[Target, Decision], target: Target) -> Decision | None:
    """Return the decision on an asset that cannot be built now and belongs to the same operation, or None."""
    together = graph.nodes[target[0]].together
    others = (name for name in graph.nodes if name in together and name != target[0]) if together else ()
    found = (decisions.get((other, target[1])) for other in others)
    return next((decision for decision in found if decision is not None and decision.state in _HELD_BY_OTHERS), None)


def ranges(node: Node, newest_first: Sequence[Partition], most: int | None) -> list[Sequence[Partition]]:
    """Split an asset's partitions into parts of at most `most` consecutive ones, the newest part first.

    Partitions in a part are sorted from the oldest to the newest.
    """
    return [part for run in _runs(node, newest_first) for part in _parts(run, most or len(run))]


def _parts(run: Sequence[Partition], most: int) -> list[Sequence[Partition]]:
    """Split consecutive partitions into parts of at most `most`, the newest part first."""
    starts = range(len(run), 0, -most)
    return [run[max(0, start - most) : start] for start in starts]


def _runs(node: Node, newest_first: Sequence[Partition]) -> list[list[Partition]]:
    """Group partitions into rows of consecutive ones: the newest row first, and the oldest partition first in each row.

    With several dimensions, partitions are consecutive along one: if they differ in another, they are in separate rows.
    """
    runs: list[list[Partition]] = []
    last: dict[Any, list[Partition]] = {}
    for partition in newest_first:
        along = node.place(partition)[0]
        if along in last and node.in_a_row(partition, last[along][0]):
            last[along].insert(0, partition)
        else:
            last[along] = [partition]
            runs.append(last[along])
    return runs
