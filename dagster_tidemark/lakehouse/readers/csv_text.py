"""The CSV format: finds the shape of a file from the header, and reads samples. `parsing.csv_rows` reads the rows."""

from __future__ import annotations

from dataclasses import dataclass

from dagster_tidemark.lakehouse.parsing import csv_rows
from dagster_tidemark.lakehouse.parsing.csv_dialect import Dialect
from dagster_tidemark.lakehouse.parsing.records import records_of
from dagster_tidemark.lakehouse.parsing.rows import WHOLE, FileBytes, Part
from dagster_tidemark.lakehouse.readers.file_format import FileFormat, Shape, UntypedText
from dagster_tidemark.lakehouse.readers.files import Unusable
from dagster_tidemark.lakehouse.readers.text import TextRecord, encoding_faults, encoding_name
from dagster_tidemark.lakehouse.readers.text_files import head_of, parts_of_text
from dagster_tidemark.sources.feed import Feed
from dagster_tidemark.sources.file_endings import Format, endings_of
from dagster_tidemark.sources.text_formats import Csv


@dataclass(frozen=True)
class CsvShape(Shape):
    """Physical form of a file of lines with values.

    Args:
        ahead: Upper bound of the number of bytes up to the end of the header. The first part of the file has them all.
    """

    ahead: int = 0


def _shape(feed: Feed, source: FileBytes) -> CsvShape:
    declared = feed.text_format if isinstance(feed.text_format, Csv) else None
    dialect = Dialect(declared)
    head = head_of(feed, source, json=False, dialect=dialect)
    first, fault = head.first
    where = "header" if dialect.has_header and dialect.has_lines_ahead else "first line"
    if head.complete_records and fault in encoding_faults(head.charset):
        raise Unusable("unreadable", f"the {where} is not {encoding_name(head.charset)} text: {first[:100]!r}")
    if "\0" in first:
        raise Unusable("unreadable", f"the {where} is binary, not text")
    if head.is_cut and not head.complete_records:
        raise Unusable("unreadable", f"the {where} is longer than {head.size} bytes")
    names = dialect.names_of(first) if dialect.has_header else head.names or dialect.fields or tuple(feed.columns)
    columns = tuple((name, "string") for name in names)
    shape = CsvShape(Format.CSV, columns, head.charset, is_over_lines=head.multiline, ahead=head.ahead)
    if dialect.has_header and len(names) == 1 and not any(name in feed.known_names for name in names):
        _refuse_other_separator(dialect, first)
    return shape


def _refuse_other_separator(dialect: Dialect, header: str) -> None:
    """Refuse a header that probably has a different separator.

    Raises:
        Unusable: the header contains a different common separator. The message gives the remedy.
    """
    counts = {mark: header.count(mark) for mark in SEPARATORS if mark != dialect.separator}
    likely = max(counts, key=lambda mark: counts[mark])
    if counts[likely]:
        raise Unusable(
            "missing_column",
            f"its header has {counts[likely]} {likely!r} and no {dialect.separator!r}: {header[:100]!r}; let the feed "
            f"say format=Csv(separator={likely!r})",
        )


SEPARATORS = ";\t|,"
"""Common separators."""


def parts_below_header(shape: CsvShape, key: str, size: int, about: int) -> list[Part]:
    """Return the parts of a file of lines. The first part has the header and all lines above it."""
    parts = parts_of_text(shape, key, size, about)
    later = [part for part in parts[1:] if part.begin >= shape.ahead]
    return [Part(0, later[0].begin if later else WHOLE.end), *later]


def _sample(
    body: bytes, limit: int, *, encoding: str = "utf-8", multiline: bool = False, format: Csv | None = None
) -> list[dict[str, object]]:
    dialect = Dialect(format)
    records = records_of(body, encoding=encoding, multiline=multiline, json=False, dialect=dialect)
    names = list(dialect.fields or ())
    if dialect.has_header:
        header, fault = records[0] if records else TextRecord("")
        names, records = ([] if fault else dialect.names_of(header)), records[1:]
    rows = [dialect.row_of(text, len(names)) for text, fault in records[:limit] if not fault]
    nulls = ("", *(format.nulls if format else ()))
    return [
        dict(zip(names, (None if v in nulls else UntypedText(v) for v in row), strict=True))
        for row in rows
        if not isinstance(row, int)
    ]


CSV = FileFormat(
    name=Format.CSV,
    endings=endings_of(Format.CSV),
    is_text=True,
    shape=_shape,
    rows_of=csv_rows.rows_of,
    parts=parts_below_header,
    texts_of=csv_rows.texts_of,
    sample=_sample,
)
