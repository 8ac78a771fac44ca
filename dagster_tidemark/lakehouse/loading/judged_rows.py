"""The rows of a load with their verdicts, which are evaluated once and read several times.

If all values of a row are in plain form, the row is sent to Spark as values, not as texts. Few such rows are rejected,
so the texts of their content are read from their records afterwards.

Belongs here: reading these rows, caching them, excluding files that cannot be read, and the content of rejected rows.
Does not belong here: the verdicts (`validation`), and writing the rows (`load`).
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from dagster_tidemark.lakehouse.loading import rejected_rows
from dagster_tidemark.lakehouse.loading.spec import Landing, Load
from dagster_tidemark.lakehouse.loading.validation import judge
from dagster_tidemark.lakehouse.parsing.part_of_file import REPORT, PartReport
from dagster_tidemark.lakehouse.parsing.rows import DeclaredContent
from dagster_tidemark.lakehouse.read import as_frame, fetched
from dagster_tidemark.lakehouse.readers.batch import OF_FILES, FileBatch, reading_of
from dagster_tidemark.lakehouse.readers.files import NotScanned
from dagster_tidemark.lakehouse.readers.format_registry import format_named
from dagster_tidemark.lakehouse.readers.probe import Inspected
from dagster_tidemark.lakehouse.shipping import shipped

FEW = 5_000  # so few rejected rows are fetched once, which is faster than filtering the cached rows several times
_CONTENT, _RECORD, _FILE = "_content", "_record", "source_file"
_ESCAPES = re.compile(r"(\\\\)|\\u([0-9a-f]{4})")


@dataclass(frozen=True)
class Judged:
    """Rows with their verdicts (`validation.judge`), which are evaluated once.

    Args:
        rows: All rows. Reading them several times does not evaluate them again.
        rejected: Rejected rows, each with its `_content`. They are in memory if they are few.
        tally: Number of all rows and of rejected rows, by file.
    """

    rows: DataFrame
    rejected: DataFrame | pa.Table
    tally: Mapping[str, rejected_rows.Tally]
    _kept: DataFrame | None = None

    @property
    def rejected_frame(self) -> DataFrame:
        """The rejected rows as a frame."""
        if isinstance(self.rejected, DataFrame):
            return self.rejected
        if not self.rejected.num_rows:  # Spark creates no frame from an empty table
            return self.rows.limit(0)
        return as_frame(self.rows.sparkSession, self.rejected)

    @property
    def good(self) -> DataFrame:
        """The good rows."""
        return self.rows.where("_reason IS NULL")

    def forget(self) -> None:
        """Release the cached rows."""
        if self._kept is not None:
            self._kept.unpersist()


def read_files(spark: SparkSession, landing: Landing, load: Load, inspected: Inspected) -> FileBatch:
    """Read the small ones of the inspected files, and return a batch with their rows and with the large files."""
    return reading_of(
        spark,
        landing,
        load.feed,
        inspected,
        code_version=load.code_version,
        partition_values=load.table.partition_values_sql("_partition"),
        numbered=load.numbers_rows,
    )


def judge_rows(load: Load, reading: FileBatch) -> tuple[FileBatch, Judged]:
    """Return the batch without the files that cannot be loaded, and its rows with their verdicts.

    Raises:
        NotScanned: Spark's workers could not get some files, or crashed on them. The content is unknown.
    """
    judged = judge(reading.rows(), load.feed, load.table)
    try:
        if reading.is_small:
            return reading, _in_memory(reading, judged)
        # Columns with one value per file are half of the data. They are not cached, but joined again later.
        judged = judged.drop(*OF_FILES)
        return _cached(reading, judged.persist())
    except (PySparkException, NotScanned) as failure:
        with contextlib.suppress(PySparkException):  # a frame that Spark cannot analyze was never cached
            judged.unpersist()
        if isinstance(failure, PySparkException) and (ended := reading.ending_workers(failure)):
            raise NotScanned(ended) from failure
        raise


def _in_memory(reading: FileBatch, judged: DataFrame) -> Judged:
    rows = fetched(judged)
    if not rows.num_rows:
        return Judged(judged, rows, {})
    tally = rejected_rows.tally_of(rows, [file.key for file in reading.in_order])
    rows = _with_contents(reading, rows, tally)
    judged = as_frame(reading.spark, rows)  # the new plan does not evaluate the texts again
    return Judged(judged, rows.filter(rows["_reason"].is_valid()), tally)


def _cached(reading: FileBatch, judged: DataFrame) -> tuple[FileBatch, Judged]:
    reports = judged.where(F.col(REPORT).isNotNull()).select(REPORT).collect()
    reading = reading.without_faulty(PartReport.of_json(row[REPORT]) for row in reports)
    faulty = {fault.file.key for fault in reading.faults}
    keys = [file.key for file in reading.in_order]
    rows = _rows_alone(judged, [number for number, key in enumerate(keys) if key in faulty])
    tally = rejected_rows.tally_of(rows, keys)
    rows = reading.with_lineage(rows)
    rejected = with_contents(reading, rows.where("_reason IS NOT NULL"), tally)
    return reading, Judged(rows, rejected, tally, judged)


def with_contents(
    reading: FileBatch, rejected: DataFrame | pa.Table, tally: Mapping[str, rejected_rows.Tally]
) -> DataFrame | pa.Table:
    """Return rejected rows, each with its `_content`. A few rows are fetched."""
    files = [key for key, of in tally.items() if of.reasons]
    if isinstance(rejected, DataFrame) and 0 < sum(sum(of.reasons.values()) for of in tally.values()) <= FEW:
        rejected = fetched(rejected)
    if isinstance(rejected, pa.Table):
        return _with_contents(reading, rejected, files)
    return _filled(rejected, reading, files) if files else rejected


def _rows_alone(judged: DataFrame, faulty: Collection[int]) -> DataFrame:
    """Return the rows of the sound files, without reports.

    Spark reads files again if it loses cached rows. The job fails if the second reading finds other faults.
    """
    is_known = F.col("_file").isin(*faulty)
    is_sound = F.get_json_object(REPORT, "$.fault").isNull() & F.get_json_object(REPORT, "$.refused").isNull()
    other = F.raise_error(F.concat(F.lit("a file was read twice, with two results: "), F.col(REPORT)))
    return judged.where(
        F.when(is_known, False)
        .when(F.col(REPORT).isNull(), True)
        .when(is_sound, False)
        .otherwise(other.cast("boolean"))
    )


def _with_contents(reading: FileBatch, rows: pa.Table, files: Iterable[str]) -> pa.Table:
    at = rows.schema.get_field_index(_CONTENT)
    return rows.set_column(at, rows.schema.field(at), _contents_of(reading, files).of(rows))


@dataclass(frozen=True)
class _Contents:
    """Rule that creates contents from records.

    Args:
        forms: For each file with such rows, its shape and the function that splits a record into texts.
    """

    declared: DeclaredContent
    forms: Mapping[str, tuple[Any, Callable[[DeclaredContent, Any, str], Sequence[str | None]]]]

    def fill(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the same rows, each with its `_content`."""
        for batch in batches:
            at = batch.schema.get_field_index(_CONTENT)
            yield batch.set_column(at, batch.schema.field(at), self.of(pa.Table.from_batches([batch])))

    def of(self, rows: pa.Table) -> pa.Array:
        """Return the contents of rows. Missing contents are created from the records."""
        named = (rows.column(name).to_pylist() for name in (_CONTENT, _RECORD, _FILE))
        found = [
            self._content(file, record) if content is None and record is not None else content
            for content, record, file in zip(*named, strict=True)
        ]
        return pa.array(found, rows.schema.field(_CONTENT).type)

    def _content(self, file: str, record: str) -> str:
        shape, texts_of = self.forms[file]
        texts = zip(self.declared.columns.items(), texts_of(self.declared, shape, record), strict=True)
        nulls_of = self.declared.nulls_of
        return _as_json({c: text for (c, kind), text in texts if text is not None and text not in nulls_of(kind)})


def _as_json(texts: Mapping[str, str]) -> str:
    """Return texts as Spark's `to_json` writes them."""
    written = json.dumps(texts, ensure_ascii=False, separators=(",", ":"))
    return _ESCAPES.sub(lambda found: found[0] if found[1] else f"\\u{found[2].upper()}", written)


def _filled(rejected: DataFrame, reading: FileBatch, files: Iterable[str]) -> DataFrame:
    """Return rejected rows, each with its `_content`.

    Args:
        files: Keys of the files of these rows.
    """
    contents = _contents_of(reading, files)
    if not contents.forms:
        return rejected
    used = {texts_of for _, texts_of in contents.forms.values()}
    return rejected.mapInArrow(shipped(contents.fill, *used), rejected.schema)


def _contents_of(reading: FileBatch, files: Iterable[str]) -> _Contents:
    """Return the rule that creates contents from the records of some files."""
    shapes = reading.shapes
    forms = {}
    for file in files:
        shape = shapes.get(file)
        if shape is not None and (texts_of := format_named(shape.format).texts_of) is not None:
            forms[file] = (shape, texts_of)
    return _Contents(reading.declared, forms)
