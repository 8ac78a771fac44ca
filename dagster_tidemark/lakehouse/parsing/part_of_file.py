"""Reading of one part of a file: batches of typed rows, then a report.

The run's process and Spark's workers call the same function, so small and large files give the same rows. Does not
belong here: formats (`csv_rows`, `json_rows`, `readers.parquet`), and the decisions to reject rows (`validation`) or
files (`readers.batch`).
"""

from __future__ import annotations

import json
import traceback
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import reduce
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dagster_tidemark.lakehouse.parsing.kernels import Mask, arrow_type, typed
from dagster_tidemark.lakehouse.parsing.rows import DeclaredContent, FileBytes, Part, Rows, RowsOf, joined_names
from dagster_tidemark.lakehouse.parsing.sources import ReaderMissing, StoreFault, WatchedSource
from dagster_tidemark.lakehouse.parsing.value_forms import without_nulls
from dagster_tidemark.lakehouse.readers.files import LIMITS_OF_ARROW, Unusable
from dagster_tidemark.lakehouse.readers.values import texts_of

TEXTS, RECORD, WHY, REPORT = "_texts", "_record", "_why", "_report"
"""Columns in addition to the declared columns:

- `_texts`: the texts of a row that the exact rule must cast. First the text of each declared column as it is written,
  then, for each column with a declared form (`value_forms`), the text that casts read;
- `_record`: the row as it is written in the file, for text formats;
- `_why`: the fault of the whole row. A row with a fault has no values;
- `_report`: a `PartReport` as JSON. Its row has no other values than `_file` and `_block`.
"""


CHUNK_ROWS = 256
"""Number of rows in a chunk. The rows of a part are numbered, and divided into chunks."""

EVERY_CHUNK = -1
"""Chunk number that means every chunk of a part."""


@dataclass(frozen=True)
class PartOfFile:
    """Part of a file that one task reads.

    Args:
        number: Number of the file in the load.
        chunks: Numbers, from 0, of the chunks to return; None to return all rows.
    """

    number: int
    key: str
    size: int
    etag: str
    shape: Any
    rows_of: RowsOf
    part: Part
    chunks: frozenset[int] | None = None

    @property
    def length(self) -> int:
        """Number of bytes."""
        return min(self.part.end, self.size) - self.part.begin


@dataclass
class PartReport:
    """Report on the reading of one part.

    Args:
        number: Number of the file in the load.
        begin: First byte of the part.
        rows: Number of rows, including faulty rows.
        sound_rows: Number of rows without a fault.
        others: `Rows.others` of all rows together; None if any row has a declared column.
        first_fault: Fault of the first row, if that row is faulty.
        fault: Reason and message if the file cannot be loaded.
        refused: Error of the store if it refuses the file, or of a worker that lacks a library. The content of the
            file is then unknown.
    """

    number: int
    begin: int = 0
    rows: int = 0
    sound_rows: int = 0
    others: Sequence[str] | None = ()
    first_fault: str | None = None
    fault: tuple[str, str] | None = None
    refused: str | None = None

    def add(self, rows: Rows) -> None:
        """Add rows to the report."""
        if rows.count and not self.rows and rows.faults is not None:
            self.first_fault = rows.faults[0].as_py()
        self.rows += rows.count
        self.sound_rows += rows.count if rows.faults is None else rows.faults.null_count
        self.others = joined_names(self.others, rows.others)

    def to_json(self) -> str:
        """Return the report as JSON."""
        return json.dumps(asdict(self))

    @staticmethod
    def of_json(text: str) -> PartReport:
        """Return a report from its JSON."""
        found = json.loads(text)
        return PartReport(**found | {"fault": found["fault"] and tuple(found["fault"])})


def columns_of_batches(columns: Mapping[str, str]) -> dict[str, str]:
    """Return the columns of the batches of `read_part`: name to type in Spark."""
    place = {"_file": "int", "_block": "bigint", "_row": "bigint"}
    return place | dict(columns) | {TEXTS: "array<string>", RECORD: "string", WHY: "string", REPORT: "string"}


def schema_of_batches(columns: Mapping[str, str]) -> pa.Schema:
    """Return the Arrow schema of the batches of `read_part`."""
    return pa.schema([(name, arrow_type(kind)) for name, kind in columns_of_batches(columns).items()])


