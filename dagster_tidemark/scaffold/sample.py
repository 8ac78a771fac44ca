"""Sample files: a feed's columns and types, and the rows that a load would reject.

A sample is read as a load reads a small file, so the proposed feed loads or rejects each of its rows. Does not
belong here: types (`column_types`), keys (`row_key`) and reading of files (`lakehouse.readers`).
"""

import codecs
import gzip
import json
import re
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from dagster_tidemark.errors import Terminal
from dagster_tidemark.lakehouse.parsing.records import records_of
from dagster_tidemark.lakehouse.parsing.rows import WHOLE
from dagster_tidemark.lakehouse.parsing.sources import MemoryFile
from dagster_tidemark.lakehouse.readers.batch import declared_by
from dagster_tidemark.lakehouse.readers.file_format import FileFormat
from dagster_tidemark.lakehouse.readers.files import Unusable
from dagster_tidemark.lakehouse.readers.format_registry import format_of
from dagster_tidemark.lakehouse.readers.text import charset_of, is_over_lines, text_of
from dagster_tidemark.scaffold.column_types import type_of
from dagster_tidemark.scaffold.row_key import guessed, repeated
from dagster_tidemark.sources.feed import Feed, Grain
from dagster_tidemark.sources.file_endings import GZIP, Format, ending_of, every_ending

_ROWS, _BYTES = 300_000, 32 << 20
"""The largest sample. Types and key are inferred from every row, and a row takes about a kilobyte of memory."""

_SHOWN = 5  # maximum number of rows or names listed in a message
_FIRST_BYTES = 64 << 10  # beginning of a text that is searched for its separator
_OTHERS = {
    b"PAR1": "Parquet",
    codecs.BOM_UTF32_LE: "text in UTF-32, which no feed reads",
    codecs.BOM_UTF32_BE: "text in UTF-32, which no feed reads",
    b"\x1f\x8b": "gzip",
    b"PK\x03\x04": "a ZIP archive (or a spreadsheet)",
    b"ORC": "ORC",
    b"Obj\x01": "Avro",
    b"BZh": "bzip2",
    b"\x28\xb5\x2f\xfd": "Zstandard",
    b"%PDF": "PDF",
    b"SQLite format 3": "SQLite",
    b"\xd0\xcf\x11\xe0": "an old spreadsheet",
}
_MARKUP = re.compile(rb"\s*<(\?xml|!doctype|html|[a-z])", re.I)
_DELIMITERS = {";": "a semicolon", "\t": "a tab", "|": "a bar"}
_VALUE = re.compile(r"[+-]?[\d.,]*\d[\d.,]*|\d{4}-\d\d-\d\d.*")


class NoSample(Terminal):
    """A sample file that no feed can be written from. The message gives the reason."""


@dataclass(frozen=True)
class Sample:
    """The columns, types and key that a sample file suggests.

    Args:
        suffix: The known ending of the file's name.
        columns: Column name to the SQL type proposed, in the file's order.
        key: Columns that identify its rows; empty without enough evidence.
        rows: Number of rows that a load accepts.
        evidence: The reason for this key, or for its absence.
        left_out: A line for each reason why rows of the sample would be rejected.
        notes: Doubts for the user to check.
        empty: By column, the number of rows without a value. Columns without such rows are left out.
        repeated: Number of rows with the key of an earlier row, if the user named the key.
        settings: Settings for reading the feed's files.
    """

    suffix: str
    columns: Mapping[str, str]
    key: tuple[str, ...]
    rows: int
    evidence: str = ""
    left_out: Sequence[str] = ()
    notes: Sequence[str] = ()
    empty: Mapping[str, int] = field(default_factory=dict)
    repeated: int = 0
    settings: "Settings" = field(default_factory=lambda: Settings())


@dataclass(frozen=True)
class Settings:
    """Settings for reading a feed's text files, as in `Feed`."""

    encoding: str = "utf-8"
    multiline: bool = False

    @property
    def options(self) -> dict[str, Any]:
        """The settings that differ from the defaults."""
        return {name: value for name, value in vars(self).items() if value != vars(Settings())[name]}

    def feed(self, name: str, columns: Sequence[str]) -> Feed:
        """Return a feed with these columns.

        Raises:
            ValueError: a column's name cannot be declared, or the encoding cannot be read.
        """
        return Feed(name, f"{name}/", Grain.DAY, dict.fromkeys(columns, "string"), **self.options)


