"""The run that fills a stream's table, for as long as it is asked to: receive, commit, react, publish, report.

Killed anywhere it loses nothing: what was not acknowledged comes again, and what follows from a message is committed
before it is acknowledged. Belongs here: the order of the steps, and what is done when one of them fails. Does not
belong here: when a shift ends, and who starts the next (`streams.job`, `sensors.streams`).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial

import pyarrow as pa
from botocore.exceptions import BotoCoreError, ClientError
from sqlalchemy.exc import SQLAlchemyError

from pipelines.tidemark.errors import TidemarkError, Transient
from pipelines.tidemark.failpoints import reached
from pipelines.tidemark.lakehouse.append import Appendable, rows_of
from pipelines.tidemark.sources.messages import DeleteRefused
from pipelines.tidemark.sources.records import Batch, Inlet, IsHindered
from pipelines.tidemark.streams import rejects
from pipelines.tidemark.streams.backlog import Backlog
from pipelines.tidemark.streams.decode import Decoder, Fault, table_rows
from pipelines.tidemark.streams.kept import KeptMessages, Overtaken, highest_offsets
from pipelines.tidemark.streams.reports import Reports
from pipelines.tidemark.streams.stream import LooksAfter, Reaction, TellsWhy, Workplace

_WAIT_SECONDS = 2.0  # a receiver that waits does not hear what else there is to do
_WAIT_EACH_SECONDS = 0.1  # with several inlets
_LINGER_SECONDS = 0.4  # between two commits: under load files hold more rows, and a single message never waits
_LONGEST_BACKOFF = 15.0
_TRIES_OF_A_BUG = 3
_OF_THE_WORLD = (Transient, OSError, BotoCoreError, ClientError, SQLAlchemyError)
"""A queue, a disk, a bucket, a catalog: what was received stays in hand until they are back."""
_LARGE = 5_000  # records of a batch: there may be many more
_ENTER_EVERY = 5.0  # seconds; who is killed before has them brought again
_ENTERED_KNOWN = 100_000
_FAULTS_NAMED = 100  # in the log, of one batch
_KEEP_SNAPSHOTS = 60
_EXPIRE_EVERY = 25


@dataclass
class _Line:
    """An inlet, and when it is tried again after it has failed."""

    inlet: Inlet
    failures: int = 0
    again_at: float = 0.0
    may_lag: bool = True
    """There may be a backlog: at first, after a failure, behind a large batch."""
    hindrances: Collection[str] = ()


@dataclass
class Counts:
    """What a shift has done."""

    received: int = 0
    added: int = 0
    refused: int = 0
    published: int = 0
    commits: int = 0


@dataclass
class Shift:
    """One run at one stream.

    Args:
        place: Whose stream it is, and with what it works.
        inlets: Where messages come from.
        reports: How Dagster hears of it.
        code: Which code this is, for the entries of what is refused.
        ends: A reason once the shift is to end.
        log: Where its sentences go.
        backlogs: By the name of an inlet what takes large steps there.
    """

    place: Workplace
    inlets: Sequence[Inlet]
    reports: Reports
    code: str
    ends: Callable[[], str | None]
    log: logging.Logger = field(default_factory=lambda: logging.getLogger(__name__))
    backlogs: Mapping[str, Backlog] = field(default_factory=dict)
    counts: Counts = field(default_factory=Counts)
    _entered: set[str] = field(default_factory=set)
    """Messages that are in the quarantine: a queue brings each a few times."""
    _later: list[tuple[Inlet, Sequence[Fault]]] = field(default_factory=list)
    _entered_at: float = float("-inf")
    _committed_at: float = 0.0
    _commits_since_expiry: int = 0

    def __post_init__(self) -> None:
        stream = self.place.stream
        self._kept = KeptMessages(Appendable(self.place.lake, stream.table))
        self._decoder = Decoder(stream, self.place.settings.start_date)
        self._reaction: Reaction | None = stream.reaction(self.place) if stream.reaction else None
        self._lines = [_Line(inlet) for inlet in self.inlets]

    def work(self) -> str:
        """Work until it is to end. Returns why."""
        self._catch_up()
        try:
            while (why := self.ends()) is None:
                self.step()
            self._enter_later(now=True)
            self.reports.flush(self._kept, self._reaction)
            return why
        finally:
            for inlet in self.inlets:
                inlet.close()
            for backlog in self.backlogs.values():
                backlog.close()

    def step(self) -> bool:
        """Take what there is from each inlet, once. Returns whether there was anything."""
        wait = _WAIT_SECONDS if len(self._lines) == 1 else _WAIT_EACH_SECONDS
        busy = False
        for line in self._lines:
            if time.monotonic() < line.again_at:
                continue
            try:
                # Before anything is received: what cannot be committed is left where others may take it.
                self._kept.look()
                name = line.inlet.property_name()
                resumed = {} if name is None else {name: self._kept.table.newest(name)}
                resume = self._resume(line.inlet)
                if self._takes_a_large_step(line, resume):
                    busy = True
                    continue
                batch = line.inlet.receive(resume, wait)
            except Exception as error:
                self._put_off(line, error)
                continue
            line.failures = 0
            self._name_hindrances(line)
            if batch is not None:
                busy, line.may_lag = True, len(batch.records) >= _LARGE
                self._see_through(line.inlet, partial(self._process, line.inlet, batch, resumed))
        if all(time.monotonic() < line.again_at for line in self._lines):
            time.sleep(0.2)
        if not busy:
            self._enter_later(now=True)
            self._look_after()
        self.reports.flush_if_due(self._kept, self._reaction, idle=not busy)
        if busy and (rest := self._committed_at + _LINGER_SECONDS - time.monotonic()) > 0:
            time.sleep(rest)
        return busy

    def _takes_a_large_step(self, line: _Line, resume: str | None) -> bool:
        """Take a step of the inlet's backlog. Returns whether there was one."""
        backlog = self.backlogs.get(line.inlet.name)
        if backlog is None or not line.may_lag:
            return False
        before = self._kept.table.head
        step = backlog.next_step(resume, self._kept.table)
        if step is None:
            line.may_lag = False
            return False
        try:
            self._enter(line.inlet, step.faults, step.read.lost)
            step.commit()
        finally:
            step.close()
        self._kept.look()
        reached("stream_committed")
        self.reports.added_by_others()
        rows = self._kept.table.appended_since(before)
        if rows is None:  # a reader of ours has let it expire meanwhile
            rows = self._kept.table.rows()
        backlog.learn(step, rows)
        self._see_through(line.inlet, partial(self._react, rows, step.faults))
        self._count(step.read.size, rows.num_rows, len(step.faults))
        return True

    def _see_through(self, inlet: Inlet, work: Callable[[], object]) -> None:
        """See a batch through, however long the world is in the way: it stays in hand meanwhile."""
        failures = 0
        while True:
            try:
                work()
                return
            except Overtaken as overtaken:
                self.log.warning("%s", overtaken)
                return
            except Exception as error:
                failures += 1
                if not isinstance(error, _OF_THE_WORLD) and failures >= _TRIES_OF_A_BUG:
                    raise
                self.log.warning("%s: tried again in a moment: %s", inlet.name, told(error))
                self._rest(min(2.0**failures / 2, _LONGEST_BACKOFF))
                if self.ends() is not None:
                    raise

    def _process(self, inlet: Inlet, batch: Batch, resumed: Mapping[str, str | None]) -> None:
        reached("stream_received")
        rows, faults = self._decoder.read(batch.records, datetime.now(UTC))
        # A log is read on behind these as soon as the rows are committed; a queue brings them again, and nobody waits.
        first = bool(batch.reached)
        if first:
            self._enter(inlet, faults, batch.lost)
        made = table_rows(self.place.stream, rows)
        self._kept.look()
        added = self._kept.add(made, batch.reached, resumed, self.reports.marks(self._kept))
        self._committed_at = time.monotonic()
        self._commits_since_expiry += 1
        reached("stream_committed")
        self.reports.added(made, self._kept)
        told_why = self._react(rows_of(self._kept.table.schema, made), faults)
        self._count(len(batch.records), added, len(faults))
        if not first:
            self._later.append((inlet, faults))
            self._enter_later(now=False)
        try:
            inlet.acknowledge(batch, {fault.record.message_id for fault in faults}.difference(told_why))
        except DeleteRefused as refused:
            self.log.warning("%s", refused)  # they come again and are found unchanged
        reached("stream_acknowledged")
        if self._commits_since_expiry >= 2 * _EXPIRE_EVERY:
            self._look_after()

    def _enter_later(self, *, now: bool) -> None:
        """Enter what a queue brought that is no row: together, so that what comes next does not wait for each."""
        if not self._later or not (now or time.monotonic() - self._entered_at >= _ENTER_EVERY):
            return
        try:
            for inlet, faults in self._later:
                self._enter(inlet, faults, ())
        except _OF_THE_WORLD as error:  # another time, or the queue brings them again
            self.log.warning("%s", told(error))
            return
        self._later.clear()
        self._entered_at = time.monotonic()

    def _enter(self, inlet: Inlet, faults: Sequence[Fault], lost: Sequence[str]) -> None:
        """Keep what is no row, and what is said of messages that are gone."""
        stream, lake = self.place.stream, self.place.lake
        faults = [fault for fault in faults if fault.record.message_id not in self._entered]
        for fault in faults[:_FAULTS_NAMED]:
            self.log.warning("%s, message %s: %s", fault.record.source, fault.record.message_id, fault.message)
        if len(faults) > _FAULTS_NAMED:
            self.log.warning("%s: and %d more that are no rows", inlet.name, len(faults) - _FAULTS_NAMED)
        for sentence in lost:
            self.log.error("%s", sentence)
        if rejects.enter(lake, stream.asset, faults, [(inlet.name, said) for said in lost], self.code):
            self.reports.refused = partial(rejects.counted, lake, stream.asset)
        self._entered.update(fault.record.message_id for fault in faults)
        if len(self._entered) > _ENTERED_KNOWN:
            self._entered.clear()
        reached("stream_rejected")

    def _react(self, rows: pa.Table, faults: Sequence[Fault] = ()) -> Collection[str]:
        """Returns the ids of those that are no rows and whose senders were told so."""
        if self._reaction is None:
            return ()
        self._reaction.react(rows, self._kept.table.head)
        told_why = self._reaction.refused(faults) if faults and isinstance(self._reaction, TellsWhy) else ()
        reached("stream_outbox")
        self.counts.published += self._reaction.publish()
        reached("stream_published")
        return told_why

    def _count(self, received: int, added: int, refused: int) -> None:
        self.counts.received += received
        self.counts.added += added
        self.counts.refused += refused
        self.counts.commits += 1
        if received > refused:
            self.log.debug("%d messages, %d new, %d refused", received, added, refused)

    def _catch_up(self) -> None:
        """What an earlier shift has committed and not seen through."""
        for attempt in range(1, 6):
            try:
                self._kept.look()
                self.reports.begin(self._kept)
                self._react(self._kept.table.schema.empty_table())
                return
            except Exception as error:
                if attempt == 5:
                    raise
                self.log.warning("%s", told(error))
                self._rest(2.0**attempt / 2)

    def _resume(self, inlet: Inlet) -> str | None:
        name = inlet.property_name()
        if name is None:
            return None
        found = self._kept.table.newest(name)
        if found is None and (rows := highest_offsets(self._kept.table, inlet.name)):
            found = inlet.resume_after(*rows)
        return found

    def _look_after(self) -> None:
        """Forget old snapshots of the table, while nobody waits."""
        try:
            if isinstance(self._reaction, LooksAfter):
                self._reaction.look_after()
            if self._commits_since_expiry < _EXPIRE_EVERY:
                return
            self._commits_since_expiry = 0
            needed = [self.reports.reported, self._reaction.needs_since() if self._reaction else None]
            self._kept.table.expire(keep=_KEEP_SNAPSHOTS, not_since=[each for each in needed if each is not None])
        except Exception as error:  # another time
            self.log.warning("%s: old snapshots stay: %s", self.place.stream.table.name, told(error))

    def _name_hindrances(self, line: _Line) -> None:
        """Say once what of an inlet cannot be read, and once that it can again."""
        if not isinstance(line.inlet, IsHindered):
            return
        before, line.hindrances = line.hindrances, line.inlet.hindrances()
        for sentence in sorted({*line.hindrances}.difference(before)):
            self.log.error("%s", sentence)
        for sentence in sorted(set(before).difference(line.hindrances)):
            self.log.info("no more: %s", sentence)

    def _put_off(self, line: _Line, error: Exception) -> None:
        line.failures, line.may_lag = line.failures + 1, True
        seconds = min(2.0 ** (line.failures - 1), _LONGEST_BACKOFF)
        line.again_at = time.monotonic() + seconds
        if line.failures == 1 or seconds == _LONGEST_BACKOFF:
            self.log.warning("%s: tried again in %.0f s: %s", line.inlet.name, seconds, told(error))

    def _rest(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while time.monotonic() < until and self.ends() is None:
            time.sleep(0.1)


def told(error: Exception) -> str:
    """An error in a line."""
    said = str(error).strip().partition("\n")[0]
    return said if isinstance(error, TidemarkError) else f"{type(error).__name__}: {said}"
