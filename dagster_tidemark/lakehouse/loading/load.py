"""Load of a feed's files into a table: query the state, decide, read, judge, quarantine, commit.

A load starts from a snapshot of the table and lists the files afterwards. It removes rows only if no other run has
changed their partitions since the snapshot. Otherwise it starts again, so overlapping runs have the same result as
consecutive runs. Quarantine entries about rejected rows and files are written before the table. Entries about files
without rows are written after the table. So a process may die at any time: for the next load, each file is either
completely loaded or unknown, and it reads unknown files again.
"""

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from dagster_tidemark.failpoints import reached
from dagster_tidemark.lakehouse import catalog, write
from dagster_tidemark.lakehouse.commits import CommitConflict, until_committed
from dagster_tidemark.lakehouse.content import Content
from dagster_tidemark.lakehouse.loading import new_columns, rejected_rows
from dagster_tidemark.lakehouse.loading.accounting import Account, accounts_of
from dagster_tidemark.lakehouse.loading.judged_rows import Judged, judge_rows, read_files
from dagster_tidemark.lakehouse.loading.load_plan import AGAIN, Where
from dagster_tidemark.lakehouse.loading.load_state import LoadState, Observed, holds_the_same, look
from dagster_tidemark.lakehouse.loading.new_columns import Additions
from dagster_tidemark.lakehouse.loading.one_pass import UncommittedLoad, is_grouped_by_task, write_in_one_pass
from dagster_tidemark.lakehouse.loading.provenance import PartitionContents, as_keys, held_at, of_versions, rows_at
from dagster_tidemark.lakehouse.loading.quarantine_counts import QuarantineCount, backlog_of, largest_share
from dagster_tidemark.lakehouse.loading.quarantine_table import WAIVERS
from dagster_tidemark.lakehouse.loading.spec import Landing, Load
from dagster_tidemark.lakehouse.loading.validation import deduplicate, has_duplicate_keys, has_one_a_key
from dagster_tidemark.lakehouse.read import as_frame, fetched
from dagster_tidemark.lakehouse.readers.batch import FileBatch
from dagster_tidemark.lakehouse.readers.files import FileFault, NotScanned, SourceFile
from dagster_tidemark.lakehouse.readers.probe import Inspected, inspect
from dagster_tidemark.lakehouse.session import evaluated_once
from dagster_tidemark.lakehouse.table import Table
from dagster_tidemark.sources.feed import Partition
from dagster_tidemark.sources.listing import ObjectChanged, ObjectUnavailable
from dagster_tidemark.sources.misplaced import Misplaced
from dagster_tidemark.sources.removals import RemovedFiles

__all__ = ["Landing", "Load", "Loaded", "Observed", "run_load"]

_MANY_ROWS = 100_000
_CHECKS_AT_ONCE = 16

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Loaded:
    """Result of a load, and the content of its partitions.

    Args:
        read_again: Partitions whose rows were replaced.
        added_to: Partitions that got more files.
        files_rejected: Files that were read and rejected.
        fates: Files that disappeared, by partition.
        alarm: The reason why rows of vanished files were not removed.
        kept_from: Code versions of the rows of expired files, by partition.
        new_columns: Undeclared columns that were not read, each with the files that have it.
        missing_columns: Declared columns that files lack, each with these files.
        additions: Undeclared columns that were added or refused, if the feed adds columns.
        backlog: Counts of rejected rows and files in all partitions of the asset.
        largest_share: The largest share of rejected rows in any partition.
        accounts: Row counts of the files that were read, and of files whose rows were superseded.
        table_rows: Number of rows in the whole table; None if nothing was committed.
        unavailable: Listed files that cannot be read, with the reason. The table has no rows of these file versions.
        unavailable_kept: Keys of unavailable files whose rows stay in the table.
        arrived_through: Arrival time (UTC) of the newest listed file of each partition.
    """

    snapshot_id: int | None
    content: Mapping[Partition, Content]
    read_again: Sequence[Partition] = ()
    added_to: Sequence[Partition] = ()
    files_read: int = 0
    rows_read: int = 0
    rows_rejected: int = 0
    files_rejected: Sequence[FileFault] = ()
    fates: Mapping[Partition, RemovedFiles] = field(default_factory=dict)
    alarm: str | None = None
    kept_from: Mapping[Partition, Collection[str]] = field(default_factory=dict)
    new_columns: Mapping[str, Sequence[str]] = field(default_factory=dict)
    missing_columns: Mapping[str, Sequence[str]] = field(default_factory=dict)
    additions: Additions = field(default_factory=Additions)
    backlog: Sequence[QuarantineCount] = ()
    largest_share: float = 0.0
    arrived_through: Mapping[Partition, datetime] = field(default_factory=dict)
    accounts: Sequence[Account] = ()
    table_rows: int | None = None
    unavailable: Mapping[SourceFile, str] = field(default_factory=dict)
    unavailable_kept: Sequence[str] = ()


