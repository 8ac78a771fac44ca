"""The rows of a load's files, small and large, as one frame with lineage columns.

The run's process reads small files, and Spark's workers read large ones, with the same function
(`parsing.part_of_file`). Does not belong here: the formats of files, and verdicts on rows.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import dropwhile, islice

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from dagster_tidemark.lakehouse.parsing.part_of_file import (
    EVERY_CHUNK,
    REPORT,
    PartOfFile,
    PartReport,
    columns_of_batches,
)
from dagster_tidemark.lakehouse.parsing.rows import WHOLE, DeclaredContent, Part, joined_names
from dagster_tidemark.lakehouse.parsing.sources import BucketAddress
from dagster_tidemark.lakehouse.parsing.spark_tasks import TASK_BYTES, Scan, tasks_of
from dagster_tidemark.lakehouse.read import as_frame
from dagster_tidemark.lakehouse.readers import in_memory
from dagster_tidemark.lakehouse.readers.declared_forms import forms_of
from dagster_tidemark.lakehouse.readers.file_format import Shape
from dagster_tidemark.lakehouse.readers.files import FileFault, NotScanned, ObjectStore, SourceFile, Unusable, foreign
from dagster_tidemark.lakehouse.readers.format_registry import format_named
from dagster_tidemark.lakehouse.readers.probe import Inspected
from dagster_tidemark.lakehouse.session import settings_of
from dagster_tidemark.lakehouse.shipping import shipped
from dagster_tidemark.lakehouse.table import LINEAGE, as_ddl
from dagster_tidemark.settings import LOCAL_KEY
from dagster_tidemark.sources.feed import Feed
from dagster_tidemark.sources.listing import ObjectUnavailable
from dagster_tidemark.sources.text_formats import Json

_FEW = 5_000  # number of rows that one task handles as fast as several tasks do

Chunks = Mapping[tuple[int, int], Collection[int]]
"""Numbers of chunks (`CHUNK_ROWS`, `EVERY_CHUNK`) of each part of a file. The key is the file's number and the part's
first byte."""

OF_FILES = (*LINEAGE, "_partition")
"""Columns with the same value in all rows of a file."""


def columns_of_rows(feed: Feed) -> dict[str, str]:
    """Return the columns of `FileBatch.rows`, name to type: the columns of `columns_of_batches` and `OF_FILES`."""
    return columns_of_batches(feed.columns) | LINEAGE | {"_partition": "string"}


@dataclass(frozen=True)
class FileBatch:
    """The files of a load: the rows of readable files, and the faults of the others.

    Args:
        small: Rows of the small files, with the columns of `columns_of_batches`.
        partition_values: For each partition column, the SQL that computes it from `_partition`.
        numbered: True if `_row` numbers the rows of a whole file from 0. Otherwise it numbers the rows of a part.
    """

    spark: SparkSession
    store: ObjectStore
    feed: Feed
    code_version: str
    inspected: Inspected
    small: pa.Table
    faults: Sequence[FileFault]
    partition_values: Mapping[str, str]
    numbered: bool = False

    @property
    def files(self) -> list[SourceFile]:
        """Files whose rows are in `rows`."""
        wrong = {fault.file for fault in self.faults}
        return [file for file in self.inspected.readable if file not in wrong]

    @cached_property
    def in_order(self) -> list[SourceFile]:
        """All readable files. The index of a file is its number."""
        # Files of one partition follow one another, so that each task writes to few partitions.
        return sorted(self.inspected.readable, key=lambda file: (file.partition or "", file.key))

    @property
    def shapes(self) -> Mapping[str, Shape]:
        """Shape of each file in `files`, by its key."""
        return {file.key: self.inspected.shapes[file] for file in self.files}

    @property
    def declared(self) -> DeclaredContent:
        """The feed's declaration of the content of files."""
        return declared_by(self.feed)

    @property
    def is_small(self) -> bool:
        """True if it costs little to evaluate the rows several times."""
        return not self.large and not self.has_many_small_rows

    @property
    def has_many_small_rows(self) -> bool:
        """True if small files have enough rows for several tasks."""
        return bool(self.small.num_rows > _FEW)

    @property
    def large(self) -> dict[SourceFile, Shape]:
        """Files that workers read."""
        wrong = {fault.file for fault in self.faults}
        return {file: shape for file, shape in self.inspected.large.items() if file not in wrong}

    def rows(self, *, chunks: Chunks | None = None, in_one_task: bool = False) -> DataFrame:
        """Return the rows (`columns_of_rows`) and the workers' reports. Each evaluation reads large files again.

        Args:
            chunks: The chunks of large files to return; None to return all rows.
            in_one_task: True to give the rows of all small files to one task.
        """
        frames = []
        parts = self.parts(chunks)
        if self.small.num_rows:
            lineage = self.lineage().take(self.small["_file"])
            table = self.small
            for name in lineage.schema.names:
                table = table.append_column(name, lineage[name])
            frame = with_partition(as_frame(self.spark, table), self.partition_values)
            # Without `coalesce` or `repartition`, Spark evaluates these rows one by one, on the driver.
            if in_one_task:
                frame = frame.coalesce(1)
            elif self.has_many_small_rows:
                frame = frame.repartition(4)
            frames.append(frame)
        if parts:
            frames.append(self._scanned(parts))
        if not frames:
            frames.append(no_rows(self.spark, self.feed, self.partition_values))
        columns = [*columns_of_rows(self.feed), *self.partition_values]
        found = [frame.select(*columns) for frame in frames]
        return found[0] if len(found) == 1 else found[0].unionByName(found[1])

    def parts(self, chunks: Chunks | None = None) -> list[PartOfFile]:
        """Return the parts of the large files.

        Args:
            chunks: The chunks to read; None to read all rows.
        """
        large = self.large
        shared: dict[Shape, Shape] = {}  # files with equal shapes share one object, so that it is sent to workers once
        found = [
            _part_of(number, file, shared.setdefault(shape, shape), part)
            for number, file in enumerate(self.in_order)
            if (shape := large.get(file))
            for part in self._parts_of(file, shape)
        ]
        if chunks is None:
            return found
        wanted = {at: None if EVERY_CHUNK in of else frozenset(of) for at, of in chunks.items()}
        return [replace(part, chunks=wanted[at]) for part in found if (at := (part.number, part.part.begin)) in wanted]

    def _scanned(self, parts: Sequence[PartOfFile]) -> DataFrame:
        tasks = tasks_of(parts)
        scan = Scan(self.declared, _bucket_of(self.spark, self.store), tasks)
        run = shipped(scan.run, *{part.rows_of for part in parts})
        numbers = self.spark.range(0, len(tasks), 1, len(tasks))
        rows = numbers.mapInArrow(run, as_ddl(columns_of_batches(self.feed.columns)))
        return self.with_lineage(rows, self.partition_values)

    def _parts_of(self, file: SourceFile, shape: Shape) -> Sequence[Part]:
        if self.numbered:
            return (WHOLE,)
        return format_named(shape.format).parts(shape, file.key, file.size, TASK_BYTES)

    def with_lineage(self, rows: DataFrame, partition_values: Mapping[str, str] | None = None) -> DataFrame:
        """Join rows with the columns `OF_FILES`, by the number of the file (`_file`).

        Args:
            partition_values: For each column to add, the SQL that computes it from `_partition`.
        """
        lineage = with_partition(self.spark.createDataFrame(self.lineage(numbered=True)), partition_values or {})
        return rows.join(F.broadcast(lineage), on="_file", how="inner")

    def lineage(self, *, numbered: bool = False) -> pa.Table:
        """Return the columns `OF_FILES` with one row for each file, in the order of the files' numbers."""
        files = self.in_order
        columns = {
            "source_file": pa.array([file.key for file in files], pa.string()),
            "source_version": pa.array([file.version for file in files], pa.string()),
            "arrived_at": pa.array([file.arrived_at for file in files], pa.timestamp("us", "UTC")),
            "loaded_by": pa.repeat(self.code_version, len(files)),
            "_partition": pa.array([file.partition for file in files], pa.string()),
        }
        number = {"_file": pa.array(range(len(files)), pa.int32())} if numbered else {}
        return pa.table(number | columns)

    def ending_workers(self, failure: PySparkException) -> dict[SourceFile, str]:
        """Return the files that crash a worker when it reads them, with the error; empty if the failure differs.

        Raises:
            PySparkException: the given failure, because Spark does not answer any more.
        """
        ended: dict[SourceFile, str] = {}
        large = self.large if _WORKER_ENDED in str(failure) else {}
        for number, file in enumerate(self.in_order):
            if file not in large:
                continue
            try:
                self._scanned([part for part in self.parts() if part.number == number]).where(
                    F.col(REPORT).isNotNull()
                ).count()
            except PySparkException as error:
                if _WORKER_ENDED not in str(error):  # Spark itself does not answer: each file would take minutes
                    raise failure from error
                ended[file] = _error_of(error)
        return ended if len(ended) < len(large) else {}

    def without_faulty(self, reports: Iterable[PartReport]) -> FileBatch:
        """Return the batch without the rows of files that cannot be loaded, and with a fault for each such file.

        Args:
            reports: The reports on all parts of the files that were read.

        Raises:
            NotScanned: the store refused to give workers some files. The content of these files is unknown.
        """
        of_files: dict[int, list[PartReport]] = defaultdict(list)
        for report in reports:
            of_files[report.number].append(report)
        refused = {
            self.in_order[number]: report.refused
            for number, parts in of_files.items()
            for report in parts
            if report.refused
        }
        if refused:
            raise NotScanned({file: self._refusal(file, why) for file, why in refused.items()})
        faults = dict(self._faults_of(of_files))
        kept = pc.invert(pc.is_in(self.small["_file"], pa.array(faults, pa.int32())))
        found = [FileFault(self.in_order[number], why.reason, str(why)) for number, why in faults.items()]
        return replace(self, faults=[*self.faults, *found], small=self.small.filter(kept))

    def _refusal(self, file: SourceFile, why: str) -> str:
        try:
            self.store.check(file)
        except ObjectUnavailable as error:
            return f"{why}; {error.reason}"
        return why

    def _faults_of(self, of_files: Mapping[int, Sequence[PartReport]]) -> Iterable[tuple[int, Unusable]]:
        for number, parts in of_files.items():
            shape = self.inspected.shapes[self.in_order[number]]
            if fault := next((part.fault for part in parts if part.fault), None):
                yield number, Unusable(*fault)
            elif not format_named(shape.format).has_header and (found := unrecognized(self.feed, parts, shape)):
                yield number, found

    def without_rows(self, consequence: str) -> FileBatch:
        """Return the batch with a fault for each file, because the load must reject all files."""
        faulty = {fault.file: fault for fault in self.faults}
        files = [*self.inspected.readable, *(f for f in faulty if f not in self.inspected.readable)]
        found = [faulty.get(file, FileFault(file, "empty", "no row of it can be taken")) for file in files]
        return replace(self, faults=[replace(fault, message=f"{fault.message}; {consequence}") for fault in found])


