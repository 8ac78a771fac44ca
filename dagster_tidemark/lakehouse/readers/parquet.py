"""Parquet: a footer says what there is. Its rows are read by `parsing.parquet_rows`."""

from __future__ import annotations

import io
from typing import Any

import pyarrow.parquet as pq

from dagster_tidemark.lakehouse.parsing import parquet_rows
from dagster_tidemark.lakehouse.parsing.rows import Part, equal_parts
from dagster_tidemark.lakehouse.readers.file_format import FileFormat, Shape
from dagster_tidemark.lakehouse.readers.files import ObjectStore, SourceFile, Unusable
from dagster_tidemark.lakehouse.readers.remote_file import arrow_faults
from dagster_tidemark.sources.feed import Feed
from dagster_tidemark.sources.file_endings import Format, endings_of

_CALLED = "Parquet"
_MARK = b"PAR1"
_PEEK = 64 << 10
_LARGEST_FOOTER = 64 << 20


def _shape(store: ObjectStore, feed: Feed, file: SourceFile, body: bytes | None) -> Shape:
    content = _tail(store, file) if body is None else body
    if not content:
        raise Unusable("empty", "the file is empty")
    with arrow_faults(_CALLED), pq.ParquetFile(io.BytesIO(content)) as opened:
        return Shape.of_arrow(Format.PARQUET, opened.schema_arrow)


def _tail(store: ObjectStore, file: SourceFile) -> bytes:
    # The footer's length stands in the last eight bytes; most footers are in here with it.
    tail = store.read(file, last=_PEEK)
    footer = int.from_bytes(tail[-8:-4], "little") + 8
    if footer <= len(tail) or footer > file.size or not tail.endswith(_MARK):
        return tail
    if footer > _LARGEST_FOOTER:
        raise Unusable("unreadable", f"its footer has {footer} bytes, and at most {_LARGEST_FOOTER} are read")
    return store.read(file, last=footer)


def _parts(shape: Shape, key: str, size: int, about: int) -> list[Part]:
    # A task reads the row groups that begin in its part; whoever has none has read the footer in vain.
    return equal_parts(size, about)


def _sample(body: bytes, limit: int) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = pq.read_table(io.BytesIO(body)).slice(0, limit).to_pylist()
    return rows


PARQUET = FileFormat(
    name=Format.PARQUET,
    endings=endings_of(Format.PARQUET),
    shape=_shape,
    rows_of=parquet_rows.rows_of,
    parts=_parts,
    sample=_sample,
)
