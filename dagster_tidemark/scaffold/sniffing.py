"""Finds the form of a sample file, with evidence: encoding, separator, header, decimal comma, times.

A wrong guess would change values, so a form is proposed only if it fits every value of the sample and no other form
does. Does not belong here: types and keys (`column_types`, `row_key`), and reading rows (`sample`).
"""

import codecs
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from dagster_tidemark.lakehouse.parsing.csv_dialect import Dialect
from dagster_tidemark.lakehouse.parsing.json_places import elements_at, likely_place
from dagster_tidemark.lakehouse.parsing.records import records_of
from dagster_tidemark.lakehouse.parsing.value_forms import NumberForm
from dagster_tidemark.lakehouse.readers.csv_text import SEPARATORS
from dagster_tidemark.lakehouse.readers.declared_forms import time_form
from dagster_tidemark.lakehouse.readers.text import charset_of, lines_of
from dagster_tidemark.scaffold.column_types import words_of
from dagster_tidemark.sources.text_formats import AnyText, Csv, FixedWidth, Json

_FIRST_BYTES = 256 << 10
_NULLS = (r"\N", "NULL", "null", "N/A", "n/a", "NA", "#N/A", "-", "--", "None")
_NUMBER = re.compile(r"[+-]?\d[\d.,' ]*", re.ASCII)
_LINES_OF_WIDTH = 3
"""Smallest number of lines of equal length that may be text of fixed width."""

_VALUE = re.compile(r"[+-]?[\d.,]*\d[\d.,]*|\d{1,4}[-./]\d{1,2}[-./]\d{1,4}.*")
_DAYS = ("dd.MM.yyyy", "dd.MM.yy", "d.M.yyyy", "yyyy/MM/dd", "dd-MMM-yyyy", "dd MMM yyyy")
_EITHER = (("dd/MM/yyyy", "MM/dd/yyyy"), ("d/M/yyyy", "M/d/yyyy"), ("dd-MM-yyyy", "MM-dd-yyyy"))
"""Pairs of patterns that both fit many values. One is proposed only if some value does not fit the other."""

_OF_DAY = (" HH:mm", " HH:mm:ss", " H:mm", " H:mm:ss", ", HH:mm", " hh:mm:ss a", " h:mm a")
_LOGS = ("dd/MMM/yyyy:HH:mm:ss Z", "EEE, dd MMM yyyy HH:mm:ss Z", "yyyyMMddHHmmss")
_EPOCHS = {10: "epoch seconds", 13: "epoch millis", 16: "epoch micros"}
_TIME_WORDS = {
    "time",
    "timestamp",
    "ts",
    "epoch",
    "date",
    "day",
    "dt",
    "at",
    "created",
    "updated",
    "datum",
    "start",
    "end",
}


def encoding_found(text: bytes) -> tuple[str, list[str]]:
    """Return the encoding of a text, with the evidence if it is not UTF-8."""
    if text.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16", ["encoding utf-16: it begins with the byte order mark of UTF-16"]
    head = text[:_FIRST_BYTES]
    for encoding, zeros in (("utf-16-le", head[1::2]), ("utf-16-be", head[::2])):
        if len(zeros) > 1 and zeros.count(0) > 0.9 * len(zeros):
            return encoding, [f"encoding {encoding}: every other byte is zero"]
    try:
        text.decode()
    except UnicodeDecodeError:
        has_utf8 = re.search(rb"[\xc3-\xf4][\x80-\xbf]", text)  # UTF-8 with a few damaged bytes
        if not has_utf8:
            try:
                text.decode("cp1252")
            except UnicodeDecodeError:
                return "latin-1", ["encoding latin-1: it is not UTF-8, and has bytes that cp1252 does not have"]
            return "cp1252", ["encoding cp1252: it is not UTF-8, and every byte is a letter of cp1252"]
    return "utf-8", []