_WORKER_ENDED = "Python worker"


def _error_of(failure: Exception) -> str:
    """Return the line of a failure that names the error. For a Python error, this is the line after the traceback."""
    first, *_ = lines = str(failure).strip().splitlines() or [type(failure).__name__]
    after = dropwhile(lambda line: not line.startswith("Traceback"), lines)
    return next((line for line in islice(after, 1, None) if line and not line[0].isspace()), first)


def declared_by(feed: Feed) -> DeclaredContent:
    """Return a feed's declaration of the content of its files."""
    forms = forms_of(feed.columns, feed.text_format)
    return DeclaredContent(
        dict(feed.columns),
        feed.encoding,
        feed.multiline,
        feed.text_format,
        dict(feed.names),
        forms,
        is_exact=feed.exact,
    )


def unrecognized(feed: Feed, parts: Sequence[PartReport], shape: Shape) -> Unusable | None:
    """Return the fault of a file without a header if none of its rows has a declared column.

    One row with a declared column is enough to recognize a file. In a recognized file, each faulty row is rejected by
    itself, even if all rows are faulty. A file that is not recognized is rejected as a whole.

    Args:
        parts: The reports on all parts of the file.
        shape: The shape of the file.
    """
    others: Sequence[str] | None = ()
    for part in parts:
        others = joined_names(others, part.others)
    if others is None or not any(part.rows for part in parts):
        return None
    if any(part.sound_rows for part in parts):
        return foreign(feed, others, getattr(shape, "rows", None))
    first = min((part for part in parts if part.rows), key=lambda part: part.begin)
    rows = feed.text_format.rows if isinstance(feed.text_format, Json) else None
    what = "no line of it is a JSON object" if rows is None else f"no object of it has rows at {rows!r}"
    return Unusable("unreadable", f"{what}; the first: {first.first_fault}")


