"""Batches of rows of a size that fits into memory, from pieces of any size.

Does not belong here: reading files (`readers.parquet`, `readers.orc`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

MOST_ROWS = 8192
"""Largest number of rows in a batch."""

MOST_BYTES = 32 << 20
"""Largest number of bytes in a batch. A single row may be larger."""


def joined(pieces: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Join small consecutive pieces to batches of up to `MOST_ROWS` rows and `MOST_BYTES` bytes."""
    held: list[pa.RecordBatch] = []
    rows = size = 0
    for piece in pieces:
        if held and (rows + piece.num_rows > MOST_ROWS or size + piece.nbytes > MOST_BYTES):
            yield pa.Table.from_batches(held)
            held, rows, size = [], 0, 0
        held.append(piece)
        rows, size = rows + piece.num_rows, size + piece.nbytes
    if held:
        yield pa.Table.from_batches(held)
