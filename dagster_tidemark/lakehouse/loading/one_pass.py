"""Load that reads files once: the same tasks read rows, judge them and write the good rows to data files.

It is used for loads of many rows that replace whole partitions. Tasks must be able to write the table's data files
(`data_files`), and the transform must not move rows between tasks. The quarantine is committed before the table.
Rejected rows come with the first pass (`first_pass`); only if they are too many for that, they are read a second time.
If two rows have the same key, the load deletes its data files and starts again with cached rows (`judged_rows`),
because only these can be ranked.
"""

from __future__ import annotations

import contextlib
import io
import logging
import re
import uuid
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F

from dagster_tidemark.lakehouse import write
from dagster_tidemark.lakehouse.commits import CommitConflict
from dagster_tidemark.lakehouse.content import Hashes, contents_of, hash_of_row
from dagster_tidemark.lakehouse.data_file_tasks import (
    CONTENT,
    FILE,
    KEY,
    REPORTS,
    DataFileNotWritten,
    DataFileTask,
    Report,
    report_of,
)
from dagster_tidemark.lakehouse.data_files import DataFileTarget, target_of
from dagster_tidemark.lakehouse.loading import first_pass, new_columns, rejected_rows
from dagster_tidemark.lakehouse.loading.first_pass import FirstPass
from dagster_tidemark.lakehouse.loading.judged_rows import FEW, Judged, with_contents
from dagster_tidemark.lakehouse.loading.load_state import LoadState
from dagster_tidemark.lakehouse.loading.provenance import PartitionContents, as_keys
from dagster_tidemark.lakehouse.loading.spec import Load
from dagster_tidemark.lakehouse.loading.validation import judge
from dagster_tidemark.lakehouse.parsing.part_of_file import REPORT, PartReport
from dagster_tidemark.lakehouse.parsing.spark_tasks import tasks_of
from dagster_tidemark.lakehouse.read import fetched
from dagster_tidemark.lakehouse.readers.batch import FileBatch
from dagster_tidemark.lakehouse.readers.files import NotScanned, SourceFile
from dagster_tidemark.lakehouse.shipping import shipped
from dagster_tidemark.lakehouse.table import LINEAGE, quoted
from dagster_tidemark.sources.feed import Partition

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class UncommittedLoad:
    """Load whose good rows are in data files that are not committed yet.

    Args:
        reading: The batch, without the files that cannot be read.
        judged: The rows of the batch with their verdicts.
        held: Content of the partitions after the commit.
    """

    reading: FileBatch
    judged: Judged
    held: PartitionContents
    _target: DataFileTarget
    _reports: Sequence[Report]
    _footers: Sequence[bytes]
    _prefix: str

    def commit(self, run_id: str) -> write.Commit:
        """Commit the data files to the table. They replace the previous rows of the partitions.

        Raises:
            CommitConflict: another writer has changed one of the partitions. The data files are deleted.
        """
        try:
            self._target.replace(self._reports, self._footers, run_id=run_id)
        except CommitConflict:
            self.discard()  # not after other errors, because the commit may have succeeded despite them
            raise
        return write.commit_of(self.reading.spark, self._target.table, run_id)

    def discard(self) -> None:
        """Delete the data files."""
        self._target.discard(self._prefix)


class _Unfit(Exception):
    """Error that stops an attempt, with the reason why the load needs cached rows."""


def write_in_one_pass(load: Load, found: LoadState, reading: FileBatch) -> UncommittedLoad | None:
    """Judge the rows of a batch and write the good rows to data files. Return None if the load needs cached rows.

    Raises:
        NotScanned: Spark's workers could not get some files, or crashed on them. The content is unknown.
    """
    # For a few rows, tasks in Python would be no faster.
    if reading.is_small or any(not step.replaces or step.outdated for step in found.steps.values()):
        return None
    partitions = list(found.steps)
    values = [load.table.partition_values(partition) for partition in partitions]
    target = target_of(reading.spark, load.table, values, found.snapshot_id)
    if target is None:
        return None
    while True:
        attempt = _Attempt(load, reading, target, partitions)
        is_done = False
        try:
            written = attempt.run()
            is_done = written is not None
        except PySparkException as failure:
            if DataFileNotWritten.__name__ in str(failure):
                logger.warning("%s: falling back to Spark's own writer: %s", load.table.name, failure)
                return None
            if ended := reading.ending_workers(failure):
                raise NotScanned(ended) from failure
            raise
        except _Unfit as why:
            logger.info("%s: this load caches its rows, because %s", load.table.name, why)
            return None
        finally:
            if not is_done:
                target.discard(attempt.prefix)
        if written:
            return written
        reading = attempt.reading  # without files that cannot be loaded


