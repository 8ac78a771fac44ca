"""The Parquet format: the shape of a file from its footer, its rows, and samples.

A part of a file has the row groups that begin in its bytes. Does not belong here: values of columns
(`parsing.typed_rows`).
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from dagster_tidemark.lakehouse.parsing.rows import WHOLE, DeclaredContent, FileBytes, Part, Rows, equal_parts
from dagster_tidemark.lakehouse.parsing.sources import RandomAccess
from dagster_tidemark.lakehouse.parsing.typed_rows import MOST_BYTES, MOST_ROWS, joined, rows_of_table
from dagster_tidemark.lakehouse.readers.file_format import FileFormat, Shape
from dagster_tidemark.lakehouse.readers.files import Unusable, arrow_faults
from dagster_tidemark.sources.feed import Feed
from dagster_tidemark.sources.file_endings import Format, endings_of

_CALLED = "Parquet"
_OF_VARIANT = {"metadata", "value", "typed_value"}
_FIXED = 8  # bytes of a number in memory
_REPEATING = {"DELTA_BYTE_ARRAY", "PLAIN_DICTIONARY", "RLE_DICTIONARY"}
"""Encodings that may store many long values in few bytes, because values repeat."""

_LARGEST_FOOTER = 64 << 20
_END = 64 << 10
"""Number of bytes that Arrow reads first, from the end of a file."""

_MARK_OF_ENCRYPTED_FOOTER = b"PARE"
_SIGNATURE = 28  # bytes of the signature of a footer that is readable although columns are encrypted
_ENCRYPTED = "the file is encrypted, which is not read; write it without Parquet's encryption"


def rows_of(declared: DeclaredContent, shape: Any, source: FileBytes, part: Part = WHOLE) -> Iterator[Rows]:
    """Return the rows of a part of a file (`rows.RowsOf`), in the order of the file's bytes.

    A row group begins with the first page of its first column, so it belongs to exactly one part. Only the declared
    columns are fetched. Each part reads the footer again. If the footers were sent with the parts, every task would
    have the footers of up to 10,000 files in memory.

    Raises:
        Unusable: the file is not a Parquet file, or is damaged.
    """
    file = RandomAccess(source)
    tables = _tables(declared, file, source.size, part)
    while True:
        with arrow_faults(_CALLED):
            table = next(tables, None)
        if table is None:
            return
        yield rows_of_table(declared, table)


def _has_variant(kind: pa.DataType) -> bool:
    """Return True if a type is or has a VARIANT, which Arrow returns as a struct of bytes without meaning."""
    if isinstance(kind, pa.BaseExtensionType):
        return "variant" in kind.extension_name or _has_variant(kind.storage_type)
    if pa.types.is_struct(kind) and {"metadata", "value"} <= {f.name for f in kind} <= _OF_VARIANT:
        return all(pa.types.is_binary(kind.field(name).type) for name in ("metadata", "value"))
    return any(_has_variant(kind.field(n).type) for n in range(kind.num_fields))


def _groups(footer: pq.FileMetaData, size: int) -> list[tuple[int, int]]:
    """Return the first byte and the number of each row group, in the order of the file's bytes."""
    if not footer.num_columns:
        raise Unusable("unreadable", "it has no columns")
    found = []
    for n in range(footer.num_row_groups):
        group = footer.row_group(n)
        first = group.column(0)
        begin, dictionary = first.data_page_offset, first.dictionary_page_offset
        if dictionary is not None and 0 < dictionary < begin:
            begin = dictionary
        if not 0 <= begin < size:  # no part would read the rows of this group
            raise Unusable(
                "unreadable", f"not a valid {_CALLED} file, or damaged: row group {n} is outside of the file"
            )
        found.append((begin, n))
    return sorted(found)


