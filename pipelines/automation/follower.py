"""Follows the event log: from its records to the history, from where it was left the last time.

Belongs here: what is read, in which order, how far in one go, and where to go on after a restart. Does not belong
here: what the events mean (`automation.history`).
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from dagster import DagsterInstance

from pipelines.automation import adapter, checkpoint
from pipelines.automation.event_log import Event, Kind, events_after
from pipelines.automation.graph import Graph, Target
from pipelines.automation.history import History

_OVERLAP_SECONDS = 15.0
_BETWEEN_LOOKS_AT_THE_CLOCK = 200
_BETWEEN_RUNS_CLOSED = 2000
_RUN_EVENTS_WITHIN = 60.0
_SAVE_AFTER_EVENTS = 2000
_SAVE_SECONDS = 600.0
_SAVE_WHILE_CATCHING_UP_SECONDS = 60.0


@dataclass
class Follower:
    """Where in the event log of an instance a history has come to.

    Args:
        cursor: All events up to this storage id are in the history.
        recent: Those after it that are in the history already, to when they were written.
        planned: Targets whose run has appeared since this was last cleared.
        rebuilds: Runs of the class rebuild that have not ended.
    """

    history: History
    cursor: int = 0
    recent: dict[int, float] = field(default_factory=dict)
    planned: set[Target] = field(default_factory=set)
    rebuilds: set[str] = field(default_factory=set)
    caught_up: bool = False
    _unsaved: int = 0
    _saved_at: float = field(default_factory=time.monotonic)
    _to_compare: list[str] = field(default_factory=list)

    @classmethod
    def started(cls, instance: DagsterInstance, graph: Graph) -> "Follower":
        """From the checkpoint an earlier process left, or from the beginning of the log."""
        kept = checkpoint.load(adapter.saved(instance, checkpoint.key_of(graph)), graph)
        history, cursor = kept or (History(graph), 0)
        return cls(history, cursor, _to_compare=list(graph.nodes))

    def read(self, instance: DagsterInstance, stop: Callable[[], bool]) -> str:
        """Read what is new. Empty if all of it was read, else how far it came until it had to stop."""
        # States of runs first: a run that has ended by now wrote its events before, so they are seen below.
        open_runs = adapter.run_facts(instance, self.history.open_runs)
        if not self._read_events(instance, stop):
            self._save_now_and_then(instance, _SAVE_WHILE_CATCHING_UP_SECONDS)
            return f"read the event log up to {self.cursor} of {adapter.last_event_id(instance)}"
        self._close(open_runs)
        if not self.caught_up:
            if not self._compare_all(instance, stop):
                return "looking for what was wiped"
            self.caught_up, self._saved_at = True, float("-inf")
        self._compare_next(instance)
        self._save_now_and_then(instance, _SAVE_SECONDS)
        return ""

    def _read_events(self, instance: DagsterInstance, stop: Callable[[], bool]) -> bool:
        in_order = adapter.commits_in_order(instance)
        now = adapter.now()
        for count, event in enumerate(events_after(instance, self.cursor), start=1):
            if event.id in self.recent:
                continue
            self._apply(event)
            self._unsaved += 1
            if in_order or event.at < now - _OVERLAP_SECONDS:
                self.cursor = max(self.cursor, event.id)
            else:
                self.recent[event.id] = event.at
            if count % _BETWEEN_LOOKS_AT_THE_CLOCK == 0 and stop():
                return False
            if not self.caught_up and count % _BETWEEN_RUNS_CLOSED == 0:
                self._close(self._over(instance, event.at))
        # What is younger is read again: ids are given out before they are committed, and so not in order.
        for id in sorted(id for id, at in self.recent.items() if at < now - _OVERLAP_SECONDS):
            self.cursor = max(self.cursor, id)
        self.recent = {id: at for id, at in self.recent.items() if id > self.cursor}
        return True

    def _over(self, instance: DagsterInstance, reached: float) -> dict[str, adapter.RunFacts]:
        """While catching up: the runs that built all they planned, and those that ended before what was read."""
        runs = self.history.open_runs
        over = {run_id: adapter.RunFacts(run.created_at) for run_id, run in runs.items() if not run.planned}
        found = adapter.run_facts(instance, [run_id for run_id in runs if run_id not in over])
        ended = {i: run for i, run in found.items() if run.ended_at and run.ended_at < reached - _RUN_EVENTS_WITHIN}
        return over | ended

    def _close(self, runs: dict[str, adapter.RunFacts]) -> None:
        for run_id, run in runs.items():
            if run.ended_at is not None:
                self.history.ended(run_id, at=run.ended_at, seconds=run.seconds, by_person=run.by_person)
                self.rebuilds.discard(run_id)
            elif run.rebuild:
                self.rebuilds.add(run_id)

    def _apply(self, event: Event) -> None:
        node = self.history.graph.nodes.get(event.asset)
        if node is None:
            return
        targets = [(event.asset, partition) for partition in event.partitions]
        if event.kind is Kind.PLANNED and event.run_id:
            self.history.planned(targets, id=event.id, run_id=event.run_id, at=event.at)
            self.planned.update(targets)
        elif event.kind is Kind.MATERIALIZED:
            self._materialize(targets[0], event)
        elif adapter.DATA_VERSION in event.tags and not node.inputs:  # else it says that somebody looked, not at what
            self._observe(targets[0], event)

    def _observe(self, target: Target, event: Event) -> None:
        self.history.observed(
            target,
            id=event.id,
            version=event.tags[adapter.DATA_VERSION],
            arrived_at=float(event.tags.get(adapter.ARRIVED_AT, event.at)),
            listed_at=float(event.tags.get(adapter.LISTED_AT, event.at)),
            at=event.at,
        )

    def _materialize(self, target: Target, event: Event) -> None:
        self.history.materialized(
            target,
            id=event.id,
            run_id=event.run_id,
            as_of=self.history.as_of(event.run_id, target) if event.run_id else None,
            version=event.content,
            at=event.at,
            code_version=event.code_version,
        )

    def _compare_all(self, instance: DagsterInstance, stop: Callable[[], bool]) -> bool:
        while self._to_compare:
            self._compare(instance, self._to_compare.pop())
            if stop():
                return False
        return True

    def _compare_next(self, instance: DagsterInstance) -> None:
        """What was wiped or deleted leaves no event: one asset after the other is compared with what there is."""
        self._to_compare = self._to_compare or list(self.history.graph.nodes)
        self._compare(instance, self._to_compare.pop())

    def _compare(self, instance: DagsterInstance, key: str) -> None:
        known = self.history.known.get(key)
        if not known:
            return
        there = adapter.present_partitions(instance, key)
        gone = [(key, partition) for partition in known if partition not in there]
        if gone:
            self.history.forget(gone)

    def _save_now_and_then(self, instance: DagsterInstance, seconds: float) -> None:
        # Of a hundred thousand partitions it takes a second or two.
        if self._unsaved < _SAVE_AFTER_EVENTS or time.monotonic() < self._saved_at + seconds:
            return
        key, text = checkpoint.key_of(self.history.graph), checkpoint.dump(self.history, self.cursor)
        adapter.save(instance, key, text)
        self._unsaved, self._saved_at = 0, time.monotonic()
