"""From history to decisions: what is due now, what waits for what, and what runs together.

Pure: it asks nobody; the time is given. Level-triggered: something is due because an input's content is newer than
what the last materialization contains, however that came about. Belongs here: when a plan is made again. Does not
belong here: the decisions (`automation.tick`).
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace

from pipelines.automation.contracts import margin_of
from pipelines.automation.decisions import Plan
from pipelines.automation.graph import Graph, Target
from pipelines.automation.history import History
from pipelines.automation.pending import Backlog
from pipelines.automation.tick import Tick

TICK_SECONDS = 5.0
"""Dagster's daemon looks at its sensors that often."""


@dataclass
class Planner:
    """The plan of one graph, made again at every tick from what is new in its history.

    Args:
        margin: Seconds from being due to the start of a run, see `contracts.margin_of`.
        slots: How many runs can be under way at once; None where there is no limit.
    """

    graph: Graph
    history: History
    margin: float = margin_of(TICK_SECONDS)
    slots: int | None = None
    backlog: Backlog = field(init=False)
    _last: Plan | None = None
    _basis: tuple[int, frozenset[Target], bool] | None = None
    _wake: float = float("-inf")

    def __post_init__(self) -> None:
        self.backlog = Backlog(self.graph, self.history)
        self.history.dirty.update(self.history.changes, self.history.built)

    @property
    def steady_until(self) -> float:
        """Until when the last plan holds if nothing happens but time."""
        return min(self._wake, self.backlog.begins_next)

    def plan(
        self,
        now: float,
        reserved: Collection[Target] = (),
        *,
        rebuilding: bool = False,
        stop: Callable[[], bool] = lambda: False,
    ) -> Plan:
        """Decide what is due at `now` (Unix seconds).

        Args:
            reserved: Targets that were asked for and whose run is not in the history yet.
            rebuilding: Whether a run of the class rebuild is asked for or under way: there is one at a time.
            stop: Asked now and then while much is new; once it says so the plan is not made in this tick.
        """
        if not self.backlog.settle(now, stop):
            return Plan(now, catching_up="looking at what the event log says of each partition")
        basis = (self.history.revision, frozenset(reserved), rebuilding)
        if (
            self._last is not None
            and basis == self._basis
            and not self.backlog.moved
            and self._last.now <= now < self._wake
        ):
            return replace(self._last, now=now)
        self.backlog.moved = False
        tick = Tick(self.graph, self.history, self.backlog, self.margin, self.slots, now, basis[1], rebuilding)
        self._last, self._basis, self._wake = tick.run(), basis, tick.wake
        return self._last