def run_load(
    spark: SparkSession,
    landing: Landing,
    load: Load,
    partitions: Sequence[Partition],
    *,
    run_id: str,
    observed: Callable[[], Observed] = Observed,
    misplaced: Collection[Misplaced] | None = None,
) -> Loaded:
    """Update partitions of the table from the files that are in the landing bucket now, in one commit.

    Args:
        observed: Returns the source's observations. It is called only if a partition has lost all its files.
        misplaced: Files outside the feed's partitions, for the quarantine; None if unknown.

    Raises:
        CommitConflict: another run changed the same partitions during each attempt.
        ObjectChanged: files changed before they were read, in each attempt.
        BucketUnavailable: the bucket does not answer. Nothing is written, and no file counts as vanished.
    """
    on_branch = bool(load.table.branch)  # a branch shares the columns of the table, so readers would see a change
    before = catalog.ensure(spark, load.table, may_have_more=load.feed.adds_columns, may_alter=not on_branch)
    catalog.ensure(spark, load.quarantine)
    attempts = _Attempts(spark, landing, load, partitions, run_id, observed, misplaced, before)
    try:
        return until_committed(attempts.next, load.table.name)
    except CommitConflict:
        if attempts.changed:
            raise next(iter(attempts.changed.values())) from None
        raise


class _KeysAreMissing(Exception):
    """Corrected files lack keys that their old versions have in the table.

    Rows of other files may have lost to the old rows with these keys, so all files must be read again.
    """

    def __init__(self, partitions: Collection[Partition]) -> None:
        super().__init__(
            "all files of a partition are read again, because a corrected file lacks rows of its old version"
        )
        self.partitions = frozenset(partitions)


@dataclass
class _Attempts:
    """Load that starts again while other writers interfere.

    Args:
        before: Undeclared text columns of the table before the first attempt.
        done: Result of the last attempt that committed. Another writer may have committed at the same time.
        changed: For each file that changed while it was read, the error of the first change.
        left_out: Keys of files that must not be read, with the reason.
        whole: Partitions of which the next attempt reads all files, although only a few have changed.
    """

    spark: SparkSession
    landing: Landing
    load: Load
    partitions: Sequence[Partition]
    run_id: str
    observed: Callable[[], Observed]
    misplaced: Collection[Misplaced] | None
    before: Collection[str]
    done: Loaded | None = None
    changed: dict[str, ObjectChanged] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)
    whole: frozenset[Partition] = frozenset()

    def next(self) -> Loaded:
        """Make one attempt. Repeat it without the files that turn out to be unreadable.

        Raises:
            CommitConflict: another writer has changed the table, or a file has changed for the first time.
        """
        while True:
            try:
                return self._once()
            except ObjectChanged as error:
                is_first = error.key not in self.changed
                self.changed[error.key] = error
                if is_first:
                    raise CommitConflict(str(error)) from error
                self.left_out[error.key] = "it is overwritten while it is read"  # it would delay all other files
            except NotScanned as error:
                self.left_out |= {file.key: why for file, why in error.files.items()}
                logger.warning("restarting the load without some files: %s", error)
            except _KeysAreMissing as error:
                self.whole = error.partitions
                logger.info("%s: %s", self.load.table.name, error)

    def _once(self) -> Loaded:
        spark, load = self.spark, self.load
        # An earlier attempt that committed has read the asked partitions again.
        asked = load.read_again if self.done is None else frozenset[Partition]()
        load, self.whole = replace(load, read_again=asked | self.whole), frozenset()
        found = look(spark, self.landing, load, self.partitions, self.observed, self.misplaced)
        rejected_rows.enter_misplaced(spark, load, found, self.run_id)
        found, inspected = look_into_files(self.landing, load, found, self.left_out)
        wider = new_columns.widened(spark, load, inspected, self.before)
        try:
            if not found.steps:
                return self.done or replace(_left_alone(spark, wider.load, found), additions=wider.additions)
            reading = read_files(spark, self.landing, wider.load, wider.inspected)
            done, is_outdated = _bring_up(self.landing, wider.load, found, reading, self.run_id)
        except PySparkException as error:
            if not new_columns.is_behind(spark, wider.load):
                raise
            raise CommitConflict(f"{load.table.name}: another run has added a column") from error
        earlier = self.done.accounts if self.done else ()
        self.done = replace(
            done,
            new_columns=wider.not_taken,
            missing_columns=inspected.missing_columns(load.feed),
            additions=wider.additions,
            accounts=list({(a.partition, a.key): a for a in (*earlier, *done.accounts)}.values()),
        )
        if is_outdated:
            raise CommitConflict(f"{load.table.name}: another run has committed to the same partitions")
        return self.done