def read_sample(
    path: Path, *, feed: str = "", key: Sequence[str] = (), encoding: str = "utf-8", multiline: bool = False
) -> Sample:
    """Read a sample file of any registered format: CSV with a header, JSON (lines, or one list), Parquet, others.

    Args:
        feed: The feed's name; by default the file's name.
        key: The key, if the user named it.
        encoding, multiline: Settings of the feed.

    Raises:
        NoSample: no feed can load it: it is empty, its ending is wrong, or it has columns that cannot be declared.
    """
    suffix = ending_of(path.name)
    read_as = format_of(path.name) if suffix else None
    if not suffix or not read_as or not read_as.sample:
        raise NoSample(f"{path.name}: a sample ends in {', '.join(e for e in every_ending() if format_of(e).sample)}")
    settings = Settings(encoding, multiline)
    try:
        probing = settings.feed("sample", ["any"])
        body = path.read_bytes()
        _refuse_size(read_as, path.name, body, probing)
        text = gzip.decompress(body) if suffix.endswith(GZIP) else body
        _refuse_disguise(read_as, suffix, text, probing.encoding)
        if suffix.removesuffix(GZIP) == ".jsonl" and is_over_lines("", text, charset_of(encoding, text)):
            raise ValueError("a line of a .jsonl file is a row; this one goes over several lines: call it .json")
        kinds = _columns_of(read_as, path.name, body, probing)
        if read_as.name == Format.CSV:
            _refuse_header(list(kinds), _first_lines(text, settings))
        # An empty text is null in a table, for every format.
        rows = [{c: None if v == "" else v for c, v in row.items()} for row in _rows_of(read_as, text, settings)]
        names = list(dict.fromkeys([*(name for row in rows for name in row), *kinds]))
        faults = _faults_of(read_as, path.name, body, settings.feed(feed or "sample", names))
    except (OSError, EOFError, zlib.error, ValueError, Unusable, pa.ArrowException) as error:
        raise NoSample(f"{path}: {(str(error).splitlines() or [type(error).__name__])[0]}") from error
    wrong = [(n, fault) for n, fault in enumerate(faults, 1) if fault]
    if len(wrong) == len(faults):
        why = f": row 1: {wrong[0][1].why}" if wrong else ""
        shown = ", ".join(map(repr, names[:_SHOWN])) + (", ..." if len(names) > _SHOWN else "")
        raise NoSample(f"{path}: it holds no row that can be taken{why} (its columns are {shown})")
    columns = {name: type_of(name, [row.get(name) for row in rows], kinds.get(name, "")) for name in names}
    guess = guessed(feed or path.name.removesuffix(suffix), columns, rows)
    return Sample(
        suffix,
        columns,
        guess.columns,
        len(faults) - len(wrong),
        guess.evidence,
        _left_out(wrong, of=len(faults)),
        _notes(names, rows, text, probing),
        {c: n for c in names if (n := sum(row.get(c) is None for row in rows))},
        repeated(key, columns, rows) if columns.keys() >= set(key) else 0,
        settings,
    )


def _refuse_disguise(read_as: FileFormat[Any], suffix: str, text: bytes, encoding: str) -> None:
    """Refuse a text file whose content does not match its ending.

    Raises:
        ValueError: the content does not match; the message names the likely format.
    """
    if not text:
        raise ValueError("it is empty")
    if not read_as.is_text:
        return
    if named := next((name for mark, name in _OTHERS.items() if text.startswith(mark)), None):
        raise ValueError(f"it ends in {suffix} and is {named}")
    if text.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) and not encoding.startswith("utf-16"):
        raise ValueError("it begins with the mark of UTF-16: say --encoding utf-16")
    if _MARKUP.match(text.removeprefix(codecs.BOM_UTF8)):
        raise ValueError(f"it ends in {suffix} and is HTML or XML")
    if read_as.name != Format.CSV:
        return
    first = text.removeprefix(codecs.BOM_UTF8).lstrip()[:1]
    if first in (b"{", b"["):
        line = text.removeprefix(codecs.BOM_UTF8).strip().partition(b"\n")[0].strip()
        if line in (b"{", b"[") or _is_json(line):
            raise ValueError(f"it ends in {suffix} and is JSON")


def _refuse_size(read_as: FileFormat[Any], name: str, body: bytes, feed: Feed) -> None:
    """Refuse a file that is too large to read every row.

    Raises:
        ValueError: the file is too large; the message gives the remedy.
    """
    if read_as.is_text:
        text = text_of(name, body, limit=_BYTES + 1)
        size, rows = len(text), max(text.count(b"\n"), text.count(b"\r"))
    else:
        size, rows = len(body), 0
        for found in read_as.rows_of(
            declared_by(feed), _shape_of(read_as, name, body, feed), MemoryFile(name, body), WHOLE
        ):
            rows += found.count
            if rows > _ROWS:
                break
    if rows > _ROWS or size > _BYTES:
        raise ValueError(f"a sample has up to {_ROWS:,} rows and {_BYTES >> 20} MB: take a part of it (head -n 100000)")


def _is_json(line: bytes) -> bool:
    try:
        json.loads(line)
    except (ValueError, RecursionError):
        return False
    return True


