"""The table of alerts: standing alerts, the rows of changes, and unsent messages.

Belongs here: rows and properties. Does not belong here: the choice of alerts (`identity`), and the sending of
messages (`worker`).
"""

from __future__ import annotations

import json
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

import pyarrow as pa
from pyiceberg.expressions import And, Or

from dagster_tidemark.lakehouse.append import Appendable, TableCommit, at_least, equal, is_null, one_of, rows_of
from dagster_tidemark.sources.notification_queue import LONGEST_MESSAGE
from dagster_tidemark.streams.alerts.identity import Alert, AlertChanges, Episode, new_id

COMMIT = "tidemark.commit"
"""Property of the table: the number of the last commit that changed an alert."""
PUBLISHED = "tidemark.published"
"""Property of the table: the number of a commit. All changes up to this commit were sent."""

_MOST_IDS = 200_000  # in memory: 20 MB


class AlertTable:
    """The table of alerts, as last read by one writer.

    Args:
        table: The table. No other code may use this object.
        rule: The name of the rule.
        key: The column of the key.
        facts: The columns with facts of an episode.
    """

    def __init__(self, table: Appendable, rule: str, key: str, facts: Sequence[str]) -> None:
        self.table = table
        self._rule = rule
        self._key = key
        self._facts = tuple(facts)
        self._types = {name: table.schema.field(name).type for name in self._facts}
        self._waiting: list[dict[str, Any]] | None = None
        self._ids: set[str] | None = None
        """The ids of the rule's alerts; None if they are not read yet, or too many for memory."""
        self._has_few = True
        self._seen_at = time.monotonic()

    @property
    def commits(self) -> int:
        """The number of the last commit that changed an alert."""
        return int(self.table.mark(COMMIT) or 0)

    def refresh(self) -> bool:
        """Read the newest state. Return True if another writer has changed rows since the last read."""
        published = self.table.mark(PUBLISHED)
        moved = self.table.refresh()
        self._seen_at = time.monotonic()
        if moved or self.table.mark(PUBLISHED) != published:
            self._waiting = None
        if moved:
            self._ids = None
        return moved

    def is_fresh(self, seconds: float) -> bool:
        """Return True if the table was read or written within `seconds`. Time of a suspended process counts too."""
        return time.monotonic() - self._seen_at <= seconds

    def standing(self) -> dict[str, list[Alert]]:
        """Return the alerts that were raised and not retracted, by key."""
        found: dict[str, list[Alert]] = defaultdict(list)
        rows = self.table.rows(And(equal("rule", self._rule), is_null("retracted_in")))
        for row in rows.to_pylist():
            facts = {name: row[name] for name in self._facts}
            found[str(row[self._key])].append(
                Alert(row["alert_id"], row["episode_started_at"], row["raised_at"], row["raised_in"], facts)
            )
        return dict(found)

    def ids(self) -> frozenset[str]:
        """Return the ids of all alerts in the table, whatever their rule."""
        return frozenset(self.table.rows(columns=("alert_id",))["alert_id"].to_pylist())

    def require_fit(self, episodes: Sequence[Episode]) -> None:
        """Raise if the table cannot store alerts for some episodes.

        Raises:
            TypeError: a value is not an Episode, or a time has no time zone.
            pa.ArrowException: the type of a fact differs from its column.
        """
        for episode in episodes:
            if not isinstance(episode, Episode):
                raise TypeError(f"expected an Episode, found {type(episode).__name__}")
            for at in (episode.started_at, episode.last_at):
                if not isinstance(at, datetime) or at.tzinfo is None:
                    raise TypeError(f"expected times with a time zone as the bounds of an episode, found {at!r}")
            for name, kind in self._types.items():
                pa.scalar(episode.facts.get(name), kind)

    def as_raised(
        self, changes: AlertChanges, key: Any, now: datetime, is_used: Callable[[str], bool] | None = None
    ) -> AlertChanges:
        """Return the changes with complete new alerts: an unused id, the time `now`, and the next commit's number.

        Args:
            is_used: Returns True if an earlier alert has the given id. By default the table is searched.
        """
        raised = [
            replace(
                alert,
                alert_id=self._unused(key, alert, is_used or self._is_used),
                raised_at=now,
                raised_in=self.commits + 1,
            )
            for alert in changes.raised
        ]
        return replace(changes, raised=tuple(raised))

    def commit(
        self, by_key: Mapping[Any, Sequence[AlertChanges]], now: datetime, marks: Mapping[str, str]
    ) -> list[dict[str, Any]]:
        """Write changes and marks in one commit. Return the written rows.

        Raises:
            CommitConflict: another writer has changed the table.
        """
        number = self.commits + 1
        rows, replaced = list[dict[str, Any]](), list[str]()
        for key, every in by_key.items():
            for changes in every:
                rows += [self._row(key, alert) for alert in (*changes.raised, *changes.moved)]
                gone = {"retracted_at": now, "retracted_in": number}
                rows += [self._row(key, alert) | gone for alert in changes.retracted]
                replaced += [alert.alert_id for alert in (*changes.moved, *changes.retracted)]
        number_too = {COMMIT: str(number)} if rows else {}
        instead_of = one_of("alert_id", replaced) if replaced else None
        added = rows_of(self.table.schema, rows) if rows else None
        waiting = self._waiting
        self.table.commit(TableCommit(added, instead_of, marks={**marks, **number_too}))
        self._seen_at = time.monotonic()
        if self._ids is not None:
            self._ids.update(row["alert_id"] for row in rows)
        self._waiting = None if waiting is None else [*waiting, *self._messages(rows, number - 1)]
        return rows

    def unpublished(self) -> list[dict[str, Any]]:
        """Return the messages that are not sent yet, in the order of their commits."""
        published = int(self.table.mark(PUBLISHED) or 0)
        if self._waiting is None:
            after = Or(at_least("raised_in", published + 1), at_least("retracted_in", published + 1))
            rows = (
                self.table.rows(And(equal("rule", self._rule), after)).to_pylist() if self.commits > published else []
            )
            self._waiting = self._messages(rows, published)
        return [message for message in self._waiting if message["sequence"] > published]

    def text(self, message: Mapping[str, Any]) -> str:
        """Return the JSON text to send; without key and facts, and with an `error`, if it is too long for a queue."""
        said = json.dumps(message, default=str)
        if len(said) <= LONGEST_MESSAGE:
            return said
        why = f"the alert has {len(said)} bytes as a message, and a queue accepts {LONGEST_MESSAGE}"
        short = {name: value for name, value in message.items() if name not in (self._key, *self._facts)}
        return json.dumps(short | {"error": f"{why}: its row is in the table {self.table.table.name}"}, default=str)

    def mark_published(self, number: int) -> None:
        """Record that all changes of commits up to this number were sent.

        Raises:
            CommitConflict: another writer has changed the table, and may have recorded the same number.
        """
        if int(self.table.mark(PUBLISHED) or 0) < number:
            self.table.commit(TableCommit(marks={PUBLISHED: str(number)}))
            self._seen_at = time.monotonic()
        self._waiting = []

    def _messages(self, rows: Sequence[Mapping[str, Any]], after: int) -> list[dict[str, Any]]:
        """Return messages about the changes in these rows, for commits with a number greater than `after`."""
        found = []
        for row in rows:
            said = {
                name: value.isoformat() if isinstance(value, datetime) else value
                for name, value in row.items()
                if name not in ("raised_in", "retracted_in")
            }
            if (row["raised_in"] or 0) > after:
                raised = said | {"retracted_at": None}
                found.append({"alert_id": row["alert_id"], "kind": "raise", **raised, "sequence": row["raised_in"]})
            if (row["retracted_in"] or 0) > after:
                found.append({"alert_id": row["alert_id"], "kind": "retract", **said, "sequence": row["retracted_in"]})
        return sorted(found, key=lambda message: (message["sequence"], message["kind"], message["alert_id"]))

    def _row(self, key: Any, alert: Alert) -> dict[str, Any]:
        return {
            "alert_id": alert.alert_id,
            "rule": self._rule,
            self._key: key,
            **{name: alert.facts.get(name) for name in self._facts},
            "episode_started_at": alert.started_at,
            "raised_at": alert.raised_at,
            "retracted_at": None,
            "raised_in": alert.raised_in,
            "retracted_in": None,
        }

    def _unused(self, key: Any, alert: Alert, is_used: Callable[[str], bool]) -> str:
        times = 0
        while True:
            wanted = new_id(self._rule, str(key), alert.started_at, times)
            if not is_used(wanted):
                return wanted
            times += 1

    def _is_used(self, alert_id: str) -> bool:
        # A search in the table reads all its files, because ids are random: 80 ms per alert with 20 files.
        if self._ids is None and self._has_few:
            ids = self.table.rows(equal("rule", self._rule), ("alert_id",))["alert_id"].to_pylist()
            self._has_few = len(ids) <= _MOST_IDS
            self._ids = set(ids) if self._has_few else None
        if self._ids is not None:
            return alert_id in self._ids
        return bool(self.table.rows(equal("alert_id", alert_id), ("alert_id",)).num_rows)
