"""Writing of table rows to Parquet files by the Spark tasks that computed the rows.

A task passes its rows to `DataFileTask.run`, which writes one file per partition and reports each file. The driver
commits the files (`data_files`). This module is sent to Spark's workers, which have pyarrow and numpy.
"""

from __future__ import annotations

import contextlib
import io
import json
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import fs

from dagster_tidemark.lakehouse.parsing.sources import BucketAddress

FILE, KEY, CONTENT = "_file", "_key_hash", "_content_hash"
"""Columns in addition to the table's columns: number of the source file, hash of the row key, hash of the row."""

REPORTS = "report string, footer binary, key bigint"
"""Columns that tasks return, as Spark DDL. A row has the report on a data file and its footer, or the hash of a key."""

_BUFFERED_BYTES = 64 << 20
"""Number of Arrow bytes that a task collects in memory before it writes row groups."""

_LOW = 0xFFFF_FFFF


def file_system(store: BucketAddress | None) -> fs.FileSystem:
    """Return Arrow's file system for a warehouse, which is a bucket or a local folder."""
    return store.connect() if store else fs.LocalFileSystem()


class DataFileNotWritten(Exception):
    """Error of a task that could not write a data file, because the store refuses it or is full."""


@dataclass
class FromLandedFile:
    """Summary of the rows of one source file in one data file: their number, and sums of hashes as in `content`."""

    file: int
    rows: int = 0
    xored: int = 0
    high: int = 0
    low: int = 0

    def add(self, hashes: np.ndarray[Any, np.dtype[np.int64]]) -> None:
        """Add rows, given by their hashes."""
        self.rows += len(hashes)
        self.xored ^= int(np.bitwise_xor.reduce(hashes))
        self.high += int((hashes >> 32).sum())
        self.low += int((hashes & _LOW).sum())


@dataclass(frozen=True)
class Report:
    """Report of a task on one data file.

    Args:
        partition: Number of the partition.
        size: Bytes of the file.
        landed: Summary of the rows of each source file.
        has_rivals: True if the keys of two rows have the same hash.
        is_astray: True if a row belongs to a different partition than its source file. Then the task keeps no file.
    """

    path: str
    partition: int
    rows: int
    size: int
    landed: Sequence[FromLandedFile] = ()
    has_rivals: bool = False
    is_astray: bool = False


def report_of(text: str) -> Report:
    """Return the report from its JSON."""
    said = json.loads(text)
    return Report(**{**said, "landed": [FromLandedFile(**each) for each in said["landed"]]})


