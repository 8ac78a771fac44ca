"""Finds the form of a sample file, with evidence: encoding, separator, quotes, header, place of the rows.

A wrong guess would change values, so a form is proposed only if it fits every value of the sample and no other form
does. Does not belong here: the form of values (`value_sniffing`), types and keys (`column_types`, `row_key`), and
reading rows (`sample`).
"""

import codecs
import json
import re
import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from dagster_tidemark.lakehouse.parsing.csv_dialect import Dialect
from dagster_tidemark.lakehouse.parsing.json_places import elements_at, likely_place
from dagster_tidemark.lakehouse.parsing.records import records_of
from dagster_tidemark.lakehouse.readers.csv_text import SEPARATORS
from dagster_tidemark.lakehouse.readers.text import charset_of, lines_of
from dagster_tidemark.scaffold.comment_lines import MARK, comments_found
from dagster_tidemark.sources.text_formats import Csv, Json

_FIRST_BYTES = 256 << 10
_RARE_SEPARATORS = "\x01\x1f^~"
"""Separators that are tried if no common one is found, and believed only if each line has as many."""

_DECIMAL_COMMA = re.compile(r"[+-]?\d+,\d+", re.ASCII)

_PADDED = 30
"""Number of rows to search for a header, if a spreadsheet has filled the lines above it with separators."""

_SHOWN = 5
"""Maximum number of names in a line of evidence."""

_LINES_OF_WIDTH = 3
"""Smallest number of lines of equal length that may be text of fixed width."""

_OTHER_LETTERS = re.compile(
    rb"[\x80-\xff]{4}|[A-Za-z][\x82\x84\x86-\x89\x8b\x91\x93-\x95\x98\x99\x9b][A-Za-z]|[a-z][\x8a\x8c\x8e\x9f][a-z]"
    rb"|[A-Za-z][\xa3\xa5\xaf\xb1\xb3\xb6\xb9\xbc\xbe\xbf][A-Za-z]"
)
"""Bytes that are no words of western Europe in cp1252: four letters with accents in a row, quotation marks and other
signs inside of a word, capital letters between small ones. Cyrillic and Polish text, and the umlauts of DOS and of old
Macs, look like that."""

_VALUE = re.compile(r"[+-]?[\d.,]*\d[\d.,]*|\d{1,4}[-./]\d{1,2}[-./]\d{1,4}.*")


def encoding_found(text: bytes) -> tuple[str, list[str]]:
    """Return the encoding of a text, with the evidence if it is not UTF-8.

    Raises:
        ValueError: the encoding is uncertain, and any guess could change letters.
    """
    if text.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16", ["encoding utf-16: it begins with the byte order mark of UTF-16"]
    head = text[:_FIRST_BYTES]
    for encoding, zeros in (("utf-16-le", head[1::2]), ("utf-16-be", head[::2])):
        if len(zeros) > 1 and zeros.count(0) > 0.9 * len(zeros):
            return encoding, [f"encoding {encoding}: every other byte is zero"]
    try:
        text.decode()
    except UnicodeDecodeError:
        are_utf8 = [_is_utf8(line) for line in re.split(rb"[\r\n]+", text) if not line.isascii()]
        if are_utf8.count(True) > are_utf8.count(False):  # some damaged lines, which a load rejects
            return "utf-8", []
        _require_western(text)
        if any(are_utf8):
            raise ValueError(
                f"its encoding is uncertain: {are_utf8.count(True)} lines are UTF-8, and {are_utf8.count(False)} are "
                "not; give --encoding, or convert it to UTF-8"
            ) from None
        words = list(dict.fromkeys(re.findall(r"\w*[^\x00-\x7f]+\w*", text.decode("cp1252"))))
        shown = ", ".join(words[:_SHOWN])
        return "cp1252", [f"encoding cp1252: it is not UTF-8; if letters are wrong in {shown}, give --encoding"]
    return "utf-8", []


def _is_utf8(line: bytes) -> bool:
    try:
        line.decode()
    except UnicodeDecodeError:
        return False
    return True


