"""Iceberg branches of a table: rows beside those that readers see, without a copy of what stays as it is.

A branch begins as the table's current snapshot and shares its files and its schema. Belongs here: making, writing,
reading and dropping one, and making it the table. Does not belong here: what is built on one (`preview`).
"""

from collections.abc import Collection, Mapping

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from pipelines.tidemark.lakehouse import catalog
from pipelines.tidemark.lakehouse.tables import CATALOG, SchemaDiffers, Table, quoted
from pipelines.tidemark.lakehouse.write import RUN_ID, CommitConflict, current_snapshot

PREFIX = "preview_"
DAYS = 2
"""So long a branch lives when nobody drops it: after that Iceberg's own expiry of snapshots does."""


class ColumnsDiffer(SchemaDiffers):
    """A table has other columns than its declaration, and a branch has the table's."""


def require_declared_columns(spark: SparkSession, table: Table) -> bool:
    """Create the table unless it exists, and see that its columns are the declared ones.

    Returns:
        Whether it was there.

    Raises:
        ColumnsDiffer: they are not.
    """
    there = spark.catalog.tableExists(table.identifier)
    if not there:
        catalog.ensure(spark, table)
    try:
        catalog.ensure(spark, table, may_alter=False, may_have_more=True)
    except SchemaDiffers as error:
        raise ColumnsDiffer(f"{table.name}: {error}") from error
    if missing := [c for c in table.columns if c not in spark.table(table.identifier).columns]:
        raise ColumnsDiffer(f"{table.name} lacks the declared columns {', '.join(missing)}")
    return there


def create(spark: SparkSession, table: Table, branch: str, base: int | None) -> None:
    """Create a branch from a snapshot; an empty one where the table has none yet (None).

    Raises:
        CommitConflict: None was said, and the table has rows by now.
    """
    as_of = "" if base is None else f"AS OF VERSION {base} "
    spark.sql(f"ALTER TABLE {table.identifier} CREATE BRANCH {quoted(branch)} {as_of}RETAIN {DAYS} DAYS")
    # Without a version it begins wherever the table is at that moment.
    if base is None and head(spark, table, branch) == head(spark, table, "main"):
        drop(spark, table, branch)
        raise CommitConflict(f"{table.name} was written to for the first time meanwhile")


def overwrite(
    frame: DataFrame, table: Table, branch: str, partitions: Collection[str] | None, *, run_id: str
) -> int | None:
    """Replace these partitions (None: all) on the branch with the frame's rows, in one commit.

    Returns:
        The branch's snapshot then.
    """
    (
        frame.select(*table.columns)
        .writeTo(f"{table.identifier}.branch_{branch}")
        .option(f"snapshot-property.{RUN_ID}", run_id)
        .overwrite(F.expr(table.predicate(partitions)))
    )
    return head(frame.sparkSession, table, branch)


def append(frame: DataFrame, table: Table, branch: str, properties: Mapping[str, str]) -> None:
    """Append the frame's rows on the branch, in one commit whose snapshot has these properties."""
    writer = frame.select(*table.columns).writeTo(f"{table.identifier}.branch_{branch}")
    for name, value in properties.items():
        writer = writer.option(f"snapshot-property.{name}", value)
    writer.append()


def head(spark: SparkSession, table: Table, branch: str) -> int | None:
    """The branch's snapshot; None where there is no such branch."""
    found = spark.sql(f"SELECT snapshot_id FROM {table.identifier}.refs WHERE name = '{branch}'").collect()
    return found[0].snapshot_id if found else None


def rows_of(
    spark: SparkSession, table: Table, partitions: Collection[str] | None, snapshot_id: int | None
) -> DataFrame:
    """The rows of these partitions (None: of the table) as of a snapshot, with the columns declared now."""
    if snapshot_id is None or (partitions is not None and not partitions):
        return spark.table(table.identifier).limit(0)
    frame = spark.sql(f"SELECT * FROM {table.identifier} VERSION AS OF {snapshot_id}")
    # A snapshot has the schema of its time.
    missing = {c: F.lit(None).cast(kind) for c, kind in table.columns.items() if c not in frame.columns}
    found = frame.where(table.predicate(partitions))
    return found.withColumns(missing) if missing else found


def fast_forward(spark: SparkSession, table: Table, branch: str) -> None:
    """Make the branch the table, if nobody has committed to the table since the branch began.

    Raises:
        CommitConflict: somebody has. Nothing was changed.
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
    """Whether the table as readers see it is a snapshot, or came from it."""
    query = f"SELECT 1 FROM {table.identifier}.history WHERE snapshot_id = {snapshot_id} AND is_current_ancestor"
    return bool(spark.sql(query).head(1))


def was_committed_by(spark: SparkSession, table: Table, run_id: str) -> bool:
    """Whether the table as readers see it has a commit of a run in its past."""
    query = (
        f"SELECT 1 FROM {table.identifier}.snapshots s JOIN {table.identifier}.history h USING (snapshot_id) "
        f"WHERE h.is_current_ancestor AND s.summary['{RUN_ID}'] = '{run_id}'"
    )
    return bool(spark.sql(query).head(1))


def drop(spark: SparkSession, table: Table, branch: str) -> None:
    """Drop the branch, if it is there. Its files go with Iceberg's expiry of snapshots."""
    if spark.catalog.tableExists(table.identifier):
        spark.sql(f"ALTER TABLE {table.identifier} DROP BRANCH IF EXISTS {quoted(branch)}")


def drop_all(spark: SparkSession, table: Table, prefix: str) -> None:
    """Drop all branches whose names begin so: of processes that died before they could."""
    found = spark.sql(f"SELECT name FROM {table.identifier}.refs WHERE startswith(name, '{prefix}')").collect()
    for row in found:
        drop(spark, table, row["name"])


def drop_unused(spark: SparkSession, table: Table) -> None:
    """Drop a table that was made for a branch of it, unless it was written to since."""
    if spark.catalog.tableExists(table.identifier) and current_snapshot(spark, table) is None:
        spark.sql(f"DROP TABLE {table.identifier} PURGE")


def rows_at(spark: SparkSession, table: Table, snapshot_id: int) -> int | None:
    """How many rows the table holds as of a snapshot, as that says; None if it is there no more."""
    query = (
        "SELECT CAST(summary['total-records'] AS BIGINT) "
        "- CAST(coalesce(summary['total-position-deletes'], '0') AS BIGINT) AS rows "
        f"FROM {table.identifier}.snapshots WHERE snapshot_id = {snapshot_id}"
    )
    found = spark.sql(query).collect()
    return None if not found else found[0]["rows"]
