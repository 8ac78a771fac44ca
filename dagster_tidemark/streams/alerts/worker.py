"""The reaction that raises and retracts alerts. A rule finds episodes in a key's messages; each episode has an alert.

State and outbox are one table, and change in one commit. Changes are sent after the commit, at least once, with the
commit's number. A stalled writer that resumes does not repeat messages of another writer. Belongs here: the order of
the steps. Does not belong here: the definition of an episode (the rule), and the assignment of alerts to episodes
(`identity`).
"""

from __future__ import annotations

import json
import time
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
from pyiceberg.expressions import And, BooleanExpression

from dagster_tidemark.lakehouse.append import EXPIRED_AT_ONCE, Appendable, at_least, at_most, one_of
from dagster_tidemark.lakehouse.commits import CommitConflict, until_committed
from dagster_tidemark.sources.notification_queue import MessageSink
from dagster_tidemark.sources.received_messages import ReceivedMessage
from dagster_tidemark.streams.alerts.declaration import Alerting
from dagster_tidemark.streams.alerts.identity import Alert, AlertChanges, Episode, reconcile
from dagster_tidemark.streams.alerts.table import AlertTable
from dagster_tidemark.streams.decode import Fault
from dagster_tidemark.streams.stream_declaration import Reaction, StreamContext
from dagster_tidemark.streams.timeline import Session, TimedMessage, Timeline
from dagster_tidemark.streams.user_rules import (
    RULE_RAISES,
    RaisingRules,
    RuleFails,
    judged,
    raised,
    to_leave_out,
)

INCORPORATES = "tidemark.incorporates"
"""Property of the table of alerts: the snapshot of the stream's table that the alerts are based on."""

_TRIES = 20
_SURE_FOR_SECONDS = 1.0  # the list of unsent messages counts as up to date for this time after a refresh
_MARK_EVERY_SECONDS = 10.0
_AT_ONCE = 10
_KEEP_SNAPSHOTS = 100
_IDS_AT_ONCE = 150  # pyiceberg skips no files above 200 values
_MOST_LEFT_OUT = 100_000

Episodes = Sequence[Episode]


class RuleRaised(Exception):
    """The rule raised on a sequence of messages, or returned invalid episodes."""


