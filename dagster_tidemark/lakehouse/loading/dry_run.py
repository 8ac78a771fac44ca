"""Load that stops before it writes. It finds the rows and files that changed rules or code would reject.

It runs the code of a real load up to the commit. So a real load has the same result if the bucket does not change. Does
not belong here: the commands (`dagster_tidemark.cli.quarantine_work`).
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from dagster_tidemark.lakehouse import catalog
from dagster_tidemark.lakehouse.loading import new_columns, rejected_rows
from dagster_tidemark.lakehouse.loading.judged_rows import judge_rows, read_files
from dagster_tidemark.lakehouse.loading.load import Landing, Load, Observed, is_emptied, look_into_files
from dagster_tidemark.lakehouse.loading.load_state import look
from dagster_tidemark.lakehouse.loading.provenance import of_versions
from dagster_tidemark.lakehouse.loading.quarantine_table import NO_ROWS, QUARANTINE, within
from dagster_tidemark.lakehouse.readers.batch import FileBatch
from dagster_tidemark.lakehouse.readers.files import NotScanned
from dagster_tidemark.sources.feed import Partition

_NOBODYS = "rehearsal"
"""Code version that no real load has, so that every file is read again."""

_SAMPLE = 10
_ABOUT = ["partition", "source_file", "source_version", "row_number"]


@dataclass(frozen=True)
class ReasonChange:
    """Row, or file if `row_number` is None, whose reason would change from `now` to `then`. None means not rejected."""

    partition: Partition
    file: str
    row_number: int | None
    now: str | None
    then: str | None
    content: str | None
    message: str | None


@dataclass(frozen=True)
class DryRun:
    """Rows and files that a load would reject.

    Args:
        rows: Number of rows that the load would read, by partition.
        rejected: Number of rows that the load would reject, by partition.
        reasons: Number of rows or files by present and future reason. A reason of None means not rejected.
        changes: Examples of rows and files whose reason would change.
        not_given: Files that could not be read, with the reason. These files are not compared.
        added: Undeclared columns that the table would get.
    """

    rows: Mapping[Partition, int] = field(default_factory=dict)
    rejected: Mapping[Partition, int] = field(default_factory=dict)
    reasons: Counter[tuple[str | None, str | None]] = field(default_factory=Counter)
    changes: Sequence[ReasonChange] = ()
    not_given: Mapping[str, str] = field(default_factory=dict)
    added: Collection[str] = ()

    def __add__(self, other: "DryRun") -> "DryRun":
        return DryRun(
            {**self.rows, **other.rows},
            {**self.rejected, **other.rejected},
            self.reasons + other.reasons,
            [*self.changes, *other.changes][:_SAMPLE],
            {**self.not_given, **other.not_given},
            dict.fromkeys([*self.added, *other.added]),
        )

    @property
    def largest_share(self) -> float:
        """The largest share of a partition's rows that would be rejected."""
        return max((self.rejected.get(p, 0) / rows for p, rows in self.rows.items() if rows), default=0.0)


def rehearse(spark: SparkSession, landing: Landing, load: Load, partitions: Sequence[Partition]) -> DryRun:
    """Read and judge partitions as a load with new code would, and compare the result with the quarantine.

    Raises:
        ObjectChanged: a file was overwritten while it was read.
        BucketUnavailable: the bucket does not answer.
        SchemaDiffers: the load would be refused because of the table's columns.
    """
    # Do not alter the table, because the deployed code would refuse to load into a table with new columns.
    before = catalog.ensure(spark, load.table, may_have_more=load.feed.adds_columns, may_alter=False)
    catalog.ensure(spark, QUARANTINE)
    load = replace(load, code_version=_NOBODYS)
    found = look(spark, landing, load, partitions, Observed)
    left_out: dict[str, str] = {}
    while True:
        found, inspected = look_into_files(landing, load, found, left_out)
        wider = new_columns.widened(spark, load, inspected, before, may_alter=False)
        try:
            reading, judged = judge_rows(wider.load, read_files(spark, landing, wider.load, wider.inspected))
            break
        except NotScanned as error:
            left_out |= {file.key: why for file, why in error.files.items()}
    load, tally = wider.load, judged.tally
    try:
        if is_emptied(load, found, tally):
            reading = reading.without_rows("the table keeps the rows of the last version")
            tally = {}
        rows, rejected = Counter[Partition](), Counter[Partition]()
        for file in reading.files:
            of = tally.get(file.key, rejected_rows.Tally())
            rows[file.partition] += of.rows
            rejected[file.partition] += sum(of.reasons.values())
        then = rejected_rows.entries_of(load, reading, judged.rejected_frame, tally)
        reasons, changes = _compared(_entries_now(spark, load, partitions, reading), then)
    finally:
        judged.forget()
    not_given = {file.key: reason for file, reason in found.unavailable.items()}
    return DryRun(rows, rejected, reasons, changes, not_given, wider.additions.added)


def _entries_now(spark: SparkSession, load: Load, partitions: Sequence[Partition], reading: FileBatch) -> DataFrame:
    """Return the quarantine entries of the files that were read."""
    files = {*reading.files, *(fault.file for fault in reading.faults)}
    condition = f"{within(load.asset, partitions)} AND t.reason <> '{NO_ROWS}'"
    now = spark.table(QUARANTINE.identifier).alias("t").where(condition)
    return of_versions(now, {(file.key, file.version) for file in files})


def _compared(now: DataFrame, then: DataFrame) -> tuple[Counter[tuple[str | None, str | None]], list[ReasonChange]]:
    said = [F.struct("reason", "content", "message").alias(name) for name in ("now", "then")]
    both = now.select(*_ABOUT, said[0]).alias("n").join(
        then.select(*_ABOUT, said[1]).alias("t"),
        on=F.expr(" AND ".join(f"n.{c} <=> t.{c}" for c in _ABOUT)),
        how="full_outer",
    )  # fmt: skip
    about = [F.coalesce(f"n.{c}", f"t.{c}").alias(c) for c in _ABOUT]
    compared = both.select(*about, "now", "then").persist()
    try:
        counted = compared.groupBy("now.reason", F.col("then.reason").alias("later")).count().collect()
        differing = compared.where("NOT (now.reason <=> then.reason)").orderBy(*_ABOUT).limit(_SAMPLE).collect()
    finally:
        compared.unpersist()
    reasons = Counter({(reason, later): count for reason, later, count in counted})
    return reasons, [
        ReasonChange(
            row.partition,
            row.source_file,
            row.row_number,
            row.now and row.now.reason,
            row.then and row.then.reason,
            (row.then or row.now).content,
            (row.then or row.now).message,
        )
        for row in differing
    ]
