"""Choice of the snapshots that no reader needs.

Belongs here: the choice, from plain data. Does not belong here: reading the metadata (`facts`), and the expiry after
commits, which only bounds the number of snapshots (`lakehouse.write`, `lakehouse.snapshot_expiry`).
"""

from bisect import bisect_right
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

PREVIEWS = "preview_"
"""Prefix of the branches of previews."""


@dataclass(frozen=True)
class SnapshotFacts:
    """A snapshot of a table. Times in milliseconds.

    Args:
        marks: Names of its properties that a later run may look up, such as the position in a topic.
        is_staged: True if it waits to be published (`wap.id`).
        removed_bytes: Size of the files that its parent has and it lacks.
    """

    id: int
    parent: int | None
    at: int
    marks: frozenset[str] = frozenset()
    is_staged: bool = False
    removed_bytes: int = 0


@dataclass(frozen=True)
class TableHistory:
    """The snapshots of a table.

    Args:
        snapshots: All snapshots, in any order.
        log: When a snapshot became current, and which, in the order of time.
        head: The current snapshot.
        branches: Heads of the other branches, by name.
        tags: Tagged snapshots.
    """

    snapshots: Sequence[SnapshotFacts]
    log: Sequence[tuple[int, int]]
    head: int | None
    branches: Mapping[str, int] = field(default_factory=dict)
    tags: Collection[int] = ()


@dataclass(frozen=True)
class Pins:
    """Snapshots that readers of the lake need.

    Args:
        since: All snapshots that were current at this time or later stay (milliseconds).
        snapshots: Snapshots that stay together with all later ones: other tables record that they contain the rows up
            to them.
        newest: Number of newest snapshots that stay at any age.
    """

    since: int
    snapshots: frozenset[int] = frozenset()
    newest: int = 1


def expirable(history: TableHistory, pins: Pins) -> list[int]:
    """Return the snapshots that may expire, oldest first.

    On the way of the current snapshot, only a contiguous end is returned, because readers walk from child to parent.
    """
    by_id = {snapshot.id: snapshot for snapshot in history.snapshots}
    chain = list(_ancestors(history.head, by_id))
    places = {id: place for place, id in enumerate(chain)}
    current = set(_current_since(history, pins.since))
    kept = {*history.branches.values(), *history.tags, *current}
    kept |= {s.id for s in history.snapshots if s.is_staged or s.at >= pins.since}
    deepest = {*current, *(pins.snapshots & by_id.keys()), *_newest_with_each_mark(chain, by_id)}
    for name, head in history.branches.items():
        for id in _ancestors(head, by_id):
            if id in places:
                kept.add(id)  # the branch began here
                if name.startswith(PREVIEWS):
                    deepest.add(id)
                break
            kept.add(id)
    deep = 1 + max((places[id] for id in deepest if id in places), default=0)
    kept |= set(chain[: max(deep, pins.newest)])
    return [s.id for s in sorted(history.snapshots, key=lambda s: s.at) if s.id not in kept]


def unwritten_preview(history: TableHistory) -> str:
    """Return a preview's branch that has no commit yet; empty if there is none.

    Iceberg takes the age of a branch from its newest snapshot. That of such a branch is a snapshot of the table, which
    may be old, so an expiry may drop a new branch.
    """
    past = set(_ancestors(history.head, {snapshot.id: snapshot for snapshot in history.snapshots}))
    return next((name for name, head in history.branches.items() if name.startswith(PREVIEWS) and head in past), "")


def held_bytes(history: TableHistory, gone: Collection[int]) -> int:
    """Return the size of the files that were removed by the children of these snapshots."""
    ids = set(gone)
    return sum(snapshot.removed_bytes for snapshot in history.snapshots if snapshot.parent in ids)


def _ancestors(id: int | None, by_id: Mapping[int, SnapshotFacts]) -> Iterator[int]:
    while id is not None and id in by_id:
        yield id
        id = by_id[id].parent


def _current_since(history: TableHistory, since: int) -> Iterator[int]:
    """Yield each snapshot that was current at a time or later. After a rollback, these are no longer ancestors."""
    if history.head is not None:
        yield history.head
    for (_, id), (until, _) in pairwise(history.log):
        if until >= since:
            yield id
    # The log loses entries when other snapshots expire. Such a snapshot was current until the next known time.
    known = sorted({*(at for at, _ in history.log), *(s.at for s in history.snapshots)})
    logged = {id for _, id in history.log}
    for snapshot in history.snapshots:
        after = bisect_right(known, snapshot.at)
        if snapshot.id not in logged and (after == len(known) or known[after] >= since):
            yield snapshot.id


def _newest_with_each_mark(chain: Sequence[int], by_id: Mapping[int, SnapshotFacts]) -> Iterator[int]:
    seen: set[str] = set()
    for id in chain:
        if by_id[id].marks - seen:
            seen |= by_id[id].marks
            yield id
