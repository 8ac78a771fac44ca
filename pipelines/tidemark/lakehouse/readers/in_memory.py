"""Small files that were fetched whole: from their bytes to rows of texts, in memory.

What a line or a value means is as Spark's own readers see it (`spark_scan`), so that a file's size makes no difference;
tests/tidemark/lakehouse/test_two_readers.py holds them against each other. No Spark here.
"""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pipelines.tidemark.lakehouse.readers.files import LIMITS_OF_ARROW, FileFault, SourceFile, Unusable
from pipelines.tidemark.lakehouse.readers.probe import Shape, is_careful
from pipelines.tidemark.lakehouse.readers.text import (
    HALF_A_CHARACTER,
    NO_ROW,
    Record,
    fields_of,
    not_valid,
    records_of,
    text_of,
)
from pipelines.tidemark.lakehouse.readers.values import is_nested, nested_anew, nested_as_written, texts_of
from pipelines.tidemark.sources.feed import Feed
from pipelines.tidemark.sources.formats import Format

Columns = Mapping[str, "list[str | None]"]


class Fault(NamedTuple):
    """What a row that is none is kept as, and why it is none."""

    content: str
    why: str


def rows_of_all(feed: Feed, fetched: Mapping[SourceFile, tuple[Shape, bytes]]) -> tuple[pa.Table, list[FileFault]]:
    """The rows of these files (`files.columns_of_rows`), and the files that turned out to have none to give."""
    tables, faults = [], []
    for file, (shape, body) in fetched.items():
        try:
            tables.append(_rows_of(feed, file, shape, body))
        except Unusable as unusable:
            faults.append(FileFault(file, unusable.reason, str(unusable)))
        except LIMITS_OF_ARROW:
            raise
        except Exception as error:  # the bytes are in hand: what they hold is all that can be wrong
            faults.append(FileFault(file, "unreadable", f"it cannot be read: {type(error).__name__}: {error}"))
    return pa.concat_tables(tables) if tables else _schema(feed).empty_table(), faults


def _schema(feed: Feed) -> pa.Schema:
    place = [("source_file", pa.string()), ("_block", pa.int64()), ("_row", pa.int64())]
    faults = [("_malformed", pa.string()), ("_why", pa.string())]
    return pa.schema([*place, *((c, pa.string()) for c in feed.columns), *faults])


def _rows_of(feed: Feed, file: SourceFile, shape: Shape, body: bytes) -> pa.Table:
    columns: Mapping[str, pa.Array]
    if shape.format is Format.PARQUET:
        columns, faults = _of_parquet(feed, shape, body)
    else:
        text, is_json = text_of(file.key, body), shape.format is Format.JSON
        records = records_of(text, encoding=feed.encoding, multiline=feed.multiline, json=is_json)
        read = _of_json if is_json else _of_csv
        found, faults = read(feed, shape, records)
        columns = {c: pa.array(values, pa.string()) for c, values in found.items()}
    count = len(faults)
    place = [pa.array([file.key] * count, pa.string()), pa.array([0] * count, pa.int64()), pa.array(range(count))]
    wrong = [
        pa.array([fault and fault.content for fault in faults], pa.string()),
        pa.array([fault and fault.why for fault in faults], pa.string()),
    ]
    return pa.Table.from_arrays([*place, *(columns[c] for c in feed.columns), *wrong], schema=_schema(feed))


def _of_csv(feed: Feed, shape: Shape, records: Sequence[Record]) -> tuple[Columns, list[Fault | None]]:
    at = {name: position for position, (name, _) in enumerate(shape.columns)}
    width = len(shape.columns)
    nothing = [""] * width
    values: list[list[str]] = []
    faults: list[Fault | None] = []
    for text, fault in records[1:]:
        fields = nothing if fault else fields_of(text)
        is_row = not fault and len(fields) == width
        values.append(fields if is_row else nothing)
        faults.append(None if is_row else Fault(text, fault or NO_ROW))
    columns: dict[str, list[str | None]] = {}
    for c in feed.columns:
        position = at.get(c)
        columns[c] = [None] * len(values) if position is None else [row[position] or None for row in values]
    return columns, faults


