"""What formats that are lines of text share: the look at a file's beginning, and its parts.

Belongs here: how much of a file is looked at, and what is no text at all. Does not belong here: what a line is
(`text`), and what is in one (`csv_text`, `json_text`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from dagster_tidemark.lakehouse.parsing.rows import WHOLE, Part, equal_parts
from dagster_tidemark.lakehouse.parsing.text_blocks import is_split
from dagster_tidemark.lakehouse.readers.file_format import Shape
from dagster_tidemark.lakehouse.readers.files import ObjectStore, SourceFile, Unusable
from dagster_tidemark.lakehouse.readers.text import (
    Record,
    charset_of,
    is_over_lines,
    not_valid,
    records_of,
    text_of,
)
from dagster_tidemark.sources.feed import Feed

_PEEK = 4 << 10
_LONG_PEEK = 64 << 10
_LONGEST_LINE = 4 << 20
_CALLED = {"utf-8": "UTF-8"}

S = TypeVar("S", bound=Shape)


@dataclass(frozen=True)
class Head:
    """The beginning of a text file.

    Args:
        records: Those that begin in it, at least one.
        charset: How they are encoded.
        is_cut: Whether the last of them may go on behind it.
        size: Bytes that were looked at, inflated.
        whole: The text of the whole file, where that is in hand and longer than what was looked at.
        is_whole: Whether the end of the file was seen, in `whole` if not in `records`.
        multiline: Whether a record may have several lines: the feed says so, or the text shows it.
    """

    records: list[Record]
    charset: str
    is_cut: bool
    size: int
    whole: bytes | None
    is_whole: bool
    multiline: bool

    @property
    def not_text(self) -> str:
        """What is said where the first line is not in the encoding of its feed."""
        charset = _CALLED.get(self.charset, self.charset)
        return f"the first line is no {charset} text: {self.records[0].text[:100]!r}"

    @property
    def begins_with_no_text(self) -> bool:
        """Whether the first line is not in the encoding of its feed."""
        return self.records[0].fault == not_valid(self.charset)


def looked_into(
    store: ObjectStore, feed: Feed, file: SourceFile, body: bytes | None, shape_of: Callable[[Head], S], *, json: bool
) -> S:
    """The shape of a text file by its beginning, of which more is fetched as long as `shape_of` cannot use it.

    Raises:
        Unusable: the file cannot be taken.
        ObjectChanged, ObjectUnavailable, BucketUnavailable: the bytes could not be had.
    """
    if body is not None:
        return shape_of(_head(feed, file.key, body, cut=False, json=json))
    # A long header needs more than a little, and so does a compressed one.
    for first in (_PEEK, _LONG_PEEK):
        with contextlib.suppress(Unusable):
            return shape_of(_head(feed, file.key, store.read(file, first=first), cut=file.size > first, json=json))
        if file.size <= first:
            break
    content = store.read(file, first=_LONGEST_LINE)
    return shape_of(_head(feed, file.key, content, cut=file.size > _LONGEST_LINE, json=json))


def _head(feed: Feed, key: str, content: bytes, *, cut: bool, json: bool) -> Head:
    text = text_of(key, content, limit=_LONGEST_LINE, whole=not cut)
    charset = charset_of(feed.encoding, text)
    line_end = "\n".encode(charset)
    cut = cut or len(text) == _LONGEST_LINE
    # Whole lines; of UTF-16 an end is one only where a character begins.
    end = text.find(line_end, _LONG_PEEK)
    while end >= 0 and end % len(line_end):
        end = text.find(line_end, end + 1)
    head = text if end < 0 else text[:end]
    if cut and end < 0:
        head = head[: len(head) // len(line_end) * len(line_end)]
    multiline = feed.multiline or (json and is_over_lines(key, head, charset))
    records = records_of(head, encoding=charset, multiline=multiline, json=json)
    if not records and b"\0" in head and len(line_end) == 1:
        raise Unusable("unreadable", "the first line is binary, not text")
    if not records:
        raise Unusable("empty", "the file is empty")
    whole = text if end >= 0 and not cut else None
    return Head(records, charset, cut and end < 0, len(head), whole, is_whole=not cut, multiline=multiline)


def parts_of_text(shape: Shape, key: str, size: int, about: int) -> list[Part]:
    """The parts of a text file: where a line ends is seen from anywhere in it, if a record is a line."""
    if not is_split(key, shape.charset) or shape.is_over_lines:
        return [WHOLE]
    return equal_parts(size, about)
