"""The rows of a load with their verdicts, which are evaluated once and read several times.

Belongs here: caching these rows, and excluding files that cannot be read. Does not belong here: the verdicts
(`validation`), and writing the rows (`load`).
"""

import contextlib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from dagster_tidemark.lakehouse.loading import rejected_rows
from dagster_tidemark.lakehouse.loading.row_contents import contents_of, filled
from dagster_tidemark.lakehouse.loading.spec import Load
from dagster_tidemark.lakehouse.loading.validation import judge
from dagster_tidemark.lakehouse.parsing.part_of_file import REPORT, PartReport
from dagster_tidemark.lakehouse.read import as_frame, fetched
from dagster_tidemark.lakehouse.readers.batch import OF_FILES, FileBatch
from dagster_tidemark.lakehouse.readers.files import NotScanned


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


FEW = 5_000  # so few rejected rows are fetched once, which is faster than filtering the cached rows several times


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
    return filled(rejected, reading, files) if files else rejected


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
    at = rows.schema.get_field_index("_content")
    return rows.set_column(at, rows.schema.field(at), contents_of(reading, files).of(rows))
