"""CSV with a header, vectorised. Columns are found by name. A line with another number of values is faulty.

Arrow reads plain lines: those without quotes, or with quotes around whole values. The exact rule (`text.fields_of`)
reads every other line, one by one. So the content of a line does not depend on its neighbours. Does not belong here:
the meaning of a value (`kernels`).
"""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from dagster_tidemark.lakehouse.parsing.kernels import Mask, bytes_of
from dagster_tidemark.lakehouse.parsing.rows import Declared, Part, Rows, Source, in_order
from dagster_tidemark.lakehouse.parsing.text_blocks import Block, lines_in_blocks, with_line_feeds
from dagster_tidemark.lakehouse.readers.file_format import Shape
from dagster_tidemark.lakehouse.readers.text import (
    BLANKS,
    LONGEST_RECORD,
    NEVER_CLOSED,
    NO_ROW,
    NOT_CLOSED,
    Record,
    fields_of,
    is_terminated,
)

_PLAIN_FIELD = r'(?:"(?:[^"]|"")*"|[^",\n]*)'
_PLAIN = rf"^{_PLAIN_FIELD}(?:,{_PLAIN_FIELD})*\n?$"
"""Pattern of a record without quotes, or with quotes around whole values."""

_LINE_END, _QUOTE = ord("\n"), ord('"')
_MARK = codecs.BOM_UTF8


def rows_of(declared: Declared, shape: Shape, source: Source, part: Part) -> Iterator[Rows]:
    """Return the rows of a part of a CSV file (`rows.RowsOf`)."""
    header_is_ahead = part.begin == 0
    layout = _Layout.of(declared, shape)
    blocks = lines_in_blocks(source, shape.charset, part)
    for records in _over_lines(blocks) if declared.multiline else map(_records, blocks):
        if not len(records):
            continue
        if header_is_ahead:
            records, header_is_ahead = records[1:], False
        if len(records):
            yield _rows(layout, records)


def texts_of(declared: Declared, shape: Shape, record: str) -> list[str | None]:
    """Return the texts of the declared columns in the record of a sound row."""
    fields = fields_of(record.removesuffix("\n"))
    return [None if at is None else fields[at] or None for at in _Layout.of(declared, shape).position.values()]


@dataclass(frozen=True)
class _Layout:
    """Number of values in a line, and the position of each declared column. None for a column that is missing."""

    width: int
    position: dict[str, int | None]

    @staticmethod
    def of(declared: Declared, shape: Shape) -> _Layout:
        at = {name: position for position, (name, _) in enumerate(shape.columns)}
        return _Layout(len(shape.columns), {c: at.get(c) for c in declared.columns})


Records: TypeAlias = pa.BinaryArray | list[Record]
"""Records without blank ones: sound ones in UTF-8 with their line ends, or any records one by one."""


def _records(block: Block) -> Records:
    """Return each line of a block as a record."""
    if isinstance(block, list):
        return [line for line in block if line.text.strip(BLANKS)]
    return _without_blanks(_array(*_line_begins(block)))


def _line_begins(block: bytes) -> tuple[npt.NDArray[np.int32], bytes]:
    """Return the places of line begins and of the end, and the text with a line feed at each line end."""
    block = with_line_feeds(block)
    if not block.endswith(b"\n"):
        block += b"\n"
    ends = np.flatnonzero(np.frombuffer(block, np.uint8) == _LINE_END).astype(np.int32) + 1
    return np.concatenate([np.zeros(1, np.int32), ends]), block


def _array(at: npt.NDArray[np.int32], text: bytes) -> pa.BinaryArray:
    return pa.Array.from_buffers(pa.binary(), len(at) - 1, [None, pa.py_buffer(at), pa.py_buffer(text)])


def _without_blanks(records: pa.BinaryArray) -> pa.BinaryArray:
    begins, _, data = bytes_of(records)
    suspects = np.flatnonzero(data[begins] <= ord(" "))  # each record has at least its line end
    blank = [i for i in suspects if not records[i].as_py().strip(BLANKS.encode())]
    if not blank:
        return records
    kept = np.ones(len(records), np.bool_)
    kept[blank] = False
    return records.filter(pa.array(kept))


def _rows(layout: _Layout, records: Records) -> Rows:
    if isinstance(records, list):
        return _one_by_one(layout, records)
    odd = _odd(records)
    if odd is None:
        return _by_arrow(layout, records)
    exact = _one_by_one(layout, _checked(records, odd))
    if odd.all():
        return exact
    plain = _by_arrow(layout, records.filter(pa.array(~odd)))
    return in_order(exact, np.flatnonzero(odd), plain, np.flatnonzero(~odd))


def _odd(records: pa.BinaryArray) -> Mask | None:
    """Return True for each record that Arrow may read differently; None if it reads all of them alike."""
    begins, _, data = bytes_of(records)
    odd = np.zeros(len(records), np.bool_)
    if (data == _QUOTE).any():
        # Matched as text, because `[^"]` is one character, not one byte.
        odd |= ~pc.match_substring_regex(records.view(pa.string()), _PLAIN).to_numpy(zero_copy_only=False)
    if (data == 0).any():  # some libraries end a text there
        odd |= pc.match_substring(records, b"\0").to_numpy(zero_copy_only=False)
    if (data[begins] == _MARK[0]).any():  # Arrow skips a byte order mark
        odd |= pc.starts_with(records, _MARK).to_numpy(zero_copy_only=False)
    return odd if odd.any() else None


def _checked(records: pa.BinaryArray, chosen: Mask) -> list[Record]:
    """Return the chosen records one by one, with their faults."""
    texts = [record.decode().removesuffix("\n") for record in records.filter(pa.array(chosen)).to_pylist()]
    # Quotes that join several lines are closed.
    return [Record(t, None if "\n" in t or '"' not in t or is_terminated(t) else NOT_CLOSED) for t in texts]


