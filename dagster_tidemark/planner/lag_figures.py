"""Mean, 95th percentile, maximum and share within contract of an asset's lag over a period, without sampling.

The lag of an asset is zero, or grows by a second each second. So it is linear between a few times, and each figure
follows exactly from these times. Pure. Does not belong here: what an asset owes at which time (`planner.debts`).
"""

import heapq
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

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
        within: Share of the period in which no deadline was missed (0 to 1).
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
    """Yield the parts of the period between two times at which a debt begins, ends or misses its deadline."""
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
