"""CSV with a header: what its first line says. Its rows are read by `parsing.csv_rows`."""

from __future__ import annotations

from dagster_tidemark.lakehouse.parsing import csv_rows
from dagster_tidemark.lakehouse.readers.file_format import FileFormat, Shape, Written
from dagster_tidemark.lakehouse.readers.files import ObjectStore, SourceFile, Unusable
from dagster_tidemark.lakehouse.readers.text import fields_of, records_of
from dagster_tidemark.lakehouse.readers.text_files import Head, looked_into, parts_of_text
from dagster_tidemark.sources.feed import Feed
from dagster_tidemark.sources.file_endings import Format, endings_of


def _shape(store: ObjectStore, feed: Feed, file: SourceFile, body: bytes | None) -> Shape:
    return looked_into(store, feed, file, body, _shape_of, json=False)


def _shape_of(head: Head) -> Shape:
    header = head.records[0].text
    is_complete = not head.is_cut or len(head.records) > 1
    if is_complete and head.begins_with_no_text:
        raise Unusable("unreadable", head.not_text)
    if "\0" in header:
        raise Unusable("unreadable", "the first line is binary, not text")
    if not is_complete:
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