def _tables(declared: DeclaredContent, file: RandomAccess, size: int, part: Part) -> Iterator[pa.Table]:
    with pq.ParquetFile(pa.PythonFile(file, mode="r")) as opened:
        footer, schema = opened.metadata, opened.schema_arrow
    columns = list(declared.found_in(set(schema.names)).values())
    for name in columns:
        if _has_variant(schema.field(name).type):
            raise Unusable(
                "unreadable",
                f"column {name} is a VARIANT, which is not read; write it as a text, such as to_json({name})",
            )
    for begin, n in _groups(footer, size):
        if part.begin <= begin < part.end:
            count = 0
            for table in _tables_of_group(file, footer, n, columns):
                count += table.num_rows
                yield table
            if count != footer.row_group(n).num_rows:
                raise Unusable(
                    "unreadable",
                    f"not a valid {_CALLED} file, or damaged: row group {n} has {count} rows, and "
                    f"{footer.row_group(n).num_rows} by its footer",
                )


def _tables_of_group(file: RandomAccess, footer: pq.FileMetaData, n: int, columns: list[str]) -> Iterator[pa.Table]:
    step, as_dictionary = _step(footer, n, columns)
    with pq.ParquetFile(
        pa.PythonFile(file, mode="r"),
        metadata=footer,
        read_dictionary=as_dictionary,
        # Fetch neighbouring columns with one request.
        pre_buffer=True,
        # Nanoseconds cannot represent years before 1678 or after 2262.
        coerce_int96_timestamp_unit="us",
    ) as opened:
        # No threads, because other tasks use the other cores.
        batches = opened.iter_batches(batch_size=step, row_groups=[n], columns=columns, use_threads=False)
        yield from joined(piece for batch in batches for piece in _pieces(batch))


def _step(footer: pq.FileMetaData, n: int, columns: list[str]) -> tuple[int, list[str]]:
    """Return the number of rows of a row group to read at once, and the columns to read as dictionaries.

    A file of a few kilobytes may have a million rows with the same long text. A column that is read as a dictionary has
    such a text in memory once, and `_pieces` knows the length of each row. For other columns, the number of
    rows is so small that a batch stays within `MOST_BYTES` even if each value is as long as the whole column.
    """
    group, schema, named = footer.row_group(n), footer.schema.to_arrow_schema(), set(columns)
    most, as_dictionary = 0, []
    for i in range(group.num_columns):
        column, leaf = group.column(i), footer.schema.column(i)
        name = leaf.path.partition(".")[0]
        if name not in named:
            continue
        if leaf.physical_type != "BYTE_ARRAY":
            most += column.num_values * max(_FIXED, leaf.length or 0)
        elif not _REPEATING.intersection(column.encodings):
            most += column.total_uncompressed_size
        elif leaf.path == name and _is_of_bytes(schema.field(name).type) and "DELTA_BYTE_ARRAY" not in column.encodings:
            as_dictionary.append(name)
        else:
            most += column.num_values * column.total_uncompressed_size
    return max(1, min(MOST_ROWS, group.num_rows * MOST_BYTES // max(1, most))), as_dictionary


def _is_of_bytes(kind: pa.DataType) -> bool:
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind  # the writer's column was a dictionary
    return bool(pa.types.is_string(kind) or pa.types.is_binary(kind))


def _pieces(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Decode dictionaries, and divide a batch into pieces of up to `MOST_BYTES`. A larger row is a piece by itself."""
    dictionaries = [n for n, column in enumerate(batch.columns) if isinstance(column, pa.DictionaryArray)]
    cuts = [0, batch.num_rows]
    if dictionaries:
        sizes = sum(_lengths(batch.column(n)) for n in dictionaries)
        cuts[1:1] = (np.flatnonzero(np.diff(np.cumsum(sizes) // MOST_BYTES)) + 1).tolist()
    for begin, end in pairwise(cuts):
        piece = batch.slice(begin, end - begin)
        for n in dictionaries:
            piece = piece.set_column(n, piece.schema.names[n], piece.column(n).dictionary_decode())
        yield piece


def _lengths(column: pa.DictionaryArray) -> npt.NDArray[np.int64]:
    if not _is_of_bytes(column.type):
        return np.full(len(column), _FIXED, np.int64)
    lengths = pc.binary_length(column.dictionary).take(column.indices).fill_null(0)
    found: npt.NDArray[np.int64] = lengths.to_numpy(zero_copy_only=False).astype(np.int64)
    return found


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
    with arrow_faults(_CALLED), pq.ParquetFile(file) as opened:
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
    rows_of=rows_of,
    parts=_parts,
    sample=_sample,
)
