"""JSON, vectorised: lines, lists, or documents of several lines. Each row has its own keys.

Plain texts are parsed together (`json_objects`), and every other text by the exact rule, `objects_in`. So the rows of a
text do not depend on its neighbours. Does not belong here: the meaning of a value (`kernels`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dagster_tidemark.lakehouse.parsing.json_documents import documents
from dagster_tidemark.lakehouse.parsing.json_objects import columns_of, is_plain
from dagster_tidemark.lakehouse.parsing.kernels import Mask
from dagster_tidemark.lakehouse.parsing.rows import Declared, Part, Rows, Source, in_order
from dagster_tidemark.lakehouse.parsing.text_blocks import Block, lines_in_blocks, with_line_feeds
from dagster_tidemark.lakehouse.readers.file_format import Shape
from dagster_tidemark.lakehouse.readers.text import (
    BLANKS,
    HALF_A_CHARACTER,
    NO_ROW,
    Record,
)
from dagster_tidemark.lakehouse.readers.values import elements_of, nested_as_written

_MOST_ROWS = 4_000  # texts of a batch, which then fits into the processor's cache
_SHOWN = 1_000  # characters of a list that is the record of its faulty objects; for a longer list, the object is


def rows_of(declared: Declared, shape: Shape, source: Source, part: Part) -> Iterator[Rows]:
    """Return the rows of a part of a JSON file (`rows.RowsOf`). Documents of several lines are one part."""
    blocks = lines_in_blocks(source, shape.charset, part)
    names = list(declared.columns)
    for texts in _documents(blocks) if shape.is_over_lines else _lines(blocks):
        plain = _is_plain(texts)
        for begin in range(0, len(plain), _MOST_ROWS):
            rows = _rows(names, texts.slice(begin, _MOST_ROWS), plain[begin : begin + _MOST_ROWS])
            if rows.count:
                yield rows


@dataclass(frozen=True)
class _Texts:
    """Records of a file, blank ones included.

    Args:
        shown: The records.
        faults: Fault of each record as text, None for a sound record. None if all records are sound.
        bare: The records without the added brackets of a list. None if no brackets were added.
    """

    shown: pa.StringArray
    faults: list[str | None] | None = None
    bare: pa.StringArray | None = None

    def slice(self, begin: int, length: int) -> _Texts:
        """Return some of the records."""
        return _Texts(
            self.shown.slice(begin, length),
            None if self.faults is None else self.faults[begin : begin + length],
            None if self.bare is None else self.bare.slice(begin, length),
        )

    @staticmethod
    def of(records: Sequence[Record], bare: Sequence[str] | None = None) -> _Texts:
        faults = [record.fault for record in records] if any(record.fault for record in records) else None
        shown = pa.array([record.text for record in records], pa.string())
        return _Texts(shown, faults, None if bare is None else pa.array(bare, pa.string()))


def _lines(blocks: Iterable[Block]) -> Iterator[_Texts]:
    for block in blocks:
        if isinstance(block, list):
            yield _Texts.of(block)
            continue
        block = with_line_feeds(block)
        end = len(block) - block.endswith(b"\n")
        text = pa.StringArray.from_buffers(1, pa.py_buffer(np.array([0, end], np.int32)), pa.py_buffer(block))
        lines = pc.split_pattern(text, "\n").values
        yield _Texts(lines)


def _is_plain(texts: _Texts) -> Mask:
    plain = is_plain(texts.shown if texts.bare is None else texts.bare)
    if texts.faults is not None:
        plain &= np.array([fault is None for fault in texts.faults])
    return plain


def _rows(columns: Sequence[str], texts: _Texts, plain: Mask) -> Rows:
    if plain.all():
        return _plain_rows(columns, texts.shown, texts.bare)
    exact = _Exact(columns)
    others = np.flatnonzero(~plain)
    for at, text in zip(others.tolist(), texts.shown.take(pa.array(others)).to_pylist(), strict=True):
        exact.take(at, text, texts.faults[at] if texts.faults else None)
    if not plain.any():
        return exact.rows()
    kept = pa.array(plain)
    found = _plain_rows(columns, texts.shown.filter(kept), None if texts.bare is None else texts.bare.filter(kept))
    if not exact.places:
        return found
    return in_order(found, np.flatnonzero(plain), exact.rows(), np.array(exact.places, np.int64))


def _plain_rows(columns: Sequence[str], shown: pa.StringArray, bare: pa.StringArray | None) -> Rows:
    found, names = columns_of(shown if bare is None else bare, columns)
    is_foreign = found.keys().isdisjoint(names)
    return Rows(found, len(shown), shown, others=names if is_foreign else None)


class _Exact:
    """Rows by the exact rule, text by text.

    Args:
        columns: The declared columns.

    Attributes:
        places: Number of each row's text.
    """

    def __init__(self, columns: Sequence[str]) -> None:
        self.places: list[int] = []
        self._columns: dict[str, list[str | None]] = {c: [] for c in columns}
        self._records: list[str] = []
        self._faults: list[str | None] = []
        self._others: dict[str, None] | None = {}

    def take(self, place: int, text: str, fault: str | None) -> None:
        """Add the rows of a text. A blank text has none."""
        if not text.strip(BLANKS):
            return
        found = [None] if fault else objects_in(text)
        each = elements_of(text) if len(found) > 1 else [text]
        nested: list[dict[str, str]] | None = None
        for n, row in enumerate(found):
            try:
                values = {c: as_text(row.get(c)) for c in self._columns} if row is not None else {}
            except RecursionError:  # writing takes more levels than reading
                row, values = None, {}
            if self._others is not None and row:
                self._others.update(dict.fromkeys(row))
                if any(c in row for c in self._columns):
                    self._others = None
            why = fault or NO_ROW if row is None else half_characters(values)
            if row and not why and any(isinstance(row.get(c), dict | list) for c in self._columns):
                nested = nested_as_written(text) if nested is None else nested
                values |= {c: nested[n][c] for c in self._columns if isinstance(row.get(c), dict | list)}
            for c, column in self._columns.items():
                column.append(None if why else values[c])
            self._faults.append(why)
            self._records.append(text if why and len(text) <= _SHOWN else each[n])
            self.places.append(place)

    def rows(self) -> Rows:
        """Return the rows."""
        columns = {c: pa.array(column, pa.string()) for c, column in self._columns.items()}
        records = pa.array(self._records, pa.string())
        faults = pa.array(self._faults, pa.string()) if any(self._faults) else None
        others = None if self._others is None else [_printable(name) for name in self._others]
        return Rows(columns, len(self.places), records, faults, others)


def _printable(name: str) -> str:
    """Return the name of a member in valid Unicode. An escape in it may be half of a character."""
    return name.encode(errors="backslashreplace").decode()


def objects_in(text: str, number: Callable[[str], str] = str) -> Sequence[dict[str, object] | None]:
    """Return the JSON objects of a text that is an object or a list of objects. Any other text is one None."""
    try:
        # Numbers stay as they are written: a price must not become a float.
        found = json.loads(text, parse_float=number, parse_int=number, parse_constant=number)
    except (ValueError, RecursionError):
        return [None]
    objects = found if isinstance(found, list) else [found]
    return objects if all(isinstance(o, dict) for o in objects) else [None]


def as_text(value: object) -> str | None:
    """Return a value of JSON as text."""
    if value is None or isinstance(value, str):
        return value
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def half_characters(values: Mapping[str, str | None]) -> str | None:
    """Return the fault of a row if a value has half of a character, from an escape. It is not valid text."""
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
