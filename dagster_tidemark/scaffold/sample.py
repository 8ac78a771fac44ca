"""Reads a sample file: infers a feed's columns, and finds the rows that a load would reject.

A sample is read as a load reads a small file, so a load with the proposed feed accepts or rejects the same rows. Does
not belong here: inferring types (`column_types`) and keys (`row_key`), and reading files (`lakehouse.readers`).
"""

import codecs
import gzip
import json
import re
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa

from dagster_tidemark.errors import Terminal
from dagster_tidemark.lakehouse.parsing.rows import WHOLE
from dagster_tidemark.lakehouse.parsing.sources import MemoryFile
from dagster_tidemark.lakehouse.readers.batch import declared_by
from dagster_tidemark.lakehouse.readers.file_format import FileFormat
from dagster_tidemark.lakehouse.readers.files import Unusable
from dagster_tidemark.lakehouse.readers.format_registry import format_named, format_of
from dagster_tidemark.lakehouse.readers.probe import with_declared_names
from dagster_tidemark.lakehouse.readers.text import charset_of, is_over_lines, text_of
from dagster_tidemark.scaffold.column_types import type_of
from dagster_tidemark.scaffold.comment_lines import log_found
from dagster_tidemark.scaffold.declared_names import declared_names
from dagster_tidemark.scaffold.row_key import guessed, repeated
from dagster_tidemark.scaffold.sample_notes import (
    RejectedRow,
    TotalRow,
    column_of_total,
    note_on_total,
    notes_on,
    notes_on_json,
    rejections,
)
from dagster_tidemark.scaffold.sniffing import csv_found, encoding_found, json_found, width_found
from dagster_tidemark.scaffold.value_sniffing import in_plain_form, is_text, values_found
from dagster_tidemark.sources.feed import Feed, Grain
from dagster_tidemark.sources.file_endings import GZIP, Format, ending_of, every_ending, is_compressed
from dagster_tidemark.sources.text_formats import AnyText, Csv, FixedWidth, Json

_Value = TypeVar("_Value")
_ROWS, _BYTES = 300_000, 32 << 20
"""Maximum size of a sample. Every row is kept in memory to infer types and key, and takes about a kilobyte."""

_NOT_SNIFFED = (
    "the places of values in text of fixed width are not inferred; say --places NAME=FIRST:WIDTH,..., such as "
    "--places id=1:6,name=7:20"
)
_FIRST_BYTES = 256 << 10
_SHOWN = 5  # maximum number of rows or names listed in a message
_GZIP = b"\x1f\x8b"
_OTHERS = {
    b"PAR1": "Parquet",
    codecs.BOM_UTF32_LE: "text in UTF-32, which feeds cannot read",
    codecs.BOM_UTF32_BE: "text in UTF-32, which feeds cannot read",
    _GZIP: "gzip",
    b"PK\x03\x04": "a ZIP archive (or a spreadsheet)",
    b"ORC": "ORC",
    b"Obj\x01": "Avro",
    b"BZh": "bzip2",
    b"\xfd7zXZ\x00": "xz",
    b"\x28\xb5\x2f\xfd": "Zstandard",
    b"%PDF": "PDF",
    b"SQLite format 3": "SQLite",
    b"\xd0\xcf\x11\xe0": "an old spreadsheet",
}
_ENDINGS = {"Parquet": ".parquet", "gzip": GZIP, "ORC": ".orc", "Avro": ".avro", "JSON": ".json"}
_MARKUP = re.compile(rb"\s*<(\?xml|!doctype|html|[a-z])", re.I)
_VALUE = re.compile(r"[+-]?[\d.,]*\d[\d.,]*|\d{4}-\d\d-\d\d.*")


class NoSample(Terminal):
    """No feed can be written from a sample file. The message gives the reason."""


