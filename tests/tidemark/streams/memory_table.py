"""A table of the lake in memory, for those who commit through `Appendable`: as fast as ten thousand histories need.

What it has of the real one: several writers, each of which sees what it has looked at; commits that require that head;
rows that were appended since a snapshot; snapshots that expire. The real one is used by `test_alert_reaction` and
`test_kills`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import pyarrow as pa
from pyiceberg import expressions as e

from dagster_tidemark.lakehouse.append import TableCommit
from dagster_tidemark.lakehouse.commits import CommitConflict
from dagster_tidemark.lakehouse.table import Table

Row = Mapping[str, Any]
_ARROW = {
    "string": pa.string(),
    "bigint": pa.int64(),
    "int": pa.int32(),
    "double": pa.float64(),
    "timestamp": pa.timestamp("us", "UTC"),
}


class _Column(list[Any]):
    def to_pylist(self) -> list[Any]:
        return list(self)


class Rows(list[Row]):
    """Rows, where an Arrow table is expected."""

    @property
    def num_rows(self) -> int:
        return len(self)

    def to_pylist(self) -> list[Row]:
        return list(self)

    def __getitem__(self, column: Any) -> Any:
        return _Column(row[column] for row in self)


@dataclass
class _State:
    head: int | None = None
    rows: Rows = field(default_factory=Rows)
    marks: dict[str, str] = field(default_factory=dict)


@dataclass
class _Truth:
    now: _State = field(default_factory=_State)
    appended: list[tuple[int, Rows]] = field(default_factory=list)
    expired: int = 0


class MemoryLake:
    """The tables, by name."""

    def __init__(self) -> None:
        self.tables: dict[str, _Truth] = {}

    def expire(self, table: Table) -> None:
        """Forget all snapshots of a table but the last."""
        truth = self.tables[table.name]
        truth.expired = max(0, len(truth.appended) - 1)


class MemoryTable:
    """One writer's view of a table; in the place of `Appendable`."""

    def __init__(self, lake: MemoryLake, table: Table) -> None:
        self.table = table
        self.schema = pa.schema([(name, _ARROW[kind]) for name, kind in table.columns.items()])
        self._truth = lake.tables.setdefault(table.name, _Truth())
        self._seen = self._truth.now

    @property
    def head(self) -> int | None:
        return self._seen.head

    def refresh(self) -> bool:
        before, self._seen = self.head, self._truth.now
        return self.head != before

    def mark(self, name: str) -> str | None:
        return self._seen.marks.get(name)

    def rows(self, where: e.BooleanExpression | None = None, columns: Sequence[str] = ("*",)) -> Rows:
        return Rows(row for row in self._seen.rows if where is None or _is_true(where, row))

    def latest(self, column: str, where: e.BooleanExpression) -> datetime | None:
        return max((row[column] for row in self.rows(where)), default=None)

    def has(self, snapshot_id: int) -> bool:
        return snapshot_id in [snapshot for snapshot, _ in self._truth.appended[self._truth.expired :]]

    def appended_since(self, snapshot_id: int | None, columns: Sequence[str] = ("*",)) -> Rows | None:
        if snapshot_id is not None and not self.has(snapshot_id):
            return None
        since, until = snapshot_id or 0, self.head or 0
        return Rows(row for snapshot, rows in self._truth.appended if since < snapshot <= until for row in rows)

    def commit(self, change: TableCommit) -> int | None:
        truth = self._truth
        if truth.now.head != self.head:
            raise CommitConflict(self.table.name)
        kept = [r for r in truth.now.rows if change.instead_of is None or not _is_true(change.instead_of, r)]
        added = Rows(change.rows.to_pylist()) if change.rows is not None else Rows()
        head = truth.now.head
        if change.rows is not None or change.instead_of is not None:
            head = (head or 0) + 1
            truth.appended.append((head, added))
        truth.now = self._seen = _State(head, Rows([*kept, *added]), truth.now.marks | dict(change.marks or {}))
        return self.head


def _is_true(where: Any, row: Row) -> bool:
    match where:
        case e.And():
            return _is_true(where.left, row) and _is_true(where.right, row)
        case e.Or():
            return _is_true(where.left, row) or _is_true(where.right, row)
    value = row[where.term.name]
    match where:
        case e.EqualTo():
            return bool(value == where.literal.value)
        case e.In():
            return value in {literal.value for literal in where.literals}
        case e.IsNull():
            return value is None
        case e.GreaterThanOrEqual():
            least = where.literal.value
            return value is not None and value >= (
                datetime.fromisoformat(least) if isinstance(value, datetime) else least
            )
    raise NotImplementedError(repr(where))
