"""The Parquet format: finds the shape of a file from the footer, and reads samples.

`parsing.parquet_rows` reads the rows.
"""

from __future__ import annotations

import io
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from dagster_tidemark.lakehouse.parsing import parquet_rows
from dagster_tidemark.lakehouse.parsing.rows import FileBytes, Part, equal_parts
from dagster_tidemark.lakehouse.parsing.sources import RandomAccess
from dagster_tidemark.lakehouse.readers.file_format import FileFormat, Shape
from dagster_tidemark.lakehouse.readers.files import Unusable, arrow_faults
from dagster_tidemark.sources.feed import Feed
from dagster_tidemark.sources.file_endings import Format, endings_of

_LARGEST_FOOTER = 64 << 20


def _shape(feed: Feed, source: FileBytes) -> Shape:
    if not source.size:
        raise Unusable("empty", "the file is empty")
    file = pa.PythonFile(RandomAccess(source, longest_read=_LARGEST_FOOTER), mode="r")
    with arrow_faults("Parquet"), pq.ParquetFile(file) as opened:
        return Shape.of_arrow(Format.PARQUET, opened.schema_arrow)


def _parts(shape: Shape, key: str, size: int, about: int) -> list[Part]:
    # Parts do not have to match row groups: a task without a row group only reads the footer.
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
