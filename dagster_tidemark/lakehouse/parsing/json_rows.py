"""Vectorised reader of JSON: lines, lists, or documents of several lines. Each row has its own keys.

Plain texts are parsed together (`json_objects`). The exact rule, `objects_in`, parses every other text. So the rows of
a text do not depend on the texts around it. Does not belong here: the meaning of a value (`kernels`).
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dagster_tidemark.lakehouse.parsing.json_documents import documents
from dagster_tidemark.lakehouse.parsing.json_objects import columns_of, is_plain
from dagster_tidemark.lakehouse.parsing.json_places import NoArray, elements_at, value_at, written_at
from dagster_tidemark.lakehouse.parsing.kernels import Mask
from dagster_tidemark.lakehouse.parsing.rows import DeclaredContent, FileBytes, Part, Rows, in_order
from dagster_tidemark.lakehouse.parsing.text_blocks import Block, lines_in_blocks, lines_of_block
from dagster_tidemark.lakehouse.readers.file_format import Shape
from dagster_tidemark.lakehouse.readers.text import (
    BLANKS,
    HALF_A_CHARACTER,
    NO_OBJECT,
    NO_ROW,
    TextRecord,
)
from dagster_tidemark.lakehouse.readers.values import elements_of, nested_as_written
from dagster_tidemark.sources.text_formats import Json

_MOST_ROWS = 4_000  # texts in a batch: this many fit into the processor's cache
_SHOWN = 1_000  # characters; the record of a faulty object is its whole list if the list is not longer, else the object


def rows_of(declared: DeclaredContent, shape: Shape, source: FileBytes, part: Part) -> Iterator[Rows]:
    """Return the rows of a part of a JSON file (`rows.RowsOf`). A file with documents of several lines is one part."""
    blocks = lines_in_blocks(source, shape.charset, part)
    members = Members.of(declared)
    place = declared.format.rows if isinstance(declared.format, Json) else None
    if place is not None:
        found = _arrays(blocks, place.split("."))
    else:
        found = _documents(blocks) if shape.is_over_lines else _lines(blocks)
    for texts in found:
        plain = _is_plain(texts)
        for begin in range(0, len(plain), _MOST_ROWS):
            rows = _rows(members, texts.slice(begin, _MOST_ROWS), plain[begin : begin + _MOST_ROWS])
            if rows.count:
                yield rows


@dataclass(frozen=True)
class Members:
    """Names of the JSON members that may have the values of the declared columns.

    Args:
        names: For each column, the names that its member may have: the name of the column, and its other names. A name
            with points may be a nested member.
    """

    names: Mapping[str, Sequence[str]]

    @staticmethod
    def of(declared: DeclaredContent) -> Members:
        return Members({c: (c, *declared.names.get(c, ())) for c in declared.columns})

    def found_in(self, row: Mapping[str, object]) -> dict[str, list[str]]:
        """Return, for each column, the names that have a value in an object."""
        return {c: [n for n in names if value_at(row, n) is not None] for c, names in self.names.items()}

    def is_in(self, row: Mapping[str, object]) -> bool:
        """Return True if an object has a member for a declared column."""
        return any(n in row or value_at(row, n) is not None for names in self.names.values() for n in names)


def two_names(column: str, names: Sequence[str]) -> str:
    """Return the fault of an object with values under two names of one column."""
    return f"it has values under {' and '.join(map(repr, names))}, which are names of the one column {column!r}"


@dataclass(frozen=True)
class _Texts:
    """Records of a file, including blank records.

    Args:
        shown: The records.
        faults: For each record, the fault of its text, or None if it is sound. None if all records are sound.
        bare: The records without the brackets that `documents` added. None if it added no brackets.
    """

    shown: pa.StringArray
    faults: list[str | None] | None = None
    bare: pa.StringArray | None = None

    def slice(self, begin: int, length: int) -> _Texts:
        """Return `length` records from `begin` on."""
        return _Texts(
            self.shown.slice(begin, length),
            None if self.faults is None else self.faults[begin : begin + length],
            None if self.bare is None else self.bare.slice(begin, length),
        )

    @staticmethod
    def of(records: Sequence[TextRecord], bare: Sequence[str] | None = None) -> _Texts:
        faults = [record.fault for record in records] if any(record.fault for record in records) else None
        shown = pa.array([record.text for record in records], pa.string())
        return _Texts(shown, faults, None if bare is None else pa.array(bare, pa.string()))


def _lines(blocks: Iterable[Block]) -> Iterator[_Texts]:
    for block in blocks:
        if isinstance(block, list):
            yield _Texts.of(block)
            continue
        yield _Texts(lines_of_block(block))


def _is_plain(texts: _Texts) -> Mask:
    plain = is_plain(texts.shown if texts.bare is None else texts.bare)
    if texts.faults is not None:
        plain &= np.array([fault is None for fault in texts.faults])
    return plain


def _rows(members: Members, texts: _Texts, plain: Mask) -> Rows:
    if plain.all():
        return _plain_rows(members, texts.shown, texts.bare)
    exact = _Exact(members)
    others = np.flatnonzero(~plain)
    for at, text in zip(others.tolist(), texts.shown.take(pa.array(others)).to_pylist(), strict=True):
        exact.take(at, text, texts.faults[at] if texts.faults else None)
    if not plain.any():
        return exact.rows()
    kept = pa.array(plain)
    found = _plain_rows(members, texts.shown.filter(kept), None if texts.bare is None else texts.bare.filter(kept))
    if not exact.places:
        return found
    return in_order(found, np.flatnonzero(plain), exact.rows(), np.array(exact.places, np.int64))


def _plain_rows(members: Members, shown: pa.StringArray, bare: pa.StringArray | None) -> Rows:
    wanted = [name for names in members.names.values() for name in names]
    found, names = columns_of(shown if bare is None else bare, wanted)
    is_foreign = found.keys().isdisjoint(names) and not any(
        "." in name and column.null_count < len(column) for name, column in found.items()
    )
    faults: dict[int, str] = {}
    columns = {}
    for c, of_column in members.names.items():
        columns[c] = pc.coalesce(*(found[name] for name in of_column)) if len(of_column) > 1 else found[c]
        for at in _with_several([found[name] for name in of_column]):
            faults.setdefault(at, two_names(c, [name for name in of_column if found[name][at].is_valid]))
    if not faults:
        return Rows(columns, len(shown), shown, others=names if is_foreign else None)
    why = pa.array([faults.get(at) for at in range(len(shown))], pa.string())
    columns = {c: pc.if_else(why.is_null(), column, None) for c, column in columns.items()}
    return Rows(columns, len(shown), shown, why, others=names if is_foreign else None)


def _with_several(columns: Sequence[pa.Array]) -> list[int]:
    """Return the rows with a value in more than one column."""
    if len(columns) == 1:
        return []
    count = sum(column.is_valid().to_numpy(zero_copy_only=False).astype(np.int8) for column in columns)
    found: list[int] = np.flatnonzero(count > 1).tolist()
    return found


class _Exact:
    """Rows that the exact rule reads, text by text.

    Args:
        members: The members of the declared columns.

    Attributes:
        places: For each row, the number of its text.
    """

    def __init__(self, members: Members) -> None:
        self.places: list[int] = []
        self._members = members
        self._columns: dict[str, list[str | None]] = {c: [] for c in members.names}
        self._records: list[str] = []
        self._faults: list[str | None] = []
        self._others: dict[str, None] | None = {}

    def take(self, place: int, text: str, fault: str | None) -> None:
        """Add the rows of a text. A blank text has no rows."""
        if not text.strip(BLANKS):
            return
        found = [None] if fault else objects_in(text)
        each = elements_of(text) if len(found) > 1 else [text]
        nested: list[dict[str, str]] | None = None
        for n, row in enumerate(found):
            names = self._members.found_in(row) if row is not None else {}
            values: dict[str, str | None] = {}
            try:
                if row is not None:
                    values = {c: as_text(value_at(row, names[c][0])) if names[c] else None for c in self._columns}
            except RecursionError:  # writing JSON needs more levels of the stack than reading it
                row = None
            if self._others is not None and row:
                self._others.update(dict.fromkeys(row))
                if self._members.is_in(row):
                    self._others = None
            why = fault or NO_OBJECT if row is None else half_characters(values)
            several = next((two_names(c, those) for c, those in names.items() if len(those) > 1), None)
            why = why or several
            if row and not why:
                lists = [c for c, those in names.items() if those and isinstance(value_at(row, those[0]), dict | list)]
                if lists and nested is None:
                    nested = nested_as_written(text)
                values |= {c: written_at((nested or [])[n], names[c][0]) for c in lists}
            for c, column in self._columns.items():
                column.append(None if why else values[c])
            self._faults.append(why)
            self._records.append(text if why and len(text) <= _SHOWN else each[n])
            self.places.append(place)

    def rows(self) -> Rows:
        """Return the rows that were added."""
        columns = {c: pa.array(column, pa.string()) for c, column in self._columns.items()}
        records = pa.array(self._records, pa.string())
        faults = pa.array(self._faults, pa.string()) if any(self._faults) else None
        others = None if self._others is None else [_printable(name) for name in self._others]
        return Rows(columns, len(self.places), records, faults, others)


def _printable(name: str) -> str:
    """Return the name of a member in valid Unicode. An escape in the name may be an unpaired surrogate."""
    return name.encode(errors="backslashreplace").decode()


def objects_in(text: str, number: Callable[[str], str] = str) -> Sequence[dict[str, object] | None]:
    """Return the JSON objects of a text that is an object or a list of objects. For any other text, return `[None]`."""
    try:
        # Numbers stay as they are written: a price must not become a float.
        found = json.loads(text, parse_float=number, parse_int=number, parse_constant=number)
    except (ValueError, RecursionError):
        return [None]
    objects = found if isinstance(found, list) else [found]
    return objects if all(isinstance(o, dict) for o in objects) else [None]


def as_text(value: object) -> str | None:
    """Return a JSON value as text."""
    if value is None or isinstance(value, str):
        return value
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def half_characters(values: Mapping[str, str | None]) -> str | None:
    """Return the fault of a row if an escape in a value is an unpaired surrogate, which is not valid text."""
    try:
        for value in values.values():
            if value and not value.isascii():
                value.encode()
    except UnicodeEncodeError:
        return HALF_A_CHARACTER
    return None


def _documents(blocks: Iterable[Block]) -> Iterator[_Texts]:
    for records, in_list in documents(blocks):
        yield _Texts.of(records, [record.text[1:-1] for record in records] if in_list else None)


def _arrays(blocks: Iterable[Block], place: Sequence[str]) -> Iterator[_Texts]:
    """Return the elements of the array in each document, in batches."""
    for records, _ in documents(blocks, most_lines=sys.maxsize):
        for text, fault in records:
            found: list[TextRecord] = []
            if not text.strip(BLANKS):
                continue
            try:
                if fault:
                    raise ValueError(fault)
                found = [TextRecord(element) for element in elements_at(text, place)]
            except (ValueError, IndexError, RecursionError) as error:
                why = fault or (f"{NO_ROW}: {error}" if isinstance(error, NoArray) else NO_OBJECT)
                found = [TextRecord(text[:_SHOWN], why)]
            for begin in range(0, len(found), _MOST_ROWS):
                yield _Texts.of(found[begin : begin + _MOST_ROWS])