def _columns_of(read_as: FileFormat[Any], name: str, body: bytes, feed: Feed) -> dict[str, str]:
    """Return the columns that a file's header or beginning names, each with its type in the file.

    Raises:
        ValueError: the file has no names, or a name twice.
    """
    columns = read_as.shape(feed, MemoryFile(name, body)).columns
    names = [column for column, _ in columns]
    if twice := sorted({column for column in names if names.count(column) > 1}):
        raise ValueError(f"column {', '.join(map(repr, twice))} is in the header twice; rename one in the file")
    if not names:
        if read_as.sample is not None and not read_as.has_header:
            read_as.sample(body, 1)  # raises if the file has no rows either
        raise ValueError("it has no columns")
    return dict(columns)


def _refuse_header(names: Sequence[str], lines: Sequence[str]) -> None:
    """Refuse a CSV file whose first line is no header, or has other separators than commas.

    Args:
        lines: The first lines of the file.

    Raises:
        ValueError: the header is missing, or the separators are no commas.
    """
    if lines[0].startswith("sep="):
        raise ValueError(f"its first line is {lines[0]!r}, which only Excel reads: its files begin with the header")
    for mark, word in _DELIMITERS.items():
        # A decimal comma or a comma in a name splits a line with semicolons into several columns.
        is_in_all = mark in lines[0] and len({line.count(mark) for line in lines}) == 1
        if is_in_all or (len(names) == 1 and mark in names[0]):
            raise ValueError(f"its columns are separated by {word}; a .csv file has commas")
    values = [name for name in names if _VALUE.fullmatch(name)]
    if len(values) == len(names) or any("." in value for value in values):
        raise ValueError(f"its first line holds values, not names: {', '.join(names[:_SHOWN])}; put a header above it")


def _first_lines(text: bytes, settings: "Settings") -> list[str]:
    records = records_of(text[:_FIRST_BYTES], encoding=settings.encoding, multiline=settings.multiline, json=False)
    lines = [record.text for record in records]
    return lines[:-1] if len(text) > _FIRST_BYTES and len(lines) > 1 else lines


def _rows_of(read_as: FileFormat[Any], text: bytes, settings: "Settings") -> list[dict[str, object]]:
    assert read_as.sample is not None
    if options := settings.options:
        try:
            return read_as.sample(text, _ROWS, **options)
        except TypeError as error:
            raise ValueError(f"format {read_as.name} takes no {', '.join(f'--{name}' for name in options)}") from error
    return read_as.sample(text, _ROWS)


class _Fault(NamedTuple):
    """A rejected row's content, and the reason for the rejection."""

    content: str
    why: str


def _faults_of(read_as: FileFormat[Any], name: str, body: bytes, feed: Feed) -> list[_Fault | None]:
    """Return the fault that a load would find in each row of a file."""
    shape = _shape_of(read_as, name, body, feed)
    found: list[_Fault | None] = []
    for rows in read_as.rows_of(declared_by(feed), shape, MemoryFile(name, body), WHOLE):
        if rows.faults is None or rows.records is None:
            found += [None] * rows.count
        else:
            both = zip(rows.records.to_pylist(), rows.faults.to_pylist(), strict=True)
            found += [_Fault(record, why) if why else None for record, why in both]
    return found


def _shape_of(read_as: FileFormat[Any], name: str, body: bytes, feed: Feed) -> Any:
    return read_as.shape(feed, MemoryFile(name, body))


def _left_out(wrong: Sequence[tuple[int, _Fault]], of: int) -> list[str]:
    """Return a line for each reason why rows would be rejected, with the first such rows."""
    said = []
    for why in dict.fromkeys(fault.why for _, fault in wrong):
        at = [n for n, fault in wrong if fault.why == why]
        rows = ", ".join(map(str, at[:_SHOWN])) + (f" and {len(at) - _SHOWN} more" if len(at) > _SHOWN else "")
        first = next(fault.content for _, fault in wrong if fault.why == why)
        said.append(f"{len(at)} of {of} rows left out (row {rows}): {why}: {first[:60]!r}")
    return said


def _notes(names: Sequence[str], rows: Sequence[Mapping[str, object]], text: bytes, feed: Feed) -> list[str]:
    notes = []
    if odd := [name for name in names if _VALUE.fullmatch(name) or name.startswith("# ")]:
        notes.append(f"the first line is taken for names, and {', '.join(map(repr, odd[:_SHOWN]))} look like others")
    if again := [n for n, row in enumerate(rows, 1) if all(row.get(name) == name for name in names)]:
        notes.append(f"row {', '.join(map(str, again[:_SHOWN]))} repeats the names of the columns")
    if cut := [name for name in names if any(getattr(row.get(name), "nanosecond", 0) for row in rows)]:
        notes.append(f"times of {', '.join(map(repr, cut[:_SHOWN]))} have nanoseconds, which a table cuts off")
    if feed.encoding not in ("utf-8", "ascii") and not text.isascii() and _is_utf_8(text):
        notes.append(f"its text is valid UTF-8 and is read as {feed.encoding}: is --encoding right?")
    return notes


def _is_utf_8(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True
