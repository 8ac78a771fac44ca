"""Small files that were fetched whole: from their bytes to rows of texts, in memory.

What a line or a value means is as Spark's own readers see it (`scans`), so that a file's size makes no difference;
tests/lakehouse/test_two_readers.py holds them against each other. No Spark here.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pipelines.lakehouse.files import FileFault, SourceFile, Unusable
from pipelines.lakehouse.inspection import Shape
from pipelines.lakehouse.texts import fields_of, lines_of, text_of
from pipelines.sources.feed import Feed

Texts = Mapping[str, "list[str | None]"]


def rows_of_all(feed: Feed, fetched: Mapping[SourceFile, tuple[Shape, bytes]]) -> tuple[pa.Table, list[FileFault]]:
    """The rows of these files (`files.columns_of_rows`), and the files that turned out to have none to give."""
    tables, faults = [], []
    for file, (shape, body) in fetched.items():
        try:
            tables.append(_rows_of(feed, file, shape, body))
        except Unusable as unusable:
            faults.append(FileFault(file, unusable.reason, str(unusable)))
    return pa.concat_tables(tables) if tables else _schema(feed).empty_table(), faults


def _schema(feed: Feed) -> pa.Schema:
    place = [("source_file", pa.string()), ("_block", pa.int64()), ("_row", pa.int64())]
    return pa.schema([*place, *((c, pa.string()) for c in feed.columns), ("_malformed", pa.string())])


def _rows_of(feed: Feed, file: SourceFile, shape: Shape, body: bytes) -> pa.Table:
    if shape.format == "parquet":
        columns = _of_parquet(feed, body)
        count = len(next(iter(columns.values())))
        malformed = pa.nulls(count, pa.string())
    else:
        lines = lines_of(text_of(file.key, body))
        read: Callable[[Feed, Shape, list[str]], tuple[Texts, list[str | None]]]
        read = _of_csv if shape.format == "csv" else _of_json
        texts, wrong = read(feed, shape, lines)
        columns = {c: pa.array(values, pa.string()) for c, values in texts.items()}
        count, malformed = len(wrong), pa.array(wrong, pa.string())
    place = [pa.array([file.key] * count, pa.string()), pa.array([0] * count, pa.int64()), pa.array(range(count))]
    return pa.Table.from_arrays([*place, *(columns[c] for c in feed.columns), malformed], schema=_schema(feed))


def _of_csv(feed: Feed, shape: Shape, lines: list[str]) -> tuple[Texts, list[str | None]]:
    at = {name: position for position, (name, _) in enumerate(shape.columns)}
    width = len(shape.columns)
    nothing = [""] * width
    values: list[list[str]] = []
    malformed: list[str | None] = []
    for line in lines[1:]:
        fields = fields_of(line)
        is_row = len(fields) == width
        values.append(fields if is_row else nothing)
        malformed.append(None if is_row else line)
    texts: dict[str, list[str | None]] = {}
    for c in feed.columns:
        position = at.get(c)
        texts[c] = [None] * len(values) if position is None else [row[position] or None for row in values]
    return texts, malformed


def _of_json(feed: Feed, shape: Shape, lines: list[str]) -> tuple[Texts, list[str | None]]:
    texts: dict[str, list[str | None]] = {c: [] for c in feed.columns}
    malformed: list[str | None] = []
    for line in lines:
        for record in _records_of(line):
            for c, column in texts.items():
                column.append(None if record is None else _as_text(record.get(c)))
            malformed.append(line if record is None else None)
    return texts, malformed


def _records_of(line: str) -> Sequence[dict[str, object] | None]:
    """The JSON objects in a line, by themselves or in a list, as Spark sees them; None where it is something else."""
    try:
        # Numbers as they were written: a price must not pass through a float.
        found = json.loads(line, parse_float=str, parse_int=str, parse_constant=str)
    except (ValueError, RecursionError):
        return [None]
    records = found if isinstance(found, list) else [found]
    return records if all(isinstance(record, dict) for record in records) else [None]


def _as_text(value: object) -> str | None:
    if value is None:
        return None
    text = value if isinstance(value, str) else json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    # An escape may be half of a character, which is no text: \ud800 becomes a question mark.
    return text.encode(errors="replace").decode()


def _of_parquet(feed: Feed, body: bytes) -> dict[str, pa.Array]:
    try:
        with pq.ParquetFile(io.BytesIO(body)) as opened:
            names = set(opened.schema_arrow.names)
            table = opened.read(columns=[c for c in feed.columns if c in names])
            count = opened.metadata.num_rows
            return {c: _column(table, c) if c in names else pa.nulls(count, pa.string()) for c in feed.columns}
    except (pa.ArrowException, OSError) as error:
        raise Unusable("unreadable", f"no Parquet file, or a damaged one: {error}") from error


def _column(table: pa.Table, name: str) -> pa.Array:
    column = table.column(name).combine_chunks()
    kind = column.type
    if pa.types.is_dictionary(kind):
        column = column.dictionary_decode()
    elif pa.types.is_timestamp(kind):
        # Cut, never rounded: an hour does not end early. Text without a zone is UTC.
        column = pc.floor_temporal(column, unit="microsecond").cast(pa.timestamp("us", "UTC"))
    try:
        return column.cast(pa.string())
    except pa.ArrowException:
        # Lists, structures, bytes: never what a feed declares, and named as such row by row.
        return pa.array([None if value is None else str(value) for value in column.to_pylist()], pa.string())
