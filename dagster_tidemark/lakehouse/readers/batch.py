"""The rows of a load's files, small and large, as one frame with their lineage.

Small files are read in this process, large ones by Spark's workers, both by the functions of their format
(`FileFormat.rows_of`). Does not belong here: how a format's files are read, and which rows are good.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import dropwhile, islice

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from dagster_tidemark.lakehouse.parsing.remote import Store
from dagster_tidemark.lakehouse.parsing.rows import WHOLE, Declared
from dagster_tidemark.lakehouse.parsing.spark_tasks import (
    NOTE,
    TASK_BYTES,
    Chunks,
    FileNotRead,
    Note,
    PartOfFile,
    Scan,
    note_of,
    tasks_of,
)
from dagster_tidemark.lakehouse.parsing.typed_batch import RECORD, TEXTS, WHY
from dagster_tidemark.lakehouse.readers import in_memory
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

_FEW = 5_000  # rows that one task handles as fast as several

_PLACE = {"_file": "int", "source_file": "string", "_block": "bigint", "_row": "bigint"}
"""Where a row stands: its file and that one's number in the batch, where the part of the file begins that it was read
in, and its number in that part from 0."""
OF_FILES = (*LINEAGE, "_partition")
"""The columns that say the same of each row of a file."""


def columns_of_rows(feed: Feed) -> dict[str, str]:
    """The columns of rows as they were read: typed values, and where these are for the exact rule, the row's texts.

    `_texts` has a text for each declared column; `_record` is what stands there, of formats of text; `_why` is what is
    wrong with a row as a whole, which then has no values.
    """
    lineage = {name: kind for name, kind in LINEAGE.items() if name != "source_file"}
    read = {TEXTS: "array<string>", RECORD: "string", WHY: "string", NOTE: "string"}
    return _PLACE | feed.columns | read | lineage | {"_partition": "string"}


@dataclass(frozen=True)
class Batch:
    """What a load reads: its files as they were looked into, and those that cannot be taken.

    Args:
        small: The rows of the files that were read here.
        partition_values: SQL of `_partition` for each column that says the partition.
        numbered: Whether `_row` counts the rows of a whole file from 0, and not those of a part of it.
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
        """The files whose rows are in `rows`."""
        wrong = {fault.file for fault in self.faults}
        return [file for file in self.inspected.readable if file not in wrong]

    @property
    def in_order(self) -> list[SourceFile]:
        """All files that were looked into; a file's place here is its number."""
        # Files of a partition side by side: a task that writes has few partitions.
        return sorted(self.inspected.readable, key=lambda file: (file.partition or "", file.key))

    @property
    def shapes(self) -> Mapping[str, Shape]:
        """The form of each of these files, by its key."""
        shapes = {**{file: shape for file, (shape, _) in self.inspected.fetched.items()}, **self.inspected.large}
        return {file.key: shapes[file] for file in self.files}

    @property
    def declared(self) -> Declared:
        """What the feed says of the content of files."""
        return declared_by(self.feed)

    @property
    def is_small(self) -> bool:
        """Whether reading the rows once more costs nothing."""
        return not self.large and not self.has_many_small_rows

    @property
    def has_many_small_rows(self) -> bool:
        """Whether the rows of small files are spread over tasks."""
        return bool(self.small.num_rows > _FEW)

    @property
    def large(self) -> dict[SourceFile, Shape]:
        """The files that workers read."""
        wrong = {fault.file for fault in self.faults}
        return {file: shape for file, shape in self.inspected.large.items() if file not in wrong}

    def rows(self, *, is_strict: bool = True, chosen: Chunks | None = None, with_records: bool = True) -> DataFrame:
        """The rows (`columns_of_rows`), read anew each time the frame is evaluated.

        Args:
            is_strict: Whether a file that cannot be read ends the job, with its key in the error. If not, a row with a
                `_note` says so.
            chosen: Of large files, the rows to read, without notes; None for all rows.
            with_records: Whether the rows of large files have a `_record`.
        """
        frames = []
        large = self.large
        if chosen is not None:
            numbers = {number for number, _ in chosen}
            large = {file: large[file] for n, file in enumerate(self.in_order) if n in numbers and file in large}
        if self.small.num_rows or not large:
            frame = no_rows(self.spark, self.feed, self.partition_values)
            if self.small.num_rows:
                frame = with_partition(self.spark.createDataFrame(self.small), self.partition_values)
            # Without a shuffle the rows stay in the plan, where they are worked on one by one.
            frames.append(frame.repartition(4) if self.has_many_small_rows else frame)
        if large:
            frames.append(self._scanned(large, is_strict=is_strict, chosen=chosen, with_records=with_records))
        columns = [*columns_of_rows(self.feed), *self.partition_values]
        found = [frame.select(*columns) for frame in frames]
        return found[0] if len(found) == 1 else found[0].unionByName(found[1])

    def notes(self) -> list[tuple[str, Note]]:
        """What is to be said of the files that workers read, by their keys. It reads them."""
        rows = self._scanned(self.large, is_strict=False).where(F.col(NOTE).isNotNull()).select("source_file", NOTE)
        return [(row.source_file, note_of(row[NOTE])) for row in rows.collect()]

    def alone(self, file: SourceFile) -> Batch:
        """This reading of one file only."""
        others = [FileFault(other, "", "") for other in self.large if other != file]
        return replace(self, faults=[*self.faults, *others], small=self.small.slice(0, 0))

    def tasks(self) -> list[list[PartOfFile]]:
        """Return what each task reads of the large files."""
        return tasks_of(self._parts(self.large))

    def _parts(self, large: Mapping[SourceFile, Shape]) -> list[PartOfFile]:
        forms: dict[Shape, Shape] = {}  # each is sent to the workers once
        return [
            PartOfFile(number, file.key, file.size, file.etag, shape, read_as.rows_of, part)
            for number, file in enumerate(self.in_order)
            if file in large
            for shape in [forms.setdefault(large[file], large[file])]
            for read_as in [format_named(shape.format)]
            for part in ((WHOLE,) if self.numbered else read_as.parts(shape, file.key, file.size, TASK_BYTES))
        ]

    def _scanned(
        self,
        large: Mapping[SourceFile, Shape],
        *,
        is_strict: bool,
        chosen: Chunks | None = None,
        with_records: bool = True,
    ) -> DataFrame:
        parts = self._parts(large)
        if chosen is not None:
            parts = [part for part in parts if (part.file, part.part.begin) in chosen]
        tasks = tasks_of(parts)
        scan = Scan(self.declared, _store_of(self.spark, self.store), tasks, is_strict, chosen, with_records)
        run = shipped(scan.run, *{part.rows_of for part in parts})
        rows = self.spark.range(0, len(tasks), 1, len(tasks)).mapInArrow(run, scan.ddl())
        return self.with_lineage(rows, with_partition(self._lineage(), self.partition_values))

    def with_lineage(self, rows: DataFrame, lineage: DataFrame | None = None) -> DataFrame:
        """Rows that have the number of their file, with the columns `OF_FILES`."""
        return rows.join(F.broadcast(self._lineage() if lineage is None else lineage), on="_file", how="inner")

    def _lineage(self) -> DataFrame:
        return self.spark.createDataFrame(
            [(n, f.key, f.version, f.arrived_at, self.code_version, f.partition) for n, f in enumerate(self.in_order)],
            "_file int, source_file string, source_version string, arrived_at timestamp, loaded_by string, "
            "_partition string",
        )

    def without_unread(self, failure: PySparkException) -> Batch:
        """This reading without the files that ended a job.

        Raises:
            PySparkException: the failure; it was not about a file.
            NotScanned: workers are not given some files, or end over them, which says nothing of what they hold.
        """
        large = self.large
        if not large:
            raise failure
        if FileNotRead.__name__ in str(failure):
            found = self.without(self.notes())
            if len(found.faults) == len(self.faults):  # it could be read this time
                ending = {file: str(failure).partition(f"{FileNotRead.__name__} {file.key}: ") for file in large}
                named = {file: _first_line(why) for file, (_, found_it, why) in ending.items() if found_it}
                raise NotScanned(named or dict.fromkeys(large, _error_of(failure)))
            return found
        ended: dict[SourceFile, str] = {}
        for file in large if _WORKER_ENDED in str(failure) else ():
            try:
                self.alone(file).notes()
            except PySparkException as error:
                if _WORKER_ENDED not in str(error):  # Spark itself is away: each file would be tried for minutes
                    raise failure from error
                ended[file] = _error_of(error)
        raise NotScanned(ended) if ended and len(ended) < len(large) else failure

    def without(self, notes: Sequence[tuple[str, Note]]) -> Batch:
        """This reading without the files that turned out to be none.

        Args:
            notes: What was said of the parts of files, by their keys.

        Raises:
            NotScanned: the bytes of some files were not given, which says nothing of them.
        """
        by_key = {file.key: file for file in self.large}
        refused = {by_key[key]: note.refused for key, note in notes if note.refused}
        for file, why in refused.items():
            try:
                self.store.check(file)
            except ObjectUnavailable as error:
                refused[file] = f"{why}; {error.reason}"
        if refused:
            raise NotScanned(refused)
        faults = {key: note.fault for key, note in notes if note.fault}
        about: dict[str, list[Note]] = defaultdict(list)
        for key, note in notes:
            about[key].append(note)
        for key, file in by_key.items():
            if key not in faults and not format_named(self.inspected.large[file].format).has_header:
                parts = [(note.rows, note.objects, note.others) for note in about[key]]
                if fault := without_columns(self.feed, parts):
                    faults[key] = (fault.reason, str(fault))
        return replace(self, faults=[*self.faults, *(FileFault(by_key[key], *why) for key, why in faults.items())])

    def without_rows(self, consequence: str) -> Batch:
        """This reading with a fault for each file: none gave a row that could be taken."""
        faulty = {fault.file: fault for fault in self.faults}
        files = [*self.inspected.readable, *(f for f in faulty if f not in self.inspected.readable)]
        empty = "no row of it can be taken"
        said = {f: (faulty[f].reason, faulty[f].message) if f in faulty else ("empty", empty) for f in files}
        return replace(self, faults=[FileFault(f, why, f"{words}; {consequence}") for f, (why, words) in said.items()])