@dataclass
class _Attempt:
    load: Load
    reading: FileBatch
    target: DataFileTarget
    partitions: Sequence[Partition]
    prefix: str = field(default_factory=lambda: uuid.uuid4().hex)

    def run(self) -> UncommittedLoad | None:
        """Write the rows. If some files cannot be loaded, remove them from `self.reading` and return None."""
        load, reading = self.load, self.reading
        seen = Observation()
        judged = judge(reading.rows(in_one_task=True), load.feed, load.table)
        tasks = len(tasks_of(reading.parts())) + 1  # the last one has the rows of small files
        observed = first_pass.observed(judged, seen, tasks)
        rows = self._table_rows(observed.where(f"_reason IS NULL AND {REPORT} IS NULL"))
        task = self._task()
        reports = rows.mapInArrow(shipped(task.run), REPORTS)
        done, footers = _collected(reports, is_kept=len(task.whole) < len(self.partitions))
        if any(report.is_astray for report in done):
            raise _Unfit("the transform moves rows to other partitions")
        found = first_pass.first_pass(seen)
        if {(part.number, part.begin) for part in found.parts} != {(p.number, p.part.begin) for p in reading.parts()}:
            raise _Unfit("reports of tasks are missing")
        before = len(reading.faults)
        self.reading = reading = reading.without_faulty(found.parts)
        if len(reading.faults) > before:
            return None
        judged = judged.where(f"{REPORT} IS NULL")
        result = self._judged(judged, found)
        return UncommittedLoad(reading, result, self._held(done), self.target, done, footers, self.prefix)

    def _table_rows(self, good: DataFrame) -> DataFrame:
        """Return good rows as table rows, with the additional columns that tasks need."""
        table = self.load.table
        rows = new_columns.transformed(self.load, good)
        kinds = dict(rows.dtypes)
        if FILE not in kinds:
            raise _Unfit("the transform drops the columns of the load")
        if other := [c for c, kind in table.columns.items() if kinds.get(c) != kind.replace(" ", "")]:
            raise _Unfit(f"the transform returns {other[0]} as {kinds.get(other[0])}")
        rows = rows.select(
            FILE,
            *(quoted(c) for c in table.columns if c not in LINEAGE),
            F.xxhash64(*map(quoted, table.row_key)).alias(KEY),
            F.expr(hash_of_row(table, table.columns)).alias(CONTENT),
        )
        if not is_grouped_by_task(rows):
            raise _Unfit("the transform moves rows between tasks")
        return rows

    def _task(self) -> DataFileTask:
        target, reading = self.target, self.reading
        files, number = reading.in_order, {partition: n for n, partition in enumerate(self.partitions)}
        return DataFileTask(
            target.store,
            target.schema,
            target.folders,
            target.partitions,
            [number[file.partition] for file in files],
            frozenset(self._whole(files)),
            reading.lineage().select([*LINEAGE]).to_pydict(),
            self.prefix,
            target.options,
        )

    def _whole(self, files: Sequence[SourceFile]) -> Iterator[int]:
        """Yield the numbers of the partitions whose files are all read by one task."""
        tasks: dict[Partition, set[int]] = defaultdict(set)
        for number, task in enumerate(tasks_of(self.reading.parts())):
            for part in task:
                tasks[files[part.number].partition].add(number)
        large = self.reading.large
        with_small = {file.partition for file in self.reading.files if file not in large}  # one task has their rows
        for number, partition in enumerate(self.partitions):
            if len(tasks[partition]) + (partition in with_small) <= 1:
                yield number

    def _judged(self, judged: DataFrame, found: FirstPass) -> Judged:
        reading, parts = self.reading, _rows_of_parts(self.reading, found.parts)
        keys = [file.key for file in reading.in_order]
        if found.rejected is not None:
            rejected = first_pass.with_lineage(found.rejected, reading)
            tally = rejected_rows.tally_of_parts(parts, rejected_rows.counted(rejected), keys)
            return Judged(judged, with_contents(reading, rejected, tally), tally)
        chunks = found.chunks
        load = self.load
        again = judge(reading.rows(chunks=chunks), load.feed, load.table).where("_reason IS NOT NULL")
        kept = again.persist() if found.most_rows > FEW else None
        rejected = fetched(again) if kept is None else kept
        try:
            groups = rejected_rows.counted(rejected)
            there = {(group["_file"], group["_block"]) for group in groups}
            weight = first_pass.weight_of(*(sum(group[name] for group in groups) for name in ("rows", "places")))
            if weight != found.weight or there != chunks.keys():
                raise _Unfit("its rules are not deterministic")
            tally = rejected_rows.tally_of_parts(parts, groups, keys)
            return Judged(judged, with_contents(reading, rejected, tally), tally, kept)
        except BaseException:  # also if the run is interrupted, because Spark would keep the cached rows
            if kept is not None:
                with contextlib.suppress(PySparkException):
                    kept.unpersist()
            raise

    def _held(self, reports: Sequence[Report]) -> PartitionContents:
        table, files = self.load.table, self.reading.in_order
        hashes: list[Hashes] = []
        held: dict[Partition, dict[tuple[str, str], int]] = defaultdict(dict)
        for report in reports:
            partition = self.partitions[report.partition]
            for landed in report.landed:
                file = files[landed.file]
                hashes.append(Hashes(partition, landed.rows, landed.xored, landed.high, landed.low))
                before = held[partition].get((file.key, file.version), 0)
                held[partition][file.key, file.version] = before + landed.rows
        return PartitionContents(contents_of(table, as_keys(self.partitions), hashes), held)


