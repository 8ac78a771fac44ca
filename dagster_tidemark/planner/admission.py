"""Slots of an instance with a limited number of runs at once: earlier starts, and admission of due runs to the queue.

Runs are requested in the order of their latest start times. While other assets have tighter contracts, only as many
runs are requested as keep the queue busy. An urgent run that becomes due later then finds a short queue and overtakes
it: the tighter the contract, the higher the run's priority. If runs would occupy slots for longer than a tighter
contract can wait, one slot is kept free.

Upcoming runs that are due together but cannot all run at once start earlier: they are put into lanes from the last run
backwards, each as late as its lane allows. This gives the latest starts that keep all runs in time (list scheduling in
reverse).

Belongs here: order, number, priority and earlier starts of runs. Does not belong here: which partitions are due
(`planner.evaluate`), the due time of a run without others (`planner.demand`), and which partitions share a run
(`planner.grouping`).
"""

import math
from bisect import bisect_right
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from dagster_tidemark.planner.contracts import LagContract, Pace, reserve
from dagster_tidemark.planner.decisions import Asked, Decision, Request, State
from dagster_tidemark.planner.graph import Graph, Node, Target
from dagster_tidemark.planner.grouping import SINGLES
from dagster_tidemark.planner.history import History
from dagster_tidemark.planner.run_durations import FEW
from dagster_tidemark.planner.wording import names

_OF_AN_HOUR = 3600.0
_LOWEST = -9
"""Lowest priority by contract. Rebuilds have -10, manual runs and a contract of an hour 0, and runs of streams 10."""

_STUCK_AFTER = 600.0
"""Seconds in the queue after which a run no longer keeps other runs from being requested."""

_VARIES = 1.5
"""Assumed longest duration of a run, as a multiple of its longest known duration."""

_REFUSED_AFTER = 60.0
"""Seconds without a run after which the asset's own condition is assumed to refuse a request."""

_WAITING_PER_SLOT = 1
"""Queued runs per slot, so that a slot that becomes free gets a run before the next tick."""


def priority(within: float | None) -> int:
    """Return the `dagster/priority` of a run. It rises by one each time the contract is halved.

    A contract of 5 minutes gives 4, an hour 0, and a day -5.

    Args:
        within: Seconds of the tightest contract that needs the run, see `Graph.tightest`; None if no contract does.
    """
    return 0 if within is None else max(_LOWEST, round(math.log2(_OF_AN_HOUR / within)))


def priority_of(assets: Iterable[str], graph: Graph) -> int:
    """Return the priority of a run that builds these assets."""
    return priority(min((graph.tightest[a] for a in assets if a in graph.tightest), default=None))


@dataclass(frozen=True)
class _Run:
    """An open run, a requested run, or a run that may be requested now.

    Args:
        tighter: Assets with tighter contracts than the run's.
        is_long: True if a tighter contract cannot wait for the end of the run.
    """

    priority: int
    tighter: Collection[str]
    is_long: bool


