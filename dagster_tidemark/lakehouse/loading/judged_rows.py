"""The rows of a load with their verdicts, evaluated once and asked for several times.

Belongs here: what is kept of them meanwhile, and that one file that cannot be read harms only itself. Does not belong
here: the verdicts (`validation`), and what becomes of the rows (`load`).
"""

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from dagster_tidemark.lakehouse.loading import rejected_rows
from dagster_tidemark.lakehouse.loading.row_contents import contents_of, filled
from dagster_tidemark.lakehouse.loading.spec import Load
from dagster_tidemark.lakehouse.loading.validation import judge
from dagster_tidemark.lakehouse.parsing.scan import note_of
from dagster_tidemark.lakehouse.read import fetched
from dagster_tidemark.lakehouse.readers.batch import OF_FILES, Batch


@dataclass(frozen=True)
class Judged:
    """Rows with their verdicts (`validation.judge`), evaluated once.

    Args:
        rows: They may be asked for again and again.
        rejected: Those that are turned away, each with its `_content`.
        tally: What became of the rows of each file.
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
        """Free what was kept of them."""
        if self._kept is not None:
            self._kept.unpersist()


def judge_rows(load: Load, reading: Batch) -> tuple[Batch, Judged]:
    """What was read, without the files that turn out to be none, and its rows with their verdicts.

    Raises:
        NotScanned: some files are not given to Spark's workers, or end them. That says nothing of what they hold.
    """
    while True:
        judged = judge(reading.rows(), load.feed, load.table)
        try:
            if reading.is_small:
                return reading, _of_few(reading, judged)
            # What is the same for all rows of a file is put to them again: it is half of what there is to keep.
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
    contents = contents_of(reading, tally)
    at = rows.schema.get_field_index("_content")
    rows = rows.set_column(at, rows.schema.field(at), contents.of(rows))
    judged = reading.spark.createDataFrame(rows)  # none of the work on the texts is in it any more
    return Judged(judged, judged.where("_reason IS NOT NULL"), tally)


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
    rejected = rows.where("_reason IS NOT NULL")
    return reading, Judged(rows, filled(rejected, reading, [k for k, of in tally.items() if of.reasons]), tally, kept)
