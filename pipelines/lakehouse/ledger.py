"""What table and quarantine say was incorporated: the files a partition knows, and what it holds.

Belongs here: the queries. Does not belong here: what follows from the answers (`plan`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql import SparkSession

from pipelines.lakehouse.content import Content, content_of_files
from pipelines.lakehouse.declaration import Load
from pipelines.lakehouse.plan import KnownFile, Where
from pipelines.lakehouse.quarantine import QUARANTINE
from pipelines.lakehouse.read import naming_an_expired_snapshot
from pipelines.lakehouse.tables import Table
from pipelines.sources.feed import Partition


@dataclass(frozen=True)
class Held:
    """What partitions hold at a snapshot, and the file versions their rows came from."""

    content: Mapping[Partition, Content]
    files: Mapping[Partition, set[tuple[str, str]]]


def as_keys(partitions: Sequence[Partition]) -> list[str] | None:
    """These partitions as keys of a table; the whole of an unpartitioned one is one partition without a key."""
    return None if None in partitions else [p for p in partitions if p is not None]


@dataclass(frozen=True)
class Entries:
    """What the quarantine holds of a file version for one reason, in one partition."""

    partition: Partition
    file: KnownFile
    reason: str
    count: int


def known_files(
    spark: SparkSession, load: Load, partitions: Sequence[Partition], snapshot_id: int | None
) -> tuple[dict[Partition, set[KnownFile]], list[Entries]]:
    """What is known, in one query.

    Returns:
        Partition to the file versions that the table at this snapshot, and the quarantine, know of; and what the
        quarantine holds of all partitions of the asset.

    Raises:
        SnapshotExpired: the snapshot is there no more.
    """
    table = load.table
    entries = (
        f"SELECT partition, source_file, source_version, loaded_by, if(row_number IS NULL, '{Where.WHOLE_FILE}', "
        f"'{Where.REJECTED_ROWS}') AS place, reason, count(*) FROM {QUARANTINE.identifier} "
        f"WHERE asset = '{load.asset}' GROUP BY partition, source_file, source_version, loaded_by, place, reason"
    )
    of_partition = [table.partitioned_by] if table.partitioned_by else []
    rows = (
        f"SELECT {table.partition_key_sql} AS partition, source_file, source_version, loaded_by, "
        f"'{Where.TABLE}', '', 0L "
        f"FROM (SELECT DISTINCT {', '.join([*of_partition, 'source_file', 'source_version', 'loaded_by'])} "
        f"FROM {table.identifier} VERSION AS OF {snapshot_id} WHERE {table.predicate(as_keys(partitions))}) UNION ALL "
    )
    known: dict[Partition, set[KnownFile]] = {}
    entered = []
    with naming_an_expired_snapshot(table):
        found = spark.sql((rows if snapshot_id else "") + entries).collect()
    for partition, key, version, by, where, reason, count in found:
        file = KnownFile(key, version, by, Where(where))
        known.setdefault(partition, set()).add(file)
        if file.where is not Where.TABLE:
            entered.append(Entries(partition, file, reason, count))
    return {p: known[p] for p in partitions if p in known}, entered


def rows_of_partitions(spark: SparkSession, table: Table) -> dict[Partition, int]:
    """The partitions of the whole table that hold rows, and about how many; from its metadata alone."""
    by = table.partitioned_by
    key = table.partition_key_sql.replace(by, f"partition.{by}") if by else table.partition_key_sql
    rows = spark.sql(
        f"SELECT {key} AS partition, sum(record_count) AS rows FROM {table.identifier}.partitions "
        "WHERE record_count > 0 GROUP BY 1"
    )
    return {row.partition: row["rows"] for row in rows.collect()}


def held_at(spark: SparkSession, table: Table, partitions: Sequence[Partition], snapshot_id: int | None) -> Held:
    """What these partitions hold at a snapshot, in one pass over their rows."""
    content, files = content_of_files(spark, table, as_keys(partitions), snapshot_id)
    return Held(content, files)