@dataclass(frozen=True)
class Sample:
    """The columns, types and key that a sample file suggests.

    Args:
        suffix: The ending of the file's name that determines its format.
        columns: Column name to the proposed SQL type, in the file's order.
        key: Columns that identify a row; empty without enough evidence.
        rows: Number of rows that a load would accept.
        evidence: The reason for the key, or the reason why none is proposed.
        left_out: A line for each reason why rows of the sample would be rejected.
        notes: Uncertain findings for the user to check.
        empty: For each column with missing values, the number of rows without a value.
        repeated: Number of rows that repeat the key of an earlier row, if the user named the key.
        settings: Settings for reading the feed's files.
        form: A line for each setting that was found in the sample, with the evidence.
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
    settings: "SampleSettings" = field(default_factory=lambda: SampleSettings())
    form: Sequence[str] = ()


@dataclass(frozen=True)
class SampleSettings:
    """Settings for reading a feed's files, as in `Feed`.

    Args:
        suffixes: The ending of the sample's name, if it belongs to no format.
        names: The name in the file for each column that has to be declared by another name.
    """

    encoding: str = "utf-8"
    multiline: bool = False
    format: AnyText | None = None
    suffixes: tuple[str, ...] = ()
    names: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def options(self) -> dict[str, Any]:
        """The settings whose values differ from the defaults."""
        return {name: value for name, value in vars(self).items() if value != vars(SampleSettings())[name]}

    @property
    def renamed(self) -> dict[str, str]:
        """The declared name of each column that has another name in the file, by that name."""
        return {old: new for new, (old,) in self.names.items()}

    def feed(self, name: str, columns: Sequence[str]) -> Feed:
        """Return a feed with these settings, and these columns as strings.

        Raises:
            ValueError: a column's name cannot be declared, or the encoding cannot be read.
        """
        as_texts: dict[str, Any] = {"times": {}, "timezone": "UTC"}
        if isinstance(self.format, Csv | FixedWidth):
            as_texts |= {"decimal": ".", "thousands": None}
        format = self.format and replace(self.format, **as_texts)
        if isinstance(format, Csv | FixedWidth) and format.fields:
            columns = [self.renamed.get(name, name) for name in format.fields]
        return Feed(
            name,
            f"{name}/",
            Grain.DAY,
            dict.fromkeys(columns, "string"),
            encoding=self.encoding,
            multiline=self.multiline,
            format=format,
            names={column: names for column, names in self.names.items() if column in columns},
        )


def read_sample(
    path: Path,
    *,
    feed: str = "",
    key: Sequence[str] = (),
    encoding: str | None = None,
    multiline: bool = False,
    options: Mapping[str, Any] | None = None,
) -> Sample:
    """Read a sample file of any registered format: CSV and similar text, JSON, Parquet, others.

    Args:
        feed: The feed's name; by default the file's name.
        key: Key columns that the user named; empty to infer the key.
        encoding, multiline: Settings of the feed. None as encoding means that it is inferred.
        options: Options of `Csv`, `Json` or `FixedWidth` that the user gave. The other options are inferred.

    Raises:
        NoSample: no feed can load the file, for example because it is empty or has columns that cannot be declared.
    """
    suffix = ending_of(path.name)
    own = "".join(path.suffixes[-2 if is_compressed(path.name) else -1 :]).lower()
    read_as = format_of(path.name) if suffix else format_named(Format.CSV) if own and own != GZIP else None
    if read_as and options and "columns" in options:
        read_as = format_named(Format.FIXED_WIDTH)
    if not read_as or not read_as.sample:
        raise NoSample(f"{path.name}: a sample ends in {', '.join(e for e in every_ending() if format_of(e).sample)}")
    suffixes = () if suffix and format_of(path.name) is read_as else (own,)
    suffix = suffix or own
    try:
        body = path.read_bytes()
        if is_compressed(suffix) and body and not body.startswith(_GZIP):
            raise ValueError(f"it ends in {suffix} and is not compressed: compress it, or remove {GZIP} from its name")
        text = gzip.decompress(body) if is_compressed(suffix) else body
        if read_as.is_text:
            named = next((name for mark, name in _OTHERS.items() if text.startswith(mark)), None)
            if named:
                raise _disguised(suffix, named)
        encoding, evidence = (encoding, []) if encoding or not read_as.is_text else encoding_found(text)
        if suffixes and read_as.name == Format.CSV and _is_json_text(text):
            read_as = format_named(Format.JSON)
        settings = SampleSettings(encoding or "utf-8", multiline, None, suffixes)
        probing = settings.feed("sample", ["any"])
        _refuse_size(read_as, path.name, body, probing)
        _refuse_disguise(read_as, suffix, text, probing.encoding)
        is_lines = suffix.removesuffix(GZIP) in (".jsonl", ".ndjson")
        if suffix.removesuffix(GZIP) == ".jsonl" and is_over_lines("", text, charset_of(probing.encoding, text)):
            raise ValueError("each line of a .jsonl file must be a row, but a row spans lines here: call it .json")
        settings, of_form = _with_form(read_as, text, settings, options or {}, is_lines=is_lines)
        evidence += of_form
        probing = settings.feed("sample", ["any"])
        kinds = _columns_of(read_as, path.name, body, probing)
        has_header = not isinstance(settings.format, Csv) or settings.format.header is not False
        if read_as.name == Format.CSV and has_header:
            _refuse_values(list(kinds))
        # Tables store an empty text as null, whatever the file format.
        rows = [{c: None if v == "" else v for c, v in row.items()} for row in _rows_of(read_as, text, settings)]
        if rows and read_as.name == Format.CSV and has_header and suffixes and len(kinds) == 1 and not options:
            raise ValueError(
                f"no separator was found, so that each line is one value: {next(iter(kinds))[:60]!r}; give "
                "--separator, and --header none if the first line is a row"
            )
        names = list(dict.fromkeys([*(name for row in rows for name in row), *kinds]))
        if not isinstance(settings.format, FixedWidth):  # otherwise the user named the columns
            others = settings.renamed or declared_names(names)
            settings = replace(settings, names={new: (old,) for old, new in others.items()})
            evidence += [f"names {new}: no column can be called {old!r}" for old, new in others.items()]
            rows, kinds = [_renamed(row, others) for row in rows], _renamed(kinds, others)
            names = list(_renamed(dict.fromkeys(names), others))
        faults = _faults_of(read_as, path.name, body, settings.feed(feed or "sample", names))
        total = _total_of(read_as, settings, rows, names, options or {})
        if total is not None and total.is_rejected:
            rows = rows[:-1]
        if read_as.name in (Format.CSV, Format.JSON, Format.FIXED_WIDTH):
            settings, of_values = _with_values(read_as, settings, rows, names, options or {})
            evidence += of_values
            rows, of_times = in_plain_form(settings.format, rows, names, options or {})
            kinds |= of_times
    except (OSError, EOFError, zlib.error, ValueError, OverflowError, Unusable, pa.ArrowException) as error:
        raise NoSample(f"{path}: {(str(error).splitlines() or [type(error).__name__])[0]}") from error
    if total is not None and total.is_rejected:
        last = max(n for n, fault in enumerate(faults) if not fault)
        faults[last] = RejectedRow(total.shown, f"it is a total of the rows above, and a load rejects {total.column!r}")
    wrong = [(n, fault) for n, fault in enumerate(faults, 1) if fault]
    if len(wrong) == len(faults):
        why = f": row 1: {wrong[0][1].why}" if wrong else ""
        shown = ", ".join(map(repr, names[:_SHOWN])) + (", ..." if len(names) > _SHOWN else "")
        raise NoSample(f"{path}: it holds no row that can be taken{why} (its columns are {shown})")
    times = settings.format.times if settings.format else {}
    columns = {
        name: kinds[name] if name in times else type_of(name, [row.get(name) for row in rows], kinds.get(name, ""))
        for name in names
    }
    guess = guessed(feed or path.name.removesuffix(suffix), columns, rows)
    return Sample(
        suffix,
        columns,
        guess.columns,
        len(faults) - len(wrong),
        guess.evidence,
        rejections(wrong, of=len(faults)),
        [*notes_on(names, rows, text, probing), *notes_on_json(read_as.name, rows), *note_on_total(total)],
        {c: n for c in names if (n := sum(row.get(c) is None for row in rows))},
        repeated(key, columns, rows) if columns.keys() >= set(key) else 0,
        settings,
        evidence,
    )


def _with_form(
    read_as: FileFormat[Any], text: bytes, settings: SampleSettings, options: Mapping[str, Any], *, is_lines: bool
) -> tuple[SampleSettings, list[str]]:
    """Return the settings with the CSV options or the JSON row array found in a text, and the evidence.

    Args:
        is_lines: True if each line of a JSON file is a row.
    """
    if read_as.name == Format.FIXED_WIDTH:
        if "columns" not in options:
            raise ValueError(_NOT_SNIFFED)
        return replace(settings, format=FixedWidth(**_of_format(options, FixedWidth))), []
    if read_as.name == Format.CSV:
        if "separator" not in options and (width := width_found(text, settings.encoding)):
            raise ValueError(f"each line has {width} characters, no separator and several blanks: {_NOT_SNIFFED}")
        if of_log := log_found(text, settings.encoding, options):
            return _of_log(settings, *of_log, options)
        found, multiline, evidence = csv_found(text, settings.encoding, options)
        shown: dict[str, Any] = found.options
        if not options.keys().isdisjoint(("header", "skip_lines", "fields")):
            settled = ("header", "skip_lines", *(("fields",) if options.get("header") is not False else ()))
            shown = {name: value for name, value in shown.items() if name not in settled}
        declared = Csv(**shown | _of_format(options, Csv))
        evidence = [line for line in evidence if re.split("[ =:]", line)[0] not in options]
        is_plain = declared == Csv() and not settings.suffixes
        return replace(
            settings, format=None if is_plain else declared, multiline=settings.multiline or multiline
        ), evidence
    if read_as.name == Format.JSON:
        given = _of_format(options, Json)
        # In a file of lines the only line is a row, not an object around the rows.
        in_array = None if is_lines or "rows" in given else json_found(text, settings.encoding)
        if in_array is not None:
            return replace(settings, format=replace(in_array[0], **given)), [in_array[1]]
        return replace(settings, format=Json(**given) if given or settings.suffixes else None), []
    if options:
        raise ValueError(f"format {read_as.name} takes no {', '.join(options)}")
    return settings, []


def _of_log(
    settings: SampleSettings, found: Csv, evidence: list[str], options: Mapping[str, Any]
) -> tuple[SampleSettings, list[str]]:
    """Return the settings of a web server's log. Names that the user gave are declared for those in the file."""
    given = _of_format(options, Csv)
    others = dict(zip(found.fields, given.pop("fields", ()), strict=False)) or declared_names(found.fields)
    names = {new: (old,) for old, new in others.items() if new != old}
    evidence = [line for line in evidence if re.split("[ =:]", line)[0] not in options]
    return replace(settings, format=replace(found, **given), names=names), evidence


