"""The rows of a load with their verdicts, evaluated once and read several times.

Belongs here: caching these rows, and leaving out files that cannot be read. Does not belong here: the verdicts
(`validation`), and writing the rows (`load`).
"""

import contextlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from dagster_tidemark.lakehouse.loading import rejected_rows
from dagster_tidemark.lakehouse.loading.row_contents import contents_of, filled
from dagster_tidemark.lakehouse.loading.spec import Load
from dagster_tidemark.lakehouse.loading.validation import judge
from dagster_tidemark.lakehouse.parsing.spark_tasks import note_of
from dagster_tidemark.lakehouse.read import fetched
from dagster_tidemark.lakehouse.readers.batch import OF_FILES, Batch


@dataclass(frozen=True)
class Judged:
    """Rows with their verdicts (`validation.judge`), evaluated once.

    Args:
        rows: All rows. They can be read several times.
        rejected: Rejected rows, each with its `_content`.
        tally: The number of good and of rejected rows, by file.
    """

    rows: DataFrame
    rejected: DataFrame
    tally: Mapping[str, rejected_rows.Tally]
    _kept: DataFrame | None = None

    @property
    def good(self) -> DataFrame:
        """The good rows."""
        return self.rows.where("_reason IS NULL")

    def forget(self) -> None:
        """Release the cached rows."""
        if self._kept is not None:
            self._kept.unpersist()


def judge_rows(load: Load, reading: Batch) -> tuple[Batch, Judged]:
    """Return the batch without the files that cannot be read, and its rows with their verdicts.

    Raises:
        NotScanned: Spark's workers did not get some files, or ended while they read them. The content is unknown.
    """
    while True:
        judged = judge(reading.rows(), load.feed, load.table)
        try:
            if reading.is_small:
                return reading, _of_few(reading, judged)
            # Columns that are equal in all rows of a file are half of the data. They are joined again after the cache.
            judged = judged.drop(*OF_FILES)
            return _of_many(reading, judged.persist())
        except PySparkException as failure:
            with contextlib.suppress(PySparkException):  # what cannot even be analyzed was never kept
                judged.unpersist()
            reading = reading.without_unread(failure)


def _of_few(reading: Batch, judged: DataFrame) -> Judged:
    rows = fetched(judged)
    if not rows.num_rows:
        return Judged(judged, judged, {})
    tally = rejected_rows.tally_of_few(rows)
    rows = _with_contents(reading, rows, tally)
    judged = reading.spark.createDataFrame(rows)  # none of the work on the texts is in it any more
    return Judged(judged, judged.where("_reason IS NOT NULL"), tally)


FEW = 5_000  # rejected rows; to fetch so many once is faster than to filter the cached rows several times


def _of_many(reading: Batch, kept: DataFrame) -> tuple[Batch, Judged]:
    keys = [file.key for file in reading.in_order]
    tally = rejected_rows.tally_of(kept.where("_note IS NULL"), keys)
    notes = kept.where("_note IS NOT NULL").select("_file", "_note").collect()
    rows = reading.with_lineage(kept.where("_note IS NULL"))
    before = {file.key for file in reading.files}
    reading = reading.without([(keys[row["_file"]], note_of(row["_note"])) for row in notes])
    if none := before - {file.key for file in reading.files}:
        rows = rows.where(~F.col("source_file").isin(sorted(none)))
        tally = {key: of for key, of in tally.items() if key not in none}
    return reading, Judged(rows, with_contents(reading, rows.where("_reason IS NOT NULL"), tally), tally, kept)


def with_contents(
    reading: Batch, rejected: DataFrame | pa.Table, tally: Mapping[str, rejected_rows.Tally]
) -> DataFrame:
    """Return rejected rows, each with its `_content`."""
    files = [key for key, of in tally.items() if of.reasons]
    if isinstance(rejected, DataFrame) and 0 < sum(sum(of.reasons.values()) for of in tally.values()) <= FEW:
        rejected = fetched(rejected)
    if isinstance(rejected, pa.Table):
        return reading.spark.createDataFrame(_with_contents(reading, rejected, files))
    return filled(rejected, reading, files) if files else rejected


def _with_contents(reading: Batch, rows: pa.Table, files: Iterable[str]) -> pa.Table:
    at = rows.schema.get_field_index("_content")
    return rows.set_column(at, rows.schema.field(at), contents_of(reading, files).of(rows))
