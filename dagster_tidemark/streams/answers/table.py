"""The table of answers: requests with their answers, and a fast search for earlier answers.

Each request is searched for, and most requests are new. A search of the table for a new id would read every file,
because ids have no order. A writer therefore reads all ids once, when it begins, and keeps 16 bytes per id: a hash and
the time of the answer. File statistics include the range of answer times, so an old answer is found by its time in one
or two files. Measured with 1,000 files of 20 answers: 1.4 s for the first refresh, 1 us for an
unknown id, 0.4 s for a hundred answers spread over the table.

Does not belong here: the answering, and the order of commits and messages (`worker`).
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyiceberg.expressions import And

from dagster_tidemark.lakehouse.append import EXPIRED_AT_ONCE, Appendable, TableCommit, one_of, rows_of
from dagster_tidemark.sources.notification_queue import LONGEST_MESSAGE
from dagster_tidemark.streams.answers.declaration import ERROR, Answer

_LONGEST_ERROR = 1_000
_RECENT = 20_000
_AT_ONCE = 150  # values of one expression; pyiceberg skips no files above 200 values
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_KEEP_SNAPSHOTS = 60

Row = Mapping[str, Any]


class AnswerTable:
    """The table of answers, as last read by one writer.

    Args:
        table: The table. No other code may use this object.
        key: The column of a request's id.
        at: The column of the time when the request was answered.
    """

    def __init__(self, table: Appendable, key: str, at: str) -> None:
        self.table = table
        self._key = key
        self._at = at
        self._recent: dict[str, Row] = {}
        self._index: KeyIndex | None = None
        self._seen: int | None = None  # the snapshot whose rows `_recent` and `_index` include

    def refresh(self) -> None:
        """Read the answers of other writers."""
        self.table.refresh()
        if self._index is not None and self.table.head == self._seen:
            return
        appended = None if self._seen is None else self.table.appended_since(self._seen)
        if appended is None:  # first call, or another process has expired the snapshot or created the table again
            rows, index = self.table.rows(columns=(self._key, self._at)), KeyIndex()
            index.add(rows[self._key].to_pylist(), rows[self._at].cast(pa.int64()).to_numpy())
            self._recent, self._index = {}, index
        else:
            self._remember(appended.to_pylist())
        self._seen = self.table.head

    def find(self, keys: Collection[str]) -> dict[str, Row]:
        """Return the answers to these requests as of the last refresh, by key. Leave out requests without an answer."""
        found = {key: self._recent[key] for key in keys if key in self._recent}
        assert self._index is not None, "call refresh first"
        old = self._index.times([key for key in keys if key not in found])
        for some in _cut(sorted(old), _AT_ONCE):
            times = {time for key in some for time in old[key]}
            for part in _cut(sorted(times), _AT_ONCE):
                where = And(one_of(self._key, some), one_of(self._at, [_text(time) for time in part]))
                found |= {row[self._key]: row for row in self.table.rows(where).to_pylist()}
        return found

    def add(self, answers: Mapping[str, Answer]) -> dict[str, Row]:
        """Commit answers to requests that `find` did not find. Return the rows of the answers, by key.

        Raises:
            CommitConflict: another writer has committed since the last refresh. Nothing was written.
        """
        now = datetime.now(UTC)
        rows = self._fitting([self._row(key, answer, now) for key, answer in answers.items()])
        self.table.commit(TableCommit(rows))
        made = rows.to_pylist()
        self._remember(made)
        self._seen = self.table.head
        return {row[self._key]: row for row in made}

    def message(self, row: Row) -> str:
        """Return the JSON text to send for a row; an error in place of an answer that is too long for a queue."""
        silent = {self._at} | (set(row) - {self._key, ERROR} if row[ERROR] is not None else {ERROR})
        said = json.dumps({name: value for name, value in row.items() if name not in silent}, default=_plain)
        if len(said) <= LONGEST_MESSAGE:
            return said
        why = f"the answer has {len(said)} bytes as a message, and a queue accepts {LONGEST_MESSAGE}"
        return json.dumps({self._key: row[self._key], ERROR: f"{why}: it is in the table {self.table.table.name}"})

    def expire(self) -> None:
        """Expire old snapshots if there are many, because each commit rewrites the snapshot list."""
        self.table.expire(keep=_KEEP_SNAPSHOTS, batch=EXPIRED_AT_ONCE)

    def _remember(self, rows: Sequence[Row]) -> None:
        self._recent |= {row[self._key]: row for row in rows}
        if len(self._recent) > _RECENT and self._index is not None:
            old = list(islice(self._recent, _RECENT // 2))
            times = [(self._recent.pop(key)[self._at] - _EPOCH) // timedelta(microseconds=1) for key in old]
            self._index.add(old, np.array(times, np.int64))

    def _row(self, key: str, answer: Answer, now: datetime) -> Row:
        if isinstance(answer, str):
            return {self._key: key, self._at: now, ERROR: _error(answer)}
        if not isinstance(answer, Mapping):
            return self._row(key, f"expected a mapping or a string as the answer, found {answer!r}", now)
        if unknown := answer.keys() - self.table.table.columns.keys():
            return self._row(key, f"the answer has unknown columns {', '.join(sorted(map(str, unknown)))}", now)
        return {**answer, self._key: key, self._at: now, ERROR: None}

    def _fitting(self, rows: Sequence[Row]) -> pa.Table:
        """Return the rows in the table's types. An answer that does not fit is replaced by an error."""
        try:
            made = rows_of(self.table.schema, rows)
            odd = [n for n, row in enumerate(made.to_pylist()) if any(map(_is_no_number, row.values()))]
            if not odd:
                return made
        except MemoryError:
            raise
        except Exception:  # from Arrow, or from the type of a value
            odd = list(range(len(rows)))
        if len(rows) == 1:
            answer = {name: value for name, value in rows[0].items() if name not in (self._key, self._at, ERROR)}
            said = f"the answer does not fit the table: {answer!r}"
            return rows_of(self.table.schema, [self._row(rows[0][self._key], said, rows[0][self._at])])
        return pa.concat_tables(
            self._fitting([row]) if n in odd else rows_of(self.table.schema, [row]) for n, row in enumerate(rows)
        )