def _of_format(options: Mapping[str, Any], format: type[AnyText]) -> dict[str, Any]:
    known = {each.name for each in fields(format)}
    if unknown := [name for name in options if name not in known]:
        raise ValueError(f"format {format.name} takes no {', '.join(unknown)}")
    return dict(options)


def _with_values(
    read_as: FileFormat[Any],
    settings: SampleSettings,
    rows: list[dict[str, object]],
    names: Sequence[str],
    options: Mapping[str, Any],
) -> tuple[SampleSettings, list[str]]:
    """Return the settings with the forms of numbers, times and missing values that were found, and the evidence.

    Changes `rows`: texts that mean a missing value become None.
    """
    empty: AnyText = Csv() if read_as.name == Format.CSV else Json()
    found, evidence = values_found(settings.format or empty, rows, names, options)
    times = {**found.pop("times", {}), **options.get("times", {})}
    if found or times:
        settings = replace(settings, format=replace(settings.format or empty, **found, times=times))
    if declared := settings.format:
        kinds = {n: "string" if is_text(declared, rows, n, options) else "" for n in names if declared.typed_nulls}
        for row in rows:
            row.update({n: None for n, v in row.items() if v in declared.nulls_of(kinds.get(n, "string"))})
    return settings, evidence


def _renamed(row: Mapping[str, _Value], names: Mapping[str, str]) -> dict[str, _Value]:
    return {names.get(name, name): value for name, value in row.items()}


