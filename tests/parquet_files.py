"""Parquet files in memory."""

import io
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq


def parquet_of(table: pa.Table, **options: Any) -> bytes:
    """Return a table as a Parquet file."""
    sink = io.BytesIO()
    pq.write_table(table, sink, **options)
    return sink.getvalue()
