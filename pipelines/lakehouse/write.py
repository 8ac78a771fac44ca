"""Commits: whole partitions replaced, one commit a run, refused when somebody else wrote the same ones."""

import logging
from collections.abc import Collection
from dataclasses import dataclass

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from pipelines.lakehouse.tables import Table

RUN_ID = "tidemark.run-id"
_ATTEMPTS = 5
_CONFLICT = "ValidationException"

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Commit:
    """A snapshot that a run left behind (None: the table is still empty)."""

    snapshot_id: int | None


class WriteConflict(Exception):
    """Somebody else kept committing to the same partitions. A retry helps once they are done."""


def current_snapshot(spark: SparkSession, table: Table) -> int | None:
    """The table's snapshot now, or None before its first commit."""
    rows = spark.sql(f"SELECT snapshot_id FROM {table.identifier}.refs WHERE name = 'main'").collect()
    return rows[0].snapshot_id if rows else None


def overwrite(frame: DataFrame, table: Table, partitions: Collection[str] | None, *, run_id: str) -> Commit:
    """Replace these partitions (None: the whole table) with the frame's rows, in one commit.

    Serializable: when another writer commits to the same partitions in between, the frame is computed again
    on what its inputs hold then. Without a predicate an empty frame would leave the old rows.

    Args:
        frame: Rows of the table, of these partitions only.
        run_id: Kept as a property of the snapshot.

    Raises:
        WriteConflict: other writers won each of the attempts.
    """
    return replace_where(frame, table, table.predicate(partitions), run_id=run_id)


def replace_where(frame: DataFrame, table: Table, predicate: str, *, run_id: str) -> Commit:
    """Replace the rows for which a SQL predicate on partition columns is true; see `overwrite`."""
    spark = frame.sparkSession
    ordered = frame.select(*table.columns)
    for attempt in range(1, _ATTEMPTS + 1):
        before = current_snapshot(spark, table)
        writer = (
            ordered.writeTo(table.identifier)
            .option(f"snapshot-property.{RUN_ID}", run_id)
            .option("isolation-level", "serializable")
        )
        if before is not None:
            writer = writer.option("validate-from-snapshot-id", str(before))
        try:
            writer.overwrite(F.expr(predicate))
        except PySparkException as error:
            if _CONFLICT not in str(error):
                raise
            logger.warning("%s: another run committed to the same partitions (attempt %d)", table.name, attempt)
            continue
        return Commit(_snapshot_of(spark, table, run_id))
    raise WriteConflict(f"{table.name}: {_ATTEMPTS} attempts lost against other writers of the same partitions")


def _snapshot_of(spark: SparkSession, table: Table, run_id: str) -> int | None:
    # Not the current snapshot: another run may have committed other partitions since.
    rows = spark.sql(
        f"SELECT snapshot_id FROM {table.identifier}.snapshots WHERE summary['{RUN_ID}'] = '{run_id}' "
        "ORDER BY committed_at DESC LIMIT 1"
    ).collect()
    return rows[0].snapshot_id if rows else current_snapshot(spark, table)
