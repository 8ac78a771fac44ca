"""The rows of a load's files, small and large, as one frame with their lineage.

Belongs here: putting together what was fetched and what is scanned. Does not belong here: how either is read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from dagster_tidemark.lakehouse.readers import in_memory, spark_scan, verdict
from dagster_tidemark.lakehouse.readers.file_format import Shape
from dagster_tidemark.lakehouse.readers.files import FileFault, ObjectStore, SourceFile, columns_of_rows
from dagster_tidemark.lakehouse.readers.probe import Inspected
from dagster_tidemark.lakehouse.table import LINEAGE, as_ddl
from dagster_tidemark.sources.feed import Feed

_FEW = 5_000  # rows that one task handles as fast as several


@dataclass(frozen=True)
class Batch:
    """What a load reads: its files as they were looked into, and those that cannot be taken.

    With `numbered`, `_row` counts the rows of every file from 0, also of those that Spark scans in blocks.
    Immutable: when a scan fails, `without` gives the reading that goes on without the files at fault.
    """

    spark: SparkSession
    store: ObjectStore
    feed: Feed
    code_version: str
    inspected: Inspected
    small: pa.Table
    faults: Sequence[FileFault]
    numbered: bool = False

    @property
    def files(self) -> list[SourceFile]:
        """The files whose rows are in `rows`."""
        wrong = {fault.file for fault in self.faults}
        return [file for file in self.inspected.readable if file not in wrong]

    @property
    def is_small(self) -> bool:
        """Whether reading the rows once more costs nothing."""
        return not self._large() and self.small.num_rows <= _FEW

    def rows(self) -> DataFrame:
        """The rows: `files.columns_of_rows`, `source_version`, `arrived_at`, `loaded_by` and `_partition`."""
        frames = []
        large = self._large()
        if self.small.num_rows or not large:
            small = self._in_memory()
            # Without a shuffle the rows stay in the plan, where they are worked on one by one.
            frames.append(small.repartition(4) if self.small.num_rows > _FEW else small)
        if large:
            scanned = spark_scan.scan(self.spark, self.store, self.feed, large)
            if self.numbered:
                in_file = Window.partitionBy("source_file").orderBy("_block", "_row")
                number = (F.row_number().over(in_file) - 1).cast("bigint")
                scanned = scanned.withColumns({"_block": F.lit(0).cast("bigint"), "_row": number})
            frames.append(scanned.join(F.broadcast(self._lineage()), on="source_file", how="inner"))
        return frames[0] if len(frames) == 1 else frames[0].unionByName(frames[1])

    def without(self, failure: PySparkException) -> Batch:
        """This reading without the large files that a scan fails on.

        Raises:
            PySparkException, NotScanned: none of them is to blame, as far as is known.
        """
        large = self._large()
        if not large:
            raise failure
        faults = verdict.unreadable(
            self.spark, self.store, self.feed, large, failure, beside=list(self.inspected.fetched)
        )
        return replace(self, faults=[*self.faults, *faults])

    def without_rows(self, consequence: str) -> Batch:
        """This reading with a fault for each file: none gave a row that could be taken."""
        faulty = {fault.file: fault for fault in self.faults}
        files = [*self.inspected.readable, *(f for f in faulty if f not in self.inspected.readable)]
        empty = "no row of it can be taken"
        said = {f: (faulty[f].reason, faulty[f].message) if f in faulty else ("empty", empty) for f in files}
        return replace(self, faults=[FileFault(f, why, f"{words}; {consequence}") for f, (why, words) in said.items()])

    def _large(self) -> dict[SourceFile, Shape]:
        wrong = {fault.file for fault in self.faults}
        return {file: shape for file, shape in self.inspected.large.items() if file not in wrong}

    def _in_memory(self) -> DataFrame:
        if self.small.num_rows:
            return self.spark.createDataFrame(self._with_lineage())
        return no_rows(self.spark, self.feed)

    def _lineage(self) -> DataFrame:
        return self.spark.createDataFrame(
            [(f.key, f.version, f.arrived_at, self.code_version, f.partition) for f in self._large()],
            "source_file string, source_version string, arrived_at timestamp, loaded_by string, _partition string",
        )

    def _with_lineage(self) -> pa.Table:
        by_key = {file.key: file for file in self.inspected.fetched}
        keys = self.small.column("source_file").combine_chunks().dictionary_encode()
        files = [by_key[key] for key in keys.dictionary.to_pylist()]

        def per_row(values: list[object], kind: pa.DataType) -> pa.Array:
            return pa.array(values, kind).take(keys.indices)

        table = self.small
        for name, values, kind in (
            ("source_version", [f.version for f in files], pa.string()),
            ("arrived_at", [f.arrived_at for f in files], pa.timestamp("us", "UTC")),
            ("loaded_by", [self.code_version] * len(files), pa.string()),
            ("_partition", [f.partition for f in files], pa.string()),
        ):
            table = table.append_column(name, per_row(list(values), kind))
        return table


def no_rows(spark: SparkSession, feed: Feed) -> DataFrame:
    """What `Reading.rows` gives of no files."""
    columns = columns_of_rows(feed) | LINEAGE | {"_partition": "string"}
    return spark.createDataFrame([], as_ddl(columns))


def reading_of(
    spark: SparkSession,
    store: ObjectStore,
    feed: Feed,
    inspected: Inspected,
    *,
    code_version: str,
    numbered: bool = False,
) -> Batch:
    """Of files that were looked into the rows of the small ones, and how to read the large ones."""
    small, faults = in_memory.rows_of_all(feed, inspected.fetched)
    large, without = spark_scan.look_closer(spark, store, feed, inspected.large)
    inspected = replace(inspected, large=large)
    return Batch(spark, store, feed, code_version, inspected, small, [*inspected.faults, *faults, *without], numbered)
