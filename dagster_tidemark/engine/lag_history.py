"""Lag of each asset with a contract over past periods, from the event log.

The log is read again from its beginning, because the planner's own history has only the present state. Events that
follow a period are read too: they may report data that arrived in it. A wipe deletes an asset's events, so a wiped
asset counts as never built before the wipe. The asset `ops/freshness` and `tidemark status --lags` show the result.

Belongs here: the order of events and ends of runs, and the lags of an instance's asset graph. Does not belong here:
debts and the arithmetic of lags (`planner.debts`), and the present state (`engine.overview`).
"""

import heapq
import logging
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, time, timedelta
from itertools import islice

import dagster as dg
from dagster import DagsterInstance

from dagster_tidemark.asset_graph import planner_graph
from dagster_tidemark.dagster_internals import event_storage, event_time, instance_store
from dagster_tidemark.dagster_internals.asset_graph import AnyGraph
from dagster_tidemark.engine.override_store import OverrideStore
from dagster_tidemark.engine.overview import since_of, windows_of
from dagster_tidemark.event_log import checkpoint, event_rows, journal
from dagster_tidemark.event_log.event_rows import Event, EventKind
from dagster_tidemark.event_log.intake import Intake
from dagster_tidemark.event_log.redefined import PartitionsDefinitions
from dagster_tidemark.event_log.run_facts import RunFacts, run_facts
from dagster_tidemark.planner.contract_status import told
from dagster_tidemark.planner.debts import Debts, LagFigures, figures
from dagster_tidemark.planner.history import History
from dagster_tidemark.planner.overrides import Override, OverrideKind, Overrides
from dagster_tidemark.planner.unbuilt import Unbuilt
from dagster_tidemark.tags import JOURNAL, PRUNED

_log = logging.getLogger(__name__)
FRESHNESS_ASSET = dg.AssetKey(["ops", "freshness"])
"""The asset that stores the lag of each day."""
REPORTED_BY = "code location"
"""Metadata of a materialization of `FRESHNESS_ASSET`. All code locations of an instance build the same asset."""


@dataclass(frozen=True)
class AssetLag:
    """Lag of an asset over a period.

    Args:
        contract: The contract in words, as it is declared now.
        start: Start of the period (Unix seconds). A period begins with the first event of the log at the earliest, and
            not before the time from which the last prune kept all events.
        end: End of the period.
        promised: Longest lag without a breach, in seconds; None if the promise is a time of day.
    """

    asset: str
    contract: str
    start: float
    end: float
    lag: LagFigures
    promised: float | None = None


def period_of(day: date) -> tuple[float, float]:
    """Return the start and the end of a day in UTC (Unix seconds)."""
    start = datetime.combine(day, time(), UTC)
    return start.timestamp(), (start + timedelta(days=1)).timestamp()


def lags(
    instance: DagsterInstance,
    assets: AnyGraph,
    periods: Sequence[tuple[float, float]],
    *,
    contract_scale: float = 1.0,
) -> list[AssetLag]:
    """Return the lag of each asset with a contract for each period, in the order of periods and of the graph.

    The event log is read once, from its beginning. A period before its first event, or before the last prune's limit,
    has no rows.

    Args:
        periods: Start and end of each (Unix seconds).
        contract_scale: Factor for the time windows of lag contracts.
    """
    if not periods:
        return []
    graph = planner_graph.graph_of(assets, contract_scale=contract_scale)
    now = event_time.now()
    PartitionsDefinitions.of(instance, checkpoint.key_of(graph), graph).date(graph)
    first = min(start for start, _ in periods)
    graph.moment.moves_to(first, event_storage.dynamic_partitions(instance, graph.dynamic) if graph.dynamic else None)
    with dg.partition_loading_context(dynamic_partitions_store=instance):
        replay = Replay(instance, History(graph))
        events = replay.until(first)
        since = since_of(instance, graph, now, read_only=True)
        debts = Debts(graph, replay.history, Unbuilt(graph, windows_of(assets)), since)
        course = _Course(debts, OverrideStore(instance).read(), first)
        for at in replay.step_by_step(events, now, lambda at: course.pass_time(min(at, now))):
            debts.step(course.reached, at)
        course.pass_time(now)
        debts.step(now)
    if not events and replay.began_at == float("inf"):
        return []
    began = max(pruned_before(instance), min([replay.began_at, *(event.at for event in events if not event.problem)]))
    return [
        AssetLag(
            key,
            told(contract),
            max(start, began),
            end,
            figures(debts.of(key), max(start, began), end),
            contract.promised_lag,
        )
        for start, end in periods
        if max(start, began) < end
        for key in debts.assets()
        if (contract := graph.nodes[key].contract) is not None
    ]


def pruned_before(instance: DagsterInstance) -> float:
    """Return the time before which the log may lack events (Unix seconds); minus infinity if nothing was pruned.

    A value that another release or a person has written is ignored, and logged as a warning.
    """
    text = instance_store.saved(instance, PRUNED)
    if not text:
        return -math.inf
    with suppress(ValueError):
        if math.isfinite(before := float(text)):
            return before
    _log.warning("%s is ignored: expected Unix seconds, found %.80r; lags before a prune may be wrong", PRUNED, text)
    return -math.inf


class _Course:
    """The course of time between two events: windows begin, contracts have deadlines, and skips begin or end.

    Args:
        overrides: All stored overrides. Ended ones count until their end.
        reached: The time that is reached (Unix seconds).
    """

    def __init__(self, debts: Debts, overrides: Sequence[Override], reached: float) -> None:
        self.debts, self.reached = debts, reached
        # A pause leaves a contract as it is. A rebuild replaces an earlier skip.
        self._cuts = [each for each in overrides if each.kind is not OverrideKind.PAUSE]
        changes = {each.at for each in self._cuts} | {each.ended_at or each.at for each in self._cuts}
        self._changes = sorted((at for at in changes if at > reached), reverse=True)
        self._step(reached, is_changed=True)

    def pass_time(self, until: float) -> None:
        """Step to each time before `until` when a lag changes without an event."""
        while True:
            steady, changed = max(self.debts.steady_until, self.reached + 0.001), self._changes[-1:]
            due = min(steady, *changed) if changed else steady
            if due >= until:
                break
            if is_changed := changed == [due]:
                self._changes.pop()
            self._step(due, is_changed)
        self.reached = max(self.reached, until)

    def _step(self, at: float, is_changed: bool) -> None:
        if is_changed:
            lasting = (each for each in self._cuts if each.at <= at and (each.ended_at is None or at < each.ended_at))
            self.debts.history.overrides = Overrides.of(replace(each, ended_at=None) for each in lasting)
        self.debts.step(at)
        self.reached = at


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