def _require_western(text: bytes) -> None:
    """Raise unless a text is probably in cp1252.

    Raises:
        ValueError: the encoding is uncertain.
    """
    odd = re.search(rb"[\x81\x8d\x8f\x90\x9d]", text) or _OTHER_LETTERS.search(text)
    if odd:
        raise ValueError(
            f"its encoding is uncertain: it is not UTF-8, and the bytes {odd[0]!r} are no text in cp1252; give "
            "--encoding, such as cp1250, cp1251, cp850 or mac-roman, or convert it to UTF-8"
        )


def json_found(text: bytes, encoding: str) -> tuple[Json, str] | None:
    """Return the place of the rows and the evidence, if a file is one object that mostly consists of an array."""
    whole = text.decode(charset_of(encoding, text), errors="replace").lstrip("\ufeff").strip()
    try:
        found, end = json.JSONDecoder().raw_decode(whole)
        place = likely_place(whole, ())
        if not whole.startswith("{") or end < len(whole) or place is None:
            return None
        elements = list(elements_at(whole, place.split(".")))
    except (ValueError, IndexError, RecursionError):
        return None
    if 3 * sum(map(len, elements)) <= len(whole):
        return None
    about = f"rows {place!r}: it is one object, and most of it is this array"
    others = list(_members_beside(found, place.split(".")))
    shown = ", ".join(others[:_SHOWN]) + (f" and {len(others) - _SHOWN} more" if len(others) > _SHOWN else "")
    return Json(rows=place), f"{about}; its other members are not loaded: {shown}" if others else about


def _members_beside(whole: Mapping[str, Any], place: Sequence[str]) -> Iterator[str]:
    """Return the names of the members outside of the array at a place, such as `meta` and `data.next`."""
    for number, step in enumerate(place):
        yield from (".".join([*place[:number], name]) for name in whole if name != step)
        whole = whole[step] if number < len(place) - 1 else {}


def width_found(text: bytes, encoding: str) -> int | None:
    """Return the number of characters of each line if a text seems to have fixed widths, otherwise None."""
    cut = len(text) > _FIRST_BYTES
    lines = [line.text for line in lines_of(text[:_FIRST_BYTES], charset_of(encoding, text)) if line.text.strip()]
    lines = lines[:-1] if cut else lines
    if len(lines) < _LINES_OF_WIDTH or len({len(line) for line in lines}) > 1:
        return None
    has_separator = any(all(mark in line for line in lines) for mark in SEPARATORS)
    return None if has_separator or not all("  " in line for line in lines) else len(lines[0])


