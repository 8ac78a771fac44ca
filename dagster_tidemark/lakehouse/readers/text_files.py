"""First records and parts of text files, for all text formats.

Does not belong here: single lines (`text`), and the formats (`csv_text`, `json_text`).
"""

from __future__ import annotations

from dataclasses import dataclass

from dagster_tidemark.lakehouse.parsing.csv_dialect import Dialect
from dagster_tidemark.lakehouse.parsing.records import records_of
from dagster_tidemark.lakehouse.parsing.rows import WHOLE, FileBytes, Part, equal_parts
from dagster_tidemark.lakehouse.parsing.text_blocks import is_split
from dagster_tidemark.lakehouse.readers.file_format import Shape
from dagster_tidemark.lakehouse.readers.files import Unusable
from dagster_tidemark.lakehouse.readers.text import TextRecord, charset_of, is_over_lines, lines_of, text_of
from dagster_tidemark.sources.feed import Feed
from dagster_tidemark.sources.text_formats import Json

_HEAD = 64 << 10
"""Number of bytes of text that are inspected, up to the next line end. It is the same for small and large files."""

_LONG_HEAD = 4 << 20
"""Number of bytes that are inspected if no record ends within `_HEAD`."""


@dataclass(frozen=True)
class Head:
    """The beginning of a text file.

    Args:
        records: Records in the head, at least one unless the head has `names`.
        charset: Encoding of the file.
        is_cut: True if the last record may continue after the head.
        is_whole: True if the head is the whole file.
        size: Number of bytes of text.
        multiline: True if a record may have several lines, because the feed declares this or the text shows it.
        ahead: Upper bound of the number of bytes up to the end of a CSV header, in the encoding of the file.
        names: Names in the line `#Fields:` above the rows of a web server's log; None if there is none.
    """

    records: list[TextRecord]
    charset: str
    is_cut: bool
    is_whole: bool
    size: int
    multiline: bool
    ahead: int = 0
    names: list[str] | None = None

    @property
    def complete_records(self) -> list[TextRecord]:
        """Records that end in the head."""
        return self.records[:-1] if self.is_cut else self.records

    @property
    def first(self) -> TextRecord:
        """The first record; an empty one if there is none."""
        return self.records[0] if self.records else TextRecord("")


def head_of(feed: Feed, source: FileBytes, *, json: bool, dialect: Dialect | None = None) -> Head:
    """Read the beginning of a text file.

    Args:
        dialect: The marks of a CSV file. The records of a CSV file begin with the header.

    Raises:
        Unusable: the file is empty or binary, its compression is broken, or the header is not found.
    """
    content = b""
    head: Head | None = None
    for most, limit in ((_HEAD, 2 * _HEAD), (_LONG_HEAD, _LONG_HEAD)):
        content += source.read(len(content), most - len(content))
        is_all = len(content) >= source.size
        text = text_of(source.key, content, limit=limit, whole=is_all)
        head = _head(feed, source.key, text, is_all=is_all and len(text) < limit, json=json, dialect=dialect)
        if head and head.complete_records:
            break
    if head is None and dialect and dialect.has_lines_ahead and text:
        raise _without_header(dialect, text, charset_of(feed.encoding, text))
    if head is None:
        raise Unusable("empty", "the file is empty")
    return head


def _without_header(dialect: Dialect, text: bytes, charset: str) -> Unusable:
    lines = lines_of(text, charset)
    if dialect.header_begins is None:
        return Unusable(
            "missing_column", f"it has {len(lines)} lines, and the feed says skip_lines={dialect.skip_lines}"
        )
    first = next((line.text for line in lines if line.text.strip()), "")
    return Unusable(
        "missing_column",
        f"no line in its first {len(text)} bytes begins with {dialect.header_begins!r}, as the feed's header does; the "
        f"first line: {first[:100]!r}",
    )


def _head(feed: Feed, key: str, text: bytes, *, is_all: bool, json: bool, dialect: Dialect | None) -> Head | None:
    charset = charset_of(feed.encoding, text)
    line_end = "\n".encode(charset)
    end = text.find(line_end, _HEAD)
    while end >= 0 and end % len(line_end):  # in UTF-16, skip a match inside a character
        end = text.find(line_end, end + 1)
    is_cut = end < 0 and not is_all
    head = text if end < 0 else text[:end]
    if is_cut:
        head = head[: len(head) // len(line_end) * len(line_end)]
    in_array = isinstance(feed.text_format, Json) and feed.text_format.rows is not None
    through = head if end < 0 else text[: end + len(line_end)]
    multiline = feed.multiline or (json and (in_array or is_over_lines(key, through, charset)))
    records = records_of(head, encoding=charset, multiline=multiline, json=json, dialect=dialect)
    names = dialect.names_ahead(lines_of(head, charset)) if dialect and dialect.may_be_log else None
    if records or names:
        ahead = 0 if dialect is None else _bytes_ahead(dialect, head, charset)
        return Head(records, charset, is_cut, end < 0 and is_all, len(head), multiline, ahead, names)
    if b"\0" in head and len(line_end) == 1:
        raise Unusable("unreadable", "the first line is binary, not text")
    return None


def _bytes_ahead(dialect: Dialect, head: bytes, charset: str) -> int:
    """Return an upper bound of the number of bytes up to the end of the header."""
    lines = lines_of(head, charset)
    begin = dialect.begin_of_table(lines) or 0
    header = next((n for n, line in enumerate(lines[begin:], begin) if dialect.is_record(line.text)), begin)
    if not header:
        return 0
    # An upper bound: a line end has at most two characters, and invalid text is longer here than in the file.
    mark, longest = 4, 2 * len("\n".encode(charset))
    return mark + sum(len(line.text.encode(charset, errors="replace")) + longest for line in lines[: header + 1])


def parts_of_text(shape: Shape, key: str, size: int, about: int) -> list[Part]:
    """Return the parts of a text file. A file is split only if each record is a single line."""
    if not is_split(key, shape.charset) or shape.is_over_lines:
        return [WHOLE]
    return equal_parts(size, about)