def json_found(text: bytes, encoding: str) -> Json | None:
    """Return the options with the place of the rows, if a file is one object that mostly consists of an array."""
    whole = text.decode(charset_of(encoding, text), errors="replace").lstrip("\ufeff").strip()
    try:
        end = json.JSONDecoder().raw_decode(whole)[1]
        place = likely_place(whole, ())
        if not whole.startswith("{") or end < len(whole) or place is None:
            return None
        elements = list(elements_at(whole, place.split(".")))
    except (ValueError, IndexError, RecursionError):
        return None
    return Json(rows=place) if 3 * sum(map(len, elements)) > len(whole) else None


def width_found(text: bytes, encoding: str) -> int | None:
    """Return the number of characters of each line if a text seems to have fixed widths, otherwise None."""
    cut = len(text) > _FIRST_BYTES
    lines = [line.text for line in lines_of(text[:_FIRST_BYTES], charset_of(encoding, text)) if line.text.strip()]
    lines = lines[:-1] if cut else lines
    if len(lines) < _LINES_OF_WIDTH or len({len(line) for line in lines}) > 1:
        return None
    has_separator = any(all(mark in line for line in lines) for mark in SEPARATORS)
    return None if has_separator or not all("  " in line for line in lines) else len(lines[0])


def csv_found(text: bytes, encoding: str) -> tuple[Csv, bool, list[str]]:
    """Return the options of a CSV text, True if records span lines, and the evidence."""
    cut = len(text) > _FIRST_BYTES
    head = text[:_FIRST_BYTES]
    texts = [r.text for r in records_of(head, encoding=encoding, multiline=False, json=False)]
    lines = texts[:-1] if cut and len(texts) > 1 else texts
    # Excel reads such a first line as the declaration of the separator. Other programs would read it as the header.
    of_excel = lines[:1] if lines and re.fullmatch(r"sep=[;,|\t]", lines[0]) else []
    lines = lines[len(of_excel) :]
    tables = [table for mark in SEPARATORS if (table := _table(mark, lines))]
    if not tables:
        return Csv(), False, []
    table = max(tables, key=lambda table: (len(table.rows), len(table.rows[0])))
    mark, rows = table.separator, table.rows
    options: dict[str, Any] = {}
    evidence: list[str] = []
    if mark != ",":
        options["separator"] = mark
        evidence.append(f"separator {mark!r}: each line has {len(rows[0]) - 1} of them")
    multiline = False
    if any(not Dialect(Csv(separator=mark)).is_terminated(line) for line in lines):
        together = records_of(head, encoding=encoding, multiline=True, json=False, dialect=Dialect(Csv(separator=mark)))
        joined = _table(mark, [record.text for record in together[: -1 if cut else None]])
        # Each line of such a file is a row, although some quotes seem to hold line breaks.
        bare = _table(mark, lines, quote=None) if mark == "\t" else None
        is_bare = bare is not None and len(bare.rows) == sum(map(bool, map(str.strip, lines[bare.begin :])))
        if joined and not is_bare and len(joined.rows) == len(together) - (1 if cut else 0) - joined.begin:
            multiline, table, rows = True, joined, joined.rows
            evidence.append("multiline: quotes hold line breaks")
        elif mark == "\t":  # such files have no quotes around values
            options["quote"] = None
            evidence.append("quote=None: a value begins with a quote that is not closed")
            table = bare or table
            rows = table.rows
    if table.has_trailing:
        options["trailing_separator"] = True
        evidence.append(f"trailing_separator: each line ends with {mark!r}")
    if _has_no_header(rows):
        width = len(rows[0])
        options |= {"header": False, "fields": tuple(f"column_{n}" for n in range(1, width + 1))}
        evidence.append(f"header=False: its first line holds values: {', '.join(rows[0][:5])}; name the fields")
    elif of_excel or table.begin:
        above = [*of_excel, *lines[: table.begin]]
        if all(line.startswith("#") for line in above):
            options["comment"] = "#"
            evidence.append(f"comment '#': {len(above)} lines above the header begin with it")
        else:
            options["header"] = rows[0][0].strip()
            evidence.append(f"header {rows[0][0].strip()!r}: {len(above)} lines above it, the first {above[0][:60]!r}")
    if r"\N" in {value for row in rows for value in row}:
        options["nulls"] = (r"\N",)
        evidence.append(r"nulls \N: it stands for a missing value")
    return Csv(**options), multiline, evidence


