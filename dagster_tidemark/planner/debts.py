"""Debts of each asset with a contract: what it owed and for how long, and the lag over a period that follows from them.

Debts are followed while the event log is read. Those at a time are the debts that the contract's verdict counts
(`planner.contract_status`): arrived data that a partition does not contain, data that no run can build because a
required input is missing, and windows of a cron contract that were promised and never built. Pure. Does not belong
here: the reading of events (`engine.lag_history`).

Only the partitions that an event affects are compared, so a day of a large graph costs as much as its events. The lag
of an asset is zero, or grows by a second each second: it is linear between a few times, so its mean, 95th percentile,
maximum and share within contract follow exactly, without sampling.
"""

import heapq
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from dagster_tidemark.planner.contracts import CronContract, deadline, tick_at_or_after
from dagster_tidemark.planner.decisions import Decision, Plan, State
from dagster_tidemark.planner.evaluate import is_judged
from dagster_tidemark.planner.graph import Graph, Node, Target
from dagster_tidemark.planner.history import History
from dagster_tidemark.planner.silence import Silence
from dagster_tidemark.planner.staleness import Pending, PendingWork
from dagster_tidemark.planner.unbuildable_data import first_promised, withheld
from dagster_tidemark.planner.unbuilt import Since, Unbuilt
from dagster_tidemark.planner.user_code import Raised, called

PERCENTILE = 0.95


@dataclass(frozen=True, slots=True)
class Debt:
    """Data that an asset lacked for some time. All times are Unix seconds.

    Args:
        since: When the data arrived. The debt begins then, even if the arrival was noticed later.
        until: When the asset contained it; infinite if it still lacks it.
        deadline: When the asset had to contain it; None if its contract does not cover the data.
    """

    since: float
    until: float
    deadline: float | None = None


@dataclass(frozen=True, slots=True)
class LagFigures:
    """Lag of an asset over a period.

    Args:
        seconds: Length of the period.
        mean: Mean lag in seconds.
        p95: Lag in seconds that was not exceeded for 95% of the period.
        longest: Longest lag in seconds.
        within: Share of the period without a missed deadline (0 to 1).
    """

    seconds: float
    mean: float
    p95: float
    longest: float
    within: float


@dataclass(frozen=True, slots=True)
class _Piece:
    """Part of a period. Its lag begins with `lag` and grows by a second each second, or stays zero."""

    length: float
    lag: float
    grows: bool
    late: bool


def figures(debts: Iterable[Debt], start: float, end: float) -> LagFigures:
    """Return the figures of a period from all debts that touch it. The oldest debt at a time determines the lag."""
    pieces = list(_pieces([debt for debt in debts if debt.since < end and debt.until > start], start, end))
    seconds = end - start
    area = sum(piece.length * (piece.lag + piece.length / 2) for piece in pieces if piece.grows)
    late = sum(piece.length for piece in pieces if piece.late)
    longest = max((piece.lag + piece.length for piece in pieces if piece.grows), default=0.0)
    return LagFigures(seconds, area / seconds, _percentile(pieces, PERCENTILE * seconds), longest, 1 - late / seconds)


def _pieces(debts: Sequence[Debt], start: float, end: float) -> Iterator[_Piece]:
    """Split the period at each time when a debt begins, ends or misses its deadline, and yield the parts."""
    times = {start, end}
    for debt in debts:
        times.update((debt.since, debt.until, debt.until if debt.deadline is None else debt.deadline))
    coming = sorted(debts, key=lambda debt: debt.since, reverse=True)
    # Both heaps may hold debts that have ended. They are dropped when they come to the top.
    oldest: list[tuple[float, float]] = []
    strictest: list[tuple[float, float]] = []
    for begin, finish in pairwise(sorted(at for at in times if start <= at <= end)):
        while coming and coming[-1].since <= begin:
            debt = coming.pop()
            heapq.heappush(oldest, (debt.since, debt.until))
            if debt.deadline is not None:
                heapq.heappush(strictest, (debt.deadline, debt.until))
        for heap in (oldest, strictest):
            while heap and heap[0][1] <= begin:
                heapq.heappop(heap)
        late = bool(strictest) and strictest[0][0] <= begin
        yield _Piece(finish - begin, begin - oldest[0][0] if oldest else 0.0, bool(oldest), late)


