"""Commits with Spark, which replace partitions or merge rows. No commit silently overwrites another commit.

After a commit, old snapshots expire in batches. This keeps a table's metadata small after any number of commits. Does
not belong here: how many snapshots a table keeps (`table.Retention`), and other maintenance (`lakehouse.maintenance`).
"""

import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from dagster_tidemark.lakehouse import catalog, metadata_reads
from dagster_tidemark.lakehouse.commits import CommitConflict, until_committed
from dagster_tidemark.lakehouse.session import evaluated_once, without_token
from dagster_tidemark.lakehouse.table import CATALOG, Retention, Table, quoted

RUN_ID = "tidemark.run-id"
_CONFLICTS = (
    "CommitFailedException",
    # Only these messages of ValidationException are conflicts. It is also raised for other faults.
    "Found conflicting ",
    "Found new conflicting ",
    "Cannot commit, ",
    "Missing required files to delete",
    "Cannot determine history between starting snapshot",
)

_EVALUATED_TWICE = "INVALID_NON_DETERMINISTIC_EXPRESSIONS"

Within = Callable[[str | None], str]
"""Function from a table's alias (or None) to a SQL condition on partition columns."""
logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Commit:
    """Snapshot of a table after a run.

    Args:
        snapshot_id: The snapshot; None if the table is still empty.
        parent_id: The parent of the snapshot.
        rows: Number of rows in the whole table; None if the run has committed nothing.
    """

    snapshot_id: int | None
    parent_id: int | None = None
    rows: int | None = None


def current_snapshot(spark: SparkSession, table: Table) -> int | None:
    """Return the current snapshot of the table or of its branch; None before the first commit."""
    if seen := metadata_reads.loaded(spark, table):
        ref = seen.metadata.refs.get(table.branch) if table.branch else None
        return ref.snapshot_id if ref else None if table.branch else seen.metadata.current_snapshot_id
    if table.branch:
        refs = f"SELECT snapshot_id FROM {table.identifier}.refs WHERE name = '{table.branch}'"
        return next((row.snapshot_id for row in spark.sql(refs).collect()), None)
    # The properties are read, because a query of the table `refs` is a separate job and takes twice as long.
    [found] = spark.sql(f"SHOW TBLPROPERTIES {table.identifier} ('current-snapshot-id')").collect()
    return None if found.value == "none" else int(found.value)


def overwrite(frame: DataFrame, table: Table, partitions: Collection[str] | None, *, run_id: str) -> Commit:
    """Replace partitions with the frame's rows, in one commit. `partitions` None means the whole table.

    The isolation is serializable: if another writer commits to the same partitions in between, the frame is evaluated
    again from the new state of its inputs. The write has a predicate, so an empty frame removes the old rows.

    Args:
        frame: Rows of the table, only from the partitions to replace.
        run_id: Stored as a property of the snapshot.

    Raises:
        CommitConflict: in each attempt, another writer committed first.
    """
    return replace_where(frame, table, table.predicate(partitions), run_id=run_id)


def replace_where(frame: DataFrame, table: Table, predicate: str, *, run_id: str) -> Commit:
    """Replace the rows that match a SQL predicate on partition columns; see `overwrite`."""

    def _replaced() -> Commit:
        before = current_snapshot(frame.sparkSession, table)
        return replace_since(before, frame, table, predicate, run_id=run_id)

    return until_committed(_replaced, table.name)


def replace_since(
    before: int | None, frame: DataFrame, table: Table, predicate: str, *, run_id: str, is_grouped: bool = False
) -> Commit:
    """Replace the rows that match the predicate, if no other writer has changed matching rows since a snapshot.

    Args:
        before: The snapshot; None if the table had no snapshot.
        is_grouped: True if only a few tasks have rows of each partition. Then each task writes its rows directly,
            unless the table's owner has set a distribution. Otherwise Iceberg first shuffles the rows by partition.

    Raises:
        CommitConflict: another writer has changed matching rows. Nothing was written.
    """
    options = _AS_IT_IS if is_grouped and _may_leave(frame.sparkSession, table) else {}
    return _overwrite_since(before, frame.select(*table.columns), table, predicate, run_id, options)


_AS_IT_IS = {"distribution-mode": "none", "fanout-enabled": "true"}


