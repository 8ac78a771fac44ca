"""File versions that are recorded in the table and the quarantine, and the content of partitions.

Belongs here: the queries. Does not belong here: decisions from the results (`load_plan`).
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from dagster_tidemark.lakehouse import metadata_reads
from dagster_tidemark.lakehouse.content import Content, content_of_files
from dagster_tidemark.lakehouse.loading.load_plan import KnownFile, Version, Where
from dagster_tidemark.lakehouse.loading.quarantine_table import FILE, within
from dagster_tidemark.lakehouse.loading.spec import Load
from dagster_tidemark.lakehouse.read import naming_an_expired_snapshot
from dagster_tidemark.lakehouse.table import Table, quoted
from dagster_tidemark.sources.feed import Partition


@dataclass(frozen=True)
class PartitionContents:
    """Content of partitions at a snapshot, and the number of rows of each file version."""

    content: Mapping[Partition, Content]
    files: Mapping[Partition, Mapping[tuple[str, str], int]]


def as_keys(partitions: Sequence[Partition]) -> list[str] | None:
    """Return partitions as partition keys; None for an unpartitioned table, whose single partition has no key."""
    return None if None in partitions else [p for p in partitions if p is not None]


@dataclass(frozen=True)
class Entries:
    """Quarantine entries of one file version with one reason, in one partition."""

    partition: Partition
    file: KnownFile
    reason: str


@dataclass(frozen=True)
class Known:
    """Files of partitions that are recorded in the table or the quarantine.

    Args:
        files: The file versions of each partition.
        rows: Number of rows in the table, by file version.
        entries: Quarantine entries of the partitions, and of misplaced files of the asset.
    """

    files: Mapping[Partition, Collection[KnownFile]]
    rows: Mapping[Version, int]
    entries: Sequence[Entries]


def known_files(spark: SparkSession, load: Load, partitions: Sequence[Partition], snapshot_id: int | None) -> Known:
    """Return the known files of partitions. The table is read at a snapshot.

    Raises:
        SnapshotExpired: the snapshot no longer exists.
    """
    files: dict[Partition, set[KnownFile]] = {}
    counts: Counter[Version] = Counter()
    entered = []
    found = _looked_up(spark, load, partitions, snapshot_id)
    if found is None:
        found = _queried(spark, load, partitions, snapshot_id)
    for partition, key, version, loaded_by, where, reason, count in found:
        file = KnownFile(key, version, loaded_by, Where(where))
        files.setdefault(partition, set()).add(file)
        if file.where is Where.TABLE:
            counts[partition, key, version] += count
        else:
            entered.append(Entries(partition, file, reason))
    return Known({p: files[p] for p in partitions if p in files}, counts, entered)


_Found = Iterable[tuple[Partition, str, str, str, str, str, int]]
"""Partition, file, version, code version, place of the record (`Where`), reason, and number of rows in the table."""


def _looked_up(
    spark: SparkSession, load: Load, partitions: Sequence[Partition], snapshot_id: int | None
) -> _Found | None:
    """Return the records without a Spark query; None if only Spark can query them."""
    held = _held(spark, load.table, partitions, snapshot_id) if snapshot_id else {}
    about = [{"asset": load.asset, "partition": partition} for partition in {*partitions, None}]
    columns = ("partition", *FILE, "row_number", "reason")
    if held is None or (entries := metadata_reads.few_rows(spark, load.quarantine, columns, about)) is None:
        return None
    is_whole = entries.append_column("is_whole", pc.is_null(entries["row_number"]))
    entered = _counted(is_whole, ("partition", *FILE, "is_whole", "reason"))
    return [
        *((p, *file, Where.WHOLE_FILE if whole else Where.REJECTED_ROWS, why, 0) for p, *file, whole, why in entered),
        *((partition, *file, Where.TABLE, "", count) for (partition, *file), count in held.items()),
    ]


def _held(
    spark: SparkSession, table: Table, partitions: Sequence[Partition], snapshot_id: int
) -> dict[tuple[Any, ...], int] | None:
    """Return the number of rows in the table by partition, file, version and code; None if only Spark can count."""
    by, values = table.partition_columns, {p: table.partition_values(p) for p in partitions}
    rows = metadata_reads.few_rows(spark, table, (*by, *FILE), list(values.values()), snapshot_id)
    if rows is None:
        return None
    partition_of = {tuple(of[c] for c in by): partition for partition, of in values.items()}
    counted = _counted(rows, (*by, *FILE))
    return {(partition_of[group[: len(by)]], *group[len(by) :]): count for group, count in counted.items()}


def _counted(rows: pa.Table, by: Sequence[str]) -> dict[tuple[Any, ...], int]:
    """Return the number of rows of each group."""
    *values, counts = rows.group_by(by).aggregate([([], "count_all")]).select([*by, "count_all"]).to_pydict().values()
    return dict(zip(zip(*values, strict=True), counts, strict=True))


def _queried(spark: SparkSession, load: Load, partitions: Sequence[Partition], snapshot_id: int | None) -> _Found:
    """Return the records with one Spark query."""
    table, by = load.table, ", ".join([*map(quoted, load.table.partition_columns), *FILE])
    entries = (
        f"SELECT partition, {', '.join(FILE)}, if(row_number IS NULL, '{Where.WHOLE_FILE}', "
        f"'{Where.REJECTED_ROWS}') AS place, reason, 0L FROM {load.quarantine.rows_identifier} t "
        f"WHERE {within(load.asset, {*partitions, None})} GROUP BY partition, {', '.join(FILE)}, place, reason"
    )
    rows = (
        f"SELECT {table.partition_key_sql} AS partition, {', '.join(FILE)}, '{Where.TABLE}', '', rows "
        f"FROM (SELECT {by}, count(*) AS rows FROM {table.identifier} VERSION AS OF {snapshot_id} "
        f"WHERE {table.predicate(as_keys(partitions))} GROUP BY {by}) UNION ALL "
    )
    with naming_an_expired_snapshot(table):
        found: _Found = spark.sql((rows if snapshot_id else "") + entries).collect()
    return found


def rows_of_partitions(spark: SparkSession, table: Table) -> dict[Partition, int]:
    """Return the partitions that have rows, with the approximate number of rows. Only table metadata is read."""
    rows = spark.sql(
        f"SELECT {table.partition_key_of_metadata_sql} AS partition, sum(record_count) AS rows "
        f"FROM {table.identifier}.partitions WHERE record_count > 0 GROUP BY 1"
    )
    return {row.partition: row["rows"] for row in rows.collect()}


def rows_at(
    spark: SparkSession, table: Table, partitions: Collection[str] | None, snapshot_id: int | None
) -> DataFrame:
    """Return the rows of partitions at a snapshot."""
    if snapshot_id is None:
        return spark.table(table.identifier).limit(0)
    return spark.sql(f"SELECT * FROM {table.identifier} VERSION AS OF {snapshot_id}").where(table.predicate(partitions))


def of_versions(rows: DataFrame, versions: Collection[tuple[str, str]], *, how: str = "left_semi") -> DataFrame:
    """Return the rows of some file versions (`left_semi`), or the other rows (`left_anti`)."""
    names = ["source_file", "source_version"]
    # By a join, because there may be thousands of versions.
    wanted = rows.sparkSession.createDataFrame(sorted(versions), ", ".join(f"{c} string" for c in names))
    return rows.join(F.broadcast(wanted), on=names, how=how)


def held_at(
    spark: SparkSession, table: Table, partitions: Sequence[Partition], snapshot_id: int | None
) -> PartitionContents:
    """Return the content of partitions at a snapshot, in one pass over their rows."""
    content, files = content_of_files(spark, table, as_keys(partitions), snapshot_id)
    return PartitionContents(content, files)
