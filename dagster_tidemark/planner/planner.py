"""Decisions from a history: due work, waiting work, and runs that build several partitions.

Pure: it makes no outside calls, and the caller passes the time. Level-triggered: a partition is due because an input
has newer content than the last materialization, regardless of the cause. Belongs here: the choice between the last plan
and a new one. Does not belong here: the decisions (`planner.evaluate`).
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from dagster_tidemark.planner.contracts import margin_of
from dagster_tidemark.planner.decisions import Asked, Plan
from dagster_tidemark.planner.evaluate import Bound, EvaluationPass
from dagster_tidemark.planner.graph import Graph
from dagster_tidemark.planner.history import History
from dagster_tidemark.planner.staleness import PendingWork

TICK_SECONDS = 5.0
"""Interval between two sensor evaluations of Dagster's daemon."""


@dataclass
class Planner:
    """Plan of one graph, updated at every tick from the changes in its history.

    Args:
        margin: Seconds from the due time of a run to its start, see `contracts.margin_of`.
        bound: Limits on the number of decisions in one plan.
        slots: Number of runs that can be under way at once; None if there is no limit.
    """

    graph: Graph
    history: History
    margin: float = margin_of(TICK_SECONDS)
    slots: int | None = None
    bound: Bound = field(default_factory=Bound)
    backlog: PendingWork = field(init=False)
    _last: Plan | None = None
    _basis: tuple[int, Asked, int | None] | None = None
    _wake: float = float("-inf")
    _tick: EvaluationPass | None = None
    _steps: Iterator[int] = field(default_factory=lambda: iter(()))

    def __post_init__(self) -> None:
        self.backlog = PendingWork(self.graph, self.history)
        self.history.dirty.update(self.history.facts)

    @property
    def steady_until(self) -> float:
        """Time until which the last plan stays valid without new events (Unix seconds)."""
        return min(self._wake, self.backlog.begins_next)

    @property
    def deciding(self) -> bool:
        """True while a plan is unfinished. New events are then left for the next plan."""
        return self._tick is not None

    def plan(
        self,
        now: float,
        asked: Asked = Asked(),  # noqa: B008 (frozen)
        *,
        stop: Callable[[], bool] = lambda: False,
    ) -> Plan:
        """Decide which runs are due at `now` (Unix seconds).

        Args:
            asked: Requests that are not in the history yet.
            stop: Called repeatedly during long work. If it returns True, the plan is not finished in this tick, and the
                next call continues it.
        """
        if self._tick is None:
            if not self.backlog.settle(now, stop):
                return Plan(now, catching_up="evaluating the events of each partition")
            basis = (self.history.revision, asked, self.slots)
            steady = basis == self._basis and not self.backlog.moved
            if self._last is not None and steady and self._last.now <= now < self._wake:
                return replace(self._last, now=now)
            self.backlog.moved = False
            self._basis = basis
            self.history.date_failures(now)
            self._tick = EvaluationPass(
                self.graph,
                self.history,
                self.backlog,
                margin=self.margin,
                slots=self.slots,
                now=now,
                asked=asked,
                bound=self.bound,
            )
            self._steps = self._tick.steps()
        tick = self._tick
        try:
            for decided in self._steps:
                if stop():
                    return Plan(now, catching_up=f"deciding on each partition, {decided} decided so far")
        except BaseException:  # also if it is interrupted: the next call starts a new plan
            self._tick = None
            raise
        self._tick = None
        assert tick.plan is not None
        self._last, self._wake = tick.plan, tick.wake
        return self._last
