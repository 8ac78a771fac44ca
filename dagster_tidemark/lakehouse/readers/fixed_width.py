"""The format of text of fixed width: the shape of a file from the declaration, its rows, and samples.

A value is at its place in a line; blanks around it are removed. Does not belong here: the declaration of places
(`sources.text_formats`), and the meaning of a value (`parsing.kernels`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dagster_tidemark.lakehouse.parsing.csv_dialect import Dialect
from dagster_tidemark.lakehouse.parsing.kernels import Mask
from dagster_tidemark.lakehouse.parsing.rows import WHOLE, DeclaredContent, FileBytes, Part, Rows
from dagster_tidemark.lakehouse.parsing.sources import MemoryFile
from dagster_tidemark.lakehouse.parsing.text_blocks import lines_in_blocks, lines_of_block
from dagster_tidemark.lakehouse.readers.csv_text import CsvShape, parts_below_header
from dagster_tidemark.lakehouse.readers.file_format import FileFormat, Shape, UntypedText
from dagster_tidemark.lakehouse.readers.files import Unusable
from dagster_tidemark.lakehouse.readers.text import BLANKS, NO_ROW, charset_of
from dagster_tidemark.lakehouse.readers.text_files import head_of
from dagster_tidemark.sources.feed import Feed
from dagster_tidemark.sources.file_endings import Format, endings_of
from dagster_tidemark.sources.text_formats import REST, Csv, FixedWidth


def rows_of(declared: DeclaredContent, shape: Shape, source: FileBytes, part: Part = WHOLE) -> Iterator[Rows]:
    """Return the rows of a part of a file (`rows.RowsOf`)."""
    layout = _Layout.of(declared)
    ahead = layout.skip_lines if part.begin == 0 else 0
    for block in lines_in_blocks(source, shape.charset, part):
        faults: pa.Array | None = None
        if isinstance(block, list):
            lines = pa.array([line.text for line in block], pa.string())
            faults = pa.array([line.fault for line in block], pa.string())
        else:
            lines = lines_of_block(block)
        skipped = min(ahead, len(lines))
        ahead -= skipped
        rows = layout.rows(lines.slice(skipped), None if faults is None else faults.slice(skipped))
        if rows.count:
            yield rows


def texts_of(declared: DeclaredContent, shape: Shape, record: str) -> list[str | None]:
    """Return the texts of the declared columns in the line of a sound row."""
    places = _Layout.of(declared).places.values()
    return [None if place is None else record[slice(*place)].strip(" ") or None for place in places]


def format_of(declared: DeclaredContent) -> FixedWidth:
    """Return the declared format.

    Raises:
        Unusable: the feed does not declare the places of values.
    """
    if isinstance(declared.format, FixedWidth):
        return declared.format
    raise Unusable(
        "unreadable", "it is named like text of fixed width; let the feed say format=FixedWidth(columns={...})"
    )


@dataclass(frozen=True)
class _Layout:
    """Places of values in a line.

    Args:
        places: For each declared column its first character, from 0, and the character after its last one. None if the
            file lacks the column.
        shortest: Number of characters of the shortest line.
        longest: Number of characters after which a line has only blanks.
    """

    places: dict[str, tuple[int, int] | None]
    shortest: int
    longest: int
    skip_lines: int

    @staticmethod
    def of(declared: DeclaredContent) -> _Layout:
        format = format_of(declared)
        spans = format.spans
        named = declared.found_in(spans.keys())
        longest = max(end for _, end in spans.values())
        ends = [begin if end == REST else end for begin, end in spans.values()]
        shortest = 0 if format.is_trimmed else max(ends)
        places = {c: spans[named[c]] if c in named else None for c in declared.columns}
        return _Layout(places, shortest, longest, format.skip_lines)

    def rows(self, lines: pa.Array, faults: pa.Array | None) -> Rows:
        """Return the rows of lines. Blank lines are no rows."""
        is_blank = pc.equal(pc.binary_length(pc.ascii_trim(lines, characters=BLANKS)), 0)
        if is_blank.true_count:
            kept = pc.invert(is_blank)
            lines, faults = lines.filter(kept), None if faults is None else faults.filter(kept)
        faults = self._faults(lines, faults)
        sound = lines if faults is None else pc.if_else(faults.is_null(), lines, None)
        columns = {
            c: pa.nulls(len(lines), pa.string()) if place is None else _values(sound, *place)
            for c, place in self.places.items()
        }
        return Rows(columns, len(lines), lines, faults)

    def _faults(self, lines: pa.Array, faults: pa.Array | None) -> pa.Array | None:
        lengths = pc.utf8_length(lines).to_numpy(zero_copy_only=False)
        found = faults
        for wrong, said in (
            (lengths < self.shortest, f"the feed's columns need {self.shortest}; is_trimmed=True fills it with blanks"),
            (self._is_long(lines, lengths), f"the feed's columns end at {self.longest}; a column may have the rest"),
        ):
            if wrong.any():
                whys = pa.array([f"{NO_ROW}: it has {n} characters, and {said}" for n in lengths[wrong].tolist()])
                given = pc.replace_with_mask(pa.nulls(len(lines), pa.string()), pa.array(wrong), whys)
                found = given if found is None else pc.coalesce(found, given)
        return found

    def _is_long(self, lines: pa.Array, lengths: np.ndarray[tuple[int], np.dtype[np.int32]]) -> Mask:
        found: Mask = lengths > self.longest
        if found.any():
            rest = pc.utf8_slice_codeunits(lines.filter(pa.array(found)), self.longest)
            found[found] = pc.greater(pc.binary_length(pc.ascii_trim(rest, characters=BLANKS)), 0).to_numpy(
                zero_copy_only=False
            )
        return found


def _values(lines: pa.Array, begin: int, end: int) -> pa.Array:
    found = pc.ascii_trim(pc.utf8_slice_codeunits(lines, begin, None if end == REST else end), characters=" ")
    return pc.if_else(pc.equal(pc.binary_length(found), 0), None, found)


def _shape(feed: Feed, source: FileBytes) -> CsvShape:
    format = format_of(DeclaredContent(feed.columns, format=feed.text_format))
    lines = Dialect(Csv(header=False, fields=format.fields, quote=None, skip_lines=format.skip_lines))
    head = head_of(feed, source, json=False, dialect=lines)
    if "\0" in head.first.text:
        raise Unusable("unreadable", "the first line is binary, not text")
    if head.is_cut and not head.complete_records:
        raise Unusable("unreadable", f"the first line is longer than {head.size} bytes")
    columns = tuple((name, "string") for name in format.fields)
    return CsvShape(Format.FIXED_WIDTH, columns, head.charset, ahead=head.ahead)


def _sample(
    body: bytes, limit: int, *, format: FixedWidth, encoding: str = "utf-8", multiline: bool = False
) -> list[dict[str, object]]:
    if multiline:
        raise ValueError("a line of fixed width is a row: leave --multiline out")
    declared = DeclaredContent(dict.fromkeys(format.fields, "string"), encoding, format=format)
    shape = Shape(Format.FIXED_WIDTH, charset=charset_of(encoding, body))
    found: list[dict[str, object]] = []
    for rows in rows_of(declared, shape, MemoryFile("", body), WHOLE):
        sound = rows if rows.faults is None else rows.where(rows.faults.is_null())
        for row in zip(*(column.to_pylist() for column in sound.columns.values()), strict=True):
            values = zip(format.fields, row, strict=True)
            found.append({c: None if v is None or v in format.nulls else UntypedText(v) for c, v in values})
    return found[:limit]


FIXED_WIDTH = FileFormat(
    name=Format.FIXED_WIDTH,
    endings=endings_of(Format.FIXED_WIDTH),
    is_text=True,
    shape=_shape,
    rows_of=rows_of,
    parts=parts_below_header,
    texts_of=texts_of,
    sample=_sample,
)
