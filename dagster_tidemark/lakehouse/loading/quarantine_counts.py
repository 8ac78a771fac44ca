"""Counts of an asset's rejected rows and files, for its check and for reports.

A few entries are read and counted directly (`metadata_reads`). Spark counts more entries, and only the counts are
fetched, so a large backlog costs little. Does not belong here: single entries (`quarantine_table`), and the file
versions that a load knows (`provenance`).
"""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

import pyarrow.compute as pc
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F

from dagster_tidemark.lakehouse import metadata_reads
from dagster_tidemark.lakehouse.loading.load_plan import Where
from dagster_tidemark.lakehouse.loading.quarantine_table import IS_WAIVED, NO_ROWS, QUARANTINE, WAIVERS
from dagster_tidemark.lakehouse.partitioning import text_literal
from dagster_tidemark.lakehouse.table import Table
from dagster_tidemark.sources.feed import Partition

NAMED = 20
"""Maximum number of files to name."""


@dataclass(frozen=True)
class QuarantineCount:
    """Counts of an asset's quarantine entries with one reason, about rows or about whole files.

    Args:
        where: Kind of the entries: about rows, or about whole files.
        is_waived: True if an operator waived the entries. Then they do not fail the check.
        count: Number of rows or files.
        since_yesterday: Number of rows or files that arrived within the last 24 hours.
        since_last_week: Number of rows or files that arrived within the last seven days.
        files: The first `NAMED` files in alphabetical order.
    """

    where: Where
    reason: str
    is_waived: bool
    count: int
    since_yesterday: int
    since_last_week: int
    files: tuple[str, ...]


def backlog_of(spark: SparkSession, asset: str, quarantine: Table = QUARANTINE) -> list[QuarantineCount]:
    """Return counts of the rejected rows and files in all partitions of an asset.

    Entries with the reason `NO_ROWS` do not count.
    """
    entries = _few_entries(spark, asset, quarantine)
    if entries is None:
        return _queried_backlog(spark, asset, quarantine)
    now = datetime.now(UTC)
    groups: dict[tuple[Where, str, bool], list[_Few]] = defaultdict(list)
    for entry in entries:
        if entry.reason != NO_ROWS:
            groups[entry.where, entry.reason, entry.is_waived].append(entry)
    return [
        QuarantineCount(
            *group,
            sum(entry.rows for entry in of),
            sum(entry.rows for entry in of if _is_since(entry, now - timedelta(days=1))),
            sum(entry.rows for entry in of if _is_since(entry, now - timedelta(days=7))),
            tuple(sorted({entry.source_file for entry in of})[:NAMED]),
        )
        for group, of in sorted(groups.items())
    ]


class _Few(NamedTuple):
    """Quarantine entries that differ at most in their row number, and their number (`rows`)."""

    where: Where
    reason: str
    is_waived: bool
    partition: Partition
    source_file: str
    arrived_at: datetime | None
    rows: int


def _is_since(entry: _Few, time: datetime) -> bool:
    return entry.arrived_at is not None and entry.arrived_at > time


def _few_entries(spark: SparkSession, asset: str, quarantine: Table) -> list[_Few] | None:
    """Return an asset's quarantine entries if there are only a few; None if only Spark can query them."""
    of_asset = [{"asset": asset}]
    by = ("partition", "source_file", "source_version", "arrived_at", "reason")
    found = metadata_reads.few_rows(spark, quarantine, (*by, "row_number"), of_asset)
    if found is None:
        return None
    waived: set[tuple[str, ...]] = set()
    if found.num_rows:
        waivers = metadata_reads.few_rows(spark, WAIVERS, (*WAIVERS.row_key, "because"), of_asset)
        if waivers is None:
            return None
        waived = {tuple(row[c] for c in WAIVERS.row_key) for row in waivers.to_pylist() if row["because"] is not None}
    whole = found.append_column("whole", pc.is_null(found["row_number"]))
    groups = whole.group_by([*by, "whole"]).aggregate([([], "count_all")]).to_pylist()
    return [
        _Few(
            Where.WHOLE_FILE if of["whole"] else Where.REJECTED_ROWS,
            of["reason"],
            (asset, of["source_file"], of["source_version"], of["reason"]) in waived,
            of["partition"],
            of["source_file"],
            of["arrived_at"],
            of["count_all"],
        )
        for of in groups
    ]


