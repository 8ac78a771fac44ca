"""Content versions: whether two states of a partition hold the same rows.

A consumer need not run again when the partition it reads was rebuilt with the same content. So the version
is taken over what a row says, not over where it came from or when it was written.
"""

import hashlib
from collections.abc import Collection
from dataclasses import dataclass

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from pipelines.lakehouse.tables import LINEAGE, Table


@dataclass(frozen=True)
class Content:
    """What a partition holds: a version that is equal for equal rows, and how many rows."""

    version: str
    rows: int


def content_of(
    spark: SparkSession, table: Table, partitions: Collection[str] | None, snapshot_id: int | None
) -> dict[str | None, Content]:
    """The content of each of these partitions as it stands at a snapshot, in one grouped pass.

    Args:
        partitions: Partition keys, or None for an unpartitioned table.
        snapshot_id: The snapshot to read; None for a table that has none (all partitions are empty).
    """
    asked: Collection[str | None] = [None] if partitions is None else partitions
    columns = sorted(set(table.columns) - set(LINEAGE))
    kinds = hashlib.sha256(repr([(c, table.columns[c]) for c in columns]).encode()).hexdigest()[:8]
    found: dict[str | None, Content] = {}
    if snapshot_id is not None:
        snapshot = spark.sql(f"SELECT * FROM {table.identifier} VERSION AS OF {snapshot_id}")
        # A snapshot has the schema of its time; a column that came later holds nulls.
        values = [c if c in snapshot.columns else f"CAST(NULL AS {table.columns[c]})" for c in columns]
        # xxhash64 skips nulls: without isnull beside each column ('a', null) would equal (null, 'a').
        row_hash = f"xxhash64({', '.join(f'isnull({v}), {v}' for v in values)})"
        held = (
            snapshot.where(table.predicate(partitions))
            .selectExpr(f"{table.partition_key_sql} AS partition", f"{row_hash} AS h")
            .groupBy("partition")
            .agg(
                F.count(F.lit(1)).alias("rows"),
                F.bit_xor("h").alias("xored"),
                # A plain sum of 64-bit hashes overflows, which ANSI mode makes an error.
                F.sum(F.col("h").cast("decimal(38,0)")).cast("string").alias("summed"),
            )
        )
        found = {r.partition: Content(f"{kinds}-{r.rows}-{r.xored}-{r.summed}", r.rows) for r in held.collect()}
    return {partition: found.get(partition, Content(f"{kinds}-0", 0)) for partition in asked}
