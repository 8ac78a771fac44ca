"""Reading of small files in the run's process, within a budget of rows and bytes.

Does not belong here: reading one file (`parsing.part_of_file`), and large files (`parsing.spark_tasks`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import pyarrow as pa

from dagster_tidemark.lakehouse.parsing.part_of_file import PartOfFile, PartReport, read_part, schema_of_batches
from dagster_tidemark.lakehouse.parsing.rows import DeclaredContent
from dagster_tidemark.lakehouse.parsing.sources import MemoryFile
from dagster_tidemark.lakehouse.readers.files import Unusable
from dagster_tidemark.lakehouse.readers.small_files import LONGEST_TEXT, ROWS_TOGETHER, TOGETHER
from dagster_tidemark.lakehouse.readers.text import text_of
from dagster_tidemark.sources.file_endings import is_compressed


@dataclass(frozen=True)
class Found:
    """Content of small files.

    Args:
        rows: Rows with the columns of `part_of_file.columns_of_batches`.
        reports: One report for each file that was read.
        too_large: Numbers of files that need too much memory. Workers must read these files.
    """

    rows: pa.Table
    reports: list[PartReport]
    too_large: set[int]


@dataclass
class _Budget:
    """Rows and bytes that still fit into memory. A few kilobytes of gzip or Parquet may become a gigabyte of rows."""

    rows: int = ROWS_TOGETHER
    size: int = TOGETHER

    def has_room(self) -> bool:
        return self.rows >= 0 and self.size >= 0


def read(declared: DeclaredContent, files: Iterable[tuple[PartOfFile, bytes]]) -> Found:
    """Read files whose bytes are in memory."""
    schema = schema_of_batches(declared.columns)
    found = Found(schema.empty_table(), [], set())
    batches: list[pa.RecordBatch] = []
    budget = _Budget()
    for part, body in sorted(files, key=lambda file: file[0].size):
        if _is_long_text(part.key, body):
            found.too_large.add(part.number)
            continue
        held: list[pa.RecordBatch] = []
        for rows, report in read_part(declared, part, MemoryFile(part.key, body)):
            if rows is None:
                found.reports.append(report)
                batches += [] if report.fault else held
                break
            held.append(rows)
            budget.rows -= rows.num_rows
            budget.size -= rows.nbytes
            if not budget.has_room():
                found.too_large.add(part.number)
                break
    return Found(pa.Table.from_batches(batches, schema), found.reports, found.too_large)


def _is_long_text(key: str, body: bytes) -> bool:
    if not is_compressed(key):
        return False
    try:
        return len(text_of(key, body, limit=LONGEST_TEXT + 1)) > LONGEST_TEXT
    except Unusable:  # `read_part` reports this fault
        return False
