"""Looking into files before they are read: a header, a footer, or the whole of a small file.

A small file is fetched whole, once, and its rows are taken from those bytes: whatever is wrong with it harms nobody
else, and no byte leaves the bucket twice. Of a large one the header or footer is fetched; Spark scans the rest.
Does not belong here: how the rows are made (`in_memory`, `spark_scan`).
"""

from __future__ import annotations

import contextlib
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.parquet as pq

from pipelines.tidemark.lakehouse.readers.files import LIMITS_OF_ARROW, FileFault, ObjectStore, SourceFile, Unusable
from pipelines.tidemark.lakehouse.readers.long_lines import refuse_long_lines
from pipelines.tidemark.lakehouse.readers.text import (
    Record,
    charset_of,
    fields_of,
    is_list,
    not_valid,
    records_of,
    text_of,
)
from pipelines.tidemark.lakehouse.readers.weight import weight_of
from pipelines.tidemark.sources.feed import Feed, NewColumns
from pipelines.tidemark.sources.formats import Format, format_of
from pipelines.tidemark.sources.listing import ObjectUnavailable

INT96 = "INT96"
"""How old writers put times into Parquet."""

SMALL = 1 << 20  # bytes up to which a file is fetched whole
_TOGETHER = 32 << 20  # bytes of small files of one load, inflated; they pass through the memory of the run
_ROWS_TOGETHER = 200_000  # of them; a row of ten texts takes about a kilobyte underway, so 200 MB
_USUAL_RATIO = 8  # of text to its gzip
_PEEK = 4 << 10
_LONG_PEEK = 64 << 10
_PARQUET = b"PAR1"
_LARGEST_FOOTER = 64 << 20
_LONGEST_LINE = 4 << 20
_THREADS = 16
_TOLD = 20  # names that are spelled out
NO_OBJECT = "no line of it is a JSON object"


@dataclass(frozen=True)
class Shape:
    """The physical form of a file: files of equal shape are read together.

    Args:
        columns: Name and type; for CSV in the order they stand in, for JSON as far as the file was looked into.
        charset: How a text is encoded.
        is_list: Whether a JSON text is one list.
        by_line: Whether Spark has to be led through JSON line by line: its own reader would be silent about something.
        has_object: Whether an object was seen in JSON, as far as the file was looked into.
    """

    format: Format
    columns: tuple[tuple[str, str], ...] = ()
    charset: str = "utf-8"
    is_list: bool = False
    by_line: bool = False
    has_object: bool = True


def is_careful(shape: Shape, feed: Feed) -> bool:
    """Whether JSON is led through Spark line by line, be the file large or not."""
    return shape.charset != "utf-8" or shape.by_line or feed.multiline


@dataclass(frozen=True)
class Inspected:
    """What can be read, and what cannot: small files with their bytes, large ones, and faults.

    `unavailable` are files that are there and not given, with what S3 says: no verdict on them.
    """

    fetched: Mapping[SourceFile, tuple[Shape, bytes]]
    large: Mapping[SourceFile, Shape]
    faults: Sequence[FileFault]
    unavailable: Mapping[SourceFile, ObjectUnavailable] = field(default_factory=dict)

    @property
    def readable(self) -> list[SourceFile]:
        """Every file that has rows to read, as far as its header says."""
        return [*self.fetched, *self.large]

    def new_columns(self, feed: Feed) -> dict[str, list[str]]:
        """Columns that the feed does not declare, with the files that have them."""
        found: dict[str, list[str]] = {}
        shapes = [*((f, s) for f, (s, _) in self.fetched.items()), *self.large.items()]
        for file, shape in sorted(shapes, key=lambda pair: pair[0].key):
            for name, _ in shape.columns:
                if name not in feed.columns:
                    found.setdefault(name, []).append(file.key)
        return found


