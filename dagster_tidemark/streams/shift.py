"""The run that fills a stream's table until it is asked to end: receive, commit, react, publish, report.

A run that is killed at any step loses nothing: unacknowledged messages are received again, and the consequences of a
message are committed before it is acknowledged. Belongs here: the order of the steps, and the response to a failed
step. Does not belong here: the reasons to end a shift (`streams.shift_lease`), and the start of the next one
(`sensors.streams`).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial

import pyarrow as pa

from dagster_tidemark.failpoints import reached
from dagster_tidemark.lakehouse.append import EXPIRED_AT_ONCE, Appendable, rows_of
from dagster_tidemark.lakehouse.commits import SourceAdvanced
from dagster_tidemark.sources.notification_queue import DeleteRefused, QueueOutlet
from dagster_tidemark.sources.received_messages import Inlet, ReceivedBatch, UncommittedMessages
from dagster_tidemark.streams import rejected_messages
from dagster_tidemark.streams.alerts.declaration import Alerting
from dagster_tidemark.streams.alerts.worker import Alerts
from dagster_tidemark.streams.answers.declaration import Answering
from dagster_tidemark.streams.answers.worker import Answers
from dagster_tidemark.streams.decode import Decoder, Fault, judge_rules, table_rows
from dagster_tidemark.streams.reports import Reports
from dagster_tidemark.streams.shift_metrics import ShiftCounts
from dagster_tidemark.streams.shift_retries import LONGEST_BACKOFF, Chore, Line, RunEnds, patiently, told
from dagster_tidemark.streams.stream_declaration import Reaction, StreamContext
from dagster_tidemark.streams.stream_table import StreamTable
from dagster_tidemark.streams.topic_backlog import TopicBacklogReader
from dagster_tidemark.streams.transport import declared_queue
from dagster_tidemark.streams.user_rules import RaisingRules, RuleFails

_WAIT_SECONDS = 2.0  # longest wait for messages, which blocks the shift
_WAIT_EACH_SECONDS = 0.1  # the same with several inlets
_LINGER_SECONDS = 0.4  # pause between commits: files get more rows under load, and a single message never waits
_LINGER_UNDER_LOAD_SECONDS = 1.0  # each commit adds a file to the hour, and many files slow the start of a run
_LOAD = 500  # records; larger batches are followed by the longer pause
_LARGE = 5_000  # records; after a larger batch the source may have a backlog
_ENTER_EVERY = 5.0  # seconds between writes of entries; after a kill, the queue delivers the messages again
_MOST_DEFERRED = 100  # batches with deferred entries; with more, the next batch waits until they are written
_ENTERED_KNOWN = 100_000
_FAULTS_NAMED = 100  # messages that the log names, for each batch
_KEEP_SNAPSHOTS = 60
_LOOK_AFTER_EVERY = 50  # commits between maintenance, if the shift is never idle


@dataclass
class Shift:
    """One run of one stream.

    Args:
        place: The stream and its resources.
        inlets: The sources of its messages.
        reports: Reports the stream to Dagster.
        code: The version of the code, for quarantine entries.
        ends: Returns the reason to end; None as long as the shift should work.
        log: Receives faults and progress.
        backlogs: Readers of inlets' backlogs in large steps, by the name of the inlet.
    """

    place: StreamContext
    inlets: Sequence[Inlet]
    reports: Reports
    code: str
    ends: Callable[[], str | None]
    log: logging.Logger = field(default_factory=lambda: logging.getLogger(__name__))
    backlogs: Mapping[str, TopicBacklogReader] = field(default_factory=dict)
    counts: ShiftCounts = field(default_factory=ShiftCounts)
    looked_at: float = field(default_factory=time.time)
    """Time of the last pass that read every part of every inlet and left no batch in hand (Unix seconds)."""
    lag: float = 0.0
    """Seconds from the sending of the oldest message of the last batch to its commit."""
    _entered: set[str] = field(default_factory=set)
    """Ids of messages with a quarantine entry. A queue delivers each refused message several times."""
    _later: list[tuple[str, Sequence[Fault]]] = field(default_factory=list)
    _outage: str = ""
    """The fault of a service that prevents finishing a batch in hand; empty if there is none."""
    _read_at: dict[str, datetime] = field(default_factory=dict)
    """The last time when all records of an inlet had been read, by the inlet's name. Records read later arrived
    after this time, even if their producer's timestamp is earlier."""
    _entered_at: float = float("-inf")
    _committed_at: float = 0.0
    _linger: float = _LINGER_SECONDS
    _commits_since_look_after: int = 0

    def __post_init__(self) -> None:
        stream = self.place.stream
        self._kept = StreamTable(Appendable(self.place.lake, stream.table), self.inlets)
        self._decoder = Decoder(stream, self.place.settings.start_date)
        self._rules = RaisingRules(stream.name)
        place = replace(self.place, refuse=self._refuse)
        self._reaction = reaction_of(place)
        self._lines = [Line(inlet) for inlet in self.inlets]
        self._reporting = Chore(f"{stream.name}: report to Dagster", self.log)
        self._entering = Chore(f"{stream.name}: writing of quarantine entries", self.log, is_vital=True)
        self._following = Chore(f"{stream.name}: maintenance of the reaction", self.log)
        self._expiring = Chore(f"{stream.table.name}: expiry of old snapshots", self.log)

    def work(self) -> str:
        """Work until there is a reason to end, and return the reason."""
        try:
            self._catch_up()
            while (why := self.ends()) is None:
                self.step()
            # If either call fails, the next run repeats its work.
            self._enter_later(now=True)
            self._reporting.attempt(lambda: self.reports.flush(self._kept, self._reaction), now=True)
            return why
        except RunEnds as ended:
            return str(ended)
        finally:
            for inlet in self.inlets:
                inlet.close()
            for backlog in self.backlogs.values():
                backlog.close()

    @property
    def hindrance(self) -> str:
        """The fault that prevents reading a part of an inlet or finishing a batch; empty if there is none."""
        faults = (self._outage, *(line.any_fault for line in self._lines))
        return next(filter(None, faults), "")

    @property
    def in_hand(self) -> UncommittedMessages:
        """Messages that the shift has received but not finished."""
        return UncommittedMessages.together([line.in_hand for line in self._lines])

    @property
    def position(self) -> str | None:
        """The position in the stream's topic; None without a topic, or before the first read."""
        return next((line.position for line in self._lines if line.position is not None), None)

    def step(self) -> bool:
        """Take one batch or large step from each inlet. Return True if any inlet had messages."""
        wait = _WAIT_SECONDS if len(self._lines) == 1 else _WAIT_EACH_SECONDS
        busy = False
        for line in self._lines:
            if time.monotonic() < line.again_at:
                continue
            try:
                # Before the receive: if the table cannot be read, messages stay in the queue for other receivers.
                self._kept.look()
                name = line.inlet.property_name()
                resume = None if name is None else self._kept.positions.of(name)
                resumed = {} if name is None else {name: resume}
                line.position = line.position or resume
                if self._takes_a_large_step(line, resume):
                    busy = True
                    continue
                began = datetime.now(UTC)
                batch = line.inlet.receive(resume, wait)
            except Exception as error:  # the failure of one source must not stop the others
                self._put_off(line, error)
                continue
            line.received(batch)
            self._name_hindrances(line, line.inlet.hindrances())
            if batch is not None:
                busy, line.may_lag = True, len(batch.records) >= _LARGE
                if not self._finish(line, partial(self._process, line.inlet, batch, resumed)):
                    continue
            elif line.rule_fault:  # the rows are committed, but the reaction has not handled them
                self._finish(line, partial(self._react, self._kept.table.schema.empty_table()))
            if name is not None and not line.hindrances and (batch is None or not line.may_lag):
                self._read_at[line.inlet.name] = began
        if all(time.monotonic() < line.again_at for line in self._lines):
            time.sleep(0.2)
        if not busy:
            self._enter_later(now=True)
            self._look_after()
        self._reporting.attempt(lambda: self.reports.flush_if_due(self._kept, self._reaction, idle=not busy))
        if not any(line.any_fault for line in self._lines):
            self.looked_at = time.time()
        if busy and (rest := self._committed_at + self._linger - time.monotonic()) > 0:
            time.sleep(rest)
        return busy

    def _takes_a_large_step(self, line: Line, resume: str | None) -> bool:
        """Read and commit a large step of the inlet's backlog. Return False if there is no backlog."""
        backlog = self.backlogs.get(line.inlet.name)
        if backlog is None or not line.may_lag:
            return False
        before = self._kept.table.head
        step = backlog.next_step(resume, self._kept.table)
        if step is None:
            line.may_lag = False
            return False
        try:
            if any(fault.raised for fault in step.faults):
                judge_rules(self.place.stream, self._rules, step.faults, has_rows=step.has_rows())
            self._enter(line.inlet.name, step.faults, step.read.lost)
            step.commit()
        finally:
            step.close()
        reached("stream_committed")
        line.position = next(iter(step.read.reached.values()), line.position)
        self._name_hindrances(line, step.read.hindrances)
        self.reports.added_by_others()
        rows = patiently(line.inlet.name, partial(self._rows_of_step, before), self.ends, self.log, self._note_outage)
        backlog.learn(step, rows)
        self._finish(line, partial(self._react, rows, step.faults))
        self._count(step.read.size, rows.num_rows, len(step.faults))
        return True

    def _rows_of_step(self, before: int | None) -> pa.Table:
        self._kept.look()
        rows = self._kept.table.appended_since(before)
        # `rows` is None if another process has expired the snapshot `before`.
        return self._kept.table.rows() if rows is None else rows

    def _finish(self, line: Line, work: Callable[[], object]) -> bool:
        """Finish the work on a batch. Return False and leave it unfinished if a rule raises on every message."""
        try:
            self._see_through(line.inlet, work)
        except RuleFails as error:
            if line.held_up(error):
                self.log.error("%s", error)
            return False
        line.finished()
        return True

    def _see_through(self, inlet: Inlet, work: Callable[[], object]) -> None:
        """Do the work on a batch, and retry it until failed services recover."""

        def once() -> None:
            try:
                work()
            except SourceAdvanced as overtaken:  # the other run does the work
                self.log.warning("%s", overtaken)

        patiently(inlet.name, once, self.ends, self.log, self._note_outage)

    def _note_outage(self, fault: str) -> None:
        self._outage = fault

    def _process(self, inlet: Inlet, batch: ReceivedBatch, resumed: Mapping[str, str | None]) -> None:
        reached("stream_received")
        rows, faults = self._decoder.read(batch.records, datetime.now(UTC))
        judge_rules(self.place.stream, self._rules, faults, has_rows=bool(rows))
        # An entry may be deferred only if a queue delivers the message again. A topic does not, after the commit.
        deferred = [] if batch.reached else [fault for fault in faults if fault.record.comes_again]
        self._enter(inlet.name, faults if not deferred else [f for f in faults if not f.record.comes_again], batch.lost)
        made = table_rows(self.place.stream, rows)
        self._kept.look()
        added = self._kept.add(made, batch.reached, resumed, self.reports.marks(self._kept))
        self._committed_at = time.monotonic()
        sent = min((record.sent_at.timestamp() for record in batch.records), default=time.time())
        self.lag = max(0.0, time.time() - sent)
        self._linger = _LINGER_UNDER_LOAD_SECONDS if _LOAD <= len(batch.records) < _LARGE else _LINGER_SECONDS
        self._commits_since_look_after += 1
        reached("stream_committed")
        self.reports.added(made, self._read_at.get(inlet.name))
        told_why = self._react(rows_of(self._kept.table.schema, made), faults)
        self._count(len(batch.records), added, len(faults))
        # The senders of these messages get an answer, so the messages are deleted below.
        self._enter(inlet.name, [fault for fault in deferred if fault.record.message_id in told_why], ())
        if waiting := [fault for fault in deferred if fault.record.message_id not in told_why]:
            self._later.append((inlet.name, waiting))
            self._enter_later(now=False)
        if len(self._later) > _MOST_DEFERRED:
            self._enter_all_later()
        try:
            inlet.acknowledge(batch, {fault.record.message_id for fault in faults}.difference(told_why))
        except DeleteRefused as refused:
            self.log.warning("%s", refused)  # the queue delivers them again, and the table already holds them
        reached("stream_acknowledged")
        if self._commits_since_look_after >= _LOOK_AFTER_EVERY:
            self._look_after()

    def _enter_later(self, *, now: bool) -> None:
        """Write deferred quarantine entries together, so that messages do not wait for a write per batch."""
        if self._later and (now or time.monotonic() - self._entered_at >= _ENTER_EVERY):
            self._entering.attempt(self._enter_all_later)

    def _enter_all_later(self) -> None:
        for source, faults in self._later:
            self._enter(source, faults, ())
        self._later.clear()
        self._entered_at = time.monotonic()

    def _refuse(self, faults: Sequence[Fault]) -> None:
        """Write quarantine entries for rows that the reaction ignores."""
        self._enter(self.place.stream.name, faults, ())
        self.counts.refused += len(faults)

    def _enter(self, source: str, faults: Sequence[Fault], lost: Sequence[str]) -> None:
        """Write quarantine entries for rejected messages, and for lost messages."""
        if not faults and not lost:
            return
        stream, lake = self.place.stream, self.place.lake
        faults = [fault for fault in faults if fault.record.message_id not in self._entered]
        for fault in faults[:_FAULTS_NAMED]:
            self.log.warning("%s, message %s: %s", fault.record.source, fault.record.message_id, fault.message)
        if len(faults) > _FAULTS_NAMED:
            self.log.warning("%s: and %d more rejected messages", source, len(faults) - _FAULTS_NAMED)
        for sentence in lost:
            self.log.error("%s", sentence)
        rejected_messages.enter(lake, stream.asset, faults, [(source, said) for said in lost], self.code)
        if faults or lost:  # even if no entry is new: an earlier commit may have succeeded without a response
            self.reports.refused = partial(rejected_messages.counted, lake, stream.asset)
        self._entered.update(fault.record.message_id for fault in faults)
        if len(self._entered) > _ENTERED_KNOWN:
            self._entered.clear()
        reached("stream_rejected")

    def _react(self, rows: pa.Table, faults: Sequence[Fault] = ()) -> Collection[str]:
        """Run the reaction, and return the ids of refused messages whose senders got an answer with the reason."""
        self._reaction.react(rows)
        told_why = self._reaction.refused(faults) if faults else ()
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
        """Finish the work on messages that an earlier shift has committed but not finished."""
        patiently(f"the start of {self.place.stream.job}", self._begin, self.ends, self.log, self._note_outage)

    def _begin(self) -> None:
        self._kept.look()
        self.reports.begin(self._kept)
        try:
            self._react(self._kept.table.schema.empty_table())
        except RuleFails as error:
            self.log.error("%s", error)
            self._lines[0].rule_fault = str(error)

    def _look_after(self) -> None:
        """Do the reaction's periodic work, and expire old snapshots. A failure of one does not stop the other."""
        self._commits_since_look_after = 0
        self._following.attempt(self._reaction.look_after)
        self._expiring.attempt(self._expire)

    def _expire(self) -> None:
        needed = [self.reports.reported, self._reaction.needs_since()]
        not_since = [each for each in needed if each is not None]
        self._kept.table.expire(keep=_KEEP_SNAPSHOTS, not_since=not_since, batch=EXPIRED_AT_ONCE)

    def _name_hindrances(self, line: Line, hindrances: Collection[str]) -> None:
        """Log the parts of an inlet that have become unreadable, and the parts that are readable again."""
        before, line.hindrances = line.hindrances, hindrances
        for sentence in sorted({*line.hindrances}.difference(before)):
            self.log.error("%s", sentence)
        for sentence in sorted(set(before).difference(line.hindrances)):
            self.log.info("resolved: %s", sentence)

    def _put_off(self, line: Line, error: Exception) -> None:
        if (seconds := line.failed(error, LONGEST_BACKOFF)) is not None:
            self.log.warning("%s: retrying in %.0f s: %s", line.inlet.name, seconds, told(error))


def reaction_of(place: StreamContext) -> Reaction:
    """Return the reaction to the messages of a stream.

    Raises:
        TypeError: the declaration is neither `Alerting` nor `Answering`.
    """
    match place.stream.reaction:
        case None:
            return Reaction()
        case Alerting() as alerting:
            return Alerts(alerting, place, QueueOutlet(lambda: declared_queue(alerting.queue, place.settings)))
        case Answering() as answering:
            return Answers(answering, place, QueueOutlet(lambda: declared_queue(answering.queue, place.settings)))
        case other:
            raise TypeError(f"stream {place.stream.name}: expected Alerting or Answering as reaction, found {other!r}")
