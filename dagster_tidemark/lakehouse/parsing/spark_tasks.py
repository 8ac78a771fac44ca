"""Reading of files by Spark's workers. Each task reads some parts of files and returns batches of rows.

A bad file does not fail its task: its report names the fault. Does not belong here: reading one part (`part_of_file`),
and the choice of the files (`readers.batch`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from dagster_tidemark.lakehouse.parsing.part_of_file import (
    REPORT,
    PartOfFile,
    PartReport,
    read_part,
    schema_of_batches,
)
from dagster_tidemark.lakehouse.parsing.rows import DeclaredContent
from dagster_tidemark.lakehouse.parsing.sources import BucketAddress, BucketFile, StoreFault

TASK_BYTES = 32 << 20
"""Approximate number of bytes that a task reads: small enough to give each core of a cluster several tasks."""


@dataclass(frozen=True)
class Scan:
    """Job for Spark's workers that reads the files of one load.

    Args:
        declared: The feed's declaration of the content.
        bucket: The bucket of the files.
        tasks: For each task, the parts of files that it reads, in order.
    """

    declared: DeclaredContent
    bucket: BucketAddress
    tasks: Sequence[Sequence[PartOfFile]]

    def run(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Run the tasks whose numbers are in the first column of `batches`. A worker calls this."""
        system = self.bucket.connect()
        for batch in batches:
            for number in batch.column(0).to_pylist():
                for part in self.tasks[number]:
                    try:
                        source = BucketFile(system, self.bucket.name, part.key, part.size, part.etag)
                    except StoreFault as error:
                        yield self._row_of(PartReport(part.number, part.part.begin, refused=str(error)))
                        continue
                    for rows, report in read_part(self.declared, part, source):
                        yield self._row_of(report) if rows is None else rows

    def _row_of(self, report: PartReport) -> pa.RecordBatch:
        schema = schema_of_batches(self.declared.columns)
        row = {"_file": report.number, "_block": report.begin, REPORT: report.to_json()}
        return pa.RecordBatch.from_arrays([pa.array([row.get(f.name)], f.type) for f in schema], schema=schema)


def tasks_of(parts: Iterable[PartOfFile], of_bytes: int = TASK_BYTES) -> list[list[PartOfFile]]:
    """Group consecutive parts of files into tasks of up to `of_bytes` bytes."""
    tasks: list[list[PartOfFile]] = []
    size = of_bytes
    for part in parts:
        if size + part.length > of_bytes:
            tasks.append([])
            size = 0
        tasks[-1].append(part)
        size += part.length
    return tasks
