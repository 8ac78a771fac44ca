"""Small files that were fetched whole: from their bytes to typed rows, in this process.

Does not belong here: what is in a format's files (`file_format`), and large files (`parsing.spark_tasks`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from dagster_tidemark.lakehouse.parsing.kernels import arrow_type
from dagster_tidemark.lakehouse.parsing.rows import WHOLE, Declared, Rows, Seen
from dagster_tidemark.lakehouse.parsing.typed_batch import RECORD, TEXTS, WHY, typed_columns
from dagster_tidemark.lakehouse.readers.file_format import Shape
from dagster_tidemark.lakehouse.readers.files import LIMITS_OF_ARROW, FileFault, SourceFile, Unusable, foreign
from dagster_tidemark.lakehouse.readers.format_registry import format_named
from dagster_tidemark.lakehouse.readers.small_files import LONGEST_TEXT, ROWS_TOGETHER, TOGETHER
from dagster_tidemark.lakehouse.readers.text import text_of
from dagster_tidemark.sources.feed import Feed
from dagster_tidemark.sources.file_endings import GZIP


@dataclass(frozen=True)
class Held:
    """A file whose bytes are in hand."""

    key: str
    body: bytes

    @property
    def size(self) -> int:
        """Its bytes."""
        return len(self.body)

    def read(self, begin: int, length: int) -> bytes:
        """Bytes from a place on."""
        return self.body[begin : begin + length]


@dataclass(frozen=True)
class Found:
    """What small files hold.

    Args:
        rows: `source_file`, `_block`, `_row`, the declared columns, `_texts`, `_record` and `_why`.
        faults: Files that have none to give.
        left: Files that are too much to hold once they are inflated: for workers to read.
    """

    rows: pa.Table
    faults: list[FileFault]
    left: set[SourceFile]


class _TooMuch(Exception):
    """More rows or bytes than this process is to hold."""


def read(feed: Feed, declared: Declared, fetched: Mapping[SourceFile, tuple[Shape, bytes]]) -> Found:
    """The rows of these files."""
    tables, faults, left = [], list[FileFault](), set[SourceFile]()
    budget = _Budget()
    for file, (shape, body) in sorted(fetched.items(), key=lambda item: item[0].size):
        try:
            tables.append(_rows_of(feed, declared, file, shape, body, budget))
        except Unusable as unusable:
            faults.append(FileFault(file, unusable.reason, str(unusable)))
        except _TooMuch:
            left.add(file)
        except LIMITS_OF_ARROW:
            raise
        except Exception as error:  # the bytes are in hand: what they hold is all that can be wrong
            faults.append(FileFault(file, "unreadable", f"it cannot be read: {type(error).__name__}: {error}"))
    return Found(pa.concat_tables(tables) if tables else _schema(declared).empty_table(), faults, left)


@dataclass
class _Budget:
    """What may still be held. A few kilobytes of gzip or of Parquet may be a gigabyte of rows."""

    rows: int = ROWS_TOGETHER
    size: int = TOGETHER

    def take(self, rows: Rows, table: pa.Table) -> None:
        self.rows -= rows.count
        self.size -= table.nbytes
        if self.rows < 0 or self.size < 0:
            raise _TooMuch


def _schema(declared: Declared) -> pa.Schema:
    place = [("source_file", pa.string()), ("_block", pa.int64()), ("_row", pa.int64())]
    columns = [(c, arrow_type(kind)) for c, kind in declared.columns.items()]
    return pa.schema([*place, *columns, (TEXTS, pa.list_(pa.string())), (RECORD, pa.string()), (WHY, pa.string())])


def _rows_of(feed: Feed, declared: Declared, file: SourceFile, shape: Shape, body: bytes, budget: _Budget) -> pa.Table:
    if file.key.endswith(GZIP) and len(text_of(file.key, body, limit=LONGEST_TEXT + 1)) > LONGEST_TEXT:
        raise _TooMuch
    schema = _schema(declared)
    read_as = format_named(shape.format)
    tables = [schema.empty_table()]
    seen = Seen()
    for rows in read_as.rows_of(declared, shape, Held(file.key, body), WHOLE):
        columns = typed_columns(declared.columns, rows) | {
            "source_file": pa.array([file.key] * rows.count, pa.string()),
            "_block": pa.array(np.zeros(rows.count, np.int64)),
            "_row": pa.array(np.arange(seen.rows, seen.rows + rows.count, dtype=np.int64)),
        }
        tables.append(pa.Table.from_arrays([columns[name] for name in schema.names], schema=schema))
        budget.take(rows, tables[-1])
        seen.add(rows)
    if seen.objects and seen.others is not None and not read_as.has_header:
        raise foreign(feed, seen.others)
    return pa.concat_tables(tables)
