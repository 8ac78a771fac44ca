"""From the files of a feed to a table: read, validate, quarantine, commit.

A table commit is the truth about which files were incorporated: a partition's known files are the distinct
(source_file, source_version, loaded_by) in the table and in ops/quarantine. Compared with a listing, that
says what to do, as plain data, before anything is read; a partition whose files are all known is left alone.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from pipelines.lakehouse import catalog, files, write
from pipelines.lakehouse.content import Content, content_of
from pipelines.lakehouse.files import FileFault, ObjectStore, SourceFile
from pipelines.lakehouse.judge import judge
from pipelines.lakehouse.quarantine import QUARANTINE, entries_of
from pipelines.lakehouse.tables import Table
from pipelines.sources.feed import Feed, Partition
from pipelines.sources.listing import Bucket, Listing, look_at_each

NO_ROWS = "no rows"
_TOLD = 20  # files whose faults are spelled out in the metadata of a run


class Landing(Bucket, ObjectStore, Protocol):
    """A landing bucket that can be listed and read."""


@dataclass(frozen=True)
class Load:
    """How a feed becomes a table.

    Args:
        transform: From typed landing rows (the feed's columns, the partition column, lineage) to table rows.
        code_version: The asset's; rows remember it as `loaded_by`.
    """

    feed: Feed
    table: Table
    transform: Callable[[DataFrame], DataFrame]
    code_version: str

    @property
    def asset(self) -> str:
        return self.table.name.replace(".", "/")


@dataclass(frozen=True)
class Loaded:
    """What a load did: which partitions it read again, what they hold now, how much was turned away."""

    snapshot_id: int | None
    content: Mapping[Partition, Content]
    read_again: Sequence[Partition]
    files_read: int
    rows_rejected: int
    files_rejected: Sequence[FileFault] = field(default=())


class KnownFile(NamedTuple):
    """A file version that was incorporated: it left rows in the table, or an entry in the quarantine."""

    key: str
    version: str
    loaded_by: str
    is_quarantined: bool


def partitions_to_read(
    listed: Mapping[Partition, Collection[SourceFile]],
    known: Mapping[Partition, Collection[KnownFile]],
    code_version: str,
) -> list[Partition]:
    """The partitions whose files are not exactly the known ones, or were loaded by other code."""
    return [
        partition
        for partition, found in listed.items()
        if {(f.key, f.version, code_version) for f in found} != {k[:3] for k in known.get(partition, ())}
    ]


def run_load(
    spark: SparkSession, landing: Landing, load: Load, partitions: Sequence[Partition], *, run_id: str
) -> Loaded:
    """Bring these partitions of the table up to what lies in the landing bucket now, in one commit."""
    catalog.ensure(spark, load.table)
    catalog.ensure(spark, QUARANTINE)
    listed = {p: source_files(found, p) for p, found in look_at_each(landing, load.feed, partitions).items()}
    known = known_files(spark, load, partitions)
    stale = partitions_to_read(listed, known, load.code_version)
    keys = _keys(partitions)
    if not stale:
        snapshot = write.current_snapshot(spark, load.table)
        return Loaded(snapshot, content_of(spark, load.table, keys, snapshot), (), 0, 0)

    wanted = [file for p in stale for file in listed[p]]
    shapes, faults = files.inspect(landing, load.feed, wanted)
    read = files.read_files(spark, landing, load.feed, shapes)
    judged = judge(read, load.feed, load.table, wanted, loaded_by=load.code_version).persist()
    try:
        tally = _tally(judged)
        whole_files = [*faults, *_without_rows(shapes, tally)]
        rejected = sum(t.rejected for t in tally.values())
        if whole_files or rejected or any(k.is_quarantined for p in stale for k in known.get(p, ())):
            # Before the table: a crash between the two repeats harmlessly; the other order would forget why a
            # row is missing.
            entries = _entries(load, judged, tally, whole_files)
            write.replace_where(entries, QUARANTINE, entries_of(load.asset, stale), run_id=run_id)
        rows = load.transform(judged.where("reason IS NULL AND wins"))
        commit = write.overwrite(rows, load.table, _keys(stale), run_id=run_id)
    finally:
        judged.unpersist()
    content = content_of(spark, load.table, keys, commit.snapshot_id)
    return Loaded(commit.snapshot_id, content, stale, len(shapes), rejected, faults[:_TOLD])


def source_files(listing: Listing, partition: Partition) -> list[SourceFile]:
    """The files of a partition's listing."""
    return [SourceFile(o.key, o.source_version, o.last_modified, partition) for o in listing.objects]


def _keys(partitions: Sequence[Partition]) -> list[str] | None:
    # The whole of an unpartitioned table is one partition without a key.
    return None if None in partitions else [p for p in partitions if p is not None]


def known_files(spark: SparkSession, load: Load, partitions: Sequence[Partition]) -> dict[Partition, set[KnownFile]]:
    """Partition to the file versions that table and quarantine know of."""
    keys = _keys(partitions)
    rows = spark.sql(
        f"SELECT DISTINCT {load.table.partition_key_sql} AS partition, source_file, source_version, loaded_by, false "
        f"FROM {load.table.identifier} WHERE {load.table.predicate(keys)} "
        f"UNION ALL SELECT DISTINCT partition, source_file, source_version, loaded_by, true "
        f"FROM {QUARANTINE.identifier} WHERE {entries_of(load.asset, partitions)}"
    ).collect()
    known: dict[Partition, set[KnownFile]] = {}
    for partition, *file in rows:
        known.setdefault(partition, set()).add(KnownFile(*file))
    return known


@dataclass(frozen=True)
class FileTally:
    """What became of a file's rows. `first_rows`: block to (its smallest row id, rows in the blocks before it)."""

    kept: int
    rejected: int
    first_rows: Mapping[int, tuple[int, int]]


def _tally(judged: DataFrame) -> dict[str, FileTally]:
    kept = F.col("reason").isNull() & F.col("wins")
    blocks = (
        judged.groupBy("source_file", "block")
        .agg(
            F.count_if(kept).alias("kept"),
            F.count_if(F.col("reason").isNotNull()).alias("rejected"),
            F.count(F.lit(1)).alias("rows"),
            F.min("row").alias("first"),
        )
        .collect()
    )
    tally: dict[str, FileTally] = {}
    rows_before: dict[str, int] = defaultdict(int)
    for b in sorted(blocks, key=lambda b: (b.source_file, b.block)):
        so_far = tally.get(b.source_file, FileTally(0, 0, {}))
        first_rows = {**so_far.first_rows, b.block: (b.first, rows_before[b.source_file])}
        tally[b.source_file] = FileTally(so_far.kept + b.kept, so_far.rejected + b.rejected, first_rows)
        rows_before[b.source_file] += b.rows
    return tally


def _without_rows(files: Collection[SourceFile], tally: Mapping[str, FileTally]) -> list[FileFault]:
    # Without an entry the next load would take these files for new.
    nothing = FileTally(0, 0, {})
    left = {file: tally.get(file.key, nothing) for file in files}
    return [FileFault(f, NO_ROWS, "the file left no row") for f, t in left.items() if not (t.kept or t.rejected)]


def _entries(
    load: Load, judged: DataFrame, tally: Mapping[str, FileTally], whole_files: Sequence[FileFault]
) -> DataFrame:
    entries = judged.sparkSession.createDataFrame(
        [
            (
                load.asset,
                f.partition,
                f.key,
                f.version,
                f.arrived_at,
                load.code_version,
                None,
                None,
                x.reason,
                x.message,
            )
            for x in whole_files
            for f in [x.file]
        ],
        ", ".join(f"{c} {kind}" for c, kind in QUARANTINE.columns.items() if c != "quarantined_at"),
    )
    if any(t.rejected for t in tally.values()):
        entries = entries.unionByName(_rejected_rows(load, judged, tally))
    return entries.withColumn("quarantined_at", F.now())


def _rejected_rows(load: Load, judged: DataFrame, tally: Mapping[str, FileTally]) -> DataFrame:
    # Row ids of text files are only increasing; with the first id of each block they become row numbers.
    first_rows = judged.sparkSession.createDataFrame(
        [(key, block, *first) for key, t in tally.items() if t.rejected for block, first in t.first_rows.items()],
        "source_file string, block bigint, first bigint, before bigint",
    )
    return (
        judged.where("reason IS NOT NULL")
        .join(F.broadcast(first_rows), on=["source_file", "block"], how="inner")
        .withColumn("asset", F.lit(load.asset))
        .withColumn("row_number", F.expr("row - first + before + 1"))
        .select(*(c for c in QUARANTINE.columns if c != "quarantined_at"))
    )
