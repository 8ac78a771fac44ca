"""Parquet: a footer says what there is, values have types, and a few kilobytes may hold millions of rows.

Does not belong here: the texts that its values become (`typed_rows`, `values`).
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from dagster_tidemark.lakehouse.readers.file_format import FileFormat, Rows, Shape
from dagster_tidemark.lakehouse.readers.files import ObjectStore, SourceFile, Unusable
from dagster_tidemark.lakehouse.readers.remote_file import RemoteFile, arrow_faults
from dagster_tidemark.lakehouse.readers.typed_rows import rows_of_arrow, rows_of_spark
from dagster_tidemark.sources.feed import Feed
from dagster_tidemark.sources.file_endings import Format, endings_of

_CALLED = "Parquet"
_INT96 = "INT96"
"""How old writers put times into Parquet."""

_MARK = b"PAR1"
_PEEK = 64 << 10
_LARGEST_FOOTER = 64 << 20
_BATCH = 8192  # rows
_FIXED = 8  # bytes of a number


def _shape(store: ObjectStore, feed: Feed, file: SourceFile, body: bytes | None) -> Shape:
    content = _tail(store, file) if body is None else body
    if not content:
        raise Unusable("empty", "the file is empty")
    with arrow_faults(_CALLED), pq.ParquetFile(io.BytesIO(content)) as opened:
        leaves = [opened.schema.column(i) for i in range(len(opened.schema))]
        # Arrow calls it nanoseconds; to Spark it is another type than a number of them.
        kinds = {leaf.path: _INT96 for leaf in leaves if leaf.physical_type == _INT96}
        shape = Shape.of_arrow(Format.PARQUET, opened.schema_arrow)
        return replace(shape, columns=tuple(sorted((name, kinds.get(name, kind)) for name, kind in shape.columns)))


def _tail(store: ObjectStore, file: SourceFile) -> bytes:
    # The footer's length stands in the last eight bytes; most footers are in here with it.
    tail = store.read(file, last=_PEEK)
    footer = int.from_bytes(tail[-8:-4], "little") + 8
    if footer <= len(tail) or footer > file.size or not tail.endswith(_MARK):
        return tail
    if footer > _LARGEST_FOOTER:
        raise Unusable("unreadable", f"its footer has {footer} bytes, and at most {_LARGEST_FOOTER} are read")
    return store.read(file, last=footer)


def _weight(feed: Feed, key: str, body: bytes, limit: int) -> tuple[int, int]:
    with pq.ParquetFile(io.BytesIO(body)) as opened:
        rows, columns = opened.metadata.num_rows, [c for c in feed.columns if c in opened.schema_arrow.names]
        least, most = _bounds(opened)
        if least > limit:
            return rows, least
        size = len(body)
        # No batch may be above the limit, even if each value of a column is as long as all that is written of it.
        batch = max(1, min(_BATCH, rows * limit // max(1, most)))
        for part in opened.iter_batches(batch_size=batch, columns=columns):
            size += part.nbytes
            if size > limit:
                break
    return rows, size


def _bounds(opened: pq.ParquetFile) -> tuple[int, int]:
    """The bytes that the values of a file have at least and at most, by its footer."""
    least = most = 0
    for group in map(opened.metadata.row_group, range(opened.metadata.num_row_groups)):
        for n in range(group.num_columns):
            column, leaf = group.column(n), opened.schema.column(n)
            fixed = column.num_values * max(_FIXED, leaf.length or 0)
            is_bytes = leaf.physical_type == "BYTE_ARRAY"
            least += column.total_uncompressed_size if is_bytes else max(fixed, column.total_uncompressed_size)
            most += column.num_values * column.total_uncompressed_size if is_bytes else fixed
    return least, most


def _rows(feed: Feed, key: str, shape: Shape, body: bytes) -> Rows:
    names = {name for name, _ in shape.columns}
    # Of nanoseconds the years before 1678 and after 2262 would be others.
    with arrow_faults(_CALLED), pq.ParquetFile(io.BytesIO(body), coerce_int96_timestamp_unit="us") as opened:
        table = opened.read(columns=[c for c in feed.columns if c in names])
    return rows_of_arrow(feed, table)


def _scan(spark: SparkSession, store: ObjectStore, feed: Feed, shapes: Mapping[SourceFile, Shape]) -> DataFrame:
    return rows_of_spark(store, feed, shapes, spark.read.format("parquet"), row_index=True, value=_value)


def _value(column: Column, kind: str) -> Column:
    if kind.startswith("timestamp[ns"):
        # Spark has no nanoseconds and reads them as a long, of more digits than a double holds.
        return F.timestamp_micros(F.floor(column.cast("decimal(20,0)") / 1000).cast("bigint"))
    return column


def _verify(store: ObjectStore, file: SourceFile) -> None:
    source = pa.PythonFile(RemoteFile(store, file), mode="r")
    with arrow_faults(_CALLED), pq.ParquetFile(source) as opened:
        for _ in opened.iter_batches(batch_size=_BATCH):
            pass


def _sample(body: bytes, limit: int) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = pq.read_table(io.BytesIO(body)).slice(0, limit).to_pylist()
    return rows


PARQUET = FileFormat(
    name=Format.PARQUET,
    endings=endings_of(Format.PARQUET),
    shape=_shape,
    weight=_weight,
    rows=_rows,
    scan=_scan,
    verify=_verify,
    not_supported=(
        "ParquetDecodingException",
        "SchemaColumnConvertNotSupportedException",
        "BadConfigurationException",  # a codec that Spark does not have
        "Unsupported encoding: ",
        "Illegal Parquet type",
        "PARQUET_TYPE_ILLEGAL",
        "PARQUET_TYPE_NOT_SUPPORTED",
        "PARQUET_COLUMN_DATA_TYPE_MISMATCH",
    ),
    sample=_sample,
)
