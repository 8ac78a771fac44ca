"""The table ops/maintenance: what maintenance did, one row for each action on a table."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from dagster_tidemark.lakehouse.table import Table

MAINTENANCE = Table(
    name="ops.maintenance",
    columns={
        "table_name": "string",
        "action": "string",
        "reason": "string",
        "started_at": "timestamp",
        "seconds": "double",
        "result": "string",
        "files_removed": "bigint",
        "files_added": "bigint",
        "bytes_rewritten": "bigint",
        "snapshots_expired": "bigint",
        "message": "string",
        "run_id": "string",
    },
    row_key=("table_name", "action", "started_at"),
    comment="An action of maintenance on a table, with its result",
    column_comments={
        "table_name": "The maintained table: namespace.table",
        "action": "The procedure of Iceberg that did the work",
        "reason": "Why it was due",
        "started_at": "When it started, UTC",
        "seconds": "How long it took",
        "result": "done, nothing to do, conflict (other writers were faster), refused, or failed",
        "files_removed": "Files that were replaced or deleted",
        "files_added": "Files that were written instead",
        "bytes_rewritten": "Size of the replaced data files",
        "snapshots_expired": "Snapshots that were expired",
        "message": "The error, or why it was refused; null if there is none",
        "run_id": "The run of Dagster",
    },
)


@dataclass(frozen=True)
class ActionResult:
    """Result of an action.

    Args:
        result: done, nothing to do, conflict, refused or failed.
        candidates: Hashes of the orphan files that the next search may remove.
    """

    result: str
    files_removed: int = 0
    files_added: int = 0
    bytes_rewritten: int = 0
    snapshots_expired: int = 0
    message: str = ""
    candidates: tuple[str, ...] = ()

    @property
    def has_failed(self) -> bool:
        """True if the action has to be tried again."""
        return self.result in (CONFLICT, FAILED, REFUSED)


DONE, NOTHING, CONFLICT, REFUSED, FAILED = "done", "nothing to do", "conflict", "refused", "failed"


@dataclass(frozen=True)
class MaintenanceRow:
    """A row of ops/maintenance."""

    table: str
    action: str
    reason: str
    started_at: datetime
    seconds: float
    run_id: str
    result: ActionResult = field(default_factory=lambda: ActionResult(NOTHING))

    def as_row(self) -> Mapping[str, object]:
        """Return the values of the columns."""
        found = self.result
        return {
            "table_name": self.table,
            "action": self.action,
            "reason": self.reason,
            "started_at": self.started_at,
            "seconds": self.seconds,
            "result": found.result,
            "files_removed": found.files_removed,
            "files_added": found.files_added,
            "bytes_rewritten": found.bytes_rewritten,
            "snapshots_expired": found.snapshots_expired,
            "message": found.message or None,
            "run_id": self.run_id,
        }