def _queried_backlog(spark: SparkSession, asset: str, quarantine: Table) -> list[QuarantineCount]:
    found = spark.sql(f"""
        SELECT if(q.row_number IS NULL, '{Where.WHOLE_FILE}', '{Where.REJECTED_ROWS}') AS place, q.reason,
          w.because IS NOT NULL AS is_waived, count(*), count_if(q.arrived_at > now() - INTERVAL 1 DAY),
          count_if(q.arrived_at > now() - INTERVAL 7 DAYS),
          slice(array_sort(collect_set(q.source_file)), 1, {NAMED})
        {_entries(asset, quarantine)} AND q.reason <> '{NO_ROWS}' GROUP BY 1, 2, 3 ORDER BY 1, 2, 3""")
    return [QuarantineCount(Where(place), *counts, tuple(files)) for place, *counts, files in found.collect()]  # type: ignore[call-arg]


def largest_share(
    spark: SparkSession, table: Table, asset: str, rows: Mapping[Partition, int], quarantine: Table = QUARANTINE
) -> float:
    """Return the largest share of rejected rows in any partition. Waived rows do not count.

    Args:
        rows: Exact number of rows, by partition. For other partitions, table metadata has an approximate number.
    """
    entries = _few_entries(spark, asset, quarantine)
    if entries is not None:
        rejected = Counter[Partition]()
        for entry in entries:
            if entry.where is Where.REJECTED_ROWS and not entry.is_waived:
                rejected[entry.partition] += entry.rows
        others = [partition for partition in rejected if partition not in rows]
        if (held := _rows_held(spark, table, others)) is not None:
            known = {**held, **rows}
            return max((count / (count + known[partition]) for partition, count in rejected.items()), default=0.0)
    return _queried_share(spark, table, asset, rows, quarantine)


def _rows_held(spark: SparkSession, table: Table, partitions: Sequence[Partition]) -> dict[Partition, int] | None:
    """Return the number of rows of partitions from table metadata; None if only Spark can query it."""
    if not partitions:
        return {}
    try:
        values = [table.partition_values(partition) for partition in partitions]
    except ValueError:  # an entry has the key of a former partitioning
        return None
    held = metadata_reads.rows_held(spark, table, values)
    return None if held is None else dict(zip(partitions, held, strict=True))


def _queried_share(
    spark: SparkSession, table: Table, asset: str, rows: Mapping[Partition, int], quarantine: Table
) -> float:
    known = spark.createDataFrame(list(rows.items()), "partition string, rows bigint").alias("known")
    held = spark.sql(
        f"SELECT {table.partition_key_of_metadata_sql} AS partition, sum(record_count) AS rows "
        f"FROM {table.identifier}.partitions GROUP BY 1"
    ).alias("held")
    rejected = spark.sql(
        f"SELECT q.partition, count(*) AS rejected {_entries(asset, quarantine)} AND q.row_number IS NOT NULL "
        "AND w.because IS NULL GROUP BY 1"
    ).alias("rejected")
    shares = rejected.join(known, on=_same_partition("known"), how="left").join(
        held, on=_same_partition("held"), how="left"
    )
    share = "max(rejected / (rejected + coalesce(known.rows, held.rows, 0))) AS share"
    [worst] = shares.selectExpr(share).collect()
    return float(worst.share or 0.0)


def _same_partition(of: str) -> Column:
    return F.expr(f"rejected.partition <=> {of}.partition")


def _entries(asset: str, quarantine: Table) -> str:
    return (
        f"FROM {quarantine.rows_identifier} q LEFT JOIN {WAIVERS.identifier} w ON {IS_WAIVED} "
        f"WHERE q.asset = {text_literal(asset)}"
    )