def _total_of(
    read_as: FileFormat[Any],
    settings: SampleSettings,
    rows: Sequence[Mapping[str, object]],
    names: Sequence[str],
    options: Mapping[str, Any],
) -> TotalRow | None:
    """Return the total below the rows of a CSV sample, or None."""
    column = column_of_total(rows) if read_as.name == Format.CSV else None
    if column is None:
        return None
    others = [dict(row) for row in rows[:-1]]
    form = _with_values(read_as, settings, others, names, options)[0].format
    plain, times = in_plain_form(form, others, names, options)
    is_text = column not in times and type_of(column, [row.get(column) for row in plain]) == "string"
    shown = "; ".join(str(value) for value in rows[-1].values() if value is not None)
    return TotalRow(column, shown, not is_text)


def _is_json_text(text: bytes) -> bool:
    """Return True if a text begins with a JSON object, or with a list of objects."""
    first = text.removeprefix(codecs.BOM_UTF8).lstrip()[:_FIRST_BYTES]
    return first[:1] in (b"{", b"[") and _is_json(first.partition(b"\n")[0].strip())


def _refuse_disguise(read_as: FileFormat[Any], suffix: str, text: bytes, encoding: str) -> None:
    """Refuse a file whose content does not match the ending of its name.

    Raises:
        ValueError: the file is empty, or the content does not match. The message names the likely format.
    """
    if not text:
        raise ValueError("it is empty")
    if not read_as.is_text:
        return
    if text.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) and not encoding.startswith("utf-16"):
        raise ValueError("it begins with the mark of UTF-16: say --encoding utf-16, or leave --encoding out")
    if _MARKUP.match(text.removeprefix(codecs.BOM_UTF8)):
        raise _disguised(suffix, "HTML or XML")
    if read_as.name != Format.CSV:
        return
    first = text.removeprefix(codecs.BOM_UTF8).lstrip()[:1]
    if first in (b"{", b"["):
        line = text.removeprefix(codecs.BOM_UTF8).strip().partition(b"\n")[0].strip()
        if line in (b"{", b"[") or _is_json(line):
            raise _disguised(suffix, "JSON")