def look_into_files(
    landing: Landing, load: Load, found: LoadState, left_out: Mapping[str, str]
) -> tuple[LoadState, Inspected]:
    """Inspect the files to read. Return the state without unavailable and excluded files, and the inspected files.

    Args:
        left_out: Keys of excluded files, which must not be read now, with the reason.
    """
    here = (file for files in found.listed.values() for file in files if file.key in left_out)
    if without := {file: left_out[file.key] for file in here}:
        found = found.without(without, load.code_version)
    while True:
        wanted = [file for step in found.steps.values() for file in step.read]
        inspected = inspect(landing, load.feed, wanted)
        if not inspected.unavailable:
            return found, inspected
        refusals = inspected.unavailable
        archived = [file for file, refusal in refusals.items() if refusal.archived]
        found = found.without({f: r.reason for f, r in refusals.items()}, load.code_version, archived=archived)


def _left_alone(spark: SparkSession, load: Load, found: LoadState) -> Loaded:
    """Return the result of a load without steps."""
    held = held_at(spark, load.table, list(found.listed), found.snapshot_id)
    return _with_state(spark, load, found, Loaded(found.snapshot_id, held.content))


def _with_state(spark: SparkSession, load: Load, found: LoadState, loaded: Loaded) -> Loaded:
    """Add the state of the asset to the result of a load."""
    catalog.ensure(spark, WAIVERS)  # only now, because earlier it would delay the commit
    backlog, share = backlog_of(spark, load.asset, load.quarantine), 0.0
    if any(b.where is Where.REJECTED_ROWS and not b.is_waived for b in backlog):
        rows = {partition: content.rows for partition, content in loaded.content.items()}
        share = largest_share(spark, load.table, load.asset, rows, load.quarantine)
    kept_from = {
        partition: {k.loaded_by for k in found.known[partition] if k.key in fate.expired}
        for partition, fate in found.fates.items()
        if fate.expired
    }
    through = {p: max(file.arrived_at for file in files) for p, files in found.listed.items() if files}
    loaded = replace(loaded, fates=found.fates, alarm=found.alarm, kept_from=kept_from)
    if found.unavailable:
        kept = {file for file in found.archived if found.is_held(file)}
        missing = {file: reason for file, reason in found.unavailable.items() if file not in kept}
        loaded = replace(loaded, unavailable=missing, unavailable_kept=sorted(file.key for file in kept))
    return replace(loaded, backlog=backlog, largest_share=share, arrived_through=through)


