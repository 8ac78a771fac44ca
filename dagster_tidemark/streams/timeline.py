"""Recent messages of each key, in time order: the part of the key's history that new messages can change.

A *cut* is a point in time that no episode crosses: a message that closes episodes, or a long silence.

Belongs here: the choice of messages that a rule must evaluate together. Does not belong here: the evaluation, and the
storage of messages.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol

_SHORT_LOOK = timedelta(minutes=1)
_MANY_KEYS = 50
"""With more keys than this, the first read covers only one minute: it is fast, and enough for keys with a message every
minute."""
_BEYOND = timedelta(seconds=1)
_FARTHER = 6
"""Growth factor of the time span, for each further read."""
_KEPT_FOR = timedelta(hours=2)
_KEPT_AT_LEAST = timedelta(seconds=2)
_MOST = 30_000
"""Messages in memory: 40 MB."""
_EARLIEST = datetime(1970, 1, 2, tzinfo=UTC)


@dataclass(frozen=True, order=True, slots=True)
class TimedMessage:
    """A message about a key at a time. If two messages have the same time, the one sent later counts.

    Args:
        fields: The message's fields.
    """

    at: datetime
    sent_at: datetime
    message_id: str
    fields: Mapping[str, Any] = field(compare=False)


class SessionRule(Protocol):
    """The boundaries between episodes, as a rule declares them."""

    silence: timedelta
    """The longest time without a message inside an episode."""

    def closes(self, fields: Mapping[str, Any]) -> bool:
        """Return True if no episode continues past a message with these fields."""
        ...


Load = Callable[[Collection[str], datetime], Iterable[tuple[str, TimedMessage]]]
"""Function that returns all messages of some keys in the table, from a time on."""

Latest = Callable[[datetime], datetime | None]
"""Function that returns a time that no message in the table exceeds; None if the table has none since a time."""


@dataclass
class KeyTimeline:
    """All messages of a key since a time."""

    since: datetime
    times: list[datetime] = field(default_factory=list)
    by_time: dict[datetime, TimedMessage] = field(default_factory=dict)

    def put(self, said: TimedMessage) -> None:
        there = self.by_time.get(said.at)
        if there is None:
            insort(self.times, said.at)
        if there is None or said > there:
            self.by_time[said.at] = said

    def forget_first(self, count: int) -> None:
        if not count:
            return
        self.since = self.times[count - 1] + timedelta.resolution
        for gone in self.times[:count]:
            del self.by_time[gone]
        del self.times[:count]


@dataclass(frozen=True)
class Session:
    """A period of a key that new messages have changed. Every episode is either within it or outside.

    Args:
        start: The time of the first message in the period.
        end: The time of the first message after the period; None if there is no later message.
        before: The messages of the period without the new ones, in time order.
        after: The messages of the period with the new ones, in time order.
    """

    key: str
    start: datetime
    end: datetime | None
    before: Sequence[TimedMessage]
    after: Sequence[TimedMessage]

    def holds(self, at: datetime) -> bool:
        """Return True if a time is in this period."""
        return self.start <= at and (self.end is None or at < self.end)


class Timeline:
    """The keys of a stream with recent messages.

    Args:
        cuts: The rule that defines the cuts.
        load: Reads earlier messages. It may also return the new messages.
        latest: Asked before the first messages are kept. Later messages all come through `add`. So a new key whose
            first message is much later has no earlier message, and the table is not read for it.
    """

    def __init__(self, cuts: SessionRule, load: Load, latest: Latest) -> None:
        self._cuts = cuts
        self._load = load
        self._latest = latest
        self.forget()

    def forget(self) -> None:
        """Forget all messages: they may differ from the table."""
        self._lines: dict[str, KeyTimeline] = {}
        self._unread_until: datetime | None = None
        """Messages of unknown keys up to this time may be in the table. None if the table was not asked."""

    def add(self, news: Mapping[str, Sequence[TimedMessage]]) -> list[Session]:
        """Add new messages. Return the periods that they change, with their messages before and after."""
        ids = {said.message_id for some in news.values() for said in some}
        first = {key: min(said.at for said in some) for key, some in news.items()}
        self._reach_back(first, ids)
        changed: list[Session] = []
        for key, some in news.items():
            line = self._lines[key]
            before = dict(line.by_time)
            for said in some:
                line.put(said)
            changed += self._stretches(key, line, before, sorted({said.at for said in some}))
        self._make_room()
        return changed

    def _reach_back(self, first: Mapping[str, datetime], news: Collection[str]) -> None:
        """Load each key's messages from the last cut before its first new message."""
        # A silence of this length is a cut, so a key that was silent needs no second read.
        silent = self._cuts.silence + _BEYOND
        if self._unread_until is None and first:
            since = max(min(first.values()) - silent, _EARLIEST)
            self._unread_until = self._latest(since) or since
        for key, at in first.items():
            if key not in self._lines and self._unread_until and at - silent > self._unread_until:
                self._lines[key] = KeyTimeline(at - silent)
        wanted = {key: at for key, at in first.items() if not self._begins(key, at)}
        look = _SHORT_LOOK if len(wanted) > _MANY_KEYS and silent > _SHORT_LOOK else silent
        while wanted:
            since = max(min(wanted.values()) - look, _EARLIEST) if look < timedelta(days=3650) else _EARLIEST
            lines = {key: KeyTimeline(since) for key in wanted}
            for key, said in self._load(list(wanted), since):
                if said.message_id not in news:
                    lines[key].put(said)
            self._lines |= lines
            look = silent if look < silent else look * _FARTHER
            wanted = {key: at for key, at in wanted.items() if not self._begins(key, at)}

    def _begins(self, key: str, at: datetime) -> bool:
        """Return True if the loaded messages of a key include the last cut before a time."""
        line = self._lines.get(key)
        if line is None or line.since > at:
            return False
        return line.since == _EARLIEST or self._cut_before(line, bisect_left(line.times, at), at) is not None

    def _cut_before(self, line: KeyTimeline, index: int, at: datetime) -> int | None:
        """Return the index of the first message after the last cut before a time; None if no cut is loaded.

        Args:
            index: The index of the first message at this time or later.
        """
        later = at
        while index > 0:
            earlier = line.times[index - 1]
            if later - earlier > self._cuts.silence or self._cuts.closes(line.by_time[earlier].fields):
                return index
            later, index = earlier, index - 1
        return 0 if later - line.since > self._cuts.silence or line.since == _EARLIEST else None

    def _stretches(
        self, key: str, line: KeyTimeline, before: Mapping[datetime, TimedMessage], changed: Sequence[datetime]
    ) -> list[Session]:
        """Return the periods around changed times. A replaced message may have been a cut, or may be one now."""
        found: list[Session] = []
        for at in changed:
            if found and (found[-1].end is None or at < found[-1].end):
                continue
            start = self._start(line, before, at)
            end = self._end(line, before, at)
            times = line.times[bisect_left(line.times, start) : None if end is None else bisect_left(line.times, end)]
            after = [line.by_time[time] for time in times]
            found.append(Session(key, start, end, [before[time] for time in times if time in before], after))
        return found

    def _start(self, line: KeyTimeline, before: Mapping[datetime, TimedMessage], at: datetime) -> datetime:
        """Return the start of the period around a time. No episode crosses the start, before or after the change."""
        index = bisect_left(line.times, at)
        while index > 0:
            later, earlier = line.times[index], line.times[index - 1]
            if self._parted(line, before, earlier, later):
                break
            index -= 1
        return line.times[index]

    def _end(self, line: KeyTimeline, before: Mapping[datetime, TimedMessage], at: datetime) -> datetime | None:
        index = bisect_left(line.times, at)
        while index + 1 < len(line.times):
            earlier, later = line.times[index], line.times[index + 1]
            if self._parted(line, before, earlier, later):
                return later
            index += 1
        return None

    def _parted(
        self, line: KeyTimeline, before: Mapping[datetime, TimedMessage], earlier: datetime, later: datetime
    ) -> bool:
        """Return True if no episode includes both of two adjacent messages, before or after the change."""
        if later - earlier > self._cuts.silence:
            return True
        was, is_now = before.get(earlier), line.by_time[earlier]
        # A cut among the new messages does not count: an earlier episode may cross it.
        return was is not None and self._cuts.closes(was.fields) and self._cuts.closes(is_now.fields)

    def _make_room(self) -> None:
        if self._size() <= _MOST:
            return
        kept_for = _KEPT_FOR
        while self._size() > _MOST // 2 and kept_for >= _KEPT_AT_LEAST:
            for line in self._lines.values():
                if line.times:
                    self._shorten(line, line.times[-1] - kept_for)
            kept_for /= 2
        if self._size() > _MOST:
            self.forget()

    def _shorten(self, line: KeyTimeline, at: datetime) -> None:
        """Forget messages before a time, but only whole sessions, so that an open episode keeps its beginning."""
        index = self._cut_before(line, bisect_left(line.times, at), at)
        if index:
            is_closed = self._cuts.closes(line.by_time[line.times[index - 1]].fields)
            line.forget_first(index - 1 if is_closed else index)

    def _size(self) -> int:
        return sum(len(line.times) for line in self._lines.values())
