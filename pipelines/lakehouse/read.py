"""Tables as DataFrames, whole or some partitions, with pruning."""

from collections.abc import Collection

from pyspark.sql import DataFrame, SparkSession

from pipelines.lakehouse.catalog import ensure
from pipelines.lakehouse.tables import Table


def read(spark: SparkSession, table: Table, partitions: Collection[str] | None = None) -> DataFrame:
    """The rows of these partitions (None: of the table). No partitions: no rows.

    They have the declared columns, and those that a load has added from its files (`NewColumns.ADD`).
    """
    ensure(spark, table, may_have_more=True)
    frame = spark.table(table.identifier)
    if partitions is None:
        return frame
    return frame.where(table.predicate(partitions)) if partitions else frame.limit(0)