@dataclass
class Alerts(Reaction):
    """The reaction of one run that raises and retracts alerts.

    Args:
        declared: The declaration of the alerts.
        place: The stream whose messages are evaluated, and its resources.
        outlet: The queue of the alerts.
    """

    declared: Alerting
    place: StreamContext
    outlet: MessageSink
    _raised: int = 0
    _retracted: int = 0
    _changed: bool = False
    _through: int | None = None
    _knows_through: bool = False
    _marked_at: float = field(default_factory=time.monotonic)
    _standing: dict[str, list[Alert]] | None = None

    def __post_init__(self) -> None:
        declared = self.declared
        table = Appendable(self.place.lake, declared.table)
        self._table = AlertTable(table, declared.rule.name, declared.key, declared.facts)
        self._messages = Appendable(self.place.lake, self.place.stream.table)
        self._timeline = Timeline(self.declared.rule, self._load, self._latest)
        self._rules = RaisingRules(self.place.stream.name)
        self._raised_by: dict[str, tuple[datetime, str]] = {}
        """Time and error of messages on which `closes` raised, by message id. `_evaluated` handles these messages."""
        self._left_out: set[str] = set()

    def react(self, rows: pa.Table) -> None:
        """Raise and retract alerts for all new rows of the stream's table, `rows` among them."""
        try:
            until_committed(self._follow, self.declared.table.name, look_again=self._forget)
        except BaseException:  # the state in memory may be half changed
            self._forget()
            raise

    def publish(self) -> int:
        """Send the committed changes that are not sent yet, in the order of their commits. Return their number."""
        sent = 0
        while waiting := self._table.unpublished():
            for start in range(0, len(waiting), _AT_ONCE):
                # If this process was suspended, another run may have sent these messages, and later ones.
                if not self._table.is_fresh(_SURE_FOR_SECONDS):
                    self._table.refresh()
                    break
                some = waiting[start : start + _AT_ONCE]
                self.outlet.send([self._table.text(message) for message in some])
                sent += len(some)
            else:
                try:
                    self._table.mark_published(waiting[-1]["sequence"])
                except CommitConflict:
                    self._table.refresh()
        return sent

    def look_after(self) -> None:
        """Expire old snapshots of the table."""
        self._table.table.expire(keep=_KEEP_SNAPSHOTS, batch=EXPIRED_AT_ONCE)

    def needs_since(self) -> int | None:
        """Return the snapshot of the stream's table where the next shift continues; None if it reads all rows."""
        found = self._table.table.mark(INCORPORATES)
        return None if found is None else int(found)

    def summary(self) -> Mapping[str, Mapping[str, int | float | str]]:
        """Return the numbers of alerts raised and retracted since the last call."""
        if not self._changed:
            return {}
        said: dict[str, int | float | str] = {"raised": self._raised, "retracted": self._retracted}
        self._raised = self._retracted = 0
        self._changed = False
        return {self.declared.table.name.replace(".", "/"): said}

    def _follow(self) -> None:
        if self._table.refresh() or not self._knows_through:
            self._forget()
            self._through, self._knows_through = self.needs_since(), True
        self._messages.refresh()
        if self._messages.head == self._through:
            return
        through = self._messages.head
        changes, now = self._changes(self._news()), datetime.now(UTC)
        raised = {
            key: [self._table.as_raised(each, key, now) for each in every]
            for key, every in changes.items()
            if any(every)
        }
        if raised or time.monotonic() - self._marked_at > _MARK_EVERY_SECONDS:
            self._table.commit(raised, now, {INCORPORATES: str(through)})
            self._marked_at = time.monotonic()
        self._through = through
        for key, each in ((key, each) for key, every in raised.items() for each in every):
            self._standing_of[key] = each.applied(self._standing_of.get(key, ()))
            self._raised += len(each.raised)
            self._retracted += len(each.retracted)
            self._changed = True

    @property
    def _standing_of(self) -> dict[str, list[Alert]]:
        if self._standing is None:
            self._standing = self._table.standing()
        return self._standing

    def _changes(self, news: Mapping[str, Sequence[TimedMessage]]) -> dict[str, list[AlertChanges]]:
        """Return the changes of alerts by key, one for each changed period."""
        found: dict[str, list[AlertChanges]] = defaultdict(list)
        for stretch, before, after in self._evaluated(news):
            here = [alert for alert in self._standing_of.get(stretch.key, ()) if stretch.holds(alert.started_at)]
            found[stretch.key].append(reconcile(self.declared.rule.name, stretch.key, here, before=before, after=after))
        return found

    def _evaluated(self, news: Mapping[str, Sequence[TimedMessage]]) -> list[tuple[Session, Episodes, Episodes]]:
        """Return each changed period with its episodes before and after the new messages.

        A message that makes the rule raise is ignored, and gets an entry in the quarantine.

        Raises:
            RuleFails: the rule raises on every message, or raises only sometimes on the same messages.
        """
        said = ""
        for _ in range(_TRIES):
            found: list[tuple[Session, Episodes, Episodes]] = []
            raised_by: dict[str, tuple[datetime, str]] = {}
            said = ""
            for stretch in self._timeline.add(news):
                try:
                    found.append((stretch, self._episodes(stretch.before), self._episodes(stretch.after)))
                except RuleRaised as error:
                    said = str(error)
                    raised_by |= {each.message_id: (each.at, said) for each in self._culprits(stretch)}
            ids = {said.message_id for some in news.values() for said in some}
            new, self._raised_by = raised_by | self._raised_by, {}
            error_of_one = next((error for _, error in new.values()), "")
            self._rules.judge(self.declared.rule.name, new.keys(), len(ids - new.keys()), error_of_one)
            if new:
                self._leave_out(new)
            if not said:
                return found
            news = {key: [said for said in some if said.message_id not in self._left_out] for key, some in news.items()}
            news = {key: some for key, some in news.items() if some}
            self._timeline.forget()  # the next call of `add` loads it without these messages
        raise RuleFails(
            f"stream {self.place.stream.name}: the rule {self.declared.rule.name} raises only sometimes on the same "
            f"messages: {said}. A rule must be a pure function of its messages; correct it and reload the code location"
        )

    def _episodes(self, said: Sequence[TimedMessage]) -> Episodes:
        if not said:
            return []  # a rule may fail without a message, so it is not called
        found = judged(self._episodes_that_fit, said)
        if isinstance(found, Exception):
            raise RuleRaised(raised(found)) from found
        return found

    def _episodes_that_fit(self, said: Sequence[TimedMessage]) -> list[Episode]:
        found = list(self.declared.rule.episodes([each.fields for each in said]))
        self._table.require_fit(found)
        return found

    def _culprits(self, stretch: Session) -> list[TimedMessage]:
        """Return the messages of a period that make the rule raise."""
        bad = [stretch.before[at] for at in to_leave_out(stretch.before, (), self._raises)]
        gone = {id(said) for said in bad}
        before, after = ([s for s in some if id(s) not in gone] for some in (stretch.before, stretch.after))
        return bad + [after[at] for at in to_leave_out(after, before, self._raises)]

    def _raises(self, said: Sequence[TimedMessage]) -> bool:
        try:
            self._episodes(said)
        except RuleRaised:
            return True
        return False

    def _leave_out(self, raised_by: Mapping[str, tuple[datetime, str]]) -> None:
        """Write quarantine entries for messages that make the rule raise, and ignore these messages from now on."""
        stream, ids = self.place.stream, sorted(raised_by)
        times = [at for at, _ in raised_by.values()]
        where: BooleanExpression = And(self._since(min(times)), at_most(stream.time or "", max(times)))
        faults: list[Fault] = []
        for start in range(0, len(ids), _IDS_AT_ONCE):
            rows = self._messages.rows(And(where, one_of("message_id", ids[start : start + _IDS_AT_ONCE])))
            faults += [self._fault(row, raised_by[row["message_id"]][1]) for row in rows.to_pylist()]
        if self.place.refuse is not None:
            self.place.refuse(faults)
        if len(self._left_out) > _MOST_LEFT_OUT:
            self._left_out.clear()  # the rule raises on them again if they are still needed
        self._left_out.update(raised_by)

    def _fault(self, row: Mapping[str, Any], error: str) -> Fault:
        record = ReceivedMessage(
            b"",
            row["message_id"],
            row["sent_at"],
            row["message_source"],
            row["topic_id"],
            row["topic_partition"],
            row["topic_offset"],
        )
        fields = {name: row[name] for name in self.place.stream.fields}
        said = f"the rule {self.declared.rule.name} raises on this message and ignores it: {error}"
        return Fault(record, json.dumps(fields, default=str), RULE_RAISES, said, error)

    def _since(self, at: datetime) -> BooleanExpression:
        """Match messages of this time or later."""
        stream = self.place.stream
        where: BooleanExpression = at_least(stream.time or "", at)
        for column in stream.table.partition_columns:
            where = And(where, at_least(column, stream.partition_of({stream.time or "": at})))
        return where

    def _news(self) -> dict[str, list[TimedMessage]]:
        """Return the messages that were added to the stream's table since the last evaluation, by key."""
        rows = self._messages.appended_since(self._through, self._columns())
        if rows is None:  # another process has expired the snapshot, so all rows are evaluated again
            rows = self._messages.rows(columns=self._columns())
        news: dict[str, list[TimedMessage]] = defaultdict(list)
        for key, said in self._said(rows):
            news[key].append(said)
        return news

    def _load(self, keys: Collection[str], since: datetime) -> Iterator[tuple[str, TimedMessage]]:
        where = And(one_of(self.declared.key, keys), self._since(since))
        yield from self._said(self._messages.rows(where, self._columns()))

    def _latest(self, since: datetime) -> datetime | None:
        return self._messages.latest(self.place.stream.time or "", self._since(since))

    def _said(self, rows: pa.Table) -> Iterator[tuple[str, TimedMessage]]:
        stream = self.place.stream
        for row in rows.to_pylist():
            if row["message_id"] in self._left_out:
                continue
            fields = {name: row[name] for name in stream.fields}
            closes = judged(self.declared.rule.closes, fields)
            if isinstance(closes, Exception):
                self._raised_by[row["message_id"]] = row[stream.time], raised(closes)
                continue
            yield str(row[self.declared.key]), TimedMessage(row[stream.time], row["sent_at"], row["message_id"], fields)

    def _columns(self) -> tuple[str, ...]:
        return (*self.place.stream.fields, "message_id", "sent_at")

    def _forget(self) -> None:
        self._timeline.forget()
        self._standing = None
        self._knows_through = False
        self._table.refresh()