_WORKER_ENDED = "Python worker"


def _first_line(text: str) -> str:
    return next(iter(text.strip().splitlines()), "")


def _error_of(failure: Exception) -> str:
    """The line of a failure that names the error: of one in Python the line behind the traceback."""
    first, *_ = lines = str(failure).strip().splitlines() or [type(failure).__name__]
    behind = dropwhile(lambda line: not line.startswith("Traceback"), lines)
    return next((line for line in islice(behind, 1, None) if line and not line[0].isspace()), first)


def declared_by(feed: Feed) -> Declared:
    """What a feed says of the content of its files."""
    return Declared(dict(feed.columns), feed.encoding, feed.multiline)


NO_OBJECT = "no line of it is a JSON object"


def without_columns(feed: Feed, parts: Sequence[tuple[int, int, Sequence[str] | None]]) -> Unusable | None:
    """What is wrong with a file without a header, of which no row has a declared column.

    Args:
        parts: Of each part the rows, those without a fault, and the names they have where none is declared.
    """
    if not sum(rows for rows, *_ in parts):
        return None
    if not sum(objects for _, objects, _ in parts):
        return Unusable("unreadable", NO_OBJECT)
    if any(others is None for _, objects, others in parts if objects):
        return None
    return foreign(feed, list(dict.fromkeys(name for *_, others in parts for name in others or ())))