@dataclass(frozen=True)
class _Table:
    """Consecutive lines with the same number of values, at least two.

    Args:
        begin: Number of lines above the table.
    """

    separator: str
    begin: int
    rows: list[list[str]]
    has_trailing: bool


def _table(mark: str, lines: Sequence[str], quote: str | None = '"') -> _Table | None:
    """Return the longest table if values are split at a separator; None if no line has two values."""
    dialect = Dialect(Csv(separator=mark, quote=quote))
    rows = [dialect.fields_of(line) for line in lines]
    counted = Counter(len(row) for row in rows if len(row) > 1)
    if not counted:
        return None
    width = max(counted, key=lambda width: (counted[width], width))
    of_width = [n for n, row in enumerate(rows) if len(row) == width]
    data = [rows[n] for n in of_width]
    has_trailing = width > 2 and not any(row[-1] for row in data) and len(data) > 1
    begin = of_width[0]
    if has_trailing:
        if begin and len(rows[begin - 1]) == width - 1:
            begin, data = begin - 1, [rows[begin - 1], *data]
        data = [row[: width - 1] for row in data]
    return _Table(mark, begin, data, has_trailing)


def _has_no_header(rows: Sequence[Sequence[str]]) -> bool:
    """Return True if the first line contains values: a number or day in a column where later lines have one too."""
    first, later = rows[0], rows[1:]
    values = [n for n, cell in enumerate(first) if _VALUE.fullmatch(cell.strip())]
    if len(values) == len(first) or any("." in first[n] for n in values):
        return True
    return any(
        later and all(n < len(row) and _VALUE.fullmatch(row[n].strip()) for row in later if "".join(row))
        for n in values
    )


def values_found(
    format: AnyText | None, rows: Sequence[Mapping[str, object]], names: Iterable[str]
) -> tuple[dict[str, Any], list[str]]:
    """Return options for numbers and times in forms other than `1234.56` and ISO 8601, and the evidence.

    Args:
        format: The options known so far; None for JSON without options.
    """
    columns = {name: [str(row[name]) for row in rows if row.get(name) not in (None, "")] for name in names}
    options, evidence = _missing(format, columns)
    columns = {name: [v for v in values if v not in options.get("nulls", ())] for name, values in columns.items()}
    if isinstance(format, Csv | FixedWidth) and not format.is_number_written:
        of_numbers, about_numbers = _numbers(columns)
        options, evidence = options | of_numbers, [*evidence, *about_numbers]
    times: dict[str, str] = {}
    for name, values in columns.items():
        if pattern := _pattern(name, values):
            times[name] = pattern
            evidence.append(f"times of {name}: {pattern}, as {values[0]!r}")
        elif both := _undecided(values):
            evidence.append(f"{name} stays text: {' and '.join(both)} both fit {values[0]!r}; give --time {name}=FORM")
    return options | ({"times": times} if times else {}), evidence


def _missing(format: AnyText | None, columns: Mapping[str, Sequence[str]]) -> tuple[dict[str, Any], list[str]]:
    """Return the options and evidence for missing values: texts in columns of numbers or times, such as `n/a`."""
    known = tuple(format.nulls) if format else ()
    found: dict[str, str] = {}
    for name, values in columns.items():
        marks = {value for value in values if value in _NULLS and value not in known}
        others = [value for value in values if value not in marks and value not in known]
        if marks and others and all(_VALUE.fullmatch(value) for value in others):
            found |= {mark: name for mark in marks if mark not in found}
    evidence = [f"nulls {mark!r}: it stands among the numbers or times of {name}" for mark, name in found.items()]
    return ({"nulls": (*known, *found)} if found else {}), evidence


