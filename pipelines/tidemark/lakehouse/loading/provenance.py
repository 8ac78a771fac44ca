"""What table and quarantine say was incorporated: the files a partition knows, and what it holds.

Belongs here: the queries. Does not belong here: what follows from the answers (`plan`).
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession

from pipelines.tidemark.lakehouse.content import Content, content_of_files
from pipelines.tidemark.lakehouse.loading.plan import KnownFile, Version, Where
from pipelines.tidemark.lakehouse.loading.quarantine import QUARANTINE, within
from pipelines.tidemark.lakehouse.loading.spec import Load
from pipelines.tidemark.lakehouse.read import naming_an_expired_snapshot
from pipelines.tidemark.lakehouse.tables import Table, quoted
from pipelines.tidemark.sources.feed import Partition


@dataclass(frozen=True)
class Held:
    """What partitions hold at a snapshot, and how many rows of which file versions."""

    content: Mapping[Partition, Content]
    files: Mapping[Partition, Mapping[tuple[str, str], int]]


def as_keys(partitions: Sequence[Partition]) -> list[str] | None:
    """These partitions as keys of a table; the whole of an unpartitioned one is one partition without a key."""
    return None if None in partitions else [p for p in partitions if p is not None]


@dataclass(frozen=True)
class Entries:
    """What the quarantine holds of a file version for one reason, in one partition."""

    partition: Partition
    file: KnownFile
    reason: str


@dataclass(frozen=True)
class Known:
    """What table and quarantine know of partitions.

    Args:
        files: The file versions of each partition.
        rows: How many rows of them the table holds.
        entries: What the quarantine holds of these partitions, and of what lies beside the asset's partitions.
    """

    files: Mapping[Partition, Collection[KnownFile]]
    rows: Mapping[Version, int]
    entries: Sequence[Entries]


def known_files(spark: SparkSession, load: Load, partitions: Sequence[Partition], snapshot_id: int | None) -> Known:
    """What is known of these partitions, with the table as it is at a snapshot; in one query.

    Raises:
        SnapshotExpired: the snapshot is there no more.
    """
    table = load.table
    entries = (
        f"SELECT partition, source_file, source_version, loaded_by, if(row_number IS NULL, '{Where.WHOLE_FILE}', "
        f"'{Where.REJECTED_ROWS}') AS place, reason, 0L FROM {QUARANTINE.identifier} t "
        f"WHERE {within(load.asset, {*partitions, None})} "
        "GROUP BY partition, source_file, source_version, loaded_by, place, reason"
    )
    by = [
        *map(quoted, table.partition_columns),
        "source_file",
        "source_version",
        "loaded_by",
    ]
    rows = (
        f"SELECT {table.partition_key_sql} AS partition, source_file, source_version, loaded_by, "
        f"'{Where.TABLE}', '', rows "
        f"FROM (SELECT {', '.join(by)}, count(*) AS rows FROM {table.identifier} VERSION AS OF {snapshot_id} "
        f"WHERE {table.predicate(as_keys(partitions))} GROUP BY {', '.join(by)}) UNION ALL "
    )
    files: dict[Partition, set[KnownFile]] = {}
    counts: Counter[Version] = Counter()
    entered = []
    with naming_an_expired_snapshot(table):
        found = spark.sql((rows if snapshot_id else "") + entries).collect()
    for partition, key, version, loaded_by, where, reason, count in found:
        file = KnownFile(key, version, loaded_by, Where(where))
        files.setdefault(partition, set()).add(file)
        if file.where is Where.TABLE:
            counts[partition, key, version] += count
        else:
            entered.append(Entries(partition, file, reason))
    return Known({p: files[p] for p in partitions if p in files}, counts, entered)


def rows_of_partitions(spark: SparkSession, table: Table) -> dict[Partition, int]:
    """The partitions of the whole table that hold rows, and about how many; from its metadata alone."""
    rows = spark.sql(
        f"SELECT {table.partition_key_of_metadata_sql} AS partition, sum(record_count) AS rows "
        f"FROM {table.identifier}.partitions WHERE record_count > 0 GROUP BY 1"
    )
    return {row.partition: row["rows"] for row in rows.collect()}


def rows_at(
    spark: SparkSession, table: Table, partitions: Collection[str] | None, snapshot_id: int | None
) -> DataFrame:
    """The rows of these partitions as they stood at a snapshot."""
    if snapshot_id is None:
        return spark.table(table.identifier).limit(0)
    return spark.sql(f"SELECT * FROM {table.identifier} VERSION AS OF {snapshot_id}").where(table.predicate(partitions))


def held_at(spark: SparkSession, table: Table, partitions: Sequence[Partition], snapshot_id: int | None) -> Held:
    """What these partitions hold at a snapshot, in one pass over their rows."""
    content, files = content_of_files(spark, table, as_keys(partitions), snapshot_id)
    return Held(content, files)
