"""JSON: the shape of a file by its first objects, and samples. `parsing.json_rows` reads the rows."""

from __future__ import annotations

import json

from dagster_tidemark.lakehouse.parsing import json_rows
from dagster_tidemark.lakehouse.parsing.json_rows import as_text, objects_in
from dagster_tidemark.lakehouse.parsing.records import records_of
from dagster_tidemark.lakehouse.parsing.rows import Declared, Source
from dagster_tidemark.lakehouse.readers.file_format import FileFormat, Shape, Written
from dagster_tidemark.lakehouse.readers.text import NO_END, charset_of, is_over_lines
from dagster_tidemark.lakehouse.readers.text_files import head_of, parts_of_text
from dagster_tidemark.lakehouse.readers.values import nested_as_written
from dagster_tidemark.sources.feed import Feed
from dagster_tidemark.sources.file_endings import Format, endings_of


def _shape(feed: Feed, source: Source) -> Shape:
    head = head_of(feed, source, json=True)
    names: dict[str, None] = {}
    for text, _ in head.complete_records:
        try:
            found = json.loads(text, parse_int=str)  # a number of 5,000 digits would be an error
        except (ValueError, RecursionError):
            continue
        for row in found if isinstance(found, list) else [found]:
            names |= dict.fromkeys(row) if isinstance(row, dict) else {}
    columns = tuple((name, "string") for name in names)
    return Shape(Format.JSON, columns, head.charset, is_complete=head.is_whole, is_over_lines=head.multiline)


def _texts_of(declared: Declared, shape: Shape, record: str) -> list[str | None]:
    [row] = objects_in(record)
    assert row is not None
    nested = next(iter(nested_as_written(record)))
    # The last of several members with the same name counts, nested or not.
    return [nested[c] if isinstance(row.get(c), dict | list) else as_text(row.get(c)) for c in declared.columns]


def _sample(body: bytes, limit: int, *, encoding: str = "utf-8", multiline: bool = False) -> list[dict[str, object]]:
    over_lines = multiline or is_over_lines("", body, charset_of(encoding, body))
    records = records_of(body, encoding=encoding, multiline=over_lines, json=True)
    if records and records[-1].fault == NO_END:
        raise ValueError(NO_END)
    found: list[dict[str, object]] = []
    for text, fault in records:
        found += [row for row in ([] if fault else objects_in(text, Written)) if row is not None]
        if len(found) >= limit:
            break
    if not found:
        raise ValueError("no line of it is a JSON object")
    return found[:limit]


JSON = FileFormat(
    name=Format.JSON,
    endings=endings_of(Format.JSON),
    is_text=True,
    has_header=False,
    shape=_shape,
    rows_of=json_rows.rows_of,
    parts=parts_of_text,
    texts_of=_texts_of,
    sample=_sample,
)
