"""Reads the event log again from its beginning, to follow the history of a past period event by event.

The planner's own history has only the present state. Events that follow the period are read too, because they may
report data that arrived in it. Belongs here: the order of events and ends of runs. Does not belong here: conclusions
from the history (`planner.debts`).

A wipe deletes an asset's events, so a wiped asset counts as never built before the wipe.
"""

import heapq
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import islice

from dagster import DagsterInstance

from dagster_tidemark.dagster_internals import event_storage
from dagster_tidemark.event_log import event_rows, journal
from dagster_tidemark.event_log.event_rows import Event, EventKind
from dagster_tidemark.event_log.intake import Intake
from dagster_tidemark.event_log.run_facts import RunFacts, run_facts
from dagster_tidemark.planner.history import History
from dagster_tidemark.tags import JOURNAL

_AT_ONCE = 20_000
"""Events before the period that are read between two closings of runs."""
_RUN_EVENTS_WITHIN = 60.0
_KINDS = (EventKind.OBSERVED, EventKind.PLANNED, EventKind.MATERIALIZED)


@dataclass
class Replay:
    """A second reading of an instance's event log into a fresh history.

    Args:
        began_at: Time of the first event of the log (Unix seconds); infinite if it has none.
    """

    instance: DagsterInstance
    history: History
    began_at: float = float("inf")
    _intake: Intake = field(init=False)
    _wiped: dict[str, float] = field(init=False)

    def __post_init__(self) -> None:
        self._intake, self._wiped = Intake(self.history), event_storage.catalog(self.instance)

    def until(self, start: float) -> list[Event]:
        """Read the events before a time (Unix seconds), and return all later ones."""
        events = self._events()
        later: list[Event] = []
        while not later and (some := list(islice(events, _AT_ONCE))):
            self.began_at = min(self.began_at, *(event.at for event in some if not event.problem), float("inf"))
            first = next((at for at, event in enumerate(some) if event.at >= start), len(some))
            for event in some[:first]:
                self._apply(event)
            self._close_before(some[min(first, len(some) - 1)].at)
            later = some[first:]
        return [*later, *events]

    def step_by_step(self, events: list[Event], now: float, before: Callable[[float], None]) -> Iterator[float]:
        """Apply events and the ends of runs in order, and yield the time of each after it was applied (Unix seconds).

        Args:
            now: Time until which runs have ended.
            before: Called with the time of each before it is applied.
        """
        last = {event.run_id: at for at, event in enumerate(events) if event.run_id}
        facts = run_facts(self.instance, {*last, *self.history.open_runs})
        ends = [(run.ended_at, run_id) for run_id, run in facts.items() if run.ended_at is not None]
        heapq.heapify(ends)
        for at, event in enumerate(events):
            waiting = []
            while ends and ends[0][0] <= event.at:
                ended_at, run_id = heapq.heappop(ends)
                if last.get(run_id, -1) >= at:  # its events are written by another clock
                    waiting.append((ended_at, run_id))
                    continue
                yield from self._end(run_id, facts[run_id], before)
            for each in waiting:
                heapq.heappush(ends, each)
            before(event.at)
            self._apply(event)
            yield event.at
        for ended_at, run_id in sorted(ends):
            if ended_at <= now:
                yield from self._end(run_id, facts[run_id], before)

    def _end(self, run_id: str, run: RunFacts, before: Callable[[float], None] = lambda _: None) -> Iterator[float]:
        if run_id in self.history.open_runs and run.ended_at is not None:
            before(run.ended_at)
            self.history.ended(run_id, at=run.ended_at, outcome=run.outcome, seconds=run.seconds)
            yield run.ended_at

    def _events(self) -> Iterator[Event]:
        for row in event_rows.rows_after(self.instance, 0, _KINDS):
            event = event_rows.event_of(row, row.id)
            if event is not None and (event.problem or event.at > self._wiped.get(event.asset, float("-inf"))):
                yield event

    def _apply(self, event: Event) -> None:
        if event.asset != JOURNAL:
            self._intake.apply(event)
        elif (note := journal.opened(event)) is not None:
            journal.restore(self.history, note, self._wiped)

    def _close_before(self, reached: float) -> None:
        """Close the runs that ended well before a time."""
        for run_id, run in run_facts(self.instance, list(self.history.open_runs)).items():
            if run.ended_at is not None and run.ended_at < reached - _RUN_EVENTS_WITHIN:
                for _ in self._end(run_id, run):
                    pass
