"""How much a small file becomes once it is read: its rows, and the bytes of its values.

A megabyte of gzip can hold a gigabyte, and so can a few kilobytes of Parquet: a value that stands there once may be
that of every row. Belongs here: bounds that are found without holding what is measured. Does not belong here: how much
is allowed (`probe`).
"""

import io

import pyarrow as pa
import pyarrow.parquet as pq

from pipelines.tidemark.lakehouse.readers.files import LIMITS_OF_ARROW, Unusable
from pipelines.tidemark.lakehouse.readers.text import text_of
from pipelines.tidemark.sources.feed import Feed
from pipelines.tidemark.sources.formats import Format, format_of

_VALUES = 10  # that weigh as much as a row
_LARGEST_BATCH = 8192  # rows
_FIXED = 8  # bytes of a number


def weight_of(feed: Feed, key: str, body: bytes, *, limit: int) -> tuple[int, int]:
    """About how many rows, and how many bytes of values, a file has; above `limit` bytes not how many exactly.

    Of one that cannot be read it is none: whoever reads it says why.
    """
    try:
        return _of_parquet(feed, body, limit) if format_of(key) is Format.PARQUET else _of_text(key, body, limit)
    except LIMITS_OF_ARROW:
        raise
    except (Unusable, pa.ArrowException, OSError, ValueError):
        return 0, len(body)


def _of_text(key: str, body: bytes, limit: int) -> tuple[int, int]:
    text = text_of(key, body, limit=limit + 1)
    rows, values = max(text.count(b"\n"), text.count(b"\r")), text.count(b",")
    if format_of(key) is Format.JSON:
        rows, values = max(rows, text.count(b"{")), values + text.count(b"[")
    return max(rows, values // _VALUES), len(text)


def _of_parquet(feed: Feed, body: bytes, limit: int) -> tuple[int, int]:
    with pq.ParquetFile(io.BytesIO(body)) as opened:
        rows, columns = opened.metadata.num_rows, [c for c in feed.columns if c in opened.schema_arrow.names]
        least, most = _bounds(opened)
        if least > limit:
            return rows, least
        size = len(body)
        # No batch may be above the limit, even if each value of a column is as long as all that is written of it.
        batch = max(1, min(_LARGEST_BATCH, rows * limit // max(1, most)))
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
