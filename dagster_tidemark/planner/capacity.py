"""Earlier starts for runs that are due together but cannot all run at once.

An instance has a limited number of lanes. The upcoming runs are put into these lanes from the last run backwards, each
as late as its lane allows. This gives the latest starts that keep all runs in time (list scheduling in reverse).

Belongs here: this arithmetic. Does not belong here: the due time of a run without others (`planner.demand`).
"""

from bisect import bisect_right
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

from dagster_tidemark.planner.graph import Target
from dagster_tidemark.planner.grouping import SINGLES


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
class _Run:
    latest: float
    seconds: float
    targets: list[Target] = field(default_factory=list)
    after: set[Target] = field(default_factory=set)
    most: int | None = None

    def add(self, other: "_Run") -> None:
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


def _together(upcoming: Iterable[Upcoming]) -> list[_Run]:
    """Return the runs: one for all partitions that are built together."""
    run_of: dict[Target, _Run] = {}
    for one in upcoming:
        run = _Run(one.latest, one.seconds, [one.target], set(one.after), one.most)
        if one.joins in run_of:
            run_of[one.joins].add(run)
            run = run_of[one.joins]
        run_of[one.target] = run
    return list({id(run): run for run in run_of.values()}.values())


def _as_ranges(runs: Iterable[_Run]) -> list[_Run]:
    """Return the runs after merging many runs of an asset that are due within the duration of one run."""
    by_asset: dict[str, list[_Run]] = {}
    for run in sorted(runs, key=lambda run: run.latest):
        by_asset.setdefault(run.targets[0][0], []).append(run)
    found: list[_Run] = []
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


def _one(runs: Sequence[_Run]) -> _Run:
    for other in runs[1:]:
        runs[0].add(other)
    return runs[0]
