"""Applies events to the history: reads their tags, and sets aside targets of unreadable events.

A bad event affects only its own partition, which is set aside. The reason is logged once. Belongs here: the content
of an event. Does not belong here: the set of events and their order (`event_log.consumer`), and their consequences
(`planner.history`).
"""

import logging
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from sys import intern

from dagster_tidemark.dagster_internals import event_time
from dagster_tidemark.event_log.event_rows import Event, EventKind
from dagster_tidemark.planner.graph import Node, Target
from dagster_tidemark.planner.history import History
from dagster_tidemark.planner.user_code import Raised, called
from dagster_tidemark.sources.listing import EXPIRED_SUFFIX
from dagster_tidemark.sources.removals import EXPIRED
from dagster_tidemark.tags import ARRIVED_AT, DATA_VERSION, LISTED_AT, OUTCOME

NO_VERSION = "observations without a data version: each counts as new data"

_OFF = 3600.0  # times further off come from a wrong clock
_OLDEST = 10 * 365 * 86_400.0

_log = logging.getLogger(__name__)


@dataclass
class Intake:
    """Applies events to a history.

    Args:
        planned: Targets whose run has appeared since this set was last cleared.
        touched: Partitions with events of runs that have to be written into a note.
        unread: Targets of events that could not be read or applied, with the reason.
        notes: Problem with the events of each asset, by asset.
        elsewhere: Runs that evaluated unknown blocking checks, by asset and check. Other code locations may declare
            these checks.
        oldest: Time of the earliest known event of each asset (Unix seconds).
    """

    history: History
    planned: set[Target] = field(default_factory=set)
    touched: set[Target] = field(default_factory=set)
    unread: dict[Target, str] = field(default_factory=dict)
    notes: dict[str, str] = field(default_factory=dict)
    oldest: dict[str, float] = field(default_factory=dict)
    elsewhere: dict[tuple[str, str], str | None] = field(default_factory=dict)

    def apply(self, event: Event) -> None:
        """Apply an event. Errors set its partitions aside and affect nothing else."""
        node = self.history.graph.nodes.get(event.asset)
        if node is None:
            return
        # Events share the strings of asset and key: the history of a million partitions is 150 MB smaller.
        targets = [(node.key, None if partition is None else intern(str(partition))) for partition in event.partitions]
        if event.problem:
            for target in targets:
                self._set_aside(target, event.problem)
            return
        targets = [target for target in targets if not self._is_former(target, event)]
        if not targets:
            return
        self.goes_back_to(event.at, (event.asset,))
        if event.kind is EventKind.PLANNED:
            for target in targets:
                self._try(target, event, self._plan)
        elif event.kind is EventKind.MATERIALIZED:
            self._try(targets[0], event, self._materialize)
        elif event.kind is EventKind.CHECKED:
            self._evaluate(node, targets[0], event)
        elif node.source or (not node.inputs and DATA_VERSION in event.tags):
            # Other observations are ignored, because they do not identify the data.
            self._try(targets[0], event, self._observe)

    def _is_former(self, target: Target, event: Event) -> bool:
        """Return True if an event is about a partition of an earlier definition of its asset."""
        history = self.history
        is_older = event.at < history.graph.moment.defined_at.get(event.asset, -math.inf)
        # Dagster only makes runs of existing partitions. A run may write events after its partitions cease to exist.
        is_of_run = event.run_id is not None and event.kind in (EventKind.PLANNED, EventKind.MATERIALIZED)
        if not (is_older or is_of_run) or history.problem(target) is None:
            return False
        history.forget_former(target)
        return True

    def goes_back_to(self, at: float, assets: Iterable[str]) -> None:
        """Record an event of these assets at this time (Unix seconds), which may be their earliest known event."""
        for asset in assets:
            if at < self.oldest.get(asset, math.inf):
                self.oldest[asset] = at

    def tell(self) -> None:
        """Set the unread targets aside in the history too. The history itself detects only invalid partition keys."""
        self.history.set_aside |= self.unread

    def forget(self, asset: str) -> None:
        """Discard the state of a wiped asset."""
        self.touched = {target for target in self.touched if target[0] != asset}
        self.unread = {target: why for target, why in self.unread.items() if target[0] != asset}
        self.oldest.pop(asset, None)

    def _try(self, target: Target, event: Event, apply: Callable[[Target, Event], None]) -> None:
        strange = self.history.set_aside.get(target)
        raised = called(apply, target, event)
        if isinstance(raised, Raised):
            self._set_aside(target, f"event {event.id} cannot be applied: {raised}")
            return
        if event.kind is not EventKind.PLANNED and self.unread.pop(target, None) is not None:
            # This event replaces the unread one. If the key is invalid, the history has set the target aside again.
            if self.history.set_aside.get(target) == strange:
                self.history.set_aside.pop(target, None)
        elif (told := self.history.set_aside.get(target)) not in (None, strange):
            _warn(target, told or "")

    def _plan(self, target: Target, event: Event) -> None:
        if event.run_id:
            self.history.planned([target], id=event.id, run_id=event.run_id, at=event.at)
            self.planned.add(target)

    def _materialize(self, target: Target, event: Event) -> None:
        self.history.materialized(
            target,
            id=event.id,
            run_id=event.run_id,
            as_of=self.history.as_of(event.run_id, target) if event.run_id else None,
            version=event.content,
            at=_sane(event.at, event_time.now(), event.at),
            code_version=event.code_version,
        )
        if event.run_id:
            self.touched.add(target)

    def _evaluate(self, node: Node, target: Target, event: Event) -> None:
        is_learned = event.check in self.history.graph.elsewhere.get(node.key, ())
        if is_learned and event.blocking is False:
            self.history.guarded_elsewhere(node.key, event.check, blocking=False)
        elif is_learned or event.check in node.blocking:
            self._try(target, event, self._check)
        elif event.blocking:
            self.elsewhere[(node.key, event.check)] = event.evaluated_by

    def _check(self, target: Target, event: Event) -> None:
        self.history.checked(
            target,
            event.check,
            id=event.id,
            passed=event.passed,
            run_id=event.run_id,
            evaluated_by=event.evaluated_by,
            began=event.evaluation_began,
        )

    def _observe(self, target: Target, event: Event) -> None:
        arrived_at, listed_at = _number(event, ARRIVED_AT), _number(event, LISTED_AT)
        version = event.tags.get(DATA_VERSION)
        if version is None:
            version = str(event.id)
            if self.history.graph.readers.get(target[0]):
                self._note(target[0], NO_VERSION)
        if event.tags.get(OUTCOME) == EXPIRED:
            version += EXPIRED_SUFFIX
        now = event_time.now()
        written = min(event.at, now + _OFF)
        if listed_at is not None and listed_at > written + _OFF:
            listed_at = None
        if (self.history.facts.of(target).listed_at or 0.0) > written + _OFF:
            # A clock was ahead when this time was written: later listings would count as older for hours.
            self.history.facts.to_change(target).listed_at = None
        self.history.observed(
            target,
            id=event.id,
            version=version,
            arrived_at=_sane(event.at if arrived_at is None else arrived_at, now, event.at),
            listed_at=listed_at,
            at=written,
        )
        if event.run_id:
            self.touched.add(target)

    def _set_aside(self, target: Target, why: str) -> None:
        if target not in self.unread:
            _warn(target, why)
        self.unread[target] = self.history.set_aside[target] = why
        self.history.revision += 1

    def _note(self, asset: str, text: str) -> None:
        if self.notes.get(asset) != text:
            self.notes[asset] = text
            _log.warning("%s: %s", asset, text)


def _number(event: Event, tag: str) -> float | None:
    told = event.tags.get(tag)
    if told is None:
        return None
    value = float(told)
    if not math.isfinite(value):
        raise ValueError(f"tag {tag}={told!r} is not a finite number")
    return value


def _sane(arrived_at: float, now: float, written_at: float) -> float:
    """Return an arrival time, limited to a plausible range around the event's own time and now."""
    if arrived_at > min(written_at, now) + _OFF:
        return min(written_at, now)
    return max(arrived_at, min(written_at, now) - _OLDEST, 0.0)


def _warn(target: Target, why: str) -> None:
    asset, partition = target
    _log.warning("%s%s is set aside: %s", asset, "" if partition is None else f", {partition}", why)
