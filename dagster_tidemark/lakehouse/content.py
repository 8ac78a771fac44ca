"""Content versions of partitions: equal versions mean equal rows.

A consumer does not have to run again if a partition that it reads was rebuilt with the same content. So a version
depends on the values of the rows, not on the source of the rows or the time of writing.
"""

import hashlib
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from functools import reduce
from operator import xor
from typing import NamedTuple

from pyspark.errors import AnalysisException
from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as F

from dagster_tidemark.lakehouse.read import naming_an_expired_snapshot
from dagster_tidemark.lakehouse.table import LINEAGE, Table, quoted

_FILE = ("source_file", "source_version")
_LOW = 0xFFFF_FFFF
_AT = "SELECT * FROM {} VERSION AS OF {}"


@dataclass(frozen=True)
class Content:
    """Content of a partition: a version, which is equal for equal rows, and the number of rows."""

    version: str
    rows: int


def content_of(
    spark: SparkSession, table: Table, partitions: Collection[str] | None, snapshot_id: int | None
) -> dict[str | None, Content]:
    """Return the content of each partition at a snapshot, with one grouped query.

    Args:
        partitions: Partition keys, or None for an unpartitioned table.
        snapshot_id: The snapshot to read; None for a table without snapshots, whose partitions are all empty.

    Raises:
        SnapshotExpired: the snapshot no longer exists.
    """
    return contents_of(table, partitions, map(_hashes, _grouped(spark, table, partitions, snapshot_id, ())))


def content_of_files(
    spark: SparkSession, table: Table, partitions: Collection[str] | None, snapshot_id: int | None
) -> tuple[dict[str | None, Content], dict[str | None, dict[tuple[str, str], int]]]:
    """Return the content of each partition, and the number of rows of each (file, version) in it.

    Only for tables that are loaded from files. See `content_of` for the arguments.
    """
    groups = _grouped(spark, table, partitions, snapshot_id, _FILE)
    files: dict[str | None, dict[tuple[str, str], int]] = {}
    for group in groups:
        files.setdefault(group.partition, {})[group.source_file, group.source_version] = group["rows"]
    return contents_of(table, partitions, map(_hashes, groups)), files


def _columns(table: Table) -> list[str]:
    return sorted(set(table.columns) - set(LINEAGE) - set(table.added))


def _grouped(
    spark: SparkSession,
    table: Table,
    partitions: Collection[str] | None,
    snapshot_id: int | None,
    by: Collection[str],
) -> list[Row]:
    if snapshot_id is None:
        return []
    with naming_an_expired_snapshot(table):
        try:
            return _grouped_by(spark, table, partitions, snapshot_id, by, table.columns)
        except AnalysisException as error:
            if "UNRESOLVED_COLUMN" not in str(error):
                raise
        # A snapshot may have fewer columns than the table has now. This is rare, so its schema is queried only after
        # a failure, not in every run.
        held = spark.sql(_AT.format(table.identifier, snapshot_id)).columns
        return _grouped_by(spark, table, partitions, snapshot_id, by, held)


def hash_of_row(table: Table, held: Collection[str]) -> str:
    """Return a SQL expression for the hash of a row. Content versions are computed from these hashes.

    Args:
        held: The columns that the rows have. Other columns count as null.
    """
    values = [quoted(c) if c in held else f"CAST(NULL AS {table.columns[c]})" for c in _columns(table)]
    # xxhash64 skips nulls, so isnull of each column is hashed too: otherwise ('a', null) would equal (null, 'a').
    hashed = [part for v in values for part in (f"isnull({v})", v)]
    # Nulls of added columns are skipped, because a column that only other partitions use must not change the version.
    hashed += [f"concat('{c}=', {quoted(c)})" for c in sorted(table.added) if c in held]
    return f"xxhash64({', '.join(hashed)})"


def _grouped_by(
    spark: SparkSession,
    table: Table,
    partitions: Collection[str] | None,
    snapshot_id: int,
    by: Collection[str],
    held: Collection[str],
) -> list[Row]:
    """Query the hashes at a snapshot that has only the columns `held`. Columns that were added later count as null."""
    row_hash = hash_of_row(table, held)
    keys = list(map(quoted, table.partition_columns))
    return (
        spark.sql(_AT.format(table.identifier, snapshot_id))
        .where(table.predicate(partitions))
        .selectExpr(*keys, f"{row_hash} AS h", *by)
        .groupBy(*keys, *by)
        .agg(
            F.count(F.lit(1)).alias("rows"),
            F.bit_xor("h").alias("xored"),
            # The sum of 64-bit hashes would overflow, an error in ANSI mode. Decimals take three times as long.
            F.sum(F.shiftright("h", 32)).alias("high"),
            F.sum(F.col("h").bitwiseAND(_LOW)).alias("low"),
        )
        # Keys are formatted per group, not per row, because formatting a time takes as long as hashing a row.
        .selectExpr(f"{table.partition_key_sql} AS partition", *by, "rows", "xored", "high", "low")
        .collect()
    )


class Hashes(NamedTuple):
    """Summary of some rows of a partition: the number of rows, and sums of their hashes (`hash_of_row`).

    `xored` is the exclusive or of the hashes, `high` and `low` the sums of their upper and lower 32 bits.
    """

    partition: str | None
    rows: int
    xored: int
    high: int
    low: int


def _hashes(group: Row) -> Hashes:
    return Hashes(group.partition, group["rows"], group.xored, group.high, group.low)


def contents_of(
    table: Table, partitions: Collection[str] | None, groups: Iterable[Hashes]
) -> dict[str | None, Content]:
    """Return the content of partitions from the hashes of rows. `partitions` None means an unpartitioned table."""
    asked: Collection[str | None] = [None] if partitions is None else partitions
    kinds = hashlib.sha256(repr([(c, table.columns[c]) for c in _columns(table)]).encode()).hexdigest()[:8]
    by_partition: dict[str | None, list[Hashes]] = {}
    for group in groups:
        by_partition.setdefault(group.partition, []).append(group)

    def content(found: list[Hashes]) -> Content:
        rows = sum(g.rows for g in found)
        if not rows:
            return Content(f"{kinds}-0", 0)
        xored, summed = reduce(xor, (g.xored for g in found)), sum((g.high << 32) + g.low for g in found)
        return Content(f"{kinds}-{rows}-{xored}-{summed}", rows)

    return {partition: content(by_partition.get(partition, [])) for partition in asked}
