"""Reading of text files in parts: blocks of whole lines in UTF-8, with bounded memory.

Belongs here: byte ranges, compression, encodings. Does not belong here: the content of lines (`csv_rows`, `json_rows`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dagster_tidemark.lakehouse.parsing.rows import FileBytes, Part
from dagster_tidemark.lakehouse.readers.files import Unusable
from dagster_tidemark.lakehouse.readers.text import TextRecord, decoded_by, inflated, lines_with_faults, without_mark
from dagster_tidemark.sources.file_endings import is_compressed

BLOCK = 4 << 20
"""Number of bytes in a block. A task's memory is a small multiple of this, or of its longest line."""

LONGEST_LINE = 24 << 20
"""Largest number of bytes in a line. This process and Spark keep several copies of a whole line in memory."""

Block = bytes | list[TextRecord]
"""Lines in UTF-8 without a byte order mark, or a list of lines that are invalid in their encoding, with this fault."""


def is_split(key: str, charset: str) -> bool:
    """Return True if a text file can be read in parts, because line ends can be found from any byte of the file."""
    return not is_compressed(key) and not charset.startswith("utf-16")


def lines_in_blocks(source: FileBytes, charset: str, part: Part, *, keep_ends: bool = False) -> Iterator[Block]:
    """Return the lines that begin in a part of a file, in order. Each block except the last ends with a line end.

    Args:
        keep_ends: True to keep the line ends of lines that are invalid in their encoding.

    Raises:
        Unusable: the compression is broken, or a line is longer than `LONGEST_LINE`.
    """
    pieces = inflated(_pieces(source, 0, source.size)) if is_compressed(source.key) else _of_part(source, part)
    has_mark = part.begin == 0
    for block in _whole_lines(pieces, charset):
        yield from _in_utf8(without_mark(block, charset) if has_mark else block, charset, keep_ends=keep_ends)
        has_mark = False


def lines_before(source: FileBytes, charset: str, part: Part) -> Iterator[tuple[bool, Iterator[Block]]]:
    """Return the lines before a part of a file, more in each step, with True if they begin at the start of the file.

    Return nothing for the first part of a file, or if the file cannot be read in parts.
    """
    if part.begin == 0 or not is_split(source.key, charset):
        return
    end, length = _begin_of_line(source, part.begin), _LOOK
    while True:
        begin = _begin_of_line(source, max(0, end - length))
        text = source.read(begin, end - begin)
        yield begin == 0, _in_utf8(without_mark(text, charset) if begin == 0 else text, charset)
        if begin == 0 or length > LONGEST_LINE:
            return
        length *= 4


def lines_after(source: FileBytes, charset: str, part: Part) -> Iterator[Block]:
    """Return the lines after a part of a file. Return nothing if the file cannot be read in parts."""
    if part.end < source.size and is_split(source.key, charset):
        yield from lines_in_blocks(source, charset, Part(part.end))


def with_line_feeds(block: bytes) -> bytes:
    """Return a block with a line feed at each line end."""
    return block.replace(b"\r\n", b"\n").replace(b"\r", b"\n") if b"\r" in block else block


def lines_of_block(block: bytes) -> pa.StringArray:
    """Return the lines of a block as a column."""
    block = with_line_feeds(block)
    end = len(block) - block.endswith(b"\n")
    text = pa.StringArray.from_buffers(1, pa.py_buffer(np.array([0, end], np.int32)), pa.py_buffer(block))
    return pc.split_pattern(text, "\n").values


def _pieces(source: FileBytes, begin: int, end: int) -> Iterator[bytes]:
    for at in range(begin, end, BLOCK):
        yield source.read(at, min(BLOCK, end - at))


def _of_part(source: FileBytes, part: Part) -> Iterator[bytes]:
    """Return the bytes of the lines that begin in a part."""
    end = min(part.end, source.size)
    begin = _begin_of_line(source, part.begin)
    if begin >= end:
        return
    yield from _pieces(source, begin, end)
    yield from _pieces(source, end, _begin_of_line(source, end))


def _begin_of_line(source: FileBytes, at: int) -> int:
    """Return the place of the first line that begins at `at` or later."""
    if at == 0:
        return 0
    at -= 1
    while at < source.size:
        piece = source.read(at, min(_LOOK, source.size - at))
        found = piece.find(b"\n")
        if found >= 0:
            return at + found + 1
        at += len(piece)
    return source.size


_LOOK = 64 << 10


def _whole_lines(pieces: Iterable[bytes], charset: str) -> Iterator[bytes]:
    """Divide a text that comes in pieces into pieces that end at line ends."""
    held = b""
    for piece in pieces:
        held = held + piece if held else piece
        if len(held) < BLOCK:
            continue
        if cut := _last_line_end(held, charset):
            yield held[:cut]
            held = held[cut:]
        if len(held) > LONGEST_LINE:
            raise Unusable("unreadable", f"it has a line of more than {LONGEST_LINE} bytes")
    if held:
        yield held


def _last_line_end(text: bytes, charset: str) -> int:
    """Return the number of bytes up to and including the last line end; 0 if the text has no line end."""
    if charset.startswith("utf-16"):
        end = "\n".encode(charset)
        at = text.rfind(end)
        while at >= 0 and at % 2:
            at = text.rfind(end, 0, at + 1)
        return at + 2 if at >= 0 else 0
    if at := text.rfind(b"\n") + 1:
        return at
    return text.rfind(b"\r", 0, len(text) - 1) + 1  # a carriage return as last byte may be half of a line end


def _in_utf8(block: bytes, charset: str, *, keep_ends: bool = False) -> Iterator[Block]:
    decoded = decoded_by(block, charset)
    if decoded is None:
        lines = lines_with_faults(block, charset, keep_ends=keep_ends)
        if lines[-1] == TextRecord(""):  # the empty text after the last line end
            lines.pop()
        for is_wrong, group in groupby(lines, key=lambda line: line.fault is not None):
            found = list(group)
            end = "" if keep_ends else "\n"
            yield found if is_wrong else "".join(line.text + end for line in found).encode()
        return
    yield block if charset == "utf-8" else decoded.encode()
