"""CSV with a header, vectorised: columns are found by name, a line that has another number of values is none.

Lines in plain form (no quotes, or quotes around whole values) are taken apart by Arrow; every other line one by one by
the exact rule, `text.fields_of`. So what a line is does not depend on the lines around it. Does not belong here: what
a value means (`kernels`).
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
    joined,
)

_PLAIN_FIELD = r'(?:"(?:[^"]|"")*"|[^",\n]*)'
_PLAIN = rf"^{_PLAIN_FIELD}(?:,{_PLAIN_FIELD})*\n?$"
"""A record in which quotes stand around whole values, or not at all."""

_LINE_END, _QUOTE = ord("\n"), ord('"')
_MARK = codecs.BOM_UTF8


def rows_of(declared: Declared, shape: Shape, source: Source, part: Part) -> Iterator[Rows]:
    """The rows of a part of a CSV file; see `rows.RowsOf`."""
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
    """The texts of the declared columns in a record of a row without a fault."""
    fields = fields_of(record.removesuffix("\n"))
    return [None if at is None else fields[at] or None for at in _Layout.of(declared, shape).position.values()]


@dataclass(frozen=True)
class _Layout:
    """Where in a line each declared column stands; None: nowhere."""

    width: int
    position: dict[str, int | None]

    @staticmethod
    def of(declared: Declared, shape: Shape) -> _Layout:
        at = {name: position for position, (name, _) in enumerate(shape.columns)}
        return _Layout(len(shape.columns), {c: at.get(c) for c in declared.columns})


Records: TypeAlias = pa.BinaryArray | list[Record]
"""Records that are not blank: in UTF-8 with their line ends, none with a fault, or one by one."""


def _records(block: Block) -> Records:
    """The lines of a block as records."""
    if isinstance(block, list):
        return [line for line in block if line.text.strip(BLANKS)]
    return _without_blanks(_cut(*_lines(block)))


def _lines(block: bytes) -> tuple[npt.NDArray[np.int32], bytes]:
    """Where lines begin, and where the last ends, in a text whose line ends are all one byte."""
    block = with_line_feeds(block)
    if not block.endswith(b"\n"):
        block += b"\n"
    ends = np.flatnonzero(np.frombuffer(block, np.uint8) == _LINE_END).astype(np.int32) + 1
    return np.concatenate([np.zeros(1, np.int32), ends]), block


def _cut(at: npt.NDArray[np.int32], text: bytes) -> pa.BinaryArray:
    return pa.Array.from_buffers(pa.binary(), len(at) - 1, [None, pa.py_buffer(at), pa.py_buffer(text)])


def _without_blanks(records: pa.BinaryArray) -> pa.BinaryArray:
    begins, _ends, data = _bytes_of(records)
    first = data[begins]  # of each at least its line end
    suspects = np.flatnonzero(first <= ord(" "))
    if not len(suspects):
        return records
    blank = [i for i in suspects if not records[i].as_py().strip(_BLANK_BYTES)]
    if not blank:
        return records
    kept = np.ones(len(records), np.bool_)
    kept[blank] = False
    return records.filter(pa.array(kept))


_BLANK_BYTES = BLANKS.encode()


def _bytes_of(
    records: pa.BinaryArray,
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32], npt.NDArray[np.uint8]]:
    _, offsets, content = records.buffers()
    at = np.frombuffer(offsets, np.int32)[records.offset : records.offset + len(records) + 1]
    return at[:-1], at[1:], np.frombuffer(content, np.uint8) if content is not None else np.zeros(0, np.uint8)


def _rows(layout: _Layout, records: Records) -> Rows:
    if isinstance(records, list):
        return _one_by_one(layout, records)
    odd = _odd(records)
    if odd is None:
        return _by_arrow(layout, records)
    exact = _one_by_one(layout, [_checked(text_of(records[i])) for i in np.flatnonzero(odd)])
    if odd.all():
        return exact
    plain = _by_arrow(layout, records.filter(pa.array(~odd)))
    return in_order(exact, np.flatnonzero(odd), plain, np.flatnonzero(~odd))


def text_of(record: pa.Scalar) -> str:
    """A record without its line end."""
    text: str = record.as_py().decode()
    return text.removesuffix("\n")


def _odd(records: pa.BinaryArray) -> npt.NDArray[np.bool_] | None:
    """Which records Arrow would perhaps take apart in another way; None for none."""
    begins, ends, data = _bytes_of(records)
    content = data[begins[0] : ends[-1]]
    # A quote says where a value ends, text ends at a zero in some libraries, and Arrow skips a mark at the front.
    has_quote, has_zero = bool((content == _QUOTE).any()), bool((content == 0).any())
    has_mark = bool((data[begins] == _MARK[0]).any())
    odd = np.zeros(len(records), np.bool_)
    if has_quote:
        # A match of text, not of bytes: `[^"]` is a character.
        odd |= ~pc.match_substring_regex(records.view(pa.string()), _PLAIN).to_numpy(zero_copy_only=False)
    if has_zero:
        odd |= pc.match_substring(records, b"\0").to_numpy(zero_copy_only=False)
    if has_mark:
        odd |= pc.starts_with(records, _MARK).to_numpy(zero_copy_only=False)
    return odd if odd.any() else None


def _checked(text: str) -> Record:
    """A line, or the lines that quotes hold together, as a record."""
    return Record(text, None if "\n" in text or '"' not in text or is_terminated(text) else NOT_CLOSED)


def _by_arrow(layout: _Layout, records: pa.BinaryArray) -> Rows:
    begins, ends, _ = _bytes_of(records)
    block = records.buffers()[2].slice(int(begins[0]), int(ends[-1] - begins[0]))
    wrong: list[int] = []

    def skip(row: csv.InvalidRow) -> str:
        wrong.append(row.number - 1)
        return "skip"

    chosen = sorted({f"{at}" for at in layout.position.values() if at is not None})
    table = csv.read_csv(
        pa.BufferReader(block),
        csv.ReadOptions(
            use_threads=False, block_size=len(block) + 1, column_names=[f"{at}" for at in range(layout.width)]
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
    count = len(records)
    columns = {
        c: pa.nulls(table.num_rows, pa.string()) if at is None else _flat(table.column(f"{at}"))
        for c, at in layout.position.items()
    }
    shown = records.view(pa.string())
    if not wrong:
        return Rows(columns, count, shown)
    at_fault = np.zeros(count, np.bool_)
    at_fault[wrong] = True
    right = Rows(columns, count - len(wrong), shown.filter(pa.array(~at_fault)))
    faulty = _one_by_one(layout, [_checked(text_of(records[i])) for i in wrong])
    return in_order(faulty, np.flatnonzero(at_fault), right, np.flatnonzero(~at_fault))


def _flat(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def _one_by_one(layout: _Layout, records: Sequence[Record]) -> Rows:
    """The exact rule."""
    nothing = [""] * layout.width
    values: list[list[str]] = []
    faults: list[str | None] = []
    for text, fault in records:
        fields = nothing if fault else fields_of(text)
        is_row = not fault and len(fields) == layout.width
        values.append(fields if is_row else nothing)
        faults.append(None if is_row else fault or NO_ROW)
    columns = {
        c: pa.nulls(len(values), pa.string())
        if at is None
        else pa.array([row[at] or None for row in values], pa.string())
        for c, at in layout.position.items()
    }
    shown = pa.array([text for text, _ in records], pa.string())
    return Rows(columns, len(values), shown, pa.array(faults, pa.string()) if any(faults) else None)


def _over_lines(blocks: Iterable[Block]) -> Iterator[Records]:
    """Records of which quotes hold several lines together, over blocks."""
    open_record = _OpenRecord()
    held = b""  # lines that quotes hold together as far as they go, in plain form
    for block in blocks:
        if isinstance(block, bytes) and not open_record.lines:
            found, held, rest = _plain_records(held + block)
            yield from found
            if rest:
                yield open_record.closed_in([Record(line) for line in rest])
        else:
            lines = [Record(line) for line in _split(held)] if held else []
            held = b""
            lines += [Record(line) for line in _split(block)] if isinstance(block, bytes) else block
            yield open_record.closed_in(lines)
    if held:
        yield open_record.closed_in([Record(line) for line in _split(held)])
    yield open_record.never_closed()


def _split(block: bytes) -> list[str]:
    return with_line_feeds(block).decode().removesuffix("\n").split("\n")


def _plain_records(block: bytes) -> tuple[list[Records], bytes, list[str]]:
    """The records of a text up to the first odd one; what may go on behind it; and the lines from the odd one on."""
    at, text = _lines(block)
    if b'"' not in text:
        return [_without_blanks(_cut(at, text))], b"", []
    quotes = np.flatnonzero(np.frombuffer(text, np.uint8) == _QUOTE)
    is_closed = np.searchsorted(quotes, at) % 2 == 0  # at[0] is the beginning
    ends = at[is_closed]
    is_long = np.diff(np.flatnonzero(is_closed)) > LONGEST_RECORD
    records = _cut(ends, text)
    plain = pc.match_substring_regex(records.view(pa.string()), _PLAIN).to_numpy(zero_copy_only=False) & ~is_long
    tail = text[ends[-1] :]
    if plain.all():
        first_line = tail.partition(b"\n")[0].decode()
        if tail.count(b"\n") < LONGEST_RECORD and not (tail and is_terminated(first_line)):
            return [_without_blanks(records)], tail, []
        begins = len(records)
    else:
        begins = int(np.flatnonzero(~plain)[0])
    good = [_without_blanks(records.slice(0, begins))] if begins else []
    return good, b"", _split(text[ends[begins] :])


@dataclass
class _OpenRecord:
    """The exact rule of records over lines: lines that belong to one that no line has closed yet."""

    lines: list[Record] = field(default_factory=list)

    def closed_in(self, lines: Iterable[Record]) -> list[Record]:
        """Go on with these lines; the records that they close, which are not blank."""
        found: list[Record] = []
        for line in lines:
            # Within quotes a line is as one that begins with a quote.
            is_open = not is_terminated(f'"{line.text}' if self.lines else line.text)
            if len(self.lines) <= LONGEST_RECORD:
                self.lines.append(line)
            if not is_open:
                found.append(joined(self.lines, None))
                self.lines = []
        return [record for record in found if record.text.strip(BLANKS)]

    def never_closed(self) -> list[Record]:
        """What is open at the end of the file."""
        return [joined(self.lines, NEVER_CLOSED)] if self.lines else []
