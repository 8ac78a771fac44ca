"""Private parts of pyiceberg that optimistic commits need: its transactions and metadata.

An upgrade of pyiceberg may break everything here. tests/tidemark/lakehouse/test_pyiceberg_internals.py has a test of
each function. Does not belong here: the use of pyiceberg's public API (`append`, `metadata_reads`).
"""

from __future__ import annotations

from typing import Any

from pyiceberg.table import Table, Transaction
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.update import AssertRefSnapshotId

_RETRIES = "commit.retry.num-retries"


def require_head(transaction: Transaction, snapshot_id: int | None) -> None:
    """Make a transaction fail if the table's head is not this snapshot. None means that the table must have no head.

    pyiceberg checks the head only if the commit has rows. A commit with only properties would succeed on any head, and
    the writer would miss commits of other writers.
    """
    is_seen = AssertRefSnapshotId.model_validate({"ref": MAIN_BRANCH, "snapshot-id": snapshot_id})
    transaction._apply((), (is_seen,))


def commit_without_retries(table: Table) -> None:
    """Make the next commit of this object fail if another writer commits first.

    By default pyiceberg retries, and applies the change on top of other writers' commits. The property is set only in
    memory, because Spark's writers read it too. They may retry, because they check their partitions again.
    """
    table.metadata.properties[_RETRIES] = "0"


def share_copies(table: Table) -> None:
    """Make copies of the metadata share the members of the long lists, because these members never change.

    In each commit, pyiceberg copies all metadata about twenty times. Without sharing, this takes 2 ms per snapshot.
    """
    members = vars(table.metadata)
    members |= {name: _Shared(members[name]) for name in ("snapshots", "snapshot_log", "metadata_log")}


class _Shared(list[Any]):
    """List whose deep copies have the same members."""

    def __deepcopy__(self, memo: object) -> _Shared:
        return _Shared(self)

    def __add__(self, more: list[Any]) -> _Shared:
        return _Shared([*self, *more])
