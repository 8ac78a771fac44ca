"""The Parquet format: finds the shape of a file from the footer, and reads samples.

`parsing.parquet_rows` reads the rows.
"""

from __future__ import annotations

import io
from dataclasses import dataclass
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
_END = 64 << 10
"""Number of bytes that Arrow reads first, from the end of a file."""

_MARK_OF_ENCRYPTED_FOOTER = b"PARE"
_SIGNATURE = 28  # bytes of the signature of a footer that is readable although columns are encrypted
_ENCRYPTED = "the file is encrypted, which is not read; write it without Parquet's encryption"


@dataclass(frozen=True)
class _WithEnd:
    """Source whose last bytes are in memory, so that they are fetched once."""

    source: FileBytes
    end: bytes

    @property
    def key(self) -> str:
        return self.source.key

    @property
    def size(self) -> int:
        return self.source.size

    def read(self, begin: int, length: int) -> bytes:
        """Return `length` bytes from `begin`; fewer at the end of the file."""
        at = begin - self.size + len(self.end)
        return self.source.read(begin, length) if at < 0 else self.end[at : at + length]


def _shape(feed: Feed, source: FileBytes) -> Shape:
    if not source.size:
        raise Unusable("empty", "the file is empty")
    end = source.read(max(0, source.size - _END), min(_END, source.size))
    if end.endswith(_MARK_OF_ENCRYPTED_FOOTER):
        raise Unusable("unreadable", _ENCRYPTED)
    file = pa.PythonFile(RandomAccess(_WithEnd(source, end), longest_read=_LARGEST_FOOTER), mode="r")
    with arrow_faults("Parquet"), pq.ParquetFile(file) as opened:
        # Arrow ends the process if it looks at an encrypted column without a key.
        if int.from_bytes(end[-8:-4], "little") - opened.metadata.serialized_size == _SIGNATURE:
            raise Unusable("unreadable", _ENCRYPTED)
        return Shape.of_arrow(Format.PARQUET, opened.schema_arrow)


def _parts(shape: Shape, key: str, size: int, about: int) -> list[Part]:
    # Parts do not have to match row groups: a task without a row group only reads the footer.
    return equal_parts(size, about)


def _sample(body: bytes, limit: int) -> list[dict[str, Any]]:
    table = pq.read_table(io.BytesIO(body)).slice(0, limit)
    rows = zip(*map(_values, table.column_names, table.columns), strict=True)
    return [dict(zip(table.column_names, row, strict=True)) for row in rows]


def _values(name: str, values: pa.ChunkedArray) -> list[Any]:
    try:
        found: list[Any] = values.to_pylist()
    except OverflowError as error:
        raise ValueError(
            f"a time in column {name!r} is not between the years 1 and 9999: cut such rows, or write the module "
            "by hand and declare the column as string"
        ) from error
    return found


PARQUET = FileFormat(
    name=Format.PARQUET,
    endings=endings_of(Format.PARQUET),
    shape=_shape,
    rows_of=parquet_rows.rows_of,
    parts=_parts,
    sample=_sample,
)