class KeyIndex:
    """Times of very many keys. Stores only hashes of the keys, and returns the times of all keys with the same hash."""

    def __init__(self) -> None:
        self._looks: npt.NDArray[np.int64] = np.empty(0, np.int64)
        self._times: npt.NDArray[np.int64] = np.empty(0, np.int64)

    def add(self, keys: Sequence[str], times: npt.NDArray[np.int64]) -> None:
        """Add keys, each with its time in microseconds since 1970."""
        looks = np.concatenate([self._looks, np.fromiter(map(hash, keys), np.int64, len(keys))])
        order = np.argsort(looks, kind="stable")
        self._looks, self._times = looks[order], np.concatenate([self._times, times])[order]

    def times(self, keys: Sequence[str]) -> dict[str, list[int]]:
        """Return the times that may belong to each key. Keys that are certainly absent are left out."""
        looks = np.fromiter(map(hash, keys), np.int64, len(keys))
        first, last = np.searchsorted(self._looks, looks, "left"), np.searchsorted(self._looks, looks, "right")
        return {key: self._times[a:b].tolist() for key, a, b in zip(keys, first, last, strict=True) if a < b}


def _cut(values: Sequence[Any], size: int) -> Iterator[Sequence[Any]]:
    for start in range(0, len(values), size):
        yield values[start : start + size]


def _text(microseconds: int) -> str:
    return (_EPOCH + timedelta(microseconds=microseconds)).isoformat()


def _error(text: str) -> str:
    return text[:_LONGEST_ERROR].encode(errors="replace").decode()


def _is_no_number(value: Any) -> bool:
    return isinstance(value, float) and not math.isfinite(value)


def _plain(value: Any) -> str:
    return value.isoformat() if hasattr(value, "isoformat") else str(value)
