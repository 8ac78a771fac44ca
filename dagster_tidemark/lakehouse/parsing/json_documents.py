"""Reader of JSON documents of several lines, block by block. A document continues while a bracket is open.

Only one block and the open document are in memory. Does not belong here: the content of a document (`json_rows`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby, islice
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dagster_tidemark.lakehouse.parsing import text_blocks
from dagster_tidemark.lakehouse.parsing.json_objects import BRACKETS, STEP, unmark_escaped
from dagster_tidemark.lakehouse.parsing.text_blocks import Block, with_line_feeds
from dagster_tidemark.lakehouse.readers.text import (
    BLANKS,
    LONGEST_RECORD,
    NO_END,
    TextRecord,
    in_a_list,
    is_list,
    opened,
)

_LINE_END, _QUOTE, _BACKSLASH = (ord(c) for c in '\n"\\')
_MOST_LINES = 20_000  # largest number of lines in a batch: a block can have millions of short lines
_Depths = npt.NDArray[np.int64]


def documents(blocks: Iterable[Block], most_lines: int | None = None) -> Iterator[tuple[list[TextRecord], bool]]:
    """Return documents in batches, each with True if one list encloses all lines of the file.

    The documents of such a file are the elements of the list. Each element is returned within its own brackets.

    Args:
        most_lines: The largest number of lines in a document. None means `LONGEST_RECORD`.
    """
    found = _Documents(LONGEST_RECORD if most_lines is None else most_lines)
    for block in blocks:
        for lines in _lines(block):
            yield found.closed_by(lines), found.in_list
    yield found.at_end(), found.in_list


class _Lines(NamedTuple):
    """One or more consecutive lines, without the blank lines.

    Args:
        texts: The lines.
        depths: `text.opened` of each line.
        fault: The fault that all lines have, such as invalid UTF-8; None if they are sound.
    """

    texts: list[str]
    depths: _Depths
    fault: str | None

    @staticmethod
    def of(texts: list[str], fault: str | None) -> _Lines:
        return _Lines(texts, np.array([opened(text) for text in texts]), fault)


class _Documents:
    """Documents of a file, built from the file's lines in order.

    Attributes:
        in_list: True if one list encloses all lines of the file.
    """

    def __init__(self, most_lines: int) -> None:
        self.in_list = False
        self._most_lines = most_lines
        self._ahead: _Lines | None = None  # the last line so far, which may close the list
        self._last: list[TextRecord] = []  # the last document so far, which is faulty if the list has no end
        self._open: list[str] = []  # lines of the open document
        self._fault: str | None = None  # the first fault in the open document
        self._size = 0
        self._is_cut = False
        self._depth = 0

    def closed_by(self, lines: _Lines) -> list[TextRecord]:
        """Add lines, and return the documents that are complete."""
        texts, depths, fault = lines
        found: list[TextRecord] = []
        if self._ahead is None:
            self.in_list = is_list(texts[0])
            if self.in_list:
                texts[0] = texts[0].replace("[", "", 1)
                depths[0] = opened(texts[0])
        else:
            found = self._closed(self._ahead)
        self._ahead = _Lines(texts[-1:], depths[-1:], fault)
        if len(texts) > 1:
            found += self._closed(_Lines(texts[:-1], depths[:-1], fault))
        if not self.in_list or not found:
            return found
        found = self._last + found
        self._last = [found.pop()]
        return _listed(found)

    def at_end(self) -> list[TextRecord]:
        """Return the documents that the end of the file completes. An unclosed document is faulty."""
        if self._ahead is None:
            return []
        (text,), _, fault = self._ahead
        if not self.in_list:
            return self._closed(self._ahead) + self._never_closed()
        text = text.rstrip(BLANKS)
        found = self._last + self._closed(_Lines.of([text.removesuffix("]")], fault)) + self._never_closed()
        if found and not text.endswith("]"):
            found[-1] = TextRecord(found[-1].text, NO_END)
        return _listed(found)

    def _closed(self, lines: _Lines) -> list[TextRecord]:
        depths = self._depth + np.cumsum(lines.depths)
        # A closing bracket without an opening bracket is ignored.
        depths -= np.minimum(np.minimum.accumulate(depths), 0)
        self._depth = int(depths[-1])
        found, begin = [], 0
        for end in (np.flatnonzero(depths == 0) + 1).tolist():
            found.append(self._joined(lines.texts[begin:end], lines.fault))
            begin = end
        self._hold(lines.texts[begin:], lines.fault)
        return found

    def _joined(self, texts: list[str], fault: str | None) -> TextRecord:
        """Return the document that begins in the kept lines, if any, and ends with these lines."""
        if not self._open and len(texts) <= self._most_lines:
            text = "\n".join(texts)
            if len(text) <= text_blocks.LONGEST_LINE:
                return TextRecord(text, fault)
        self._hold(texts, fault)
        return self._released(None)

    def _never_closed(self) -> list[TextRecord]:
        return [self._released(NO_END)] if self._open else []

    def _hold(self, texts: Iterable[str], fault: str | None) -> None:
        """Keep lines of the open document. A limit applies, because the bracket may never be closed."""
        for text in texts:
            if len(self._open) == self._most_lines or self._size > text_blocks.LONGEST_LINE:
                self._is_cut = True
                return
            self._open.append(text)
            self._fault = self._fault or fault
            self._size += len(text)

    def _released(self, fault: str | None) -> TextRecord:
        record = TextRecord("\n".join(self._open), self._fault or (NO_END if self._is_cut else fault))
        self._open, self._fault, self._size, self._is_cut = [], None, 0, False
        return record


def _listed(elements: Iterable[TextRecord]) -> list[TextRecord]:
    """Return each element of a list within its own brackets."""
    return [TextRecord(in_a_list(text), fault) for text, fault in elements if text.strip(BLANKS).strip(",")]


def _lines(block: Block) -> Iterator[_Lines]:
    if isinstance(block, list):
        for fault, group in groupby(block, key=lambda line: line.fault):
            if wrong := [line.text for line in group if line.text.strip(BLANKS)]:
                yield _Lines.of(wrong, fault)
        return
    block = with_line_feeds(block)
    block = block if block.endswith(b"\n") else block + b"\n"
    depths, is_odd = _depths(block)
    texts = iter(block.decode().split("\n"))
    for begin in range(0, len(depths), _MOST_LINES):
        found = depths[begin : begin + _MOST_LINES]
        some = list(islice(texts, len(found)))
        for at in np.flatnonzero(is_odd[begin : begin + len(found)]).tolist():
            found[at] = opened(some[at])
        kept = [at for at, text in enumerate(some) if text.strip(BLANKS)]
        if len(kept) == len(some):
            yield _Lines(some, found, None)
        elif kept:
            yield _Lines([some[at] for at in kept], found[kept], None)


def _depths(block: bytes) -> tuple[_Depths, npt.NDArray[np.bool_]]:
    """Return `text.opened` of each line, and a mask of the lines with a backslash outside of strings.

    Such a line has an unreliable result here, and is counted again by `text.opened` itself.
    """
    data = np.frombuffer(block, np.uint8)
    ends = np.flatnonzero(data == _LINE_END)
    is_mark = data == _QUOTE
    for bracket in BRACKETS:
        is_mark |= data == bracket
    has_escapes = unmark_escaped(is_mark, data)
    if has_escapes:
        is_mark |= data == _BACKSLASH
    marks = np.flatnonzero(is_mark)
    kinds = data[marks]
    rows = np.searchsorted(ends, marks)
    quotes = np.cumsum(kinds == _QUOTE)
    ahead = np.concatenate([np.zeros(1, np.int64), quotes])[np.searchsorted(marks, ends[:-1])]  # from line 2 on
    is_outside = (quotes - np.concatenate([np.zeros(1, np.int64), ahead])[rows]) & 1 == 0
    steps = np.where(is_outside, STEP[kinds], 0)
    is_odd = np.zeros(len(ends), np.bool_)
    if has_escapes:
        is_odd[rows[is_outside & (kinds == _BACKSLASH)]] = True
    return np.bincount(rows, steps, len(ends)).astype(np.int64), is_odd
