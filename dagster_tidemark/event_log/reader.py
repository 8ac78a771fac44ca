"""Reads the event log, each event once, whatever becomes of storage ids.

Two things make ids unlike a queue's offsets. On PostgreSQL an id is given out before its event is committed: events
appear behind others. On SQLite the ids of the latest events are given out again once those were deleted: news stands
where something else stood. Belongs here: which rows are new, and the order they get. Does not belong here: what an
event means (`event_log.intake`).
"""

import time
import zlib
from collections import deque
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

from dagster import DagsterInstance

from dagster_tidemark.event_log import adapter, event_rows
from dagster_tidemark.event_log.event_rows import Event, Row

_LATE_SECONDS = 300.0  # from an id being taken to its event being committed
_LONG_AGO = 900.0  # by a writer's clock, which need not be ours
_IDS_AT_ONCE = 50_000
_TAIL = 200


@dataclass
class LogReader:
    """Where in an event log its reader has come to.

    Args:
        after: Everything up to this storage id has been read.
        seen: Ids after it that were read too, to when they were first seen (by this process' own clock).
        tail: Ids and fingerprints of the last rows read, the latest of them at `after`.
        newest_at: When the latest event was written that was read (Unix seconds).
        shifts: From which storage id on how much is added to give an event its place: ids may be given out again.
    """

    after: int = 0
    seen: dict[int, float] = field(default_factory=dict)
    tail: deque[tuple[int, int]] = field(default_factory=lambda: deque(maxlen=_TAIL))
    newest_at: float = 0.0
    shifts: list[tuple[int, int]] = field(default_factory=list)

    def new(self, instance: DagsterInstance, checks: Collection[str], *, first_time: bool) -> Iterator[Event]:
        """What was not read before; an event counts as read once it is given.

        Args:
            checks: Names of checks whose evaluations matter. Those of other checks are only given if they say blocking.
            first_time: This process has not come to the end of the log yet.
        """
        if adapter.commits_in_order(instance):
            yield from self._in_order(instance, checks)
        else:
            yield from self._as_committed(instance, checks, first_time)

    def place(self, id: int) -> int:
        """The place of the event with a storage id in the order of events."""
        return id + next((shift for first, shift in reversed(self.shifts) if id >= first), 0)

    def has_read(self, id: int) -> bool:
        """Whether the event with a storage id was read."""
        return id <= self.after or id in self.seen

    def state(self) -> dict[str, Any]:
        """For a checkpoint."""
        return {
            "after": self.after,
            "seen": list(self.seen),
            "tail": [list(row) for row in self.tail],
            "newest_at": self.newest_at,
            "shifts": [list(shift) for shift in self.shifts],
        }

    @classmethod
    def of_state(cls, state: dict[str, Any]) -> "LogReader":
        """As an earlier process left it."""
        tail = deque(((id, mark) for id, mark in state["tail"]), maxlen=_TAIL)
        seen = dict.fromkeys(state["seen"], time.monotonic())
        return cls(state["after"], seen, tail, state["newest_at"], [(first, by) for first, by in state["shifts"]])

    def know(self, shifts: list[tuple[int, int]]) -> None:
        """Shifts that another process found out about."""
        if shifts and (not self.shifts or shifts[-1][1] > self.shifts[-1][1]):
            self.shifts = shifts

    def _in_order(self, instance: DagsterInstance, checks: Collection[str]) -> Iterator[Event]:
        kinds = tuple(event_rows.Kind)
        if not self.tail:
            rows = event_rows.rows_after(instance, self.after, kinds)
        else:
            # One query tells both whether what was read last is still there, and what came after it.
            rows = event_rows.rows_after(instance, self.after - 1, kinds)
            first = next(rows, None)
            if first is None or (first.id, _mark(first)) != self.tail[-1]:
                self._step_back(instance, kinds)
                rows = event_rows.rows_after(instance, self.after, kinds)
        last: deque[Row] = deque(maxlen=_TAIL)
        try:
            for row in rows:
                self.after = row.id
                last.append(row)
                event = event_rows.event_of(row, self.place(row.id), checks)
                if event is not None:
                    self.newest_at = max(self.newest_at, event.at)
                    yield event
        finally:
            self.tail.extend((row.id, _mark(row)) for row in last)

    def _step_back(self, instance: DagsterInstance, kinds: Collection[event_rows.Kind]) -> None:
        """The last row that was read is gone: find the last one that is not. What follows it is new."""
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
        kinds, now, clock = tuple(event_rows.Kind), time.monotonic(), adapter.now()
        for row in chain.from_iterable(self._unseen(instance, kinds)):
            event = event_rows.event_of(row, row.id, checks)
            # A long log is not kept in mind: where the clocks agree to a quarter of an hour nothing is missed there.
            if first_time and event is not None and event.at < clock - _LONG_AGO:
                self.after = max(self.after, row.id)
            else:
                self.seen[row.id] = now
            if event is not None:
                yield event
        # An id that is still to appear was taken before any greater one was first seen.
        settled = (id for id, first in self.seen.items() if first <= now - _LATE_SECONDS)
        self.after = max(self.after, max(settled, default=0))
        self.seen = {id: first for id, first in self.seen.items() if id > self.after}

    def _unseen(self, instance: DagsterInstance, kinds: Collection[event_rows.Kind]) -> Iterator[Iterator[Row]]:
        after = self.after
        while True:
            ids = event_rows.ids_after(instance, after, kinds, _IDS_AT_ONCE)
            yield event_rows.rows_with(instance, [id for id in ids if id not in self.seen])
            if len(ids) < _IDS_AT_ONCE:
                return
            after = ids[-1]


def _mark(row: Row) -> int:
    return zlib.crc32(f"{row.run_id}/{row.text}".encode())
