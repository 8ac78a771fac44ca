"""Load of files that belong together: either all their rows become a partition of a table, or none of them.

Files are read and judged as in every load (`load`). But if one file or row is bad, the whole load is refused and the
table stays unchanged. Does not belong here: the choice of the files, and the reaction to a refusal.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from dagster_tidemark.failpoints import reached
from dagster_tidemark.lakehouse import catalog, write
from dagster_tidemark.lakehouse.loading import quarantine_table
from dagster_tidemark.lakehouse.loading.judged_rows import judge_rows, read_files
from dagster_tidemark.lakehouse.loading.load import check_scanned
from dagster_tidemark.lakehouse.loading.rejected_rows import Tally, first_rows
from dagster_tidemark.lakehouse.loading.spec import Landing, Load
from dagster_tidemark.lakehouse.loading.validation import has_duplicate_keys
from dagster_tidemark.lakehouse.readers.files import FileFault, SourceFile
from dagster_tidemark.lakehouse.readers.probe import inspect

DUPLICATE_KEY = "duplicate_key"
"""Reason of a row that has the same key as another row."""
EMPTY = "empty"
"""Reason of files that all have no rows."""
_TOLD = 10


@dataclass(frozen=True)
class BadRow:
    """Row that cannot be loaded. `row_number` is its number in the file, from 1; None if unknown."""

    key: str
    row_number: int | None
    reason: str
    message: str


@dataclass(frozen=True)
class Refusal:
    """Reasons why nothing was loaded.

    Args:
        faults: Files that cannot be loaded.
        bad_rows: Number of bad rows by file and reason.
        first: The first bad rows.
    """

    faults: Sequence[FileFault] = ()
    bad_rows: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    first: Sequence[BadRow] = ()

    @property
    def reasons(self) -> Counter[str]:
        """Number of files or rows for each reason."""
        reasons = Counter(fault.reason for fault in self.faults)
        for of_file in self.bad_rows.values():
            reasons.update(of_file)
        return reasons


def load_all_or_none(
    spark: SparkSession,
    landing: Landing,
    load: Load,
    partition: str,
    files: Sequence[SourceFile],
    *,
    since: int | None,
    run_id: str,
) -> Refusal | None:
    """Replace a partition with the rows of files, in one commit, if all rows can be loaded.

    Args:
        since: The snapshot to start from. Nothing is written if another run has changed the partition after it.

    Returns:
        The refusal; None if the rows are in the table.

    Raises:
        CommitConflict: another run has written to the partition.
        ObjectChanged: a file has changed since it was listed.
        ObjectUnavailable, NotScanned: a file is unavailable, or crashes a Spark worker.
        BucketUnavailable: the bucket does not answer.
    """
    catalog.ensure(spark, load.table)
    inspected = inspect(landing, load.feed, files)
    for refused in inspected.unavailable.values():
        raise refused
    reading, judged = judge_rows(load, read_files(spark, landing, load, inspected))
    tally = judged.tally
    try:
        check_scanned(landing, reading.inspected.large)
        bad = {key: of.reasons for key, of in tally.items() if of.reasons}
        if reading.faults or bad:
            return Refusal(reading.faults, bad, _first_of(judged.rejected_frame, load, tally))
        if not sum(of.rows for of in tally.values()):
            return Refusal([FileFault(file, EMPTY, "the files have no rows") for file in files])
        rows = load.transform(judged.good)
        if has_duplicate_keys(rows, load.table) and (doubled := _doubled(rows, load)).bad_rows:
            return doubled
        reached("before_commit")
        write.replace_since(since, rows, load.table, load.table.predicate([partition]), run_id=run_id)
        reached("after_commit")
        return None
    finally:
        judged.forget()


def _first_of(rejected: DataFrame, load: Load, tally: Mapping[str, Tally]) -> list[BadRow]:
    firsts = first_rows(tally)
    if not firsts:
        return []
    entries = quarantine_table.of_rows(rejected, load.asset, firsts).orderBy("source_file", "row_number").limit(_TOLD)
    return [BadRow(e.source_file, e.row_number, e.reason, e.message) for e in entries.collect()]


def _doubled(rows: DataFrame, load: Load) -> Refusal:
    """Return a refusal that names the rows with the same key as another row."""
    key = list(load.table.row_key)
    several = rows.groupBy(*key).agg(F.count(F.lit(1)).alias("_times"), F.min("source_file").alias("_first"))
    several = several.where("_times > 1")
    counted = rows.join(several, on=key, how="left_semi").groupBy("source_file").count().collect()
    said = several.orderBy(*key).limit(_TOLD).collect()
    first = [
        BadRow(
            of["_first"],
            None,
            DUPLICATE_KEY,
            f"{', '.join(f'{c} {of[c]}' for c in key)} occurs {of['_times']} times",
        )
        for of in said
    ]
    return Refusal(bad_rows={row.source_file: {DUPLICATE_KEY: row["count"]} for row in counted}, first=first)
