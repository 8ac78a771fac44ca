"""Facts about tables for their maintenance, read from Iceberg's metadata without Spark.

Belongs here: reading. Manifests never change, so each is read once in a process. Does not belong here: the decision
(`due`), and the choice of snapshots (`expirable`).
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from threading import Lock

from pyiceberg.io import FileIO
from pyiceberg.manifest import ManifestContent, ManifestFile
from pyiceberg.table import Table as IcebergTable
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.snapshots import Snapshot

from dagster_tidemark.errors import Transient
from dagster_tidemark.lakehouse.maintenance.due import Action, LastAction, MaintenancePolicy, TableFacts
from dagster_tidemark.lakehouse.maintenance.expirable import (
    PREVIEWS,
    Pins,
    SnapshotFacts,
    TableHistory,
    expirable,
    held_bytes,
    unwritten_preview,
)
from dagster_tidemark.lakehouse.metadata_reads import properties_of
from dagster_tidemark.lakehouse.table import BRANCH_DAYS, Table
from dagster_tidemark.lakehouse.write import RUN_ID

TARGET = "write.target-file-size-bytes"
_TARGET_BYTES = 512 * 2**20
_MANIFEST_TARGET = "commit.manifest.target-size-bytes"
_MANIFEST_BYTES = 8 * 2**20
_HELD_MS, _NEWEST = "history.expire.max-snapshot-age-ms", "history.expire.min-snapshots-to-keep"
"""Properties of a table. Its owner sets them to keep more than `held_for`."""
_MAIN = "main"
_MARKS = "tidemark."
_STAGED = "wap.id"
_CONTINUES_AFTER = ("tidemark.incorporates", "tidemark.reported")
"""Table properties with a snapshot that a stream continues after. The snapshot may be another table's."""
_BRANCH_SECONDS = BRANCH_DAYS * 86_400.0
_LONGEST_PIN = 7 * 86_400.0
"""Seconds. Such a property does not hold a snapshot of a greater age. Its stream reads all rows instead."""
_KEPT_MANIFESTS = 20_000

_lock = Lock()
_sizes: OrderedDict[tuple[str, int], Counter[str]] = OrderedDict()


class NotRead(Transient):
    """Error if the time for reading a table's manifests is over. The next attempt reads the rest."""


@dataclass(frozen=True)
class TableNeeds:
    """Marks in the properties and branches of one table that protect snapshots from expiry.

    Args:
        snapshots: Snapshots, of this or other tables, after which a stream continues.
        has_preview: True if a preview has a branch of the table.
    """

    snapshots: frozenset[int] = frozenset()
    has_preview: bool = False


def needs_of(found: IcebergTable) -> TableNeeds:
    """Return the marks of a table that protect snapshots from expiry."""
    marks = (found.properties.get(name) for name in _CONTINUES_AFTER)
    return TableNeeds(
        frozenset(int(mark) for mark in marks if mark), any(name.startswith(PREVIEWS) for name in found.metadata.refs)
    )


def pins_of(needs: Iterable[TableNeeds], runs_since: float, now: float) -> Pins:
    """Return what the readers of the catalog's tables need.

    Args:
        needs: The needs that each table of the catalog shows. If one is unknown, nothing may expire.
        runs_since: Start of the oldest unfinished run, or the current time (Unix seconds).
        now: Unix seconds.
    """
    known = list(needs)
    # A preview reads its inputs as of its beginning, also inputs without a branch.
    since = min(runs_since, now - _BRANCH_SECONDS) if any(each.has_preview for each in known) else runs_since
    return Pins(round(since * 1000), frozenset().union(*(each.snapshots for each in known)))