def _bring_up(landing: Landing, load: Load, found: LoadState, reading: FileBatch, run_id: str) -> tuple[Loaded, bool]:
    """Execute the steps. Return the result, and True if another run has changed the partitions in the meantime."""
    spark = reading.spark
    written = write_in_one_pass(load, found, reading)
    reading, judged = (written.reading, written.judged) if written else judge_rows(load, reading)
    tally, may_be_committed = judged.tally, False
    try:
        check_scanned(landing, reading.inspected.large)
        if is_emptied(load, found, tally):
            reading = reading.without_rows("the table keeps the rows of the last version")
            rejected_rows.enter(load, found, reading, judged.rejected, tally, run_id)
            held = held_at(spark, load.table, list(found.listed), found.snapshot_id)
            kept = Loaded(found.snapshot_id, held.content, files_rejected=reading.faults)
            return _with_state(spark, load, found, kept), False
        entered = rejected_rows.enter(load, found, reading, judged.rejected, tally, run_id)
        reached("between_quarantine_and_table")
        rows_read = sum(t.rows for t in tally.values())
        if written:
            reached("before_commit")
            may_be_committed = True
            commit = written.commit(run_id)
        else:
            rows = _one_a_key(load, found, reading, judged, rows_read)
            commit = _commit(load, found, rows, run_id, is_large=rows_read >= _MANY_ROWS)
        reached("after_commit")
        # Runs of other partitions commit all the time. If each of their commits counted, a slow load would begin again
        # up to 20 times, each time with the files that have arrived since.
        is_outdated = commit.parent_id != found.snapshot_id and not holds_the_same(spark, load, found, commit.parent_id)
        held = _held(written, spark, load.table, list(found.listed), commit)
        accounts = _accounts(load, found, reading, judged, held, commit, is_outdated=is_outdated)
    finally:
        judged.forget()
        if written and not may_be_committed:
            written.discard()
    rejected_rows.enter_files_without_rows(spark, load, found, entered, held.files, run_id)
    loaded = Loaded(
        commit.snapshot_id,
        held.content,
        read_again=[p for p, step in found.steps.items() if step.replaces],
        added_to=[p for p, step in found.steps.items() if not step.replaces],
        files_read=len(reading.files),
        rows_read=rows_read,
        rows_rejected=sum(sum(t.reasons.values()) for t in tally.values()),
        files_rejected=reading.faults,
        accounts=accounts,
        table_rows=commit.rows,
    )
    return _with_state(spark, load, found, loaded), is_outdated


def _held(
    written: UncommittedLoad | None,
    spark: SparkSession,
    table: Table,
    partitions: Sequence[Partition],
    commit: write.Commit,
) -> PartitionContents:
    """Return the content of partitions after a commit."""
    if written and written.held.content.keys() >= set(partitions):
        return written.held
    return held_at(spark, table, partitions, commit.snapshot_id)


def check_scanned(landing: Landing, scanned: Collection[SourceFile]) -> None:
    """Check that the files that Spark has read are still the listed versions.

    Raises:
        ObjectChanged: a file has changed.
        NotScanned: files are no longer available, so the check is impossible.
    """

    def refusal_of(file: SourceFile) -> str | None:
        try:
            landing.check(file)
        except ObjectUnavailable as refusal:
            return refusal.reason
        return None

    with ThreadPoolExecutor(_CHECKS_AT_ONCE) as pool:
        refusals = dict(zip(scanned, pool.map(refusal_of, scanned), strict=True))
    if refused := {file: why for file, why in refusals.items() if why is not None}:
        raise NotScanned(refused)


def _accounts(
    load: Load,
    found: LoadState,
    reading: FileBatch,
    judged: Judged,
    held: PartitionContents,
    commit: write.Commit,
    *,
    is_outdated: bool,
) -> list[Account]:
    spark, table, partitions = reading.spark, load.table, as_keys(list(found.steps))
    counts = {file: judged.tally.get(file.key, rejected_rows.Tally()) for file in reading.files}
    read = {(file.partition, file.key, file.version) for file in reading.files}
    stays = {
        (partition, key, version): rows
        for (partition, key, version), rows in found.rows.items()
        if (step := found.steps.get(partition)) and not step.replaces and (key, version) not in step.outdated
    }
    if is_outdated:
        stays = {}  # another run has changed these rows, and this load starts again
    return accounts_of(
        {file: (of.rows, sum(of.reasons.values())) for file, of in counts.items()},
        {version: rows for version, rows in stays.items() if version not in read},
        {(partition, *file): rows for partition, of in held.files.items() for file, rows in of.items()},
        read=new_columns.transformed(load, judged.good),
        standing=lambda: rows_at(spark, table, partitions, found.snapshot_id),
        table=lambda: rows_at(spark, table, partitions, commit.snapshot_id),
        row_key=table.row_key,
    )


def is_emptied(load: Load, found: LoadState, tally: Mapping[str, rejected_rows.Tally]) -> bool:
    """Return True if a new version of a feed's single object would leave the table empty."""
    step = found.steps.get(None)
    if not load.feed.is_one_object or load.feed.allow_empty or step is None:
        return False
    read = {file.version for file in step.read}
    holds_another = any(k.where is Where.TABLE and k.version not in read for k in found.known.get(None, ()))
    good = sum(t.rows - sum(t.reasons.values()) for t in tally.values())
    return bool(step.read) and holds_another and not good


