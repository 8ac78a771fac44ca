"""The quarantine of a preview: a branch of ops.quarantine, whose entries are compared and published.

Belongs here: the entries of a previewed asset's partitions. Does not belong here: writing entries (`loading.rejects`),
and the order of the steps of a publish (`preview.publish`).
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from dagster_tidemark.lakehouse import branches, catalog, metadata_reads, write
from dagster_tidemark.lakehouse.loading.quarantine_table import NO_ROWS, QUARANTINE, within
from dagster_tidemark.preview.manifest import PreviewManifest, TablePreview
from dagster_tidemark.sources.feed import Partition

_SAID = ("source_file", "source_version", "loaded_by", "row_number", "content", "reason", "message")
_REASON = _SAID.index("reason")

Entries = Mapping[Partition, Counter[tuple[Any, ...]]]
"""Quarantine entries of each partition, with the number of equal entries. The time of entry is left out."""


def begin(spark: SparkSession, manifest: PreviewManifest) -> None:
    """Create the preview's branch of the quarantine if it does not exist."""
    if manifest.quarantine_head is None:
        catalog.ensure(spark, QUARANTINE)
        manifest.quarantine_base = write.current_snapshot(spark, QUARANTINE)
        branches.create(spark, QUARANTINE, manifest.branch, manifest.quarantine_base)
        manifest.quarantine_head = branches.head(spark, QUARANTINE, manifest.branch)


@dataclass
class PreviewQuarantine:
    """The quarantine entries of one preview. A snapshot never changes, so it is read once for each asset."""

    spark: SparkSession
    manifest: PreviewManifest
    _known: dict[tuple[str, int], Entries] = field(default_factory=dict)

    def count(self, own: TablePreview) -> None:
        """Record the numbers of entries by reason, before the preview and on its branch."""
        base, head = self.manifest.quarantine_base, self.manifest.quarantine_head
        before, after = (_reasons(self._entries(own, own.partitions, at)) for at in (base, head))
        own.turned_away = {reason: [before[reason], after[reason]] for reason in sorted(before | after)}

    def changed_by_others(
        self, own: TablePreview, partitions: Collection[Partition], now: int | None
    ) -> set[Partition]:
        """Return the partitions whose entries differ from those at the preview's beginning and those on its branch."""
        before, branch, found = (
            _with_rows(self._entries(own, partitions, at))
            for at in (self.manifest.quarantine_base, self.manifest.quarantine_head, now)
        )
        return {p for p in partitions if found.get(p) not in (before.get(p), branch.get(p))}

    def publish(self, own: TablePreview, now: int | None, *, run_id: str, with_files_without_rows: bool) -> None:
        """Replace the entries of the decided partitions with the preview's, in one commit, if they differ.

        Args:
            now: The latest known snapshot of the quarantine.
            with_files_without_rows: True to include the entries of files that left no row. A load writes these entries
                after the table, because later loads skip a file with such an entry.

        Raises:
            CommitConflict: another writer has changed the partitions' entries since.
        """
        partitions, head = own.decided or [], self.manifest.quarantine_head
        after = self._entries(own, partitions, head)
        if (after if with_files_without_rows else _with_rows(after)) == self._entries(own, partitions, now):
            return
        rows = _at(self.spark, head).where(within(own.asset, partitions))
        if not with_files_without_rows:
            rows = rows.where(F.col("reason") != NO_ROWS)
        write.replace_since(now, rows, QUARANTINE, within(own.asset, partitions, of=None), run_id=run_id)

    def _entries(self, own: TablePreview, partitions: Collection[Partition], snapshot_id: int | None) -> Entries:
        """Return a table's entries by partition, as of a snapshot. Partitions without entries are left out."""
        if snapshot_id is None or not partitions:
            return {}
        if (own.asset, snapshot_id) not in self._known:
            self._known[own.asset, snapshot_id] = _read(self.spark, own.asset, own.partitions, snapshot_id)
        wanted = set(partitions)
        return {p: of for p, of in self._known[own.asset, snapshot_id].items() if p in wanted}


def _reasons(entries: Entries) -> Counter[str]:
    """Return the number of entries by reason, without files that left no row."""
    counts: Counter[str] = Counter()
    for of_partition in entries.values():
        for entry, count in of_partition.items():
            counts[entry[_REASON]] += count if entry[_REASON] != NO_ROWS else 0
    return +counts


def _with_rows(entries: Entries) -> Entries:
    """Return the entries, except the entries of files that left no row."""
    kept = {p: Counter({e: n for e, n in of.items() if e[_REASON] != NO_ROWS}) for p, of in entries.items()}
    return {partition: of for partition, of in kept.items() if of}


def _read(spark: SparkSession, asset: str, partitions: Collection[Partition], snapshot_id: int) -> Entries:
    columns = ("partition", *_SAID)
    rows = metadata_reads.few_rows(spark, QUARANTINE, columns, [{"asset": asset}], snapshot_id)
    if rows is None:
        rows = _at(spark, snapshot_id).where(within(asset, partitions)).select(*columns).toArrow()
    found: dict[Partition, Counter[tuple[Any, ...]]] = defaultdict(Counter)
    wanted = set(partitions)
    for partition, *said in zip(*rows.select(columns).to_pydict().values(), strict=True):
        if partition in wanted:
            found[partition][tuple(said)] += 1
    return dict(found)


def _at(spark: SparkSession, snapshot_id: int | None) -> DataFrame:
    return spark.sql(f"SELECT * FROM {QUARANTINE.identifier} VERSION AS OF {snapshot_id}").alias("t")