def csv_found(text: bytes, encoding: str, given: Mapping[str, Any]) -> tuple[Csv, bool, list[str]]:
    """Return the options of a CSV text, True if records span lines, and the evidence.

    Args:
        given: The user's options, which are not inferred.

    Raises:
        ValueError: the first line may be a header or a row, or the user's options contradict each other.
    """
    marks = {name: given[name] for name in ("quote", "escape", "comment") if name in given}
    separator, has_header = given.get("separator", ""), given.get("header") is not False
    is_header_known = not given.keys().isdisjoint(("header", "skip_lines", "fields"))
    cut = len(text) > _FIRST_BYTES
    head = text[:_FIRST_BYTES]
    of_lines = Dialect(Csv(separator=separator or ",", skip_lines=given.get("skip_lines", 0), **marks))
    texts = [r.text for r in records_of(head, encoding=encoding, multiline=False, json=False, dialect=of_lines)]
    lines = texts[:-1] if cut and len(texts) > 1 else texts
    # Excel reads such a first line as the declaration of the separator. Other programs would read it as the header.
    of_excel = lines[:1] if lines and re.fullmatch(r"sep=[;,|\t]", lines[0]) else []
    lines = lines[len(of_excel) :]
    tables = _tables(separator or SEPARATORS, marks, lines)
    if not tables and not separator:
        filled = sum(map(bool, map(str.strip, lines)))
        tables = [table for table in _tables(_RARE_SEPARATORS, marks, lines) if len(table.rows) == filled > 1]
    if not tables:
        return Csv() if has_header else Csv(header=False, fields=("column_1",)), False, []
    table = _below_padding(max(tables, key=_likelihood), lines)
    mark, rows = table.separator, table.rows
    options: dict[str, Any] = {}
    evidence: list[str] = []
    if mark != ",":
        options["separator"] = mark
        evidence.append(f"separator {mark!r}: each line has {len(rows[0]) - 1} of them")
    multiline = False
    if any(not table.dialect.is_terminated(line) for line in lines):
        together = records_of(head, encoding=encoding, multiline=True, json=False, dialect=table.dialect)
        joined = _table(table.format, [record.text for record in together[: -1 if cut else None]])
        # Each line of such a file is a row, although some quotes seem to hold line breaks.
        bare = _table(replace(table.format, quote=None), lines) if mark == "\t" and "quote" not in given else None
        is_bare = bare is not None and len(bare.rows) == sum(map(bool, map(str.strip, lines[bare.begin :])))
        if joined and not is_bare and len(joined.rows) == len(together) - (1 if cut else 0) - joined.begin:
            multiline, table, rows = True, joined, joined.rows
            evidence.append("multiline: quotes hold line breaks")
        elif bare is not None:  # such files have no quotes around values
            options["quote"] = None
            evidence.append("quote=None: a value begins with a quote that is not closed")
            table, rows = bare, bare.rows
    if table.has_trailing:
        options["trailing_separator"] = True
        evidence.append(f"trailing_separator: each line ends with {mark!r}")
    above = [*of_excel, *lines[: table.begin]]
    header = lines[table.begin] if table.begin < len(lines) else ""
    if has_header and (names := _names_above(table, lines)):
        above, header = above[:-1], lines[table.begin - 1]
    elif not has_header or _has_no_header(rows):
        if not is_header_known and _has_years(rows[0]):
            raise ValueError(
                f"its first line may be a header with years, or a row: {', '.join(rows[0][:5])}; give --header none "
                f"or --header {rows[0][0]!r}"
            )
        options |= {"header": False, "fields": tuple(f"column_{n}" for n in range(1, len(rows[0]) + 1))}
        evidence.append(f"header=False: its first line holds values: {', '.join(rows[0][:5])}; name the fields")
        names, above = [], []
    else:
        names = [rows[0][0].strip()]
        if above:
            _require_header(table, above, is_header_known=is_header_known)
    ahead = sum(line.startswith(MARK) for line in above)
    comments = []
    if "comment" not in given and not (names and header.startswith(MARK)):
        width = len(rows[0]) + table.has_trailing
        comments = comments_found(text, encoding, table.format, width, ahead=ahead, multiline=multiline)
    if above and not (comments and ahead == len(above)):
        options["header"] = _beginning(names[0], header, above)
        evidence.append(f"header {names[0]!r}: {len(above)} lines above it, the first {above[0][:60]!r}")
    if comments:
        options["comment"] = MARK
        evidence += comments
    if r"\N" in {value for row in rows for value in row}:
        options["nulls"] = (r"\N",)
        evidence.append(r"nulls \N: it stands for a missing value")
    return Csv(**options), multiline, evidence


def _likelihood(table: "_Table") -> tuple[int, bool, int]:
    """Return the sort key of tables by different separators: the most likely one is the largest.

    If each comma is part of a number, as in `1,5;2,5`, commas separate no values.
    """
    has_decimals = [bool(_DECIMAL_COMMA.fullmatch(cell.strip())) for row in table.rows for cell in row if "," in cell]
    return len(table.rows), bool(has_decimals) and all(has_decimals), len(table.rows[0])


def _require_header(table: "_Table", above: Sequence[str], *, is_header_known: bool) -> None:
    """Raise if a table of texts begins below a single line without separators.

    This line may be a title. It may also be the header of a file with one column, whose texts hold separators.

    Raises:
        ValueError: the first line may be a title or the header.
    """
    has_values = any(_VALUE.fullmatch(cell.strip()) for row in table.rows[1:] for cell in row)
    if is_header_known or len(above) > 1 or has_values or not re.fullmatch(r"[\w .]+", above[0]):
        return
    raise ValueError(
        f"its first line, {above[0][:60]!r}, has no {table.separator!r}: it may be a title above the header, or the "
        f"name of the only column; give --header {shlex.quote(table.rows[0][0].strip())}, or a --separator that no "
        "line has, such as tab"
    )