def _collected(reports: DataFrame, *, is_kept: bool) -> tuple[list[Report], list[bytes]]:
    """Return the reports of tasks, and the footers of the data files.

    Args:
        is_kept: True if tasks also return hashes of keys. They are cached and searched for duplicates.
    """
    if is_kept:
        reports = reports.persist()
    try:
        rows = reports.where("report IS NOT NULL").collect()
        done = [report_of(row.report) for row in rows]
        if any(report.has_rivals for report in done) or (is_kept and _has_rivals(reports)):
            raise _Unfit("rows of one key must be ranked")
    finally:
        if is_kept:
            reports.unpersist()
    return done, [bytes(row.footer) for row in rows]


def _has_rivals(reports: DataFrame) -> bool:
    counts = reports.where("key IS NOT NULL").groupBy("key").count()
    return not counts.where("count > 1").limit(1).isEmpty()


def _rows_of_parts(reading: FileBatch, reports: Sequence[PartReport]) -> dict[tuple[int, int], tuple[int, int]]:
    """Return, for each part of a file, the number of rows and the number of the first row."""
    parts = {(report.number, report.begin): (report.rows, 0) for report in reports}
    if reading.small.num_rows:
        groups = reading.small.group_by(["_file", "_block"]).aggregate([([], "count_all"), ("_row", "min")])
        for group in groups.to_pylist():
            parts[group["_file"], group["_block"]] = (group["count_all"], group["_row_min"])
    return parts


def is_grouped_by_task(rows: DataFrame) -> bool:
    """Return True if no shuffle moves rows away from the tasks that read them. Then each task has few partitions."""
    # The plan is read as text, because Spark Connect offers no other public form.
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        rows.explain()
    plan = said.getvalue()  # without a plan, if another thread has redirected the output too
    return "Physical Plan" in plan and not re.search(r"(?<!Broadcast)Exchange", plan)