@dataclass
class Admission:
    """Selection of the requests that fit into the queue.

    Args:
        slots: Number of runs that can be under way at once; None if there is no limit, and all runs are requested.
        margin: Seconds from the due time of a run to its start.
        now: Unix seconds.
        again_at: Earliest time when more runs may be admitted without a new event (Unix seconds).
    """

    graph: Graph
    history: History
    asked: Asked
    slots: int | None
    margin: float
    now: float
    again_at: float = math.inf
    _can_wait: list[tuple[int, float, str]] = field(init=False)

    def __post_init__(self) -> None:
        self._can_wait = []
        for key, within in self.graph.tightest.items() if self.slots else ():
            node = self.graph.nodes[key]
            if node.automated and not node.refused and (node.contract is not None or node.asap):
                self._can_wait.append((priority(within), self._rest(node), key))

    @property
    def lanes(self) -> int | None:
        """Number of runs that can always run at once, without a slot that may be kept free for a tighter contract."""
        differ = len({of for of, _, _ in self._can_wait}) > 1
        return max(1, self.slots - 1) if self.slots and differ else self.slots

    def _rest(self, node: Node) -> float:
        """Return the seconds that a requested run can wait for a slot. With a lag contract this is only the reserve."""
        pace = Pace(self.history.durations.of_run(node.key), self.margin)
        if node.asap or node.contract is None:
            return 0.0
        if isinstance(node.contract, LagContract):
            return reserve(node.contract, pace)
        return node.contract.bound - pace.run_duration - pace.margin

    def of(
        self, requests: Collection[Request], decisions: Mapping[Target, Decision]
    ) -> tuple[list[Request], dict[Target, Decision]]:
        """Return the requests to make now, the most urgent first, and the changed decisions on all other requests."""
        ordered = sorted(requests, key=lambda request: self._urgency(request, decisions))
        if self.slots is None:
            return ordered, {}
        under_way = [self._run(of) for of in self._open()]
        admitted: list[Request] = []
        held: dict[Target, Decision] = {}
        for request in ordered:
            # Rebuilds are requested one at a time, and a momentary condition cannot wait for a slot.
            if request.rebuild or any(self.graph.nodes[asset].momentary for asset in request.assets):
                admitted.append(request)
                continue
            run = self._run({asset: len(request.partitions) for asset in request.assets})
            why = self._no_room(run, under_way)
            if why:
                throttled = (decisions[t] for t in request.targets if t in decisions)
                held |= {d.target: d.but(state=State.THROTTLED, reason=why) for d in throttled}
            else:
                admitted.append(request)
                until = self._refused_from(request) if request.conditional else math.inf
                if self.now < until:
                    under_way.append(run)
                    self.again_at = min(self.again_at, until)
        return admitted, held

    def _refused_from(self, request: Request) -> float:
        """Return the time after which the asset's own condition is assumed to refuse a request."""
        return min(self.asked.offered.get(target, self.now) for target in request.targets) + _REFUSED_AFTER

    def _no_room(self, run: _Run, under_way: Iterable[_Run]) -> str:
        """Return why the queue has no room for a run; empty if it has room. Runs of lower priority do not count."""
        if not run.tighter:
            return ""
        slots = self.slots or 1
        before = [other for other in under_way if other.priority >= run.priority]
        if run.is_long and sum(other.is_long for other in before) >= max(1, slots - 1):
            return f"it may take long, and one of {slots} slots is kept free for {names(run.tighter)}"
        if len(before) >= slots * (1 + _WAITING_PER_SLOT):
            return f"earlier deadlines first, {slots} runs at once"
        return ""

    def _open(self) -> Iterable[Mapping[str, int]]:
        """Yield the number of partitions by asset for each open or requested run, except manual runs."""
        for run_id, run in self.history.open_runs.items():
            if run_id in self.asked.by_people:
                continue  # a manual backfill must not delay new data
            if run_id in self.asked.queued:
                stuck_at = run.created_at + _STUCK_AFTER
                if stuck_at <= self.now:
                    continue  # probably a limit of the instance keeps it in the queue: it must not delay other runs
                self.again_at = min(self.again_at, stuck_at)
            assets = dict(run.built)
            for asset, _ in run.planned:
                assets[asset] = assets.get(asset, 0) + 1
            if assets:
                yield assets
        for request in self.asked.runs:
            yield {asset: len(request.partitions) for asset in request.assets}

    def _run(self, assets: Mapping[str, int]) -> _Run:
        of = priority_of(assets, self.graph)
        seconds = max(self._seconds(asset, partitions) for asset, partitions in assets.items())
        tighter = {key: rest for higher, rest, key in self._can_wait if higher > of}
        return _Run(of, tighter, any(rest < _VARIES * seconds for rest in tighter.values()))

    def _seconds(self, asset: str, partitions: int) -> float:
        """Return the expected seconds of a run; infinite if no run of the asset is known."""
        if not self.history.durations.is_known(asset):
            return math.inf
        if partitions <= FEW:
            return self.history.durations.of_run(asset)
        return self.history.durations.of_partition(asset) * partitions

    def _urgency(self, request: Request, decisions: Mapping[Target, Decision]) -> tuple[float, float, float]:
        """Return the sort key of a request: its latest start. Among late requests the tightest contract comes first."""
        starts = [d.start_by for t in request.targets if (d := decisions.get(t)) and d.start_by is not None]
        within = min((self.graph.tightest.get(asset, math.inf) for asset in request.assets), default=math.inf)
        start_by = min(starts, default=math.inf)
        return max(self.now, start_by), within, start_by


