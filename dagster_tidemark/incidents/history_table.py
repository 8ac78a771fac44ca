"""The table `ops.incidents`: closed incidents in the lake, one row each. Dagster's storage keeps the last 200 only.

The sensor `incidents` writes the rows in a thread with a time limit, so that a slow catalog delays no message. Does not
belong here: incidents in Dagster's storage (`incidents.store`).
"""

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from dagster_tidemark.incidents.incident import Incident, MessageKind
from dagster_tidemark.incidents.store import IncidentStore
from dagster_tidemark.lakehouse.append import Appendable, TableCommit, one_of, open_lake, rows_of
from dagster_tidemark.lakehouse.commits import until_committed
from dagster_tidemark.lakehouse.session import error_line
from dagster_tidemark.lakehouse.table import Table
from dagster_tidemark.pauses import growing_pause
from dagster_tidemark.settings import Settings

INCIDENTS_TABLE = Table(
    name="ops.incidents",
    columns={
        "incident_id": "string",
        "code_location": "string",
        "opened_at": "timestamp",
        "closed_at": "timestamp",
        "cause_kind": "string",
        "cause_subject": "string",
        "cause": "string",
        "was_late": "boolean",
        "first_deadline_at": "timestamp",
        "asset_count": "bigint",
        "assets": "string",
        "owners": "string",
        "acknowledged_because": "string",
        "messages_sent": "bigint",
    },
    row_key=("incident_id",),
    comment="A closed incident: a root cause that made data late, or was about to",
    column_comments={
        "incident_id": "The id, as in messages and `tidemark incidents`",
        "code_location": "The code location that reported it",
        "opened_at": "When it opened, UTC",
        "closed_at": "When it closed, UTC",
        "cause_kind": "Kind of the root cause: missing data, failing asset, platform, ...",
        "cause_subject": "The source, asset, check or service at fault",
        "cause": "The cause in words",
        "was_late": "True if a deadline passed; false if only a warning was sent",
        "first_deadline_at": "Earliest deadline of its assets, UTC; null if it has none",
        "asset_count": "Number of assets that it made late, or was about to",
        "assets": "The keys of these assets, joined by commas",
        "owners": "Their owners, joined by commas",
        "acknowledged_because": "Reason of the last acknowledgement; null without one",
        "messages_sent": "Number of messages that channels accepted",
    },
)
_SECONDS = 5.0
_EVERY = 600.0
"""Seconds between two searches for rows that another process has left out."""
_FIRST_PAUSE, _LONGEST_PAUSE = 60.0, 3600.0
_SENT = {f"sent {kind}" for kind in MessageKind}


@dataclass
class IncidentHistory:
    """Writer of closed incidents to the lake."""

    store: IncidentStore
    settings: Settings
    _recorded: set[str] = field(default_factory=set)
    _again_at: float = 0.0
    _failures: int = 0
    _fault: str = ""
    _thread: threading.Thread | None = None

    def record(self, *, is_new: bool, seconds: float = _SECONDS) -> str:
        """Write the closed incidents that the table lacks. Return what prevents that; empty if nothing does.

        Args:
            is_new: True if an incident was archived since the last call.
        """
        if is_new and not self._failures:
            self._again_at = 0.0
        if self._thread is None and time.monotonic() >= self._again_at:
            self._thread = threading.Thread(target=self._work, name="writes incidents", daemon=True)
            self._thread.start()
        if self._thread is not None:
            self._thread.join(seconds)
            if self._thread.is_alive():
                return f"the catalog {self.settings.catalog_shown} does not answer within {seconds:.0f} s"
            self._thread = None
        return self._fault

    def _work(self) -> None:
        try:
            self._write()
            self._failures, self._fault, pause = 0, "", _EVERY
        except Exception as error:  # drivers and catalogs raise errors of any type
            self._failures += 1
            self._fault = f"the catalog {self.settings.catalog_shown} takes no closed incidents: {error_line(error)}"
            pause = growing_pause(self._failures, _FIRST_PAUSE, _LONGEST_PAUSE)
        self._again_at = time.monotonic() + pause

    def _write(self) -> None:
        closed = self.store.closed()
        missing = [each for each in closed if each.id not in self._recorded]
        if missing:
            table = Appendable(open_lake(self.settings), INCIDENTS_TABLE)

            def _append() -> None:
                known = table.rows(one_of("incident_id", [each.id for each in missing]), ("incident_id",))
                there = set(known["incident_id"].to_pylist())
                rows = [_row(each, self.store.location) for each in missing if each.id not in there]
                if rows:
                    table.commit(TableCommit(rows_of(table.schema, rows)))

            until_committed(_append, INCIDENTS_TABLE.name, look_again=table.refresh)
        self._recorded = {each.id for each in closed}


def _row(incident: Incident, location: str) -> Mapping[str, Any]:
    deadlines = [each.deadline for each in incident.assets if each.deadline is not None]
    note = incident.acknowledged
    return {
        "incident_id": incident.id,
        "code_location": location,
        "opened_at": _time(incident.opened_at),
        "closed_at": _time(incident.closed_at),
        "cause_kind": str(incident.cause.kind),
        "cause_subject": incident.cause.subject,
        "cause": incident.cause.said,
        "was_late": incident.is_late,
        "first_deadline_at": _time(min(deadlines, default=None)),
        "asset_count": len(incident.assets),
        "assets": ", ".join(each.asset for each in incident.assets),
        "owners": ", ".join(incident.owners),
        "acknowledged_because": note.because if note is not None else None,
        "messages_sent": sum(step.what in _SENT for step in incident.timeline),
    }


def _time(at: float | None) -> datetime | None:
    return None if at is None else datetime.fromtimestamp(at, UTC)
