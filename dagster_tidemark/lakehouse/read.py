"""Reading of tables, or of some partitions with pruning, as DataFrames."""

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from dagster_tidemark.lakehouse.catalog import ensure_readable
from dagster_tidemark.lakehouse.commits import CommitConflict
from dagster_tidemark.lakehouse.table import Table
from dagster_tidemark.lakehouse.table_changes import Stored, is_narrower
from dagster_tidemark.lakehouse.write import current_snapshot


class SnapshotExpired(CommitConflict):
    """Error for a snapshot that has expired after many later commits. A retry helps, because it reads a newer one."""


@dataclass(frozen=True)
class Snapshot:
    """Rows of a table as of one commit. An asset gets it for an input with this annotation.

    Args:
        rows: The rows of the input's partitions. Each evaluation returns the same rows, even after other commits.
        id: The Iceberg snapshot of the rows; None if the table had no commit yet.
    """

    rows: DataFrame
    id: int | None


def read(spark: SparkSession, table: Table, partitions: Collection[str] | None = None) -> DataFrame:
    """Return the rows of partitions. None means the whole table; an empty collection returns no rows.

    The rows have the declared columns, and columns that a load has added from its files (`NewColumns.ADD`).
    """
    stored = ensure_readable(spark, table)
    frame = as_declared(spark.table(table.identifier), table, stored)
    if partitions is None:
        return frame
    return frame.where(table.predicate(partitions)) if partitions else frame.limit(0)


def read_snapshot(spark: SparkSession, table: Table, partitions: Collection[str] | None = None) -> Snapshot:
    """Return the same rows as `read`, as of the table's newest commit."""
    stored = ensure_readable(spark, table)
    snapshot_id = current_snapshot(spark, table)
    if snapshot_id is None or (partitions is not None and not partitions):
        return Snapshot(as_declared(spark.table(table.identifier), table, stored).limit(0), snapshot_id)
    frame = spark.sql(f"SELECT * FROM {table.identifier} VERSION AS OF {snapshot_id}")
    frame = with_declared_columns(as_declared(frame, table, stored), table)
    return Snapshot(frame.where(table.predicate(partitions)), snapshot_id)


def as_declared(frame: DataFrame, table: Table, stored: Stored | None) -> DataFrame:
    """Drop columns that are no longer declared, and cast columns that a preview has widened to their declared types."""
    if stored is None:
        return frame
    hidden = [c for c in stored.columns if c not in table.columns and c not in stored.from_files]
    narrower = {c: F.col(c).cast(kind) for c, kind in table.columns.items() if is_narrower(table, stored, c)}
    frame = frame.drop(*hidden) if hidden else frame
    return frame.withColumns(narrower) if narrower else frame


def with_declared_columns(frame: DataFrame, table: Table) -> DataFrame:
    """Add the declared columns that the rows lack, with nulls. Rows of an old snapshot lack columns added later."""
    there = set(frame.columns)
    missing = {c: F.lit(None).cast(kind) for c, kind in table.columns.items() if c not in there}
    return frame.withColumns(missing) if missing else frame


def read_as_of(spark: SparkSession, table: Table, snapshot_id: int | None) -> DataFrame:
    """Return the rows of a table as of a snapshot. None means before the first commit.

    Raises:
        SnapshotExpired: the snapshot no longer exists.
    """
    if snapshot_id is None:
        return read(spark, table, [])
    with naming_an_expired_snapshot(table):
        return spark.sql(f"SELECT * FROM {table.identifier} VERSION AS OF {snapshot_id}")


def fetched(frame: DataFrame) -> pa.Table:
    """Return the rows of a frame.

    `toArrow` returns the same rows, but first makes Spark's server analyze the frame again for the schema, which
    comes with the rows anyway. With many rules on rows, the analysis takes a tenth of a second.
    """
    to_table = getattr(frame, "_to_table", None)
    return to_table()[0] if to_table else frame.toArrow()


def as_frame(spark: SparkSession, rows: pa.Table) -> DataFrame:
    """Return rows as a frame. Times without a zone keep their type, which `createDataFrame` alone makes `timestamp`."""
    frame = spark.createDataFrame(rows)
    local = [f.name for f in rows.schema if pa.types.is_timestamp(f.type) and f.type.tz is None]
    return frame.withColumns({c: F.col(c).cast("timestamp_ntz") for c in local}) if local else frame


@contextmanager
def naming_an_expired_snapshot(table: Table) -> Iterator[None]:
    """Replace Spark's error for a missing snapshot with an error that names the table.

    Raises:
        SnapshotExpired: the query failed because the snapshot no longer exists.
    """
    try:
        yield
    except PySparkException as error:
        if "Cannot find snapshot with ID" in str(error):
            raise SnapshotExpired(f"{table.name}: {error}") from error
        raise