def _one_a_key(load: Load, found: LoadState, reading: FileBatch, judged: Judged, rows_read: int) -> DataFrame:
    """Return the good rows as table rows, one row per key.

    Rows that are read twice are evaluated once, because a transform may have random values.
    """
    good, transform = judged.good, partial(new_columns.transformed, load)
    if reading.is_small:  # for few rows, ranking as part of the commit takes 50 % longer
        few = fetched(transform(good).select(*load.table.columns))
        if few.num_rows and has_one_a_key(few, load.table):
            return as_frame(reading.spark, few)
    if rows_read >= _MANY_ROWS:  # ranking shuffles whole rows, but a search for duplicates only their keys
        rows = evaluated_once(transform(good))
        if not has_duplicate_keys(rows, load.table):
            return rows
    rows = deduplicate(good, load.table, transform)
    return evaluated_once(rows) if _joins_existing_rows(found) else rows


def _commit(load: Load, found: LoadState, rows: DataFrame, run_id: str, *, is_large: bool) -> write.Commit:
    table = load.table
    reached("before_commit")
    keys = as_keys(list(found.steps))
    # If two files arrived at the same time, the greater name counts as newer.
    newer = "(s.arrived_at > t.arrived_at OR (s.arrived_at = t.arrived_at AND s.source_file > t.source_file))"
    added_to = [p for p, step in found.steps.items() if not step.replaces]
    if added_to and not _joins_existing_rows(found):
        return write.merge(
            rows, table, within=partial(table.predicate, keys), on=table.same_key(), wins=newer, run_id=run_id
        )
    # Only rows of the load's snapshot may be removed. So the commit is refused if another run has changed one of the
    # partitions since. For this check, partitions with added files are rewritten too.
    if added_to:
        standing = rows.sparkSession.table(table.rows_identifier).where(table.predicate(as_keys(added_to)))
        if outdated := {pair for p in added_to for pair in found.steps[p].outdated}:
            _require_keys(load, found, rows, standing)
            standing = of_versions(standing, outdated, how="left_anti")
        refused = [file.key for file in found.unavailable if file not in found.archived]
        if refused:
            # Rows that are removed now may have superseded rows of unavailable files. So mark these files to be read
            # again when they are available.
            by = F.when(F.col("source_file").isin(refused), F.lit(AGAIN)).otherwise(F.col("loaded_by"))
            standing = standing.withColumn("loaded_by", by)
        rows = _latest(rows, standing, table, newer)
    is_grouped = is_large and is_grouped_by_task(rows)
    predicate = table.predicate(keys)
    return write.replace_since(found.snapshot_id, rows, table, predicate, run_id=run_id, is_grouped=is_grouped)


def _require_keys(load: Load, found: LoadState, rows: DataFrame, standing: DataFrame) -> None:
    """Check that corrected files have every key whose row they take away, in a row that is not older.

    Then a row that has lost to the old row also loses to the new row.

    Raises:
        _KeysAreMissing: a key is missing.
    """
    corrected = [p for p, step in found.steps.items() if step.corrects]
    if not corrected or "source_file" in load.table.row_key:  # then no row of another file has the same key
        return
    old = of_versions(standing, {pair for p in corrected for pair in found.steps[p].outdated})
    not_older = "struct(s.arrived_at, s.source_file) >= struct(t.arrived_at, t.source_file)"
    is_covered = F.expr(f"{load.table.same_key()} AND {not_older}")
    if not old.alias("t").join(rows.alias("s"), on=is_covered, how="left_anti").isEmpty():
        raise _KeysAreMissing(corrected)


def _joins_existing_rows(found: LoadState) -> bool:
    """Return True if the commit compares new with existing rows in both directions (`_latest`)."""
    return _takes_away(found) and any(not step.replaces for step in found.steps.values())


def _takes_away(found: LoadState) -> bool:
    """Return True if the steps may remove rows without replacing them."""
    filled = {p for p, known in found.known.items() if any(k.where is Where.TABLE for k in known)}
    return any(step.outdated or (step.replaces and p in filled) for p, step in found.steps.items())


def _latest(rows: DataFrame, standing: DataFrame, table: Table, newer: str) -> DataFrame:
    """Return the latest row of each key, from new and existing rows."""
    new, old = rows.alias("s"), standing.alias("t")
    stays = old.join(new, on=F.expr(f"{table.same_key()} AND {newer}"), how="left_anti")
    enters = new.join(old, on=F.expr(f"{table.same_key()} AND NOT {newer}"), how="left_anti")
    return enters.select(*table.columns).unionByName(stays.select(*table.columns))