def _may_leave(spark: SparkSession, table: Table) -> bool:
    """Return True if the table's owner has not set how rows are distributed to writing tasks."""
    seen = metadata_reads.loaded(spark, table)
    return seen is not None and "write.distribution-mode" not in seen.properties


def _overwrite_since(
    before: int | None,
    frame: DataFrame,
    table: Table,
    predicate: str,
    run_id: str,
    options: Mapping[str, str] | None = None,
) -> Commit:
    writer = (
        frame.writeTo(table.rows_identifier)
        .option(f"snapshot-property.{RUN_ID}", run_id)
        .option("isolation-level", "serializable")
    )
    for name, value in (options or {}).items():
        writer = writer.option(name, value)
    if before is not None:
        writer = writer.option("validate-from-snapshot-id", str(before))
    try:
        writer.overwrite(F.expr(predicate))
    except PySparkException as error:
        raise as_conflict(error, table) from error
    return commit_of(frame.sparkSession, table, run_id)


def merge(
    rows: DataFrame, table: Table, *, within: Within, on: str, wins: str, goes: str | None = None, run_id: str
) -> Commit:
    """Merge rows into a table by their key, in one commit.

    Iceberg detects conflicts only since the snapshot that the MERGE itself reads, not since an earlier snapshot of the
    run. So the merge must be correct after any commit that another writer has made in between. This is why it removes
    only rows that `rows` names by key.

    Args:
        rows: At most one row per key. The conditions refer to them as `s`, and to the table's rows as `t`.
        within: Function that returns a SQL condition on the table's partition columns. The condition must have
            literals; otherwise the whole table counts as changed.
        on: SQL condition that is true if the two rows have the same key.
        wins: SQL condition that is true if the new row must replace the table's row with the same key.
        goes: SQL condition on `s` that is true if the row only names a row to remove.

    Raises:
        CommitConflict: another writer committed to the same partitions during the merge. Nothing was written.
    """
    spark = rows.sparkSession
    view = f"merged_{table.name.replace('.', '_')}"
    rows.createOrReplaceTempView(view)
    spark.conf.set(f"spark.sql.iceberg.snapshot-property.{RUN_ID}", run_id)
    # Columns are listed by name, because UPDATE SET * would need values for columns that are no longer declared.
    names = [quoted(c) for c in table.columns]
    sets, values = ", ".join(f"t.{c} = s.{c}" for c in names), ", ".join(f"s.{c}" for c in names)
    departs, enters = (f"WHEN MATCHED AND ({goes}) THEN DELETE", f"AND NOT ({goes})") if goes else ("", "")
    try:
        spark.sql(
            f"MERGE INTO {table.rows_identifier} t USING {view} s ON ({within('t')}) AND {on} {departs} "
            f"WHEN MATCHED AND ({wins}) THEN UPDATE SET {sets} "
            f"WHEN NOT MATCHED {enters} THEN INSERT ({', '.join(names)}) VALUES ({values})"
        )
    except PySparkException as error:
        if error.getCondition() == _EVALUATED_TWICE:
            return _merge_by_overwriting(rows, table, within, on=on, wins=wins, goes=goes or "false", run_id=run_id)
        raise as_conflict(error, table) from error
    finally:
        spark.conf.unset(f"spark.sql.iceberg.snapshot-property.{RUN_ID}")
        spark.catalog.dropTempView(view)
    return commit_of(spark, table, run_id)


def _merge_by_overwriting(
    rows: DataFrame, table: Table, within: Within, *, on: str, wins: str, goes: str, run_id: str
) -> Commit:
    """Merge by replacing the partitions, for sources that Spark refuses in the merge mode copy-on-write.

    In this mode, a MERGE evaluates the source twice: to find the files that change, and to write them. Spark refuses a
    source with values that may differ between the two evaluations, such as random values. These rows are evaluated
    once, because this merge reads them twice too. If an executor with the rows is lost, the merge fails.
    """
    spark, rows = rows.sparkSession, evaluated_once(rows)
    before = current_snapshot(spark, table)
    there = spark.table(table.rows_identifier).alias("t").where(within("t"))
    new, wins = rows.alias("s"), f"coalesce({wins}, false)"
    stays = there.join(new, on=F.expr(f"{on} AND ({goes} OR {wins})"), how="left_anti")
    enters = new.where(f"NOT ({goes})").join(there, on=F.expr(f"{on} AND NOT {wins}"), how="left_anti")
    # Rows that stay keep their values in columns that are no longer declared.
    merged = stays.unionByName(enters.select(*table.columns), allowMissingColumns=True)
    return _overwrite_since(before, merged, table, within(None), run_id)


