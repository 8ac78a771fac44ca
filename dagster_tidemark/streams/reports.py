"""Reports of a stream to Dagster: observations of its table's partitions, and materializations by its reaction.

An observation reports new rows of a partition, and the arrival time of the oldest. The planner treats it like an
arrived file. A table property records the last reported snapshot. If a shift is killed between a commit and its report,
the next shift reports the commit. Does not belong here: calls of Dagster (`job`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from datetime import time as clock_time
from typing import Any, Protocol

from dagster_tidemark.failpoints import reached
from dagster_tidemark.lakehouse.append import TableCommit, at_least
from dagster_tidemark.lakehouse.commits import CommitConflict
from dagster_tidemark.streams.stream_declaration import Reaction, Stream
from dagster_tidemark.streams.stream_table import StreamTable, oldest_by

REPORTED = "tidemark.reported"
"""Property of a stream's table: all rows appended up to this snapshot are reported to Dagster."""


_COUNTED_EVERY = 10.0  # seconds, because each count reads all quarantine entries of the asset


class ReportReceiver(Protocol):
    """Receiver of reports."""

    def observed(self, asset: str, partition: str | None, *, version: str, arrived_at: float) -> None:
        """Report new rows in a partition of an asset. The oldest row arrived at `arrived_at` (Unix seconds)."""
        ...

    def materialized(self, asset: str, metadata: Mapping[str, int | float | str]) -> None:
        """Report that an asset was written."""
        ...

    def refused(self, asset: str, by_reason: Mapping[str, int]) -> None:
        """Report the number of an asset's messages in the quarantine, by reason."""
        ...


@dataclass
class Reports:
    """Collects the reports of a stream, and sends them when they are due.

    Args:
        stream: The stream.
        log: Receives the reports.
    """

    stream: Stream
    log: ReportReceiver
    reported: int | None = None
    refused: Callable[[], Mapping[str, int]] | None = None
    """Counts the asset's quarantine entries by reason. Set only while there may be new entries."""
    _followed: dict[str, Mapping[str, int | float | str]] = field(default_factory=dict)
    """Metadata of the reaction's commits that are not yet reported to Dagster, by asset."""
    _waiting: dict[Any, datetime] = field(default_factory=dict)
    _since: float | None = None
    _flushed_at: float = float("-inf")
    _refused_at: float = float("-inf")

    def begin(self, kept: StreamTable) -> None:
        """Schedule a report if an earlier shift has committed rows without reporting them."""
        mark = kept.table.mark(REPORTED)
        self.reported = None if mark is None else int(mark)
        if kept.table.head is not None and self.reported != kept.table.head:
            kept.others = True
            self._since = time.monotonic() - self.stream.quiet.total_seconds()

    def added(self, rows: list[dict[str, Any]], not_before: datetime | None = None) -> None:
        """Record committed rows for the next report.

        Args:
            not_before: The earliest possible arrival of the rows. It replaces an earlier timestamp of a producer.
        """
        column = next(iter(self.stream.table.partition_columns), None)
        for row in rows:
            at = row[column] if column else None
            arrived = row["sent_at"] if not_before is None else max(row["sent_at"], not_before)
            self._waiting[at] = min(self._waiting.get(at, arrived), arrived)
        if rows and self._since is None:
            self._since = time.monotonic()

    def added_by_others(self) -> None:
        """Record that the table has new rows that this run does not know. The next report reads them from the table."""
        if self._since is None:
            self._since = time.monotonic()

    def marks(self, kept: StreamTable) -> Mapping[str, str]:
        """Return the property that the next commit must set to record the last report; empty if it is up to date."""
        mark = None if self.reported is None else str(self.reported)
        return {} if mark is None or mark == kept.table.mark(REPORTED) else {REPORTED: mark}

    def flush_if_due(self, kept: StreamTable, reaction: Reaction, *, idle: bool) -> None:
        """Report if rows have waited for `quiet`, or if the shift is idle and the last report was `quiet` ago."""
        now, quiet = time.monotonic(), self.stream.quiet.total_seconds()
        if idle and now - self._refused_at >= _COUNTED_EVERY:
            self._count_refused()
        if self._since is None:
            return
        if now - self._since >= quiet or (idle and now - self._flushed_at >= quiet):
            self.flush(kept, reaction)

    def flush(self, kept: StreamTable, reaction: Reaction) -> None:
        """Report all committed rows."""
        self._count_refused()
        if self._since is None or kept.table.head is None:
            return
        head = kept.table.head
        waiting = self._everything(kept) if kept.others else self._waiting
        for value, oldest in sorted(waiting.items(), key=lambda item: str(item[0])):
            partition = self.stream.key_of(value)
            arrived = max(oldest, _start_of(value)) if value is not None else oldest
            self.log.observed(self.stream.asset, partition, version=str(head), arrived_at=arrived.timestamp())
        self._followed |= reaction.summary()
        for asset in sorted(self._followed):
            self.log.materialized(asset, self._followed[asset])
            del self._followed[asset]
        kept.others = False
        self.reported = head
        self._waiting, self._since, self._flushed_at = {}, None, time.monotonic()
        self._keep_mark(kept)
        reached("stream_reported")

    def _count_refused(self) -> None:
        if self.refused is not None:
            self.log.refused(self.stream.asset, self.refused())
            self.refused, self._refused_at = None, time.monotonic()

    def _everything(self, kept: StreamTable) -> dict[Any, datetime]:
        """Return the earliest sending time among all rows since the last report, by partition and from all writers."""
        column = next(iter(self.stream.table.partition_columns), None)
        columns = ("sent_at",) if column is None else (column, "sent_at")
        rows = kept.table.appended_since(self.reported, columns)
        if rows is None:  # another process has expired the snapshot `reported`
            rows = kept.table.rows(at_least("sent_at", _long_ago(self._waiting)), columns)
        if column is None:
            sent = rows["sent_at"].to_pylist()
            return {None: min(sent)} if sent else {}
        return oldest_by(rows, column)

    def _keep_mark(self, kept: StreamTable) -> None:
        """Record the report in a separate commit, so that the next shift does not repeat it. This delays no batch."""
        if marks := self.marks(kept):
            with suppress(CommitConflict):  # the next commit includes the mark
                kept.table.commit(TableCommit(marks=marks))


def _start_of(value: datetime | date) -> datetime:
    """Return the beginning of a partition. Messages count as arriving no earlier than their partition begins."""
    return value if isinstance(value, datetime) else datetime.combine(value, clock_time(), UTC)


def _long_ago(waiting: Mapping[Any, datetime]) -> datetime:
    oldest = min(waiting.values(), default=datetime.now(UTC))
    return oldest - timedelta(days=1)