def facts_of(
    declared: Table,
    found: IcebergTable,
    pins: Pins,
    policy: MaintenancePolicy,
    now: float,
    last: Mapping[Action, LastAction] | None = None,
    *,
    builds: str = "",
    stop: Callable[[], bool] = lambda: False,
) -> TableFacts:
    """Return the facts about a table.

    Args:
        pins: What readers need. The table's own `held_for` is added.
        now: Unix seconds.
        stop: Returns True if the time for reading is over.

    Raises:
        NotRead: `stop` returned True.
    """
    head = found.current_snapshot()
    times = [snapshot.timestamp_ms for snapshot in found.snapshots()]
    if head is None:
        return TableFacts(declared.name, None, last=last or {})
    history = history_of(found)
    young = {s.id for s in history.snapshots if s.at / 1000 > now - _LONGEST_PIN}
    held_ms = max(declared.retention.held_for.total_seconds() * 1000, int(found.properties.get(_HELD_MS, 0)))
    since = min(pins.since, round(now * 1000 - held_ms))
    gone = expirable(history, Pins(since, pins.snapshots & young, int(found.properties.get(_NEWEST, 1))))
    manifests = head.manifests(found.io)
    return TableFacts(
        declared.name,
        min(times) / 1000,
        bytes=_number(head, "total-files-size"),
        small_files=_small_files(manifests, found.io, small_below(found, policy), policy.together, stop),
        delete_files=_number(head, "total-delete-files"),
        manifests=_superfluous(manifests, int(found.properties.get(_MANIFEST_TARGET, _MANIFEST_BYTES))),
        expirable=tuple(gone),
        held_bytes=held_bytes(history, gone),
        last=last or {},
        builds=builds,
        preview=unwritten_preview(history),
    )


def history_of(found: IcebergTable) -> TableHistory:
    """Return the snapshots of a table as plain data."""
    refs = found.metadata.refs
    return TableHistory(
        [_facts(snapshot) for snapshot in found.snapshots()],
        [(entry.timestamp_ms, entry.snapshot_id) for entry in found.metadata.snapshot_log],
        found.metadata.current_snapshot_id,
        {
            name: ref.snapshot_id
            for name, ref in refs.items()
            if name != _MAIN and ref.snapshot_ref_type is SnapshotRefType.BRANCH
        },
        [ref.snapshot_id for ref in refs.values() if ref.snapshot_ref_type is SnapshotRefType.TAG],
    )


def small_below(found: IcebergTable, policy: MaintenancePolicy) -> int:
    """Return the size below which a data file of a table is small."""
    return min(policy.small_bytes, int(found.properties.get(TARGET, _TARGET_BYTES)) * 3 // 4)


def _facts(snapshot: Snapshot) -> SnapshotFacts:
    said = properties_of(snapshot)
    return SnapshotFacts(
        snapshot.snapshot_id,
        snapshot.parent_snapshot_id,
        snapshot.timestamp_ms,
        frozenset(name for name in said if name.startswith(_MARKS) and name != RUN_ID),
        _STAGED in said,
        int(said.get("removed-files-size", 0)),
    )


def _number(snapshot: Snapshot, name: str) -> int:
    return int(properties_of(snapshot).get(name, 0))


def _superfluous(manifests: list[ManifestFile], target: int) -> int:
    return max(0, len(manifests) - 2 - sum(each.manifest_length for each in manifests) // target)


def _small_files(manifests: list[ManifestFile], io: FileIO, small: int, together: int, stop: Callable[[], bool]) -> int:
    """Return the number of small data files in partitions that have enough of them."""
    by_partition: Counter[str] = Counter()
    for manifest in manifests:
        if manifest.content is not ManifestContent.DATA:
            continue
        if stop():
            raise NotRead
        by_partition.update(_counted(manifest, io, small))
    return sum(count for count in by_partition.values() if count >= together)


def _counted(manifest: ManifestFile, io: FileIO, small: int) -> Counter[str]:
    """Return the number of a manifest's small files by partition."""
    key = (manifest.manifest_path, small)
    with _lock:
        if key in _sizes:
            _sizes.move_to_end(key)
            return _sizes[key]
    counted: Counter[str] = Counter()
    for entry in manifest.fetch_manifest_entry(io, discard_deleted=True):
        if entry.data_file.file_size_in_bytes < small:
            counted[f"{manifest.partition_spec_id} {entry.data_file.partition!r}"] += 1
    with _lock:
        _sizes[key] = counted
        while len(_sizes) > _KEPT_MANIFESTS:
            _sizes.popitem(last=False)
    return counted