def _numbers(columns: Mapping[str, Sequence[str]]) -> tuple[dict[str, Any], list[str]]:
    for decimal, thousands in ((",", "."), (",", " "), (",", None), (".", ","), (".", "'")):
        form = NumberForm(decimal, thousands, has_places=True)
        texts = {
            name: values
            for name, values in columns.items()
            if values and all(_NUMBER.fullmatch(v) for v in values) and not form.plain(pa.array(values)).null_count
        }
        grouped = [
            n for n, vs in texts.items() if thousands and any(re.search(rf"\d{re.escape(thousands)}\d", v) for v in vs)
        ]
        decimals = (
            [name for name, values in texts.items() if any("," in v for v in values)] if decimal == "," else grouped
        )
        # A mark before exactly three digits proves nothing: it may separate groups of digits.
        alone = r",\d{1,2}$|,\d{4,}$|\..*," if decimal == "," else r",\d{3}[.,]|'\d{3}"
        sure = [n for n in decimals if any(re.search(alone, v) for v in columns[n])]
        with_point = [
            name for name, values in columns.items()
            if values and name not in texts and all(re.fullmatch(r"[+-]?\d+(\.\d+)?", v) for v in values)
        ]  # fmt: skip
        if not sure or (thousands and not grouped) or with_point:
            continue
        shown = next(v for v in columns[sure[0]] if ("," in v if decimal == "," else thousands and thousands in v))
        options = {"decimal": decimal} if decimal == "," else {}
        of_groups = {"thousands": thousands} if thousands else {}
        said = ", ".join(f"{name} {mark!r}" for name, mark in (options | of_groups).items())
        return options | of_groups, [f"{said}: {sure[0]} holds {shown!r}"]
    return {}, []


def _pattern(name: str, values: Sequence[str]) -> str | None:
    """Return the pattern of times that all values of a column fit; None if there is none or more than one."""
    if not values:
        return None
    texts = pa.array(values, pa.string())

    def fits(pattern: str) -> bool:
        return _fits(pattern, texts)

    is_time = not _TIME_WORDS.isdisjoint(words_of(name))
    if all(value.isascii() and value.isdigit() for value in values):
        lengths = {len(value) for value in values}
        if is_time and len(lengths) == 1:
            length = lengths.pop()
            if length == 8 and fits("yyyyMMdd") and all("1900" <= value[:4] <= "2100" for value in values):
                return "yyyyMMdd"
            if length in _EPOCHS and all("1" <= value[0] <= "2" for value in values):
                return _EPOCHS[length]
        return "yyyyMMddHHmmss" if lengths == {14} and is_time and fits("yyyyMMddHHmmss") else None
    if not any(mark in values[0] for mark in "./- ") or not values[0][-1:].isalnum():
        return None
    for day in _DAYS:
        for pattern in (day, *(day + time for time in _OF_DAY)):
            if fits(pattern):
                return pattern
    for either in _either(texts):
        if len(either) == 1:
            return either[0]
    return next((pattern for pattern in _LOGS if fits(pattern)), None)


def _fits(pattern: str, texts: pa.StringArray) -> bool:
    return not time_form(pattern, "timestamp").plain(texts).null_count


def _undecided(values: Sequence[str]) -> list[str]:
    """Return the two patterns, day first and month first, that all values of a column fit, or none."""
    if not values or not re.match(r"\d{1,2}[/-]\d{1,2}[/-]\d{4}", values[0]):
        return []
    return next((either for either in _either(pa.array(values, pa.string())) if len(either) > 1), [])


def _either(texts: pa.StringArray) -> Iterator[list[str]]:
    for pair in _EITHER:
        for time in ("", *_OF_DAY):
            yield [day + time for day in pair if _fits(day + time, texts)]
