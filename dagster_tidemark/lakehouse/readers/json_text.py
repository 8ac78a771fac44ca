"""The JSON format: finds the shape of a file from its first objects, and reads samples.

`parsing.json_rows` reads the rows.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from dagster_tidemark.lakehouse.parsing import json_rows
from dagster_tidemark.lakehouse.parsing.json_places import elements_at, likely_place, value_at, written_at
from dagster_tidemark.lakehouse.parsing.json_rows import Members, as_text, half_characters, objects_in
from dagster_tidemark.lakehouse.parsing.records import records_of
from dagster_tidemark.lakehouse.parsing.rows import DeclaredContent, FileBytes
from dagster_tidemark.lakehouse.readers.file_format import FileFormat, Shape, UntypedText
from dagster_tidemark.lakehouse.readers.text import NO_END, TextRecord, charset_of, is_over_lines
from dagster_tidemark.lakehouse.readers.text_files import head_of, parts_of_text
from dagster_tidemark.lakehouse.readers.values import nested_as_written
from dagster_tidemark.sources.feed import Feed
from dagster_tidemark.sources.file_endings import Format, endings_of
from dagster_tidemark.sources.text_formats import Json


@dataclass(frozen=True)
class JsonShape(Shape):
    """Physical form of a JSON file.

    Args:
        rows: The place of an array whose elements may be the rows, if the first object has no declared column.
    """

    rows: str | None = None


def _shape(feed: Feed, source: FileBytes) -> JsonShape:
    head = head_of(feed, source, json=True)
    place = _place(feed.text_format)
    names: dict[str, None] = {}
    rows: Iterator[dict[str, object]]
    if place is None:
        rows = (row for text, _ in head.complete_records for row in _rows_of(text))
    else:
        rows = _first_rows(head.records, place)
    below = [name for name in feed.known_names if "." in name]
    above = {name.partition(".")[0] for name in below}
    for row in rows:
        names |= dict.fromkeys(name for name in row if name not in above or name in feed.known_names)
        names |= dict.fromkeys(name for name in below if value_at(row, name) is not None)
    columns = tuple((name, "string") for name in names)
    likely = None
    if place is None and not any(name in names for name in feed.known_names):
        likely = likely_place(head.records[0].text, feed.known_names)
    return JsonShape(
        Format.JSON, columns, head.charset, is_complete=head.is_whole, is_over_lines=head.multiline, rows=likely
    )


def _place(format: object) -> list[str] | None:
    return format.rows.split(".") if isinstance(format, Json) and format.rows is not None else None


def _rows_of(text: str) -> list[dict[str, object]]:
    """Return the objects of a record; an empty list if the record is not JSON."""
    try:
        found = json.loads(text, parse_int=str)  # as an integer, a number of 5,000 digits would raise an error
    except (ValueError, RecursionError):
        return []
    return [row for row in (found if isinstance(found, list) else [found]) if isinstance(row, dict)]


def _first_rows(records: Sequence[TextRecord], place: Sequence[str]) -> Iterator[dict[str, object]]:
    """Return the objects in the arrays of records. The last record may be incomplete."""
    for text, _ in records:
        try:
            for element in elements_at(text, place):
                yield from _rows_of(element)
        except (ValueError, IndexError, RecursionError):
            continue


def _texts_of(declared: DeclaredContent, shape: Shape, record: str) -> list[str | None]:
    [row] = objects_in(record)
    assert row is not None
    nested = next(iter(nested_as_written(record)))
    texts: list[str | None] = []
    for names in Members.of(declared).found_in(row).values():
        value = value_at(row, names[0]) if names else None
        # If an object has several members with the same name, the last one counts, nested or not.
        texts.append(written_at(nested, names[0]) if isinstance(value, dict | list) else as_text(value))
    return texts


def _sample(
    body: bytes, limit: int, *, encoding: str = "utf-8", multiline: bool = False, format: Json | None = None
) -> list[dict[str, object]]:
    place = _place(format)
    over_lines = multiline or place is not None or is_over_lines("", body, charset_of(encoding, body))
    records = records_of(body, encoding=encoding, multiline=over_lines, json=True)
    if records and records[-1].fault == NO_END:
        raise ValueError(NO_END)
    found: list[dict[str, object]] = []
    for text, fault in records:
        texts = [text] if place is None else elements_at(text, place)
        for each in () if fault else texts:
            found += [row for row in objects_in(each, UntypedText) if row is not None and not _has_half_character(row)]
        if len(found) >= limit:
            break
    if not found:
        raise ValueError(f"no line of it is a JSON object{_about_first(records[0][0] if records else '')}")
    nulls = format.nulls if format else ()
    return (
        [{name: None if v in nulls else v for name, v in row.items()} for row in found[:limit]]
        if nulls
        else found[:limit]
    )


def _has_half_character(row: Mapping[str, object]) -> bool:
    """Return True if a load rejects a row, because an escape in a text is half of a character."""
    return half_characters({name: as_text(value) for name, value in row.items()}) is not None


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


def _about_first(text: str) -> str:
    """Return the end of an error about a text that should be one object."""
    try:
        _, end = json.JSONDecoder().raw_decode(text.lstrip())
    except ValueError:
        return ""
    rest = text.lstrip()[end:].strip()
    return f"; after its first value follows {rest[:20]!r}: write one object per line, or one array" if rest else ""