@dataclass(frozen=True)
class _Table:
    """Consecutive lines with the same number of values, at least two.

    Args:
        format: The separator, quote and other marks that split the lines.
        begin: Number of lines above the table.
    """

    format: Csv
    begin: int
    rows: list[list[str]]
    has_trailing: bool

    @property
    def separator(self) -> str:
        """The character between two values."""
        return self.format.separator

    @property
    def dialect(self) -> Dialect:
        """The rule for splitting a line into values."""
        return Dialect(self.format)


def _below_padding(table: _Table, lines: Sequence[str]) -> _Table:
    """Return a table without the lines above its header that a spreadsheet has filled with separators: `Report;;;`."""
    rows = table.rows
    blanks = [sum(not cell.strip() for cell in row) for row in rows[:_PADDED]]
    header = next((n for n, count in enumerate(blanks) if not count and _are_names(rows[n])), 0)
    is_padded = any(2 * count > len(rows[0]) for count in blanks[:header])
    if not is_padded or not all(blanks[:header]) or header == len(rows) - 1:
        return table
    dialect, width = table.dialect, len(rows[header])
    begin = next(n for n, line in enumerate(lines) if dialect.fields_of(line)[:width] == rows[header])
    return replace(table, begin=begin, rows=rows[header:])


def _are_names(cells: Sequence[str]) -> bool:
    return len(set(cells)) == len(cells) and not any(_VALUE.fullmatch(cell.strip()) for cell in cells)


def _beginning(name: str, header: str, above: Sequence[str]) -> str:
    """Return the text that only the header line begins with: its first name if it has one, or the whole line."""
    if name and not any(line.removeprefix('"').startswith(name) for line in above):
        return name
    whole = header.removeprefix('"')
    return whole if whole.startswith(name) else name


def _has_years(cells: Sequence[str]) -> bool:
    """Return True if the values of a line are several years in order, as in the header of a table by year."""
    values = [cell.strip() for cell in cells if _VALUE.fullmatch(cell.strip())]
    is_year = all(re.fullmatch(r"(19|20)\d\d", value) for value in values)
    return is_year and len(values) > 1 and sorted(set(values)) in (values, values[::-1])


def _names_above(table: _Table, lines: Sequence[str]) -> list[str]:
    """Return the names in the line above a table without a header; empty if the line has none.

    The header has more or fewer names than the rows have values. A load rejects such rows.
    """
    if not table.begin or not _has_no_header(table.rows):
        return []
    above = [cell.strip() for cell in table.dialect.fields_of(lines[table.begin - 1])]
    return above if len(above) > 1 and above[0] and not any(map(_VALUE.fullmatch, above)) else []


def _tables(separators: Iterable[str], marks: Mapping[str, Any], lines: Sequence[str]) -> list[_Table]:
    """Return the table of each separator that splits lines and is no other mark."""
    formats = [Csv(separator=mark, **marks) for mark in separators if mark not in marks.values()]
    return [table for each in formats if (table := _table(each, lines))]


def _table(format: Csv, lines: Sequence[str]) -> _Table | None:
    """Return the longest table if lines are split by some marks; None if no line has two values."""
    dialect = Dialect(format)
    rows = [dialect.fields_of(line) for line in lines]
    counted = Counter(len(row) for row in rows if len(row) > 1)
    if not counted:
        return None
    width = _width_of_table(rows, counted)
    of_width = [n for n, row in enumerate(rows) if len(row) == width]
    data = [rows[n] for n in of_width]
    has_trailing = width > 2 and not any(row[-1] for row in data) and len(data) > 1
    begin = of_width[0]
    if has_trailing:
        if begin and len(rows[begin - 1]) == width - 1:
            begin, data = begin - 1, [rows[begin - 1], *data]
        data = [row[: width - 1] for row in data]
    return _Table(format, begin, data, has_trailing)


def _width_of_table(rows: Sequence[Sequence[str]], counted: Mapping[int, int]) -> int:
    """Return the number of values that most lines have. A short, wide table may stand below many narrow lines."""
    usual = max(counted, key=lambda width: (counted[width], width))
    last_usual = max(n for n, row in enumerate(rows) if len(row) == usual)
    for width, count in counted.items():
        at = [n for n, row in enumerate(rows) if len(row) == width]
        is_block = count > 1 and at[-1] - at[0] + 1 == count
        if is_block and at[0] > last_usual and count * (width - 1) > counted[usual] * (usual - 1):
            return width
    return usual


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
