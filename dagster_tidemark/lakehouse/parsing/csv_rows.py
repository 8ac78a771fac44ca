"""Vectorised reader of CSV. Columns are found by name. A line with too few or too many values is faulty.

Arrow reads plain lines, which have no quotes, or quotes only around whole values. The exact rule (`csv_dialect`) reads
each other line by itself. So the content of a line does not depend on the lines around it. Does not belong here: the
meaning of a value (`kernels`).
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from dagster_tidemark.lakehouse.parsing.csv_dialect import BEGINS_OF_NAMES, NAMES_OF_LOG, Dialect, names_in_log
from dagster_tidemark.lakehouse.parsing.csv_halves import REACH, Marked, Records, marked, odd_quotes
from dagster_tidemark.lakehouse.parsing.kernels import Mask, bytes_of
from dagster_tidemark.lakehouse.parsing.rows import DeclaredContent, FileBytes, Part, Rows, in_order
from dagster_tidemark.lakehouse.parsing.text_blocks import (
    Block,
    lines_after,
    lines_before,
    lines_in_blocks,
    with_line_feeds,
)
from dagster_tidemark.lakehouse.readers.file_format import Shape
from dagster_tidemark.lakehouse.readers.files import Unusable
from dagster_tidemark.lakehouse.readers.text import (
    CONTINUES,
    LONGEST_RECORD,
    NEVER_CLOSED,
    NO_ROW,
    NOT_CLOSED,
    TextRecord,
)
from dagster_tidemark.sources.text_formats import Csv

_LINE_END, _RETURN = ord("\n"), ord("\r")
_MARK = codecs.BOM_UTF8


def rows_of(declared: DeclaredContent, shape: Shape, source: FileBytes, part: Part) -> Iterator[Rows]:
    """Return the rows of a part of a CSV file (`rows.RowsOf`)."""
    layout = _Layout.of(declared, shape)
    dialect = layout.dialect
    header_is_ahead = part.begin == 0 and dialect.has_header
    blocks = lines_in_blocks(source, shape.charset, part, keep_ends=declared.multiline)
    if dialect.may_be_log:
        blocks = _of_same_names(declared, layout, shape, blocks)
    if part.begin == 0 and dialect.has_lines_ahead:
        blocks = _from_header(dialect, blocks)
    found: Iterator[Marked]
    if declared.multiline:
        found = (Marked(records, odd_quotes(dialect, records)) for records in _over_lines(dialect, blocks))
    else:
        around = _Around(dialect, source, shape.charset, part)
        found = marked(dialect, (_records(dialect, block) for block in blocks), around.before, around.after)
    for batch in found:
        if not len(batch.records):
            continue
        if header_is_ahead:
            batch, header_is_ahead = batch.slice(1, len(batch.records)), False
        if len(batch.records):
            yield _rows(layout, batch)


@dataclass(frozen=True)
class _Around:
    """The records around a part of a file."""

    dialect: Dialect
    source: FileBytes
    charset: str
    part: Part

    def before(self) -> list[str]:
        """Return the records before the part, the header included: at least the last `REACH`, or all if fewer."""
        found: list[str] = []
        for begins_file, blocks in lines_before(self.source, self.charset, self.part):
            if begins_file and self.dialect.has_lines_ahead:
                blocks = _from_header(self.dialect, blocks)
            found = list(self._texts(blocks))
            if len(found) >= REACH:
                break
        return found

    def after(self) -> list[str]:
        """Return up to `REACH` records after the part."""
        return list(islice(self._texts(lines_after(self.source, self.charset, self.part)), REACH))

    def _texts(self, blocks: Iterable[Block]) -> Iterator[str]:
        lines = (line for block in blocks for line in (block if isinstance(block, list) else _split(block)))
        return (line.text for line in lines if self.dialect.is_record(line.text))


def texts_of(declared: DeclaredContent, shape: Shape, record: str) -> list[str | None]:
    """Return the texts of the declared columns in the record of a sound row."""
    layout = _Layout.of(declared, shape)
    fields = layout.dialect.fields_of(without_end(record))
    return [None if at is None else fields[at] or None for at in layout.position.values()]


@dataclass(frozen=True)
class _Layout:
    """Number of values in a line, and the position of each declared column, or None if the file lacks the column."""

    width: int
    position: dict[str, int | None]
    dialect: Dialect

    @staticmethod
    def of(declared: DeclaredContent, shape: Shape) -> _Layout:
        at = {name: position for position, (name, _) in enumerate(shape.columns)}
        dialect = Dialect(declared.format if isinstance(declared.format, Csv) else None)
        return _Layout(len(shape.columns), {c: at.get(c) for c in declared.columns}, dialect)

    @property
    def values(self) -> int:
        """Number of values that Arrow finds in a line."""
        return self.width + self.dialect.trailing_separator

    def fault_of(self, values: int) -> str:
        """Return the fault of a line that has the wrong number of values."""
        found = f"{values} value{'s' * (values != 1)}"
        if self.dialect.trailing_separator:
            return f"{NO_ROW}: it has {found}; expected {self.width} and a separator after the last one"
        said = f"{NO_ROW}: it has {found}, the {'header' if self.dialect.has_header else 'feed'} {self.width}"
        if values > self.width and self.dialect.quote:
            said += f"; a value with {self.dialect.separator!r} in it needs quotes"
        return said


def _of_same_names(
    declared: DeclaredContent, layout: _Layout, shape: Shape, blocks: Iterator[Block]
) -> Iterator[Block]:
    """Return the blocks of a log, if its lines `#Fields:` agree on the places of the declared columns.

    Raises:
        Unusable: a line names a declared column at another place, or another number of columns.
    """
    for block in blocks:
        for names in _names_in(block):
            found = declared.found_in(names)
            place = {c: names.index(found[c]) if c in found else None for c in declared.columns}
            if len(names) != layout.width or place != layout.position:
                raise Unusable(
                    "columns_change",
                    f"a line {NAMES_OF_LOG} has other columns than the rows above it: expected "
                    f"{' '.join(name for name, _ in shape.columns)}; found {' '.join(names)}; cut the file above this "
                    "line, and land each part as a file",
                )
        yield block


def _names_in(block: Block) -> Iterator[list[str]]:
    if isinstance(block, list):
        lines = [line.text for line in block]
    elif b"#" in block:
        # Arrays, because a search for the text would take 10 % of the time of rows that contain `#`.
        data = np.frombuffer(block, np.uint8)
        after_end = (data[1:] == ord("#")) & ((data[:-1] == _LINE_END) | (data[:-1] == _RETURN))
        begins = [0, *(np.flatnonzero(after_end) + 1).tolist()]
        ends = [(at, block.find(b"\n", at) + 1 or None) for at in begins if block.startswith(_BEGINS_OF_NAMES, at)]
        lines = [_LINES.match(block[at:end].decode())[0] for at, end in ends]  # type: ignore[index]
    else:
        lines = []
    for line in lines:
        if names := names_in_log(line):
            yield names


_BEGINS_OF_NAMES = tuple(begin.encode() for begin in BEGINS_OF_NAMES)


def _from_header(dialect: Dialect, blocks: Iterator[Block]) -> Iterator[Block]:
    """Return the blocks without the lines above the header."""
    skipped = 0
    for block in blocks:
        lines = block if isinstance(block, list) else _split(block)
        begin = dialect.begin_of_table(lines, skipped)
        if begin is None:
            skipped += len(lines)
            continue
        yield block[begin:] if isinstance(block, list) else with_line_feeds(block).split(b"\n", begin)[-1]
        break
    yield from blocks


def _records(dialect: Dialect, block: Block) -> Records:
    """Return each line of a block as a record."""
    if isinstance(block, list):
        return [line for line in block if dialect.is_record(line.text)]
    return _sifted(dialect, _array(*_line_begins(block)))


def _line_begins(block: bytes, *, keep_ends: bool = False) -> tuple[npt.NDArray[np.int32], bytes]:
    """Return the places where lines begin, the place of the text's end, and the text.

    Args:
        keep_ends: True to keep line ends; False to replace each with a line feed.
    """
    block = block if keep_ends else with_line_feeds(block)
    if not block.endswith((b"\n", b"\r")):
        block += b"\n"
    data = np.frombuffer(block, np.uint8)
    is_end = data == _LINE_END
    if keep_ends:  # a carriage return is a line end, unless a line feed follows
        is_end[:-1] |= (data[:-1] == _RETURN) & ~is_end[1:]
        is_end[-1] = True
    ends = np.flatnonzero(is_end).astype(np.int32) + 1
    return np.concatenate([np.zeros(1, np.int32), ends]), block


def _array(at: npt.NDArray[np.int32], text: bytes) -> pa.BinaryArray:
    return pa.Array.from_buffers(pa.binary(), len(at) - 1, [None, pa.py_buffer(at), pa.py_buffer(text)])


def _sifted(dialect: Dialect, records: pa.BinaryArray) -> pa.BinaryArray:
    """Return records without blank records and comments."""
    begins, _, data = bytes_of(records)
    first = data[begins]  # each record has at least its line end
    suspects = np.flatnonzero(first <= ord(" "))
    other: list[int] = [i for i in suspects.tolist() if not records[i].as_py().decode().strip(dialect.blanks)]
    if dialect.comment:
        other += np.flatnonzero(first == ord(dialect.comment)).tolist()
    if not other:
        return records
    kept = np.ones(len(records), np.bool_)
    kept[other] = False
    return records.filter(pa.array(kept))


def _rows(layout: _Layout, batch: Marked) -> Rows:
    records = batch.records
    if isinstance(records, list):
        return _one_by_one(layout, _with_marks(records, batch.continuing))
    odd = _odd(layout.dialect, batch)
    if odd is None:
        return _by_arrow(layout, records)
    marks = None if batch.continuing is None else batch.continuing[odd]
    exact = _one_by_one(layout, _with_marks(_checked(layout.dialect, records, odd), marks))
    if odd.all():
        return exact
    plain = _by_arrow(layout, records.filter(pa.array(~odd)))
    return in_order(exact, np.flatnonzero(odd), plain, np.flatnonzero(~odd))


def _with_marks(records: list[TextRecord], continuing: Mask | None) -> list[TextRecord]:
    if continuing is None:
        return records
    return [
        TextRecord(text, fault or (CONTINUES if is_marked else None))
        for (text, fault), is_marked in zip(records, continuing.tolist(), strict=True)
    ]


def _odd(dialect: Dialect, batch: Marked) -> Mask | None:
    """Return a mask of the records that Arrow may read differently than the exact rule; None if there are none."""
    begins, _, data = bytes_of(batch.records)
    odd = np.zeros(len(batch.records), np.bool_)
    for mask in (batch.odd, batch.continuing):
        odd |= False if mask is None else mask
    for mark in ("\0", dialect.escape):  # some libraries end a text at a zero byte
        if mark and (data == ord(mark)).any():
            odd |= pc.match_substring(batch.records, mark.encode()).to_numpy(zero_copy_only=False)
    if (data[begins] == _MARK[0]).any():  # Arrow skips a byte order mark
        odd |= pc.starts_with(batch.records, _MARK).to_numpy(zero_copy_only=False)
    return odd if odd.any() else None


def _checked(dialect: Dialect, records: pa.BinaryArray, chosen: Mask) -> list[TextRecord]:
    """Return the chosen records as a list, each with its fault."""
    texts = [without_end(record.decode()) for record in records.filter(pa.array(chosen)).to_pylist()]
    # A record of several lines has no open quote, because its lines were joined until the quote was closed.
    return [TextRecord(t, None if "\n" in t or "\r" in t or dialect.is_terminated(t) else NOT_CLOSED) for t in texts]


def _by_arrow(layout: _Layout, records: pa.BinaryArray) -> Rows:
    _, _, data = bytes_of(records)
    wrong = np.zeros(len(records), np.bool_)

    def skip(row: csv.InvalidRow) -> str:
        wrong[row.number - 1] = True
        return "skip"

    dialect, last = layout.dialect, f"{layout.width}"
    chosen = sorted({f"{at}" for at in layout.position.values() if at is not None})
    chosen += [last] if dialect.trailing_separator else []
    table = csv.read_csv(
        pa.BufferReader(pa.py_buffer(data)),
        csv.ReadOptions(
            use_threads=False, block_size=len(data) + 1, column_names=[f"{at}" for at in range(layout.values)]
        ),
        csv.ParseOptions(
            delimiter=dialect.separator,
            quote_char=dialect.quote or False,
            newlines_in_values=True,
            invalid_row_handler=skip,
        ),
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
    right = Rows(columns, table.num_rows, shown.filter(pa.array(~wrong)) if wrong.any() else shown)
    if dialect.trailing_separator and (is_row := table.column(last).is_null().combine_chunks()).false_count:
        right = right.where(is_row)
        wrong[np.flatnonzero(~wrong)[~is_row.to_numpy(zero_copy_only=False)]] = True
    if not wrong.any():
        return right
    faulty = _one_by_one(layout, _checked(dialect, records, wrong))
    return in_order(faulty, np.flatnonzero(wrong), right, np.flatnonzero(~wrong))


def _joined(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def _one_by_one(layout: _Layout, records: Sequence[TextRecord]) -> Rows:
    """Read records by the exact rule."""
    nothing = [""] * layout.width
    values: list[list[str]] = []
    faults: list[str | None] = []
    for text, fault in records:
        row = 0 if fault else layout.dialect.row_of(text, layout.width)
        values.append(nothing if isinstance(row, int) else row)
        faults.append(fault or layout.fault_of(row) if isinstance(row, int) else None)
    columns = {
        c: pa.array([None if at is None else row[at] or None for row in values], pa.string())
        for c, at in layout.position.items()
    }
    shown = pa.array([text for text, _ in records], pa.string())
    return Rows(columns, len(values), shown, pa.array(faults, pa.string()) if any(faults) else None)


def _over_lines(dialect: Dialect, blocks: Iterable[Block]) -> Iterator[Records]:
    """Join lines to records: a record continues while a quote is open. Values keep their line ends."""
    open_record = OpenRecord(dialect)
    rest = b""  # plain lines of a record that is still open
    for block in blocks:
        if isinstance(block, bytes) and not open_record.lines:
            found, rest, others = _plain_records(dialect, rest + block)
            yield from found
            if others:
                yield open_record.closed_in(others)
        else:
            lines = [*_with_ends(rest), *(_with_ends(block) if isinstance(block, bytes) else block)]
            rest = b""
            yield open_record.closed_in(lines)
    yield open_record.closed_in(_with_ends(rest))
    yield open_record.never_closed()


def _split(block: bytes) -> list[TextRecord]:
    lines = with_line_feeds(block).decode().removesuffix("\n").split("\n") if block else []
    return [TextRecord(line) for line in lines]


def _with_ends(block: bytes) -> list[TextRecord]:
    """Return lines with their line ends."""
    lines = _LINES.findall(block.decode())
    return [TextRecord(line) for line in lines if line]


_LINES = re.compile(r"[^\r\n]*(?:\r\n|\r|\n|$)")


def without_end(text: str) -> str:
    """Return a record without its line end."""
    return text.removesuffix("\n").removesuffix("\r") if text.endswith(("\n", "\r")) else text


def _plain_records(dialect: Dialect, block: bytes) -> tuple[list[Records], bytes, list[TextRecord]]:
    """Split a block: plain records, a rest that may continue in the next block, and lines for the exact rule.

    Only the lines from the first odd record on go to the exact rule, which takes twenty times as long.
    """
    quote = (dialect.quote or "").encode()
    if not quote or quote not in block:
        return [_sifted(dialect, _array(*_line_begins(block)))], b"", []
    if dialect.escape or dialect.comment:  # either changes the meaning of a quote
        return [], b"", _with_ends(block)
    at, text = _line_begins(block, keep_ends=True)
    quotes = np.flatnonzero(np.frombuffer(text, np.uint8) == ord(quote))
    is_closed = np.searchsorted(quotes, at) % 2 == 0  # at[0] is the beginning
    ends = at[is_closed]
    is_long = np.diff(np.flatnonzero(is_closed)) > LONGEST_RECORD
    records = _array(ends, text)
    plain = pc.match_substring_regex(records.view(pa.string()), dialect.plain).to_numpy(zero_copy_only=False) & ~is_long
    rest = text[ends[-1] :]
    if plain.all():
        first_line = without_end(_LINES.match(rest.decode())[0])  # type: ignore[index]  # it matches every text
        lines = len(at) - 1 - int(np.flatnonzero(is_closed)[-1])
        if lines < LONGEST_RECORD and not (rest and dialect.is_terminated(first_line)):
            return [_sifted(dialect, records)], rest, []
        begins = len(records)
    else:
        begins = int(np.flatnonzero(~plain)[0])
    good: list[Records] = [_sifted(dialect, records.slice(0, begins))] if begins else []
    return good, b"", _with_ends(text[ends[begins] :])


@dataclass
class OpenRecord:
    """Record whose quote is not closed yet, as its lines. This is the exact rule for records of several lines."""

    dialect: Dialect = field(default_factory=Dialect)
    lines: list[TextRecord] = field(default_factory=list)

    def closed_in(self, lines: Iterable[TextRecord]) -> list[TextRecord]:
        """Add lines, and return the records that are now complete, without blank records."""
        found: list[TextRecord] = []
        for line in lines:
            text = without_end(line.text)
            if not self.lines and not self.dialect.is_record(text):
                continue
            is_open = not self.dialect.is_terminated(self.dialect.continued(text) if self.lines else text)
            if len(self.lines) <= LONGEST_RECORD:
                self.lines.append(line)
            if not is_open:
                found.append(self._joined(None))
        return [record for record in found if record.text.strip(self.dialect.blanks)]

    def never_closed(self) -> list[TextRecord]:
        """Return the record that is still open at the end of the file, as faulty."""
        return [self._joined(NEVER_CLOSED)] if self.lines else []

    def _joined(self, fault: str | None) -> TextRecord:
        lines, self.lines = self.lines, []
        if len(lines) > LONGEST_RECORD:
            lines, fault = lines[:LONGEST_RECORD], NEVER_CLOSED
        faults = [line.fault for line in lines if line.fault]
        text = "".join(line.text if line.text.endswith(("\n", "\r")) else f"{line.text}\n" for line in lines)
        return TextRecord(without_end(text), faults[0] if faults else fault)