def read_part(
    declared: DeclaredContent, part: PartOfFile, source: FileBytes
) -> Iterator[tuple[pa.RecordBatch | None, PartReport]]:
    """Read a part of a file.

    Returns:
        Batches of rows (`columns_of_batches`), each with the report so far. The last item has the final report and
        no batch (None). If the final report has a `fault` or `refused`, the caller must ignore all rows of the file.
    """
    schema = schema_of_batches(declared.columns)
    report = PartReport(part.number, part.part.begin)
    watched = WatchedSource(source)
    try:
        with watched.errors_raised():
            for rows in part.rows_of(declared, part.shape, watched, part.part):
                places = np.arange(report.rows, report.rows + rows.count, dtype=np.int64)
                report.add(rows)
                if part.chunks is not None:
                    is_wanted = np.isin(places // CHUNK_ROWS, list(part.chunks))
                    places, rows = places[is_wanted], rows.where(pa.array(is_wanted))
                columns = typed_columns(declared, rows) | {
                    "_file": pa.repeat(pa.scalar(part.number, pa.int32()), rows.count),
                    "_block": pa.repeat(pa.scalar(part.part.begin, pa.int64()), rows.count),
                    "_row": pa.array(places),
                    REPORT: pa.nulls(rows.count, pa.string()),
                }
                yield pa.RecordBatch.from_arrays([columns[name] for name in schema.names], schema=schema), report
    except LIMITS_OF_ARROW:
        raise
    except (StoreFault, ReaderMissing) as error:
        report.refused = str(error)
    except Unusable as error:
        report.fault = (error.reason, str(error))
    except Exception as error:  # the store returned the bytes, so the content is at fault
        report.fault = ("unreadable", f"it cannot be read: {_described(error)}")
    yield None, report


def _described(error: Exception) -> str:
    """Return an error as text. An error without one, such as that of a bare `assert`, is given with its place."""
    if str(error):
        return f"{type(error).__name__}: {error}"
    place = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__} in {place.name}, line {place.lineno} of {place.filename.rpartition('/')[2]}"


def typed_columns(declared: DeclaredContent, rows: Rows) -> dict[str, pa.Array]:
    """Return the declared columns in their declared types, and the columns `_texts`, `_record` and `_why`."""
    columns, forms = declared.columns, declared.forms
    found: dict[str, pa.Array] = {}
    odd: list[Mask] = []
    written: dict[str, pa.Array] = {}
    plain: dict[str, pa.Array] = {}
    for name, kind in columns.items():
        column = rows.columns[name]
        if column.type == pa.string():
            written[name] = column = without_nulls(column, kind, declared.nulls_of(kind))
            if name in forms:
                column = plain[name] = forms[name].plain(column)
                odd += _is_lost(written[name], column)
            found[name], wrong = typed(column, kind)
            if wrong is not None:
                odd.append(wrong)
        else:
            found[name] = written[name] = column
            if name in forms:
                plain[name] = pa.nulls(rows.count, pa.string())
    if rows.records is None and any(written[c].type == pa.string() for c, k in columns.items() if k != "string"):
        odd.append(np.ones(rows.count, np.bool_))  # rows without records can be shown only by `_texts`
    texts = pa.nulls(rows.count, pa.list_(pa.string()))
    shown = [*written.values(), *(plain[name] for name in forms)]
    found[TEXTS] = _texts_of_rows(shown, reduce(np.logical_or, odd)) if odd else texts
    for name, given in ((RECORD, rows.records), (WHY, rows.faults)):
        found[name] = pa.nulls(rows.count, pa.string()) if given is None else given
    return found


def _is_lost(written: pa.Array, plain: pa.Array) -> list[Mask]:
    """Return a list with a mask of the texts that lack the form of their column; an empty list if all have it."""
    if plain.null_count == written.null_count:
        return []
    mask: Mask = pc.and_(written.is_valid(), plain.is_null()).to_numpy(zero_copy_only=False)
    return [mask]


def _shown(column: pa.Array) -> pa.Array:
    """Return the texts of typed values. Bytes that are no text are hexadecimal, as in `validation`."""
    if not pa.types.is_binary(column.type):
        return texts_of(column)
    return pa.array([None if v is None else _text_or_hex(v) for v in column.to_pylist()], pa.string())


def _text_or_hex(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value.hex().upper()


def _texts_of_rows(columns: Sequence[pa.Array], odd: Mask) -> pa.Array:
    """Return, for each odd row, the list of its texts in all columns. Other rows are null."""
    chosen = pa.array(np.flatnonzero(odd))
    taken = [column.take(chosen) for column in columns]
    texts = [column if column.type == pa.string() else _shown(column) for column in taken]
    count, width = len(chosen), len(texts)
    row_by_row = np.arange(count * width).reshape(width, count).T.ravel()
    values = pa.concat_arrays(texts).take(pa.array(row_by_row))
    offsets = np.concatenate([np.zeros(1, np.int32), np.cumsum(odd * width, dtype=np.int32)])
    return pa.ListArray.from_arrays(pa.array(offsets), values, mask=pa.array(~odd))
