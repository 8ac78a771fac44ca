"""Iceberg branches of a table: changed rows that readers do not see, without a copy of the unchanged rows.

A branch begins with the table's current snapshot, and shares the table's files and schema. Belongs here: creating,
writing, reading, publishing and dropping a branch. Does not belong here: the use of branches (`preview`).
"""

from collections.abc import Collection, Mapping

from pyiceberg.table.snapshots import ancestors_of
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from dagster_tidemark.lakehouse import catalog, metadata_reads
from dagster_tidemark.lakehouse.commits import CommitConflict
from dagster_tidemark.lakehouse.read import with_declared_columns
from dagster_tidemark.lakehouse.table import BRANCH_DAYS, CATALOG, SchemaDiffers, Table, as_ddl, quoted
from dagster_tidemark.lakehouse.table_changes import TableChange, TableChangeKind, require_possible
from dagster_tidemark.lakehouse.write import RUN_ID, current_snapshot


class ColumnsDiffer(SchemaDiffers):
    """Error for a table whose branches cannot have the declared columns."""


def exists(spark: SparkSession, table: Table) -> bool:
    """Return True if the table exists. Spark is queried only if a direct read of the catalog does not find it."""
    return metadata_reads.loaded(spark, table) is not None or bool(spark.catalog.tableExists(table.identifier))


def require_branchable(spark: SparkSession, table: Table) -> list[TableChange]:
    """Return the differences between an existing table and its declaration, without altering the table.

    Raises:
        ColumnsDiffer: Iceberg cannot alter the columns as declared, or the declaration replaces the table.
    """
    changes = catalog.changes_to(spark, table)
    try:
        require_possible(table, changes)
    except SchemaDiffers as error:
        raise ColumnsDiffer(f"{table.name}: {error}") from error
    if replaced := [str(change) for change in changes if change.kind is TableChangeKind.REPLACED]:
        raise ColumnsDiffer(f"{table.name}: {', '.join(replaced)}: a table that is to be replaced cannot get a branch")
    return changes


@catalog.again_after_a_spark_race
def add_declared_columns(spark: SparkSession, table: Table) -> None:
    """Add and widen columns of an existing table as declared, because a branch has the columns of the table.

    Readers of the table do not see a new column, and writers without it write null. A widened column cannot be made
    narrower again: until the wider type is deployed, readers get values of the type that they declare.

    Raises:
        ColumnsDiffer: see `require_branchable`.
    """
    changes = require_branchable(spark, table)
    catalog.widen_for_preview(spark, table, changes)
    if new := [change.new_column for change in changes if change.new_column]:
        columns = as_ddl({column: kind for column, kind in table.columns.items() if column in new})
        spark.sql(f"ALTER TABLE {table.identifier} ADD COLUMNS ({columns})")


def create(spark: SparkSession, table: Table, branch: str, base: int | None) -> None:
    """Create a branch from the snapshot `base`. If `base` is None, the table must be empty, and so is the branch.

    Raises:
        CommitConflict: `base` is None, but the table has rows by now.
    """
    as_of = "" if base is None else f"AS OF VERSION {base} "
    spark.sql(f"ALTER TABLE {table.identifier} CREATE BRANCH {quoted(branch)} {as_of}RETAIN {BRANCH_DAYS} DAYS")
    # Without a version, the branch begins with the current snapshot of the table.
    if base is None and head(spark, table, branch) == head(spark, table, "main"):
        drop(spark, table, branch)
        raise CommitConflict(f"{table.name} got its first commit in the meantime")


def overwrite(
    frame: DataFrame, table: Table, branch: str, partitions: Collection[str] | None, *, run_id: str
) -> int | None:
    """Replace partitions on the branch with the frame's rows, in one commit. None replaces all partitions.

    Returns:
        The new snapshot of the branch.
    """
    (
        frame.select(*table.columns)
        .writeTo(f"{table.identifier}.branch_{branch}")
        .option(f"snapshot-property.{RUN_ID}", run_id)
        .overwrite(F.expr(table.predicate(partitions)))
    )
    return head(frame.sparkSession, table, branch)


def append(frame: DataFrame, table: Table, branch: str, properties: Mapping[str, str]) -> None:
    """Append the frame's rows to the branch, in one commit. Its snapshot gets the given properties."""
    writer = frame.select(*table.columns).writeTo(f"{table.identifier}.branch_{branch}")
    for name, value in properties.items():
        writer = writer.option(f"snapshot-property.{name}", value)
    writer.append()


