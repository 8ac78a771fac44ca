"""Expiry of snapshots through pyiceberg, without Spark. Files that only expired snapshots need are deleted.

Does not belong here: the choice of snapshots (`append`), and expiry with Spark (`write`).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Iterator
from itertools import pairwise

from pyiceberg.io import FileIO
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation, Snapshot, ancestors_of


def expire(table: Table, gone: Collection[int]) -> int:
    """Expire some snapshots of a table, and return the number of expired snapshots.

    Missing snapshots and heads of branches or tags are skipped. So is the parent of a rewrite: it still needs the
    replaced data files, which only `expire_snapshots` deletes, when no reader needs them any more (`maintenance`).

    Raises:
        CommitFailedException: another writer has committed since the table was loaded. No snapshot was expired.
        OSError: the snapshots were expired, but some files could not be deleted. The message names one.
    """
    there = list(ancestors_of(table.current_snapshot(), table.metadata))
    kept = {ref.snapshot_id for ref in table.refs().values()}
    before_rewrite = {parent.snapshot_id for child, parent in pairwise(there) if _is_rewrite(child)}
    expired = [each for each in there if each.snapshot_id in gone and each.snapshot_id not in kept | before_rewrite]
    if not expired:
        return 0
    gone_now = {each.snapshot_id for each in expired}
    branches = [each for name in kept if (each := table.snapshot_by_id(name)) is not None]
    # Once a snapshot drops a manifest of its parent, no later snapshot has this manifest. So it is enough to read the
    # kept neighbours of expired snapshots: a manifest that they lack is in none of the kept snapshots.
    pairs = [pair for pair in pairwise(there) if (pair[0].snapshot_id in gone_now) != (pair[1].snapshot_id in gone_now)]
    neighbours = [each for pair in pairs for each in pair if each.snapshot_id not in gone_now]
    needed = {path for each in (*neighbours, *branches) for path in _files_of(each, table.io)}
    # Earlier expiries may have cut the way to others, such as the parents of rewrites. Each of them is read once.
    on_the_way = {each.snapshot_id for each in there}
    aside = [each for each in table.snapshots() if each.snapshot_id not in on_the_way | kept]
    needed = needed.union(*(_kept_files_of(each, table.io) for each in aside))
    unneeded = {path for each in expired for path in _files_of(each, table.io)} - needed
    table.maintenance.expire_snapshots().by_ids(sorted(gone_now)).commit()
    _delete(table.io, unneeded)
    return len(expired)


def _is_rewrite(snapshot: Snapshot) -> bool:
    return snapshot.summary is not None and snapshot.summary.operation is Operation.REPLACE


def _files_of(snapshot: Snapshot, io: FileIO) -> Iterator[str]:
    """Yield the paths of a snapshot's manifest list and manifests. Data files are not included, because rows stay."""
    yield snapshot.manifest_list
    for manifest in snapshot.manifests(io):
        yield manifest.manifest_path


_kept_files: OrderedDict[str, frozenset[str]] = OrderedDict()
_KEPT = 1_000


def _kept_files_of(snapshot: Snapshot, io: FileIO) -> frozenset[str]:
    """Return the same as `_files_of`, without reading a manifest list again."""
    if snapshot.manifest_list not in _kept_files:
        _kept_files[snapshot.manifest_list] = frozenset(_files_of(snapshot, io))
        while len(_kept_files) > _KEPT:
            _kept_files.popitem(last=False)
    return _kept_files[snapshot.manifest_list]


def _delete(io: FileIO, paths: Collection[str]) -> None:
    failed: list[tuple[str, OSError]] = []
    for path in sorted(paths):
        try:
            io.delete(path)
        except FileNotFoundError:
            continue
        except OSError as error:
            failed.append((path, error))
    if failed:
        raise OSError(
            f"{len(failed)} of {len(paths)} files of expired snapshots could not be deleted: "
            f"{failed[0][0]}: {failed[0][1]}"
        )
