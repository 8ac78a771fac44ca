"""Reader of Parquet files. A part of a file has the row groups that begin in its bytes.

Does not belong here: values of columns (`typed_rows`).
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from dagster_tidemark.lakehouse.parsing.batches import MOST_BYTES, MOST_ROWS, joined
from dagster_tidemark.lakehouse.parsing.rows import WHOLE, DeclaredContent, FileBytes, Part, Rows
from dagster_tidemark.lakehouse.parsing.sources import RandomAccess
from dagster_tidemark.lakehouse.parsing.typed_rows import rows_of_table
from dagster_tidemark.lakehouse.readers.files import Unusable, arrow_faults

_CALLED = "Parquet"
_OF_VARIANT = {"metadata", "value", "typed_value"}
_FIXED = 8  # bytes of a number in memory
_REPEATING = {"DELTA_BYTE_ARRAY", "PLAIN_DICTIONARY", "RLE_DICTIONARY"}
"""Encodings that may store many long values in few bytes, because values repeat."""


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
