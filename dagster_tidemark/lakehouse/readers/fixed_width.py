"""Text of fixed width: the shape of a file from the declaration, and samples. `parsing.fixed_width_rows` reads rows."""

from __future__ import annotations

from dagster_tidemark.lakehouse.parsing import fixed_width_rows
from dagster_tidemark.lakehouse.parsing.csv_dialect import Dialect
from dagster_tidemark.lakehouse.parsing.rows import WHOLE, DeclaredContent, FileBytes
from dagster_tidemark.lakehouse.parsing.sources import MemoryFile
from dagster_tidemark.lakehouse.readers.csv_text import CsvShape, parts_below_header
from dagster_tidemark.lakehouse.readers.file_format import FileFormat, Shape, UntypedText
from dagster_tidemark.lakehouse.readers.files import Unusable
from dagster_tidemark.lakehouse.readers.text import charset_of
from dagster_tidemark.lakehouse.readers.text_files import head_of
from dagster_tidemark.sources.feed import Feed
from dagster_tidemark.sources.file_endings import Format, endings_of
from dagster_tidemark.sources.text_formats import Csv, FixedWidth


def _shape(feed: Feed, source: FileBytes) -> CsvShape:
    format = fixed_width_rows.format_of(DeclaredContent(feed.columns, format=feed.text_format))
    lines = Dialect(Csv(header=False, fields=format.fields, quote=None, skip_lines=format.skip_lines))
    head = head_of(feed, source, json=False, dialect=lines)
    if "\0" in head.records[0].text:
        raise Unusable("unreadable", "the first line is binary, not text")
    if not head.complete_records:
        raise Unusable("unreadable", f"the first line is longer than {head.size} bytes")
    columns = tuple((name, "string") for name in format.fields)
    return CsvShape(Format.FIXED_WIDTH, columns, head.charset, ahead=head.ahead)


def _sample(
    body: bytes, limit: int, *, format: FixedWidth, encoding: str = "utf-8", multiline: bool = False
) -> list[dict[str, object]]:
    if multiline:
        raise ValueError("a line of fixed width is a row: leave --multiline out")
    declared = DeclaredContent(dict.fromkeys(format.fields, "string"), encoding, format=format)
    shape = Shape(Format.FIXED_WIDTH, charset=charset_of(encoding, body))
    found: list[dict[str, object]] = []
    for rows in fixed_width_rows.rows_of(declared, shape, MemoryFile("", body), WHOLE):
        sound = rows if rows.faults is None else rows.where(rows.faults.is_null())
        for row in zip(*(column.to_pylist() for column in sound.columns.values()), strict=True):
            values = zip(format.fields, row, strict=True)
            found.append({c: None if v is None or v in format.nulls else UntypedText(v) for c, v in values})
    return found[:limit]


FIXED_WIDTH = FileFormat(
    name=Format.FIXED_WIDTH,
    endings=endings_of(Format.FIXED_WIDTH),
    is_text=True,
    shape=_shape,
    rows_of=fixed_width_rows.rows_of,
    parts=parts_below_header,
    texts_of=fixed_width_rows.texts_of,
    sample=_sample,
)