def inspect(store: ObjectStore, feed: Feed, files: Sequence[SourceFile]) -> Inspected:
    """Look into each of these files.

    Raises:
        ObjectChanged, BucketUnavailable: see `ObjectStore.read`.
    """
    whole = _fetched_whole(files)

    def _look(file: SourceFile) -> tuple[SourceFile, Shape | FileFault | ObjectUnavailable, bytes | None]:
        try:
            return _looked_into(file)
        except ObjectUnavailable as refusal:
            return file, refusal, None

    def _looked_into(file: SourceFile) -> tuple[SourceFile, Shape | FileFault, bytes | None]:
        if file.misplaced:
            return file, FileFault(file, file.misplaced, file.message), None
        body = store.read(file) if file in whole else None
        try:
            shape = _checked(_shape(store, feed, file, body), feed)
            if shape.format is not Format.PARQUET:
                refuse_long_lines(store, file, shape.charset, body)
            return file, shape, body
        except Unusable as unusable:
            return file, FileFault(file, unusable.reason, str(unusable)), None

    with ThreadPoolExecutor(max_workers=_THREADS) as pool:
        looked = list(pool.map(_look, files))
    in_hand = {file: (shape, body) for file, shape, body in looked if isinstance(shape, Shape) and body is not None}
    fetched = {file: in_hand[file] for file in _fitting(feed, in_hand)}
    return Inspected(
        fetched,
        {file: shape for file, shape, _ in looked if isinstance(shape, Shape) and file not in fetched},
        [fault for _, fault, _ in looked if isinstance(fault, FileFault)],
        {file: refusal for file, refusal, _ in looked if isinstance(refusal, ObjectUnavailable)},
    )


def _fetched_whole(files: Sequence[SourceFile]) -> set[SourceFile]:
    # The smallest first: they gain most from not being a Spark scan of their own.
    whole, together = set(), 0
    for file in sorted((f for f in files if not f.misplaced), key=lambda f: f.size):
        together += file.size * (_USUAL_RATIO if file.key.endswith(".gz") else 1)
        if file.size > SMALL or together > _TOGETHER:
            break
        whole.add(file)
    return whole


def _fitting(feed: Feed, in_hand: Mapping[SourceFile, tuple[Shape, bytes]]) -> Iterator[SourceFile]:
    """Of files that were fetched those whose rows fit into the run's memory; the others are for Spark to stream."""
    rows = size = 0
    for file in sorted(in_hand, key=lambda f: f.size):
        found, inflated = weight_of(feed, file.key, in_hand[file][1], limit=_TOGETHER)
        rows, size = rows + found, size + inflated
        if rows > _ROWS_TOGETHER or size > _TOGETHER:
            return
        yield file


def _shape(store: ObjectStore, feed: Feed, file: SourceFile, body: bytes | None) -> Shape:
    if format_of(file.key) is Format.PARQUET:
        return _parquet_shape(_tail(store, file) if body is None else body)
    if body is not None:
        return _text_shape(feed, file.key, body)
    # A long header needs more than a little, and so does a compressed one.
    for first in (_PEEK, _LONG_PEEK):
        with contextlib.suppress(Unusable):
            return _text_shape(feed, file.key, store.read(file, first=first), cut=file.size > first)
        if file.size <= first:
            break
    return _text_shape(feed, file.key, store.read(file, first=_LONGEST_LINE), cut=file.size > _LONGEST_LINE)