def _store_of(spark: SparkSession, store: ObjectStore) -> Store:
    settings = settings_of(spark)
    if settings is None:
        return Store(store.name, "us-east-1")
    key = LOCAL_KEY if settings.own_cloud else None
    return Store(store.name, settings.aws_region, settings.aws_endpoint_url, key)


def with_partition(frame: DataFrame, partition_values: Mapping[str, str]) -> DataFrame:
    """A frame with a `_partition` and the columns that say it."""
    values = {column: F.expr(value) for column, value in partition_values.items()}
    return frame.withColumns(values) if values else frame


def no_rows(spark: SparkSession, feed: Feed, partition_values: Mapping[str, str]) -> DataFrame:
    """What `Batch.rows` gives of no files."""
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
) -> Batch:
    """Of files that were looked into the rows of the small ones, and how to read the large ones."""
    found = in_memory.read(feed, declared_by(feed), inspected.fetched)
    fetched = {file: of for file, of in inspected.fetched.items() if file not in found.left}
    large = {**inspected.large, **{file: inspected.fetched[file][0] for file in found.left}}
    inspected = replace(inspected, fetched=fetched, large=large)
    faults = [*inspected.faults, *found.faults]
    batch = Batch(spark, store, feed, code_version, inspected, found.rows, faults, partition_values, numbered)
    return replace(batch, small=_with_lineage(found.rows, batch.in_order, code_version))


def _with_lineage(table: pa.Table, files: Sequence[SourceFile], code_version: str) -> pa.Table:
    by_key, number = {file.key: file for file in files}, {file.key: n for n, file in enumerate(files)}
    keys = table.column("source_file").combine_chunks().dictionary_encode()
    known = [by_key[key] for key in keys.dictionary.to_pylist()]
    said: list[tuple[str, list[object], pa.DataType]] = [
        ("_file", [number[f.key] for f in known], pa.int32()),
        ("source_version", [f.version for f in known], pa.string()),
        ("arrived_at", [f.arrived_at for f in known], pa.timestamp("us", "UTC")),
        ("loaded_by", [code_version] * len(known), pa.string()),
        ("_partition", [f.partition for f in known], pa.string()),
        (NOTE, [None] * len(known), pa.string()),
    ]
    for name, values, kind in said:
        table = table.append_column(name, pa.array(values, kind).take(keys.indices))
    return table
