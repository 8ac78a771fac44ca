"""Content versions: whether two states of a partition hold the same rows.

A consumer need not run again when the partition it reads was rebuilt with the same content. So the version
is taken over what a row says, not over where it came from or when it was written.
"""

import hashlib
from collections.abc import Collection
from dataclasses import dataclass

from pyspark.sql import SparkSession

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
        # xxhash64 skips nulls: without isnull beside each column ('a', null) would equal (null, 'a').
        row_hash = f"xxhash64({', '.join(f'isnull({c}), {c}' for c in columns)})"
        found = {
            row.partition: Content(f"{kinds}-{row.rows}-{row.xored}-{row.summed}", row.rows)
            for row in spark.sql(
                f"SELECT partition, count(*) AS rows, bit_xor(h) AS xored, "
                # A plain sum of 64-bit hashes overflows, which ANSI mode makes an error.
                f"CAST(sum(CAST(h AS DECIMAL(38, 0))) AS STRING) AS summed FROM ("
                f"SELECT {table.partition_key_sql} AS partition, {row_hash} AS h "
                f"FROM {table.identifier} VERSION AS OF {snapshot_id} WHERE {table.predicate(partitions)}) "
                f"GROUP BY partition"
            ).collect()
        }
    return {partition: found.get(partition, Content(f"{kinds}-0", 0)) for partition in asked}
