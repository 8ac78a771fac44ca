"""Looking into files before they are read: a header, a footer, or the whole of a small file.

A small file is fetched whole, once, and its rows are taken from those bytes: whatever is wrong with it harms nobody
else, and no byte leaves the bucket twice. Of a large one the header or footer is fetched; Spark scans the rest.
Does not belong here: how the rows are made (`fetched`, `scans`).
"""

from __future__ import annotations

import codecs
import contextlib
import io
import json
import zlib
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq

from pipelines.lakehouse.files import FileFault, ObjectStore, SourceFile, Unusable
from pipelines.sources.feed import Feed

INT96 = "INT96"
"""How old writers put times into Parquet."""

SMALL = 1 << 20  # bytes up to which a file is fetched whole
_TOGETHER = 32 << 20  # bytes of small files of one load; they pass through the memory of the run
_USUAL_RATIO = 8  # of text to its gzip
_PEEK = 4 << 10
_LONG_PEEK = 64 << 10
_LONGEST_LINE = 4 << 20
_THREADS = 16


@dataclass(frozen=True)
class Shape:
    """The physical form of a file: files of equal shape are read together. For CSV in the order of its columns."""

    format: str
    columns: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Inspected:
    """What can be read, and what cannot: small files with their bytes, large ones, and faults."""

    fetched: Mapping[SourceFile, tuple[Shape, bytes]]
    large: Mapping[SourceFile, Shape]
    faults: Sequence[FileFault]

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
    """Look into each of these files."""
    whole = _fetched_whole(files)

    def _look(file: SourceFile) -> tuple[SourceFile, Shape | FileFault, bytes | None]:
        if file.misplaced:
            return file, FileFault(file, file.misplaced, file.message), None
        body = store.read(file.key) if file in whole else None
        try:
            shape = _checked(_shape(store, file, body), feed)
            is_in_hand = body is not None and not _inflates(file, body)
        except Unusable as unusable:
            return file, FileFault(file, unusable.reason, str(unusable)), None
        return file, shape, body if is_in_hand else None

    with ThreadPoolExecutor(max_workers=_THREADS) as pool:
        looked = list(pool.map(_look, files))
    return Inspected(
        {file: (shape, body) for file, shape, body in looked if isinstance(shape, Shape) and body is not None},
        {file: shape for file, shape, body in looked if isinstance(shape, Shape) and body is None},
        [fault for _, fault, _ in looked if isinstance(fault, FileFault)],
    )


def text_of(key: str, content: bytes, *, limit: int | None = None, whole: bool = True) -> bytes:
    """The text of a file, decompressed where its name says so; at most `limit` bytes, else all there is.

    Args:
        whole: Whether `content` is the whole file; what is only its beginning may end anywhere.

    Raises:
        Unusable: the compression is broken or ends too early.
    """
    if not key.endswith(".gz"):
        return content[:limit]
    text, rest = b"", content
    try:
        while rest and (limit is None or len(text) < limit):
            stream = zlib.decompressobj(wbits=31)
            text += stream.decompress(rest, 0 if limit is None else limit - len(text))
            if whole and not stream.eof and (limit is None or len(text) < limit):
                raise Unusable("unreadable", "the gzip file is truncated: it ends before its end marker")
            rest = stream.unused_data.lstrip(b"\0")  # padding, which gzip itself skips
    except zlib.error as error:
        raise Unusable("unreadable", f"no gzip file: {error}") from error
    return text


def lines_of(text: bytes) -> list[str]:
    """The lines of a text as Spark splits them, blank ones left out."""
    decoded = text.decode("utf-8-sig", errors="replace").replace("\r\n", "\n").replace("\r", "\n")
    return [line for line in decoded.split("\n") if line.strip(_BLANKS)]


_BLANKS = "".join(map(chr, range(33)))


def fields_of(line: str) -> list[str]:
    """The values of a CSV line, as Spark's parser sees them, also where quotes make no sense."""
    if '"' not in line:
        return line.split(",")
    fields, at = [], 0
    while at <= len(line):
        value, at = _quoted_field(line, at) if line.startswith('"', at) else _plain_field(line, at)
        fields.append(value)
        at += 1
    return fields


def _plain_field(line: str, begin: int) -> tuple[str, int]:
    end = line.find(",", begin)
    end = len(line) if end < 0 else end
    return line[begin:end], end


def _quoted_field(line: str, begin: int) -> tuple[str, int]:
    """The value that begins with the quote at `begin`, and where the next delimiter stands."""
    value, at = "", begin + 1
    while (quote := line.find('"', at)) >= 0:
        value += line[at:quote]
        if not line.startswith('""', quote):
            end = next((i for i in range(quote + 1, len(line)) if line[i] > " "), len(line))
            if end == len(line) or line[end] == ",":
                return value, end
            # What follows a closing quote is the delimiter; so it was no quoted value after all.
            rest, end = _plain_field(line, quote)
            return f'"{value}{rest}', end
        value, at = value + '"', quote + 2
    return (value + line[at:] or '"'), len(line)