def commit_of(spark: SparkSession, table: Table, run_id: str) -> Commit:
    """Set the table's properties, expire old snapshots, and return the run's latest commit or the current snapshot."""
    snapshots = _snapshots(spark, table, run_id)
    if snapshots and not table.branch:
        catalog.set_properties(spark, table)
        committed_at = [s.committed_at for s in snapshots]
        # `now` is derived from these times, because the clock of the committing host may differ from the local clock.
        expire_snapshots(spark, table, committed_at, now=max(committed_at) + 1)
    # The current snapshot may be the commit of another run to other partitions.
    own = max((s for s in snapshots if s.is_own), key=lambda s: s.committed_at, default=None)
    return Commit(own.snapshot_id, own.parent_id, own.rows) if own else Commit(current_snapshot(spark, table))


class _Snapshot(NamedTuple):
    snapshot_id: int
    parent_id: int | None
    committed_at: int
    is_own: bool
    rows: int


def _snapshots(spark: SparkSession, table: Table, run_id: str) -> list[_Snapshot]:
    """Return all unexpired snapshots. `is_own` marks the snapshots of the given run."""
    if seen := metadata_reads.loaded(spark, table):
        return [
            _Snapshot(
                snapshot.snapshot_id,
                snapshot.parent_snapshot_id,
                snapshot.timestamp_ms,
                said.get(RUN_ID) == run_id,
                int(said.get("total-records", 0)) - int(said.get("total-position-deletes", 0)),
            )
            for snapshot in seen.metadata.snapshots
            for said in [metadata_reads.properties_of(snapshot)]
        ]
    # All snapshots are fetched, because an aggregate query takes twice as long as fetching a thousand rows.
    found = spark.sql(
        "SELECT snapshot_id, parent_id, unix_millis(committed_at), "
        f"summary['{RUN_ID}'] <=> '{run_id}', CAST(summary['total-records'] AS BIGINT) "
        "- CAST(coalesce(summary['total-position-deletes'], '0') AS BIGINT) "
        f"FROM {table.identifier}.snapshots"
    ).collect()
    return [_Snapshot(*row) for row in found]


def as_conflict(error: PySparkException, table: Table) -> Exception:
    """Return a CommitConflict if a statement failed because of another writer's commit; otherwise return the error."""
    if any(name in str(error) for name in _CONFLICTS):
        return CommitConflict(f"{table.name}: {error}")
    return error


def expiry_cutoff(keeps: Retention, committed_at: Collection[int], now: int) -> int | None:
    """Return the time before which snapshots must expire; None if no expiry is due.

    A failed expiry is tried again after a tenth of a batch of commits, so that it does not delay every commit.

    Args:
        committed_at: Commit times of all snapshots, in milliseconds.
        now: The current time, in milliseconds.
    """
    held_since = now - round(keeps.held_for.total_seconds() * 1000)
    old = [at for at in committed_at if at < held_since]
    # The newest of the old snapshots stays, because it was still current at `held_since`.
    expirable = min(len(committed_at) - keeps.newest, len(old) - 1)
    is_due = expirable >= keeps.batch and len(committed_at) % max(1, keeps.batch // 10) == 0
    return max(old) if is_due else None


def expire_snapshots(spark: SparkSession, table: Table, committed_at: Collection[int], now: int) -> None:
    """Expire old snapshots if there are many, and delete the files that only they need.

    An error does not fail the commit: it is logged, and a later commit tries again.
    """
    before = expiry_cutoff(table.retention, committed_at, now)
    if before is None:
        return
    try:
        [deleted] = spark.sql(
            f"CALL {CATALOG}.system.expire_snapshots(table => '{table.name}', "
            f"older_than => timestamp_millis({before}), retain_last => {table.retention.newest})"
        ).collect()
    except Exception as error:  # the engine, the catalog or the store fails
        said = without_token(str(error)).partition("\n")[0]
        logger.warning("%s: the old ones of %d snapshots could not be expired: %s", table.name, len(committed_at), said)
    else:
        logger.info(
            "%s: expired the old ones of %d snapshots, and %d files", table.name, len(committed_at), sum(deleted)
        )