@dataclass(frozen=True, slots=True)
class Upcoming:
    """Partition that has to run at a future time.

    Args:
        latest: Latest time to request it if nothing else runs (Unix seconds).
        seconds: Duration of its run.
        joins: Input that is built in the same run.
        after: Inputs that are built before it, in separate runs.
        most: Most partitions in a run of the asset; None if there is no limit.
    """

    target: Target
    latest: float
    seconds: float
    joins: Target | None = None
    after: Collection[Target] = ()
    most: int | None = None


@dataclass
class _RunAhead:
    latest: float
    seconds: float
    targets: list[Target] = field(default_factory=list)
    after: set[Target] = field(default_factory=set)
    most: int | None = None

    def add(self, other: "_RunAhead") -> None:
        self.latest = min(self.latest, other.latest)
        self.seconds = max(self.seconds, other.seconds)
        self.targets += other.targets
        self.after |= other.after
        self.most = min((most for most in (self.most, other.most) if most is not None), default=None)


def earlier_starts(upcoming: Sequence[Upcoming], slots: int, margin: float) -> dict[Target, float]:
    """Return the partitions that must be requested earlier than if they ran alone, with that time (Unix seconds).

    Args:
        upcoming: The upcoming partitions. Inputs come before their readers.
        slots: Number of runs that can be under way at once.
        margin: Seconds from the due time of a run to its start.
    """
    if len(upcoming) <= slots:
        return {}
    lanes = [float("inf")] * slots
    ends: dict[Target, float] = {}
    earlier: dict[Target, float] = {}
    for run in sorted(_as_ranges(_together(upcoming)), key=lambda run: run.latest + run.seconds, reverse=True):
        end = min([run.latest + run.seconds, *(ends[t] for t in run.targets if t in ends)])
        free = [lane for lane in range(slots) if lanes[lane] >= end]
        lane = min(free, key=lanes.__getitem__) if free else max(range(slots), key=lanes.__getitem__)
        start = lanes[lane] = min(end, lanes[lane]) - run.seconds
        for source in run.after:
            ends[source] = min(ends.get(source, start), start) - margin
        if start < run.latest:
            earlier |= dict.fromkeys(run.targets, start)
    return earlier


def _together(upcoming: Iterable[Upcoming]) -> list[_RunAhead]:
    """Return the runs: one for all partitions that are built together."""
    run_of: dict[Target, _RunAhead] = {}
    for one in upcoming:
        run = _RunAhead(one.latest, one.seconds, [one.target], set(one.after), one.most)
        if one.joins in run_of:
            run_of[one.joins].add(run)
            run = run_of[one.joins]
        run_of[one.target] = run
    return list({id(run): run for run in run_of.values()}.values())


def _as_ranges(runs: Iterable[_RunAhead]) -> list[_RunAhead]:
    """Return the runs after merging many runs of an asset that are due within the duration of one run."""
    by_asset: dict[str, list[_RunAhead]] = {}
    for run in sorted(runs, key=lambda run: run.latest):
        by_asset.setdefault(run.targets[0][0], []).append(run)
    found: list[_RunAhead] = []
    for ordered in by_asset.values():
        start = 0
        while start < len(ordered):
            first = ordered[start]
            end = bisect_right(ordered, first.latest + first.seconds, lo=start, key=lambda run: run.latest)
            close = ordered[start:end]
            start = end
            if len(close) > SINGLES:
                most = min((run.most for run in close if run.most is not None), default=len(close))
                close = [_one(close[begin : begin + most]) for begin in range(0, len(close), most)]
            found += close
    return found


def _one(runs: Sequence[_RunAhead]) -> _RunAhead:
    for other in runs[1:]:
        runs[0].add(other)
    return runs[0]
