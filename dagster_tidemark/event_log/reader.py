"""Reads each event of the log once, although storage ids may appear late or repeat.

Storage ids differ from a queue's offsets in two ways. PostgreSQL assigns an id before the event is committed, so an
event may appear after events with larger ids. SQLite reuses the ids of the latest events after their deletion, so a new
event may have the id of a former one. Belongs here: the new rows, and their order. Does not belong here: the meaning of
an event (`event_log.intake`).
"""

import time
import zlib
from collections import deque
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any

from dagster import DagsterInstance

from dagster_tidemark.dagster_internals import event_storage, event_time
from dagster_tidemark.event_log import event_rows
from dagster_tidemark.event_log.event_rows import Event, LogRow

_LATE_SECONDS = 300.0  # longest time between taking an id and committing its event
_LONG_AGO = 900.0  # by the clock of the event's writer, which may differ from this one
_IDS_AT_ONCE = 50_000
_TAIL = 200


@dataclass
class LogReader:
    """Position in an event log.

    Args:
        after: Storage id; all events up to it have been read.
        seen: Larger ids that were read too, each with the time when it was first seen (this process's monotonic clock).
        tail: Ids and fingerprints of the last rows read, ending with the row at `after`.
        newest_at: Time of the latest event read (Unix seconds).
        shifts: Pairs of a storage id and an offset that applies from this id on. An event's place in the order is its
            id plus the offset that applies.
    """

    after: int = 0
    seen: dict[int, float] = field(default_factory=dict)
    tail: deque[tuple[int, int]] = field(default_factory=lambda: deque(maxlen=_TAIL))
    newest_at: float = 0.0
    shifts: list[tuple[int, int]] = field(default_factory=list)

    def new(self, instance: DagsterInstance, checks: Collection[str], *, first_time: bool) -> Iterator[Event]:
        """Yield unread events. An event counts as read when it is yielded.

        Args:
            checks: Names of checks whose evaluations matter. Other evaluations are only yielded if they are blocking.
            first_time: True if this process has not reached the end of the log yet.
        """
        if event_storage.commits_in_order(instance):
            yield from self._in_order(instance, checks)
        else:
            yield from self._as_committed(instance, checks, first_time)

    def place(self, id: int) -> int:
        """Return the place of an event in the order of events, from its storage id."""
        return id + next((shift for first, shift in reversed(self.shifts) if id >= first), 0)

    def has_read(self, id: int) -> bool:
        """Return True if the event with a storage id was read."""
        return id <= self.after or id in self.seen

    def may_read(self, id: int) -> bool:
        """Return True if the event with a storage id may be read now. Others are left for a later reading."""
        return True

    def state(self) -> dict[str, Any]:
        """Return the position as plain data, for a checkpoint."""
        return {
            "after": self.after,
            "seen": list(self.seen),
            "tail": [list(row) for row in self.tail],
            "newest_at": self.newest_at,
            "shifts": [list(shift) for shift in self.shifts],
        }

    @classmethod
    def of_state(cls, state: dict[str, Any]) -> "LogReader":
        """Return the reader of an earlier process from its `state`."""
        tail = deque(((id, mark) for id, mark in state["tail"]), maxlen=_TAIL)
        seen = dict.fromkeys(state["seen"], time.monotonic())
        return cls(state["after"], seen, tail, state["newest_at"], [(first, by) for first, by in state["shifts"]])

    def know(self, shifts: list[tuple[int, int]]) -> None:
        """Adopt the `shifts` that a different process found, if they are newer."""
        if shifts and (not self.shifts or shifts[-1][1] > self.shifts[-1][1]):
            self.shifts = shifts

    def _in_order(self, instance: DagsterInstance, checks: Collection[str]) -> Iterator[Event]:
        kinds = tuple(event_rows.EventKind)
        if not self.tail:
            rows = event_rows.rows_after(instance, self.after, kinds)
        else:
            # One query returns both the last row read, if it still exists, and the rows after it.
            rows = event_rows.rows_after(instance, self.after - 1, kinds)
            first = next(rows, None)
            if first is None or (first.id, _mark(first)) != self.tail[-1]:
                self._step_back(instance, kinds)
                rows = event_rows.rows_after(instance, self.after, kinds)
        last: deque[LogRow] = deque(maxlen=_TAIL)
        try:
            for row in rows:
                if not self.may_read(row.id):
                    break
                self.after = row.id
                last.append(row)
                event = self._event_of(instance, row, self.place(row.id), checks)
                if event is not None:
                    self.newest_at = max(self.newest_at, event.at)
                    yield event
        finally:
            self.tail.extend((row.id, _mark(row)) for row in last)

    def _event_of(self, instance: DagsterInstance, row: LogRow, id: int, checks: Collection[str]) -> Event | None:
        event = event_rows.event_of(row, id, checks)
        return event if event is None else self.with_begin(instance, event)

    def with_begin(self, instance: DagsterInstance, event: Event) -> Event:
        """Return an event. If its run has checked another run's materialization, add the place where its run begins."""
        is_apart = event.evaluated_by is not None and event.run_id != event.evaluated_by
        if event.kind is not event_rows.EventKind.CHECKED or not (is_apart and event.passed):
            return event
        first = event_rows.first_id_of(instance, event.evaluated_by or "")
        return event if first is None else replace(event, evaluation_began=self.place(first))

    def _step_back(self, instance: DagsterInstance, kinds: Collection[event_rows.EventKind]) -> None:
        """Move back to the last row read that still exists, after later ones were deleted. Rows after it are new."""
        oldest = self.tail[0][0]
        there: dict[int, int] = {}
        for row in event_rows.rows_after(instance, oldest - 1, kinds):
            if row.id > self.after:
                break
            there[row.id] = _mark(row)
        kept = [(id, mark) for id, mark in self.tail if there.get(id) == mark]
        last = kept[-1][0] if kept else event_rows.last_id_before(instance, oldest, self.newest_at)
        shift = self.place(self.after) - last
        self.shifts = [*((first, by) for first, by in self.shifts if first <= last), (last + 1, shift)]
        self.tail, self.after = deque(kept, maxlen=_TAIL), last

    def _as_committed(self, instance: DagsterInstance, checks: Collection[str], first_time: bool) -> Iterator[Event]:
        kinds, now, clock = tuple(event_rows.EventKind), time.monotonic(), event_time.now()
        for row in chain.from_iterable(self._unseen(instance, kinds)):
            if not self.may_read(row.id):
                continue
            event = self._event_of(instance, row, row.id, checks)
            # Ids of old events are not remembered. No event is missed if the clocks agree within 15 minutes.
            if first_time and event is not None and event.at < clock - _LONG_AGO:
                self.after = max(self.after, row.id)
            else:
                self.seen[row.id] = now
            if event is not None:
                yield event
        # If the event of an id is not committed yet, the id was taken before any larger id was first seen.
        settled = (id for id, first in self.seen.items() if first <= now - _LATE_SECONDS)
        self.after = max(self.after, max(settled, default=0))
        self.seen = {id: first for id, first in self.seen.items() if id > self.after}

    def _unseen(self, instance: DagsterInstance, kinds: Collection[event_rows.EventKind]) -> Iterator[Iterator[LogRow]]:
        after = self.after
        while True:
            ids = event_rows.ids_after(instance, after, kinds, _IDS_AT_ONCE)
            yield event_rows.rows_with(instance, [id for id in ids if id not in self.seen])
            if len(ids) < _IDS_AT_ONCE:
                return
            after = ids[-1]


def _mark(row: LogRow) -> int:
    return zlib.crc32(f"{row.run_id}/{row.text}".encode())
