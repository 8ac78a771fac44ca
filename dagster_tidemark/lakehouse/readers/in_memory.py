"""Small files that were fetched whole: from their bytes to rows of texts, in memory.

What a line or a value means is as Spark's own readers see it (`spark_scan`), so that a file's size makes no difference;
tests/tidemark/lakehouse/test_two_readers.py holds them against each other. Does not belong here: what is in a format's
files (`file_format`).
"""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from dagster_tidemark.lakehouse.readers.file_format import Shape
from dagster_tidemark.lakehouse.readers.files import LIMITS_OF_ARROW, FileFault, SourceFile, Unusable
from dagster_tidemark.lakehouse.readers.format_registry import format_named
from dagster_tidemark.sources.feed import Feed


def rows_of_all(feed: Feed, fetched: Mapping[SourceFile, tuple[Shape, bytes]]) -> tuple[pa.Table, list[FileFault]]:
    """The rows of these files (`files.columns_of_rows`), and the files that turned out to have none to give."""
    tables, faults = [], []
    for file, (shape, body) in fetched.items():
        try:
            tables.append(_rows_of(feed, file, shape, body))
        except Unusable as unusable:
            faults.append(FileFault(file, unusable.reason, str(unusable)))
        except LIMITS_OF_ARROW:
            raise
        except Exception as error:  # the bytes are in hand: what they hold is all that can be wrong
            faults.append(FileFault(file, "unreadable", f"it cannot be read: {type(error).__name__}: {error}"))
    return pa.concat_tables(tables) if tables else _schema(feed).empty_table(), faults


def _schema(feed: Feed) -> pa.Schema:
    place = [("source_file", pa.string()), ("_block", pa.int64()), ("_row", pa.int64())]
    faults = [("_malformed", pa.string()), ("_why", pa.string())]
    return pa.schema([*place, *((c, pa.string()) for c in feed.columns), *faults])


def _rows_of(feed: Feed, file: SourceFile, shape: Shape, body: bytes) -> pa.Table:
    columns, faults = format_named(shape.format).rows(feed, file.key, shape, body)
    count = len(faults)
    place = [pa.array([file.key] * count, pa.string()), pa.array([0] * count, pa.int64()), pa.array(range(count))]
    wrong = [
        pa.array([fault and fault.content for fault in faults], pa.string()),
        pa.array([fault and fault.why for fault in faults], pa.string()),
    ]
    return pa.Table.from_arrays([*place, *(columns[c] for c in feed.columns), *wrong], schema=_schema(feed))
