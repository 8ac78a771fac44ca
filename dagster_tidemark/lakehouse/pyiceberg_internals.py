"""The parts of pyiceberg that are not public: its transactions and metadata, as a commit on a seen head needs them.

An upgrade of pyiceberg may break everything here; tests/tidemark/lakehouse/test_pyiceberg_internals.py has a test of
each function. Does not belong here: the use of pyiceberg's public API (`append`, `metadata_reads`).
"""

from __future__ import annotations

from typing import Any

from pyiceberg.table import Table, Transaction
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.update import AssertRefSnapshotId

_RETRIES = "commit.retry.num-retries"


def require_head(transaction: Transaction, snapshot_id: int | None) -> None:
    """Let a transaction fail if the table's head differs from this snapshot (None: if the table has any).

    pyiceberg checks the head only if there are rows. A commit of properties alone would succeed on any head, and its
    writer would then take a head of other writers for a head that it has seen.
    """
    is_seen = AssertRefSnapshotId.model_validate({"ref": MAIN_BRANCH, "snapshot-id": snapshot_id})
    transaction._apply((), (is_seen,))


def commit_without_retries(table: Table) -> None:
    """Let the next commit of this object fail if another writer commits first.

    pyiceberg would apply the change on top of commits of other writers. Set in memory only, because Spark's writers
    may retry: they check their partitions again.
    """
    table.metadata.properties[_RETRIES] = "0"


def share_copies(table: Table) -> None:
    """Let copies of the metadata share the members of its long lists, which never change.

    pyiceberg copies all metadata about twenty times in a commit, which takes 2 ms per snapshot.
    """
    members = vars(table.metadata)
    members |= {name: _Shared(members[name]) for name in ("snapshots", "snapshot_log", "metadata_log")}


class _Shared(list[Any]):
    """List whose deep copies have the same members."""

    def __deepcopy__(self, memo: object) -> _Shared:
        return _Shared(self)

    def __add__(self, more: list[Any]) -> _Shared:
        return _Shared([*self, *more])