def _by_arrow(layout: _Layout, records: pa.BinaryArray) -> Rows:
    _, _, data = bytes_of(records)
    wrong = np.zeros(len(records), np.bool_)

    def skip(row: csv.InvalidRow) -> str:
        wrong[row.number - 1] = True
        return "skip"

    chosen = sorted({f"{at}" for at in layout.position.values() if at is not None})
    table = csv.read_csv(
        pa.BufferReader(pa.py_buffer(data)),
        csv.ReadOptions(
            use_threads=False, block_size=len(data) + 1, column_names=[f"{at}" for at in range(layout.width)]
        ),
        csv.ParseOptions(newlines_in_values=True, invalid_row_handler=skip),
        csv.ConvertOptions(
            check_utf8=False,
            column_types=dict.fromkeys(chosen, pa.string()),
            include_columns=chosen,
            null_values=[""],
            strings_can_be_null=True,
        ),
    )
    columns = {
        c: pa.nulls(table.num_rows, pa.string()) if at is None else _joined(table.column(f"{at}"))
        for c, at in layout.position.items()
    }
    shown = records.view(pa.string())
    if not wrong.any():
        return Rows(columns, len(records), shown)
    right = Rows(columns, len(records) - int(wrong.sum()), shown.filter(pa.array(~wrong)))
    faulty = _one_by_one(layout, _checked(records, wrong))
    return in_order(faulty, np.flatnonzero(wrong), right, np.flatnonzero(~wrong))


def _joined(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def _one_by_one(layout: _Layout, records: Sequence[Record]) -> Rows:
    """Read records by the exact rule."""
    nothing = [""] * layout.width
    values: list[list[str]] = []
    faults: list[str | None] = []
    for text, fault in records:
        fields = nothing if fault else fields_of(text)
        is_row = not fault and len(fields) == layout.width
        values.append(fields if is_row else nothing)
        faults.append(None if is_row else fault or NO_ROW)
    columns = {
        c: pa.array([None if at is None else row[at] or None for row in values], pa.string())
        for c, at in layout.position.items()
    }
    shown = pa.array([text for text, _ in records], pa.string())
    return Rows(columns, len(values), shown, pa.array(faults, pa.string()) if any(faults) else None)


def _over_lines(blocks: Iterable[Block]) -> Iterator[Records]:
    """Join the lines of blocks to records. A quote joins lines until it is closed."""
    open_record = OpenRecord()
    rest = b""  # plain lines of a record that is still open
    for block in blocks:
        if isinstance(block, bytes) and not open_record.lines:
            found, rest, others = _plain_records(rest + block)
            yield from found
            if others:
                yield open_record.closed_in(others)
        else:
            lines = [*_split(rest), *(_split(block) if isinstance(block, bytes) else block)]
            rest = b""
            yield open_record.closed_in(lines)
    yield open_record.closed_in(_split(rest))
    yield open_record.never_closed()


def _split(block: bytes) -> list[Record]:
    lines = with_line_feeds(block).decode().removesuffix("\n").split("\n") if block else []
    return [Record(line) for line in lines]


def _plain_records(block: bytes) -> tuple[list[Records], bytes, list[Record]]:
    """Return the records before the first odd one, a rest that may continue in the next block, and the other lines.

    Read one by one, lines take twenty times as long.
    """
    at, text = _line_begins(block)
    if b'"' not in text:
        return [_without_blanks(_array(at, text))], b"", []
    quotes = np.flatnonzero(np.frombuffer(text, np.uint8) == _QUOTE)
    is_closed = np.searchsorted(quotes, at) % 2 == 0  # at[0] is the beginning
    ends = at[is_closed]
    is_long = np.diff(np.flatnonzero(is_closed)) > LONGEST_RECORD
    records = _array(ends, text)
    plain = pc.match_substring_regex(records.view(pa.string()), _PLAIN).to_numpy(zero_copy_only=False) & ~is_long
    rest = text[ends[-1] :]
    if plain.all():
        first_line = rest.partition(b"\n")[0].decode()
        if rest.count(b"\n") < LONGEST_RECORD and not (rest and is_terminated(first_line)):
            return [_without_blanks(records)], rest, []
        begins = len(records)
    else:
        begins = int(np.flatnonzero(~plain)[0])
    good: list[Records] = [_without_blanks(records.slice(0, begins))] if begins else []
    return good, b"", _split(text[ends[begins] :])


@dataclass
class OpenRecord:
    """Lines of a record whose quote is not closed yet: the exact rule for records of several lines."""

    lines: list[Record] = field(default_factory=list)

    def closed_in(self, lines: Iterable[Record]) -> list[Record]:
        """Add lines. Return the records that they close, without blank ones."""
        found: list[Record] = []
        for line in lines:
            # A line within quotes reads like a line that begins with a quote.
            is_open = not is_terminated(f'"{line.text}' if self.lines else line.text)
            if len(self.lines) <= LONGEST_RECORD:
                self.lines.append(line)
            if not is_open:
                found.append(self._joined(None))
        return [record for record in found if record.text.strip(BLANKS)]

    def never_closed(self) -> list[Record]:
        """Return the record that is open at the end of the file."""
        return [self._joined(NEVER_CLOSED)] if self.lines else []

    def _joined(self, fault: str | None) -> Record:
        lines, self.lines = self.lines, []
        if len(lines) > LONGEST_RECORD:
            lines, fault = lines[:LONGEST_RECORD], NEVER_CLOSED
        faults = [line.fault for line in lines if line.fault]
        return Record("\n".join(line.text for line in lines), faults[0] if faults else fault)