def head(spark: SparkSession, table: Table, branch: str) -> int | None:
    """Return the branch's snapshot; None if the branch does not exist."""
    if seen := metadata_reads.loaded(spark, table):
        ref = seen.metadata.refs.get(branch)
        return ref.snapshot_id if ref else None
    found = spark.sql(f"SELECT snapshot_id FROM {table.identifier}.refs WHERE name = '{branch}'").collect()
    return found[0].snapshot_id if found else None


def rows_of(
    spark: SparkSession, table: Table, partitions: Collection[str] | None, snapshot_id: int | None
) -> DataFrame:
    """Return rows as of a snapshot, with the currently declared columns. `partitions` None means the whole table."""
    if snapshot_id is None or (partitions is not None and not partitions):
        return spark.table(table.identifier).limit(0)
    frame = spark.sql(f"SELECT * FROM {table.identifier} VERSION AS OF {snapshot_id}")
    return with_declared_columns(frame.where(table.predicate(partitions)), table)


def fast_forward(spark: SparkSession, table: Table, branch: str) -> None:
    """Make the branch the current state of the table, if the table has no commit since the branch began.

    Raises:
        CommitConflict: another writer has committed to the table. Nothing was changed.
    """
    try:
        spark.sql(
            f"CALL {CATALOG}.system.fast_forward(table => '{table.name}', branch => 'main', to => '{branch}')"
        ).collect()
    except PySparkException as error:
        if any(sign in str(error) for sign in _MOVED):
            raise CommitConflict(f"{table.name}: {error}") from error
        raise


_MOVED = ("is not an ancestor of", "CommitFailedException", "Cannot commit")


def has_in_its_past(spark: SparkSession, table: Table, snapshot_id: int) -> bool:
    """Return True if a snapshot is the table's current snapshot or one of its ancestors."""
    if seen := metadata_reads.loaded(spark, table):
        return any(
            snapshot.snapshot_id == snapshot_id for snapshot in ancestors_of(seen.current_snapshot(), seen.metadata)
        )
    query = f"SELECT 1 FROM {table.identifier}.history WHERE snapshot_id = {snapshot_id} AND is_current_ancestor"
    return bool(spark.sql(query).head(1))


def was_committed_by(spark: SparkSession, table: Table, run_id: str) -> bool:
    """Return True if a run has committed the table's current snapshot or one of its ancestors."""
    if seen := metadata_reads.loaded(spark, table):
        past = ancestors_of(seen.current_snapshot(), seen.metadata)
        return any(metadata_reads.properties_of(snapshot).get(RUN_ID) == run_id for snapshot in past)
    query = (
        f"SELECT 1 FROM {table.identifier}.snapshots s JOIN {table.identifier}.history h USING (snapshot_id) "
        f"WHERE h.is_current_ancestor AND s.summary['{RUN_ID}'] = '{run_id}'"
    )
    return bool(spark.sql(query).head(1))


def drop(spark: SparkSession, table: Table, branch: str) -> None:
    """Drop the branch, if it exists. Iceberg's expiry of snapshots later deletes the files of the branch."""
    if spark.catalog.tableExists(table.identifier):
        spark.sql(f"ALTER TABLE {table.identifier} DROP BRANCH IF EXISTS {quoted(branch)}")


def drop_all(spark: SparkSession, table: Table, prefix: str) -> None:
    """Drop all branches with a prefix, which processes that died have left."""
    found = spark.sql(f"SELECT name FROM {table.identifier}.refs WHERE startswith(name, '{prefix}')").collect()
    for row in found:
        drop(spark, table, row["name"])


def drop_unused(spark: SparkSession, table: Table) -> None:
    """Drop a table that was created only for its branch, unless the table has a commit by now."""
    if spark.catalog.tableExists(table.identifier) and current_snapshot(spark, table) is None:
        spark.sql(f"DROP TABLE {table.identifier} PURGE")


def rows_at(spark: SparkSession, table: Table, snapshot_id: int) -> int | None:
    """Return the number of rows in the summary of a snapshot; None if the snapshot no longer exists."""
    if seen := metadata_reads.loaded(spark, table):
        snapshot = seen.metadata.snapshot_by_id(snapshot_id)
        if snapshot is None:
            return None
        summary = metadata_reads.properties_of(snapshot)
        return int(summary.get("total-records", 0)) - int(summary.get("total-position-deletes", 0))
    query = (
        "SELECT CAST(summary['total-records'] AS BIGINT) "
        "- CAST(coalesce(summary['total-position-deletes'], '0') AS BIGINT) AS rows "
        f"FROM {table.identifier}.snapshots WHERE snapshot_id = {snapshot_id}"
    )
    found = spark.sql(query).collect()
    return None if not found else found[0]["rows"]
