"""How old the data is that a partition lacks, worked out a second time from bare facts.

Reads the arrivals and the runs (when created, and when each partition was written), and nothing else. A run sees of
its inputs what was there when it was created, and what it made itself before.
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

Target = tuple[str, str | None]
Reads = Callable[[Target], Sequence[Sequence[Target]]]
"""A partition's inputs, each as the partitions of it that are read; none for a source."""
Promise = Callable[[float], float]
"""By when a partition is to hold what arrived at a time."""


@dataclass(frozen=True)
class RunRecord:
    """A run: when it was created, and when each partition it built was written."""

    created: float
    written: Mapping[Target, float]


@dataclass(frozen=True)
class Miss:
    """A sample at which a partition lacked data that it had been promised to hold by then."""

    target: Target
    at: float
    lag: float


class Oracle:
    """`counts(target, source, arrival)` says whether an arrival concerns a partition at all; by default it does."""

    def __init__(
        self,
        arrivals: Iterable[tuple[float, Target]],
        runs: Iterable[RunRecord],
        reads: Reads,
        counts: Callable[[Target, Target, float], bool] = lambda target, source, arrival: True,
    ) -> None:
        self._reads, self._counts = reads, counts
        self._arrivals: dict[Target, list[float]] = defaultdict(list)
        for at, source in sorted(arrivals, key=lambda arrival: arrival[0]):
            self._arrivals[source].append(at)
        # Of each partition: when it was written, and up to when it then held the arrivals of each source.
        self._states: dict[Target, list[tuple[float, dict[Target, float]]]] = defaultdict(list)
        commits = ((at, run.created, target, run) for run in runs for target, at in run.written.items())
        for at, created, target, run in sorted(commits, key=lambda commit: (commit[0], commit[1], commit[2][0])):
            self._states[target].append((at, self._covered(target, created, run)))

    def _covered(self, target: Target, created: float, run: RunRecord) -> dict[Target, float]:
        covered: dict[Target, float] = {}
        for read in [partition for partitions in self._reads(target) for partition in partitions]:
            is_source = not self._reads(read)
            seen = {read: created} if is_source else self._state(read, run.written.get(read, created)) or {}
            for source, upto in {s: seen.get(s, 0.0) for s in self._sources(read)}.items():
                covered[source] = min(upto, covered.get(source, upto))
        return covered

    def _state(self, target: Target, at: float) -> dict[Target, float] | None:
        states = self._states[target]
        found = bisect_right(states, at, key=lambda state: state[0])
        return states[found - 1][1] if found else None

    def _sources(self, target: Target) -> list[Target]:
        reads = [partition for partitions in self._reads(target) for partition in partitions]
        return [s for read in reads for s in self._sources(read)] if reads else [target]

    def present_since(self, target: Target) -> float | None:
        """When the last required input first had data."""
        if not self._reads(target):
            return self._arrivals[target][0] if self._arrivals[target] else None
        first = [[self.present_since(p) for p in partitions] for partitions in self._reads(target)]
        known = [[since for since in partitions if since is not None] for partitions in first]
        return max(min(since) for since in known) if all(known) else None

    def lacks_since(self, target: Target, at: float) -> float | None:
        """The oldest arrival that a partition does not contain at a time; None if it contains all."""
        covered, since = self._state(target, at), self.present_since(target)
        if since is None or since > at or covered is None:
            return since if since is not None and since <= at else None
        lacking = [a for s, upto in covered.items() if (a := self._next(target, s, upto)) is not None and a <= at]
        return min(lacking, default=None)

    def _next(self, target: Target, source: Target, after: float) -> float | None:
        arrivals = self._arrivals[source]
        rest = range(bisect_right(arrivals, after), len(arrivals))
        return next((arrivals[n] for n in rest if self._counts(target, source, arrivals[n])), None)


def sample(oracle: Oracle, due: Mapping[Target, Promise], moments: Sequence[float]) -> tuple[int, int, list[Miss]]:
    """How many looks at partitions there were, how many found something lacking, and each miss."""
    lacking = [(t, at, since) for t in due for at in moments if (since := oracle.lacks_since(t, at)) is not None]
    misses = [Miss(target, at, at - since) for target, at, since in lacking if at > due[target](since)]
    return len(due) * len(moments), len(lacking), misses
