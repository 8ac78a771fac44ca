"""Lag of each asset with a contract over past periods, from the event log.

The asset `ops/freshness` and `tidemark status --lags` show the result. Belongs here: the debts of an instance's asset
graph. Does not belong here: their arithmetic (`planner.lag_figures`), and the present state (`engine.overview`).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, time, timedelta

import dagster as dg
from dagster import DagsterInstance

from dagster_tidemark.asset_graph import planner_graph
from dagster_tidemark.dagster_internals import event_storage, event_time, instance_store
from dagster_tidemark.dagster_internals.asset_graph import AnyGraph
from dagster_tidemark.engine.override_store import OverrideStore
from dagster_tidemark.engine.overview import since_of, windows_of
from dagster_tidemark.event_log import checkpoint
from dagster_tidemark.event_log.redefined import PartitionsDefinitions
from dagster_tidemark.event_log.replay import Replay
from dagster_tidemark.planner.contract_status import told
from dagster_tidemark.planner.debts import Debts
from dagster_tidemark.planner.history import History
from dagster_tidemark.planner.lag_figures import LagFigures, figures
from dagster_tidemark.planner.overrides import Override, OverrideKind, Overrides
from dagster_tidemark.planner.unbuilt import Unbuilt
from dagster_tidemark.tags import PRUNED

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
        since = since_of(instance, graph, now)
        debts = Debts(graph, replay.history, Unbuilt(graph, windows_of(assets)), since)
        course = _Course(debts, OverrideStore(instance).read(), first)
        for at in replay.step_by_step(events, now, lambda at: course.pass_time(min(at, now))):
            debts.step(course.reached, at)
        course.pass_time(now)
        debts.step(now)
    if not events and replay.began_at == float("inf"):
        return []
    pruned = float(instance_store.saved(instance, PRUNED) or "-inf")
    began = max(pruned, min([replay.began_at, *(event.at for event in events if not event.problem)]))
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
        """Step to each time before `until` at which a lag changes without an event."""
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