def _text_shape(feed: Feed, key: str, content: bytes, *, cut: bool = False) -> Shape:
    text = text_of(key, content, limit=_LONGEST_LINE, whole=not cut)
    charset = charset_of(feed.encoding, text)
    line_end = "\n".encode(charset)
    cut = cut or len(text) == _LONGEST_LINE
    is_whole = not cut
    # Whole lines; of UTF-16 an end is one only where a character begins.
    end = text.find(line_end, _LONG_PEEK)
    while end >= 0 and end % len(line_end):
        end = text.find(line_end, end + 1)
    head = text if end < 0 else text[:end]
    if cut and end < 0:
        head = head[: len(head) // len(line_end) * len(line_end)]
    cut = cut and end < 0
    json_file = format_of(key) is Format.JSON
    records = records_of(head, encoding=charset, multiline=feed.multiline, json=json_file)
    if not records and b"\0" in head and len(line_end) == 1:
        raise Unusable("unreadable", "the first line is binary, not text")
    if not records:
        raise Unusable("empty", "the file is empty")
    first, fault = records[0]
    is_complete = not cut or len(records) > 1
    not_text = f"the first line is no {_CALLED.get(charset, charset)} text: {first[:100]!r}"
    if json_file:
        shape = _json_shape(records, charset, cut, is_list=feed.multiline and is_list(first))
        if not shape.has_object and is_whole and end >= 0:
            records = records_of(text, encoding=charset, multiline=feed.multiline, json=True)
            shape = _json_shape(records, charset, False, is_list=shape.is_list)
        if not shape.has_object and is_whole:
            raise Unusable("unreadable", not_text if fault == not_valid(charset) else NO_OBJECT)
        return shape
    if is_complete and fault == not_valid(charset):
        raise Unusable("unreadable", not_text)
    if "\0" in first:
        raise Unusable("unreadable", "the first line is binary, not text")
    if not is_complete:
        raise Unusable("unreadable", f"the first line is longer than {len(head)} bytes")
    return Shape(Format.CSV, tuple((name.strip(), "string") for name in fields_of(first)), charset)


_CALLED = {"utf-8": "UTF-8"}


def _json_shape(records: Sequence[Record], charset: str, cut: bool, *, is_list: bool) -> Shape:
    names: dict[str, None] = {}
    has_object = is_odd = False
    for text, fault in records[:-1] if cut and len(records) > 1 else records:
        is_odd |= fault is not None or "\\ud" in text.lower()  # which may be half of a character
        try:
            found = json.loads(text, parse_int=str)  # a number of 5,000 digits would be an error
        except (ValueError, RecursionError) as error:
            is_odd |= str(error).startswith("Extra data")
            continue
        for record in found if isinstance(found, list) else [found]:
            if isinstance(record, dict):
                has_object = True
                names |= dict.fromkeys(record)
    columns = tuple((name, "string") for name in names)
    return Shape(Format.JSON, columns, charset, is_list, by_line=is_odd or not has_object, has_object=has_object)


def _tail(store: ObjectStore, file: SourceFile) -> bytes:
    # The footer's length stands in the last eight bytes; most footers are in here with it.
    tail = store.read(file, last=_LONG_PEEK)
    footer = int.from_bytes(tail[-8:-4], "little") + 8
    if footer <= len(tail) or footer > file.size or not tail.endswith(_PARQUET):
        return tail
    if footer > _LARGEST_FOOTER:
        raise Unusable("unreadable", f"its footer has {footer} bytes, and at most {_LARGEST_FOOTER} are read")
    return store.read(file, last=footer)


def _parquet_shape(content: bytes) -> Shape:
    if not content:
        raise Unusable("empty", "the file is empty")
    try:
        with pq.ParquetFile(io.BytesIO(content)) as opened:
            schema, leaves = opened.schema_arrow, [opened.schema.column(i) for i in range(len(opened.schema))]
            # Arrow calls it nanoseconds; to Spark it is another type than a number of them.
            kinds = {leaf.path: INT96 for leaf in leaves if leaf.physical_type == INT96}
            # Sorted: columns are found by name, so files that differ in their order alone are read together.
            columns = tuple(sorted((column.name, kinds.get(column.name, str(column.type))) for column in schema))
    except LIMITS_OF_ARROW:
        raise
    except (pa.ArrowException, OSError, UnicodeError) as error:  # a column's name may be no text
        raise Unusable("unreadable", f"no Parquet file, or a damaged one: {error}") from error
    return Shape(Format.PARQUET, columns)


def _checked(shape: Shape, feed: Feed) -> Shape:
    names = [name for name, _ in shape.columns]
    # JSON has no header: a key may come in any line, and is missing row by row.
    missing = [] if shape.format is Format.JSON else [c for c in feed.required if c not in names]
    if missing:
        raise Unusable("missing_column", f"no column {', '.join(missing)}; found {', '.join(names)}")
    twice = sorted(c for c in feed.columns if names.count(c) > 1)
    if twice:
        raise Unusable("duplicate_column", f"column {', '.join(twice)} stands there twice")
    new = [name for name in names if name not in feed.columns]
    if new and feed.new_columns is NewColumns.FAIL:
        more = f" and {len(new) - _TOLD} more" if len(new) > _TOLD else ""
        raise Unusable(
            "new_column",
            f"not declared: {', '.join(map(repr, new[:_TOLD]))}{more}; declare such columns, or let the feed say "
            "new_columns='add' or 'ignore', and give the asset a new code_version",
        )
    return shape