def _fetched_whole(files: Sequence[SourceFile]) -> set[SourceFile]:
    # The smallest first: they gain most from not being a Spark scan of their own.
    whole, together = set(), 0
    for file in sorted((f for f in files if not f.misplaced), key=lambda f: f.size):
        together += file.size * (_USUAL_RATIO if file.key.endswith(".gz") else 1)
        if file.size > SMALL or together > _TOGETHER:
            break
        whole.add(file)
    return whole


def _inflates(file: SourceFile, body: bytes) -> bool:
    # A megabyte of gzip can hold a gigabyte, which is for Spark to stream.
    return file.key.endswith(".gz") and len(text_of(file.key, body, limit=_TOGETHER)) == _TOGETHER


def _shape(store: ObjectStore, file: SourceFile, body: bytes | None) -> Shape:
    if file.key.endswith(".parquet"):
        return _parquet_shape(_tail(store, file) if body is None else body)
    if body is not None:
        return _text_shape(file.key, body)
    # A long header needs more than a little, and so does a compressed one.
    for first in (_PEEK, _LONG_PEEK):
        with contextlib.suppress(Unusable):
            return _text_shape(file.key, store.read(file.key, first=first), cut=file.size > first)
        if file.size <= first:
            break
    return _text_shape(file.key, store.read(file.key, first=_LONGEST_LINE), cut=file.size > _LONGEST_LINE)


def _text_shape(key: str, content: bytes, *, cut: bool = False) -> Shape:
    text = text_of(key, content, limit=_LONGEST_LINE, whole=not cut).removeprefix(codecs.BOM_UTF8)
    end = text.find(b"\n", _LONG_PEEK)
    head = text if end < 0 else text[:end]  # whole lines
    cut = cut or len(text) == _LONGEST_LINE
    if not head.strip():
        raise Unusable("empty", "the file is empty")
    first, *_ = head.lstrip().splitlines()
    complete = not cut or len(first) < len(head.strip())
    try:
        line = first.decode("utf-8", errors="strict" if complete else "ignore")
    except UnicodeDecodeError as error:
        raise Unusable("unreadable", f"the first line is no UTF-8 text: {error.reason}") from error
    if "\0" in line:
        raise Unusable("unreadable", "the first line is binary, not text")
    if key.endswith((".json", ".jsonl")):
        return _json_shape(head, cut and end < 0)
    if not complete:
        raise Unusable("unreadable", f"the first line is longer than {len(head)} bytes")
    return Shape("csv", tuple((name.strip(), "string") for name in fields_of(line)))


def _json_shape(head: bytes, cut: bool) -> Shape:
    names: dict[str, None] = {}
    lines = lines_of(head)
    for line in lines[:-1] if cut and len(lines) > 1 else lines:
        try:
            record = json.loads(line, parse_int=str)  # a number of 5,000 digits would be an error
        except (ValueError, RecursionError):
            continue
        if isinstance(record, dict):
            names |= dict.fromkeys(record)
    if not names:
        raise Unusable("unreadable", "no line of it is a JSON object")
    return Shape("json", tuple((name, "string") for name in names))


def _tail(store: ObjectStore, file: SourceFile) -> bytes:
    # The footer's length stands in the last eight bytes; most footers are in here with it.
    tail = store.read(file.key, last=_LONG_PEEK)
    footer = int.from_bytes(tail[-8:-4], "little") + 8
    return tail if footer <= len(tail) or footer > file.size else store.read(file.key, last=footer)


def _parquet_shape(content: bytes) -> Shape:
    if not content:
        raise Unusable("empty", "the file is empty")
    try:
        with pq.ParquetFile(io.BytesIO(content)) as opened:
            schema, leaves = opened.schema_arrow, [opened.schema.column(i) for i in range(len(opened.schema))]
    except (pa.ArrowException, OSError) as error:
        raise Unusable("unreadable", f"no Parquet file, or a truncated one: {error}") from error
    # Arrow calls it nanoseconds; to Spark it is another type than a number of them.
    kinds = {leaf.path: INT96 for leaf in leaves if leaf.physical_type == INT96}
    # Sorted: columns are found by name, so files that differ in their order alone are read together.
    return Shape("parquet", tuple(sorted((field.name, kinds.get(field.name, str(field.type))) for field in schema)))


def _checked(shape: Shape, feed: Feed) -> Shape:
    names = [name for name, _ in shape.columns]
    missing = [c for c in feed.required if c not in names]
    if missing:
        raise Unusable("missing_column", f"no column {', '.join(missing)}; found {', '.join(names)}")
    twice = sorted(c for c in feed.columns if names.count(c) > 1)
    if twice:
        raise Unusable("duplicate_column", f"column {', '.join(twice)} stands there twice")
    return shape