def _bucket_of(spark: SparkSession, store: ObjectStore) -> BucketAddress:
    settings = settings_of(spark)
    if settings is None:
        return BucketAddress(store.name, "us-east-1")
    key = LOCAL_KEY if settings.own_cloud else None
    return BucketAddress(store.name, settings.aws_region, settings.aws_endpoint_url, key)


def with_partition(frame: DataFrame, partition_values: Mapping[str, str]) -> DataFrame:
    """Return a frame with partition columns computed from `_partition`."""
    values = {column: F.expr(value) for column, value in partition_values.items()}
    return frame.withColumns(values) if values else frame


def no_rows(spark: SparkSession, feed: Feed, partition_values: Mapping[str, str]) -> DataFrame:
    """Return an empty frame with the columns of `FileBatch.rows`."""
    rows = spark.createDataFrame([], as_ddl(columns_of_rows(feed)))
    return with_partition(rows, partition_values)


def reading_of(
    spark: SparkSession,
    store: ObjectStore,
    feed: Feed,
    inspected: Inspected,
    *,
    code_version: str,
    partition_values: Mapping[str, str],
    numbered: bool = False,
) -> FileBatch:
    """Read the small files, and return a batch with their rows and with the large files."""
    faults = inspected.faults
    batch = FileBatch(spark, store, feed, code_version, inspected, pa.table({}), faults, partition_values, numbered)
    small = [
        (_part_of(number, file, inspected.shapes[file], WHOLE), inspected.bodies[file])
        for number, file in enumerate(batch.in_order)
        if file in inspected.bodies
    ]
    found = in_memory.read(batch.declared, small)
    inspected = inspected.with_large(batch.in_order[number] for number in found.too_large)
    return replace(batch, inspected=inspected, small=found.rows).without_faulty(found.reports)


def _part_of(number: int, file: SourceFile, shape: Shape, part: Part) -> PartOfFile:
    return PartOfFile(number, file.key, file.size, file.etag, shape, format_named(shape.format).rows_of, part)