@dataclass(frozen=True)
class DataFileTask:
    """Task that writes rows of one load to data files.

    Args:
        store: The bucket of the warehouse; None for a folder of the file system.
        schema: Columns of the files, with Iceberg's field ids.
        folders: The folder of each partition, without the bucket.
        values: Values of the partition columns, one mapping per partition.
        partition_of: The number of the partition of each source file, by the number of the file.
        whole: Partitions whose rows are all in one task. For other partitions, tasks return the hashes of the row keys.
        constants: For each column that is constant within a source file, its values by the number of the file.
        prefix: First characters of the names of the files.
        options: Options of pyarrow's `ParquetWriter`.
    """

    store: BucketAddress | None
    schema: pa.Schema
    folders: Sequence[str]
    values: Sequence[Mapping[str, Any]]
    partition_of: Sequence[int]
    whole: frozenset[int]
    constants: Mapping[str, Sequence[Any]]
    prefix: str
    options: Mapping[str, Any]

    def run(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Write the rows of a task. Yield a report on each file, and hashes of keys for partitions not in `whole`."""
        files: dict[int, _DataFile] = {}
        is_done = False
        try:
            for batch in batches:
                for partition, rows in self._by_partition(batch):
                    if not self._is_of(partition, rows):
                        yield _reported(Report("", partition, 0, 0, is_astray=True))
                        return
                    if partition not in files:
                        files[partition] = _DataFile(self, partition)
                    files[partition].add(rows)
                    if partition not in self.whole:
                        yield _keys(rows.column(KEY))
                if sum(file.buffered for file in files.values()) > _BUFFERED_BYTES:
                    for file in files.values():
                        file.flush()
            for file in files.values():
                yield _reported(*file.close())
            is_done = True
        finally:
            if not is_done:
                for file in files.values():
                    file.discard()

    def stored_schema(self) -> pa.Schema:
        """Return the schema of the rows as they are written: constant columns are dictionaries with one value."""
        kinds = {name: pa.dictionary(pa.int32(), self.schema.field(name).type) for name in self.constants}
        return pa.schema([column.with_type(kinds.get(column.name, column.type)) for column in self.schema])

    def stored(self, rows: pa.Table) -> pa.Table:
        """Convert rows to `stored_schema`."""
        numbers = rows.column(FILE).to_numpy()
        used = np.flatnonzero(np.bincount(numbers))  # without sorting the numbers of all rows
        place = np.zeros(len(self.partition_of), np.int32)
        place[used] = np.arange(len(used))
        indices = pa.array(place[numbers])
        constants = {name: [of[number] for number in used.tolist()] for name, of in self.constants.items()}
        columns = [
            pa.DictionaryArray.from_arrays(indices, pa.array(constants[c.name], c.type))
            if c.name in constants
            else rows.column(c.name).cast(c.type)
            for c in self.schema
        ]
        return pa.Table.from_arrays(columns, schema=self.stored_schema())

    def _by_partition(self, batch: pa.RecordBatch) -> Iterator[tuple[int, pa.RecordBatch]]:
        partitions = np.asarray(self.partition_of, np.int64)[batch.column(FILE).to_numpy()]
        # Sorting takes the same time for any number of partitions; a filter for each would take seconds per batch.
        order = np.argsort(partitions, kind="stable")
        for begin, end in _runs(partitions[order]):
            rows = batch if end - begin == len(order) else batch.take(pa.array(order[begin:end]))
            yield int(partitions[order[begin]]), rows

    def _is_of(self, partition: int, rows: pa.RecordBatch) -> bool:
        for name, value in self.values[partition].items():
            column = rows.column(name)
            is_equal = pc.equal(column, pa.scalar(value, column.type))
            if column.null_count or not pc.all(is_equal).as_py():
                return False
        return True


def _runs(values: np.ndarray[Any, np.dtype[np.int64]]) -> Iterator[tuple[int, int]]:
    """Yield the begin and the end of each run of equal values."""
    if len(values):
        changes = (np.flatnonzero(values[1:] != values[:-1]) + 1).tolist()
        yield from pairwise([0, *changes, len(values)])


class _DataFile:
    def __init__(self, task: DataFileTask, partition: int) -> None:
        self._task, self._partition = task, partition
        self._path = f"{task.folders[partition]}/{task.prefix}-{uuid.uuid4()}.parquet"
        self._at = f"{task.store.name}/{self._path}" if task.store else self._path
        self._writer: pq.ParquetWriter | None = None
        self._pending: list[pa.RecordBatch] = []
        self._keys: list[Any] = []
        self._landed: dict[int, FromLandedFile] = {}
        self.buffered = 0

    def add(self, rows: pa.RecordBatch) -> None:
        numbers, hashes = rows.column(FILE).to_numpy(), rows.column(CONTENT).to_numpy()
        for begin, end in _runs(numbers):
            number = int(numbers[begin])
            self._landed.setdefault(number, FromLandedFile(number)).add(hashes[begin:end])
        if self._partition in self._task.whole:
            self._keys.append(rows.column(KEY).to_numpy())
        self._pending.append(rows)
        self.buffered += rows.nbytes

    def flush(self) -> None:
        if not self._pending:
            return
        try:
            self._write()
        except (OSError, pa.ArrowException) as error:
            raise DataFileNotWritten(f"{DataFileNotWritten.__name__} {self._at}: {error}") from error

    def _write(self) -> None:
        if self._writer is None:
            system = file_system(self._task.store)
            if not self._task.store:
                system.create_dir(self._at.rpartition("/")[0], recursive=True)
            # Arrow's own schema is not stored, because it would record which columns were dictionaries here.
            options = {**self._task.options, "store_schema": False}
            self._writer = pq.ParquetWriter(self._at, self._task.stored_schema(), filesystem=system, **options)
        self._writer.write_table(self._task.stored(pa.Table.from_batches(self._pending)))
        self._pending, self.buffered = [], 0

    def close(self) -> tuple[Report, bytes]:
        self.flush()
        assert self._writer is not None  # every data file has rows
        try:
            self._writer.close()
            size = file_system(self._task.store).get_file_info(self._at).size
        except (OSError, pa.ArrowException) as error:
            raise DataFileNotWritten(f"{DataFileNotWritten.__name__} {self._at}: {error}") from error
        footer = io.BytesIO()
        self._writer.writer.metadata.write_metadata_file(footer)
        rows = sum(landed.rows for landed in self._landed.values())
        keys = np.sort(np.concatenate(self._keys)) if self._keys else np.empty(0, np.int64)
        has_rivals = bool((keys[1:] == keys[:-1]).any())
        report = Report(self._path, self._partition, rows, size, tuple(self._landed.values()), has_rivals)
        return report, footer.getvalue()

    def discard(self) -> None:
        if self._writer is None:
            return
        with contextlib.suppress(OSError, pa.ArrowException):  # if this fails, the load deletes the file later
            self._writer.close()
            file_system(self._task.store).delete_file(self._at)


def _keys(hashes: pa.Array) -> pa.RecordBatch:
    count = len(hashes)
    return pa.RecordBatch.from_arrays([pa.nulls(count, pa.string()), pa.nulls(count, pa.binary()), hashes], _NAMES)


def _reported(report: Report, footer: bytes = b"") -> pa.RecordBatch:
    arrays = [pa.array([json.dumps(asdict(report))]), pa.array([footer], pa.binary()), pa.array([None], pa.int64())]
    return pa.RecordBatch.from_arrays(arrays, _NAMES)


_NAMES = ["report", "footer", "key"]
