"""CSV with a header: the shape of a file by its first line, and samples. `parsing.csv_rows` reads the rows."""

from __future__ import annotations

from dagster_tidemark.lakehouse.parsing import csv_rows
from dagster_tidemark.lakehouse.parsing.records import records_of
from dagster_tidemark.lakehouse.parsing.rows import Source
from dagster_tidemark.lakehouse.readers.file_format import FileFormat, Shape, Written
from dagster_tidemark.lakehouse.readers.files import Unusable
from dagster_tidemark.lakehouse.readers.text import encoding_name, fields_of, not_valid
from dagster_tidemark.lakehouse.readers.text_files import head_of, parts_of_text
from dagster_tidemark.sources.feed import Feed
from dagster_tidemark.sources.file_endings import Format, endings_of


def _shape(feed: Feed, source: Source) -> Shape:
    head = head_of(feed, source, json=False)
    header, fault = head.records[0]
    if head.complete_records and fault == not_valid(head.charset):
        raise Unusable("unreadable", f"the first line is no {encoding_name(head.charset)} text: {header[:100]!r}")
    if "\0" in header:
        raise Unusable("unreadable", "the first line is binary, not text")
    if not head.complete_records:
        raise Unusable("unreadable", f"the first line is longer than {head.size} bytes")
    columns = tuple((name.strip(), "string") for name in fields_of(header))
    return Shape(Format.CSV, columns, head.charset, is_over_lines=head.multiline)


def _sample(body: bytes, limit: int, *, encoding: str = "utf-8", multiline: bool = False) -> list[dict[str, object]]:
    records = records_of(body, encoding=encoding, multiline=multiline, json=False)[: limit + 1]
    header, *rows = ([] if fault else fields_of(text) for text, fault in records) if records else [[]]
    names = [name.strip() for name in header]
    return [
        dict(zip(names, (Written(v) if v else None for v in row), strict=True))
        for row in rows
        if len(row) == len(names)
    ]


CSV = FileFormat(
    name=Format.CSV,
    endings=endings_of(Format.CSV),
    is_text=True,
    shape=_shape,
    rows_of=csv_rows.rows_of,
    parts=parts_of_text,
    texts_of=csv_rows.texts_of,
    sample=_sample,
)