def _percentile(pieces: Iterable[_Piece], wanted: float) -> float:
    """Return the smallest lag that is not exceeded for `wanted` seconds."""
    reached = 0.0
    slopes: list[tuple[float, int]] = []  # how many pieces begin, or end, with a lag
    for piece in pieces:
        if piece.grows:
            slopes += [(piece.lag, 1), (piece.lag + piece.length, -1)]
        else:
            reached += piece.length
    if reached >= wanted:
        return 0.0
    slopes.sort()
    growing = 0
    for (lag, step), (following, _) in pairwise(slopes):
        growing += step
        gained = growing * (following - lag)
        if gained and reached + gained >= wanted:
            return lag + (wanted - reached) / growing
        reached += gained
    return slopes[-1][0]


_Owed = tuple[float, float | None]
"""Start of a debt, and its deadline."""
_PENDING, _WITHHELD, _UNBUILT = "pending", "withheld", "unbuilt"
_Cause = tuple[str, Target | None]


class _Unnamed(Silence):
    """Silent sources without their names in words, which need a look at each partition of the source."""

    def told(self, sources: Iterable[str]) -> str:
        return ""


@dataclass
class Debts:
    """Debts of a graph, from the first call of `step` on.

    Args:
        ended: Debts that were paid, by asset.
    """

    graph: Graph
    history: History
    unbuilt: Unbuilt
    since: Since
    ended: dict[str, list[Debt]] = field(default_factory=dict)
    _work: PendingWork = field(init=False)
    _open: dict[str, dict[_Cause, _Owed]] = field(default_factory=dict)
    _withheld: dict[Target, dict[str, _Owed]] = field(default_factory=dict)
    _held_below: dict[Target, set[Target]] = field(default_factory=dict)
    _unbegun: dict[str, Decision] = field(default_factory=dict)
    _next_tick: float = float("-inf")

    def __post_init__(self) -> None:
        self._work = PendingWork(self.graph, self.history, looked=set())
        self.history.dirty.update(self.history.facts)

    @property
    def steady_until(self) -> float:
        """Time of the next step without any event: a window begins, or a cron contract has a deadline."""
        return min(self._work.begins_next, self._next_tick)

    def step(self, now: float, at: float | None = None) -> None:
        """Compare the debts after an event, or at a time when windows may begin.

        Args:
            at: Time when the debts that are paid now were paid; by default `now`.
        """
        at = now if at is None else at
        self.graph.moment.moves_to(now)
        self._work.settle(now)
        looked = self._work.looked or set()
        self._work.looked = set()
        for target in looked:
            self._compare(target[0], (_PENDING, target), self._pending(target), at)
        for target in self._held_again(looked):
            self._compare_withheld(target, now, at)
        crons = {key for key, _ in looked} if now < self._next_tick else self.graph.nodes.keys()
        for key in crons:
            node = self.graph.nodes[key]
            if isinstance(node.contract, CronContract) and node.has_judged_contract:
                self._compare(key, (_UNBUILT, None), self._oldest_unbuilt(node, now), at)
        if now >= self._next_tick:
            contracts = [n.contract for n in self.graph.nodes.values() if isinstance(n.contract, CronContract)]
            self._next_tick = min((tick_at_or_after(each, now + 0.001) for each in contracts), default=float("inf"))

    def of(self, asset: str) -> list[Debt]:
        """Return all debts of an asset so far. Unpaid debts have no end."""
        unpaid = [Debt(since, float("inf"), by) for since, by in self._open.get(asset, {}).values()]
        return [*self.ended.get(asset, ()), *unpaid]

    def assets(self) -> Iterator[str]:
        """Yield the assets whose contract is judged."""
        return (key for key, node in self.graph.nodes.items() if node.has_judged_contract)

    def _compare(self, asset: str, cause: _Cause, owed: _Owed | None, at: float) -> None:
        node = self.graph.nodes.get(asset)
        if node is None or not node.has_judged_contract:
            return
        known = self._open.setdefault(asset, {})
        before = known.get(cause)
        if before == owed:
            return
        if before is not None:
            del known[cause]
            if at > before[0]:
                self.ended.setdefault(asset, []).append(Debt(before[0], at, before[1]))
        if owed is not None:
            known[cause] = owed

    def _pending(self, target: Target) -> _Owed | None:
        node, pending = self.graph.nodes[target[0]], self._work.get(target)
        if pending is None or pending.arrival is None or node.contract is None:
            return None
        by = self._deadline(node, target, pending, pending.arrival)
        return pending.arrival, by

    def _deadline(self, node: Node, target: Target, pending: Pending, arrival: float) -> float | None:
        if node.contract is None or not (pending.built or is_judged(self.graph, self.history, node, target)):
            return None
        return deadline(node.contract, arrival, node.promised_window(target[1]), built=pending.built)

    def _held_again(self, looked: Iterable[Target]) -> set[Target]:
        """Return the partitions whose withheld data may have changed: they, or a partition below, were looked at."""
        found = set[Target]()
        for target in looked:
            pending = self._work.get(target)
            if target in self._withheld or (pending is not None and pending.missing_inputs):
                found.add(target)
            found |= self._held_below.get(target, set())
        return found | self._unbegun_again(found | {*looked})

    def _unbegun_again(self, looked: Iterable[Target]) -> set[Target]:
        """Return the first promised partitions of tables without pending work, before and after these looks."""
        touched = {key for key, _ in looked}
        touched |= {reader.key for key in touched for reader, _ in self.graph.readers.get(key, ())}
        found = set[Target]()
        for key in touched & self.graph.nodes.keys():
            before = self._unbegun.pop(key, None)
            after = None if self._work.of.get(key) else first_promised(self.graph, self.history, key)
            if after is not None:
                self._unbegun[key] = after
            found |= {decision.target for decision in (before, after) if decision is not None}
        return found

    def _compare_withheld(self, target: Target, now: float, at: float) -> None:
        owed = called(lambda: self._withheld_of(target, now))
        found: dict[str, _Owed] = {} if isinstance(owed, Raised) else owed
        for asset in self._withheld.pop(target, {}).keys() | found.keys():
            self._compare(asset, (_WITHHELD, target), found.get(asset), at)
        if found:
            self._withheld[target] = found

    def _withheld_of(self, target: Target, now: float) -> dict[str, _Owed]:
        node, pending = self.graph.nodes[target[0]], self._work.get(target)
        unbegun = self._unbegun.get(target[0])
        if pending is None and unbegun is not None and unbegun.target == target:
            decisions = {target: unbegun}
        elif pending is None or not pending.missing_inputs or not (node.automated or node.has_judged_contract):
            return {}
        else:
            lacking: tuple[Target, ...] = tuple((key, None) for key in pending.missing_inputs)
            owed = {"built": pending.built, "withheld_since": pending.withheld_since}
            decisions = {target: Decision(*target, State.NO_DATA, "", wait_for=lacking).but(**owed)}
        for read in node.inputs:
            for source, of in self._work.inputs(read, target[1]):
                decisions[source] = Decision(*source, State.NOT_DUE, "", of.arrival)
        found: dict[str, _Owed] = {}
        silence = _Unnamed(self.graph, self.history)
        for asset, standing in withheld(self.graph, self.history, Plan(now, decisions), silence).items():
            for lack in standing.lacks:
                if lack.since is not None:
                    self._held_below.setdefault((asset, lack.partition), set()).add(target)
                    since, by = found.get(asset, (lack.since, lack.deadline))
                    found[asset] = min(since, lack.since), lack.deadline if by is None else min(by, lack.deadline)
        return found

    def _oldest_unbuilt(self, node: Node, now: float) -> _Owed | None:
        """Return the oldest promised window that is missing and that no pending data covers."""
        missing = called(lambda: self.unbuilt.missing(node, self.history, self.since, now))
        if isinstance(missing, Raised):
            return None
        aside = {t[1] for t in (*self.history.set_aside, *self._work.aside) if t[0] == node.key}
        known = self.history.facts.with_content(node.key)
        for partition, promised in missing.items():
            target = (node.key, partition)
            pending = self._work.get(target)
            arrival = pending.arrival if pending is not None else None
            is_pending = pending and arrival and self._deadline(node, target, pending, arrival) is not None
            if promised <= now and not (partition in known or partition in aside or is_pending):
                return promised, promised
        return None
