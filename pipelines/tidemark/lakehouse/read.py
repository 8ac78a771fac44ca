"""Tables as DataFrames, whole or some partitions, with pruning."""

from collections.abc import Collection, Iterator
from contextlib import contextmanager

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from pipelines.tidemark.lakehouse.catalog import ensure
from pipelines.tidemark.lakehouse.tables import Table
from pipelines.tidemark.lakehouse.write import CommitConflict


class SnapshotExpired(CommitConflict):
    """So many others have committed since a snapshot that it has expired. A retry on what they left helps."""


def read(spark: SparkSession, table: Table, partitions: Collection[str] | None = None) -> DataFrame:
    """The rows of these partitions (None: of the table). No partitions: no rows.

    They have the declared columns, and those that a load has added from its files (`NewColumns.ADD`).
    """
    ensure(spark, table, may_have_more=True)
    frame = spark.table(table.identifier)
    if partitions is None:
        return frame
    return frame.where(table.predicate(partitions)) if partitions else frame.limit(0)


@contextmanager
def naming_an_expired_snapshot(table: Table) -> Iterator[None]:
    """Make the error of a query of a snapshot that is there no more say so.

    Raises:
        SnapshotExpired: the error was that.
    """
    try:
        yield
    except PySparkException as error:
        if "Cannot find snapshot with ID" in str(error):
            raise SnapshotExpired(f"{table.name}: {error}") from error
        raise
