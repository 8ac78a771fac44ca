"""JSON: what its first lines say. A key may come in any line. Its rows are read by `parsing.json_rows`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace

from dagster_tidemark.lakehouse.parsing import json_rows
from dagster_tidemark.lakehouse.parsing.json_rows import as_text, objects_in
from dagster_tidemark.lakehouse.parsing.rows import Declared
from dagster_tidemark.lakehouse.readers.file_format import FileFormat, Shape, Written
from dagster_tidemark.lakehouse.readers.files import ObjectStore, SourceFile, Unusable
from dagster_tidemark.lakehouse.readers.text import NO_END, Record, charset_of, is_over_lines, records_of
from dagster_tidemark.lakehouse.readers.text_files import Head, looked_into, parts_of_text
from dagster_tidemark.lakehouse.readers.values import nested_as_written
from dagster_tidemark.sources.feed import Feed
from dagster_tidemark.sources.file_endings import Format, endings_of

_NO_OBJECT = "no line of it is a JSON object"


@dataclass(frozen=True)
class JsonShape(Shape):
    """The form of a JSON file; its columns as far as it was looked into.

    Args:
        has_object: Whether an object was seen.
    """

    has_object: bool = True


def _shape(store: ObjectStore, feed: Feed, file: SourceFile, body: bytes | None) -> JsonShape:
    return looked_into(store, feed, file, body, _shape_of, json=True)


def _shape_of(head: Head) -> JsonShape:
    records: Sequence[Record] = head.records
    shape = _form_of(records, head.charset, head.is_cut)
    if not shape.has_object and head.whole is not None:
        records = records_of(head.whole, encoding=head.charset, multiline=head.multiline, json=True)
        shape = _form_of(records, head.charset, False)
    if not shape.has_object and head.is_whole:
        raise Unusable("unreadable", head.not_text if head.begins_with_no_text else _NO_OBJECT)
    is_complete = head.is_whole and (head.whole is None or records is not head.records)
    return replace(shape, is_over_lines=head.multiline, is_complete=is_complete)


def _form_of(records: Sequence[Record], charset: str, is_cut: bool) -> JsonShape:
    names: dict[str, None] = {}
    has_object = False
    for text, _ in records[:-1] if is_cut and len(records) > 1 else records:
        try:
            found = json.loads(text, parse_int=str)  # a number of 5,000 digits would be an error
        except (ValueError, RecursionError):
            continue
        for record in found if isinstance(found, list) else [found]:
            if isinstance(record, dict):
                has_object = True
                names |= dict.fromkeys(record)
    columns = tuple((name, "string") for name in names)
    return JsonShape(Format.JSON, columns, charset, has_object=has_object)


def _texts_of(declared: Declared, shape: JsonShape, record: str) -> list[str | None]:
    """The texts of the declared columns in an object."""
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
        raise ValueError(_NO_OBJECT)
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