def _of_json(feed: Feed, shape: Shape, records: Sequence[Record]) -> tuple[Columns, list[Fault | None]]:
    columns: dict[str, list[str | None]] = {c: [] for c in feed.columns}
    faults: list[Fault | None] = []
    for text, fault in records:
        for n, row in enumerate([None] if fault else _objects_of(text)):
            values = {c: _as_text(row.get(c)) for c in columns} if row is not None else {}
            why = fault or NO_ROW if row is None else _half_characters(values)
            if row and not why and (nested := [c for c in columns if isinstance(row.get(c), dict | list)]):
                said = (nested_anew if is_careful(shape, feed) else nested_as_written)(text)[n]
                values |= {c: said[c] for c in nested}
            for c, column in columns.items():
                column.append(None if why else values[c])
            faults.append(Fault(text, why) if why else None)
    return columns, faults


def _objects_of(text: str) -> Sequence[dict[str, object] | None]:
    """The JSON objects in a text, by themselves or in a list, as Spark sees them; None where it is something else."""
    try:
        # Numbers as they were written: a price must not pass through a float.
        found = json.loads(text, parse_float=str, parse_int=str, parse_constant=str)
    except (ValueError, RecursionError):
        return [None]
    objects = found if isinstance(found, list) else [found]
    return objects if all(isinstance(o, dict) for o in objects) else [None]


def _as_text(value: object) -> str | None:
    if value is None or isinstance(value, str):
        return value
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def _half_characters(values: Mapping[str, str | None]) -> str | None:
    """What is wrong with values of which one holds half of a character: an escape may name one, and it is no text."""
    try:
        for value in values.values():
            if value and not value.isascii():
                value.encode()
    except UnicodeEncodeError:
        return HALF_A_CHARACTER
    return None


def _of_parquet(feed: Feed, shape: Shape, body: bytes) -> tuple[dict[str, pa.Array], list[Fault | None]]:
    names = {name for name, _ in shape.columns}
    try:
        # Of nanoseconds the years before 1678 and after 2262 would be others.
        with pq.ParquetFile(io.BytesIO(body), coerce_int96_timestamp_unit="us") as opened:
            table = opened.read(columns=[c for c in feed.columns if c in names])
            count = opened.metadata.num_rows
    except LIMITS_OF_ARROW:
        raise
    except (pa.ArrowException, OSError) as error:
        raise Unusable("unreadable", f"no Parquet file, or a damaged one: {error}") from error
    columns = {
        c: _column(table, c, as_text=kind == "string") if c in names else pa.nulls(count, pa.string())
        for c, kind in feed.columns.items()
    }
    wrong = {c: column for c, column in columns.items() if not _is_text(column)}
    faults: list[Fault | None] = [None] * count
    if wrong:
        # Of Parquet nobody promises that a text is one; a table that holds such bytes is read by nobody.
        every = {c: _shown(column) for c, column in columns.items()}
        at_fault = [any(every[c][i][1] for c in wrong) for i in range(count)]
        for i in (i for i, is_wrong in enumerate(at_fault) if is_wrong):
            row = {c: shown[i][0] for c, shown in every.items() if shown[i][0] is not None}
            faults[i] = Fault(json.dumps(row, separators=(",", ":"), ensure_ascii=False), not_valid("utf-8"))
        columns = {
            c: pa.array([None if w else v for (v, _), w in zip(shown, at_fault, strict=True)], pa.string())
            for c, shown in every.items()
        }
    return columns, faults


def _is_text(column: pa.Array) -> bool:
    try:
        column.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def _shown(column: pa.Array) -> list[tuple[str | None, bool]]:
    """The values so that a person can read them, and whether they are none."""
    shown: list[tuple[str | None, bool]] = []
    for value in column.cast(pa.binary()).to_pylist():
        text = None if value is None else value.decode(errors="backslashreplace")
        shown.append((text, text is not None and text.encode() != value))
    return shown


def _column(table: pa.Table, name: str, *, as_text: bool) -> pa.Array:
    column = table.column(name).combine_chunks()
    kind = column.type
    if pa.types.is_dictionary(kind):
        column = column.dictionary_decode()
    elif pa.types.is_timestamp(kind):
        # Cut, never rounded: an hour does not end early. Text without a zone is UTC.
        column = pc.floor_temporal(column, unit="microsecond").cast(pa.timestamp("us", "UTC"))
    if as_text or is_nested(kind):
        return texts_of(column)
    # Texts that are none are found later, with the row they are in. Which text a number has makes no difference here.
    return pc.cast(column, options=pc.CastOptions(pa.string(), allow_invalid_utf8=True))