def _disguised(suffix: str, content: str) -> ValueError:
    ending = _ENDINGS.get(content)
    remedy = (
        f"give it the ending {ending}"
        if ending
        else "no feed reads that; convert it to CSV, JSON or Parquet, or register a format for it (docs/feeds.md, "
        "A format of your own)"
    )
    return ValueError(f"it ends in {suffix} and is {content}: {remedy}")


def _refuse_size(read_as: FileFormat[Any], name: str, body: bytes, feed: Feed) -> None:
    """Refuse a file that is too large to keep every row in memory.

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
        raise ValueError(f"a sample has up to {_ROWS:,} rows and {_BYTES >> 20} MB: cut this one (head -n 100000)")


def _is_json(line: bytes) -> bool:
    try:
        json.loads(line)
    except (ValueError, RecursionError):
        return False
    return True


def _columns_of(read_as: FileFormat[Any], name: str, body: bytes, feed: Feed) -> dict[str, str]:
    """Return the columns that a file's header or first records name, each with its type in the file.

    Raises:
        ValueError: the file names no columns, or a column twice.
    """
    columns = read_as.shape(feed, MemoryFile(name, body)).columns
    names = [column for column, _ in columns]
    if twice := sorted({column for column in names if names.count(column) > 1}):
        raise ValueError(f"column {', '.join(map(repr, twice))} is in the header twice; rename one in the file")
    if not names:
        if read_as.sample is not None and not read_as.has_header:
            read_as.sample(body, 1)  # raises a better error if the file also has no rows
        raise ValueError("it has no columns")
    return dict(columns)


def _refuse_values(names: Sequence[str]) -> None:
    """Refuse a CSV file whose first line is not a header.

    Raises:
        ValueError: the first line has values instead of names.
    """
    values = [name for name in names if _VALUE.fullmatch(name)]
    if len(values) == len(names) or any("." in value for value in values):
        raise ValueError(
            f"its first line holds values, not names: {', '.join(names[:_SHOWN])}; say --header none, or put a header "
            "above it"
        )


def _rows_of(read_as: FileFormat[Any], text: bytes, settings: "SampleSettings") -> list[dict[str, object]]:
    assert read_as.sample is not None
    options = {name: value for name, value in settings.options.items() if name not in ("suffixes", "names")}
    if options:
        try:
            return read_as.sample(text, _ROWS, **options)
        except TypeError as error:
            raise ValueError(f"format {read_as.name} takes no {', '.join(f'--{name}' for name in options)}") from error
    return read_as.sample(text, _ROWS)


def _faults_of(read_as: FileFormat[Any], name: str, body: bytes, feed: Feed) -> list[RejectedRow | None]:
    """Return the fault that a load would find in each row of a file; None for rows without a fault."""
    shape = _shape_of(read_as, name, body, feed)
    found: list[RejectedRow | None] = []
    for rows in read_as.rows_of(declared_by(feed), shape, MemoryFile(name, body), WHOLE):
        if rows.faults is None or rows.records is None:
            found += [None] * rows.count
        else:
            both = zip(rows.records.to_pylist(), rows.faults.to_pylist(), strict=True)
            found += [RejectedRow(record, why) if why else None for record, why in both]
    return found


def _shape_of(read_as: FileFormat[Any], name: str, body: bytes, feed: Feed) -> Any:
    return with_declared_names(feed, read_as.shape(feed, MemoryFile(name, body)))
