"""Spare time: whether maintenance can run now without delaying other work.

Belongs here: the decision, from the plan and the unfinished runs. Does not belong here: which maintenance is due
(`lakehouse.maintenance.due`).
"""

from dataclasses import dataclass

from dagster import DagsterInstance, DagsterRunStatus

from dagster_tidemark.dagster_internals import run_storage
from dagster_tidemark.planner.decisions import Plan, State
from dagster_tidemark.planner.wording import moment, name, names
from dagster_tidemark.tags import MAINTENANCE, STREAM

_LONGEST_RUN = 7 * 86_400.0
"""Seconds after which an unfinished run holds no snapshots any more. Its process is long gone."""
_SOON = (State.NOT_DUE, State.BACKING_OFF)
_WORK = (State.REQUESTED, State.QUEUED, State.THROTTLED)


@dataclass(frozen=True)
class OpenRuns:
    """The unfinished runs of an instance, except those of maintenance.

    Args:
        queued: Number of runs that wait in the queue.
        running: Number of runs that occupy a slot for tables.
        slots: Number of runs of tables that can run at once; None if there is no limit.
        since: Start of the oldest run that may read tables (Unix seconds); infinite if there is none.
        builds: The run that builds each asset.
        maintenance: Ids of the unfinished runs of maintenance.
    """

    queued: int
    running: int
    slots: int | None
    since: float
    builds: dict[str, str]
    maintenance: tuple[str, ...]

    def why_busy(self) -> str:
        """Return why no run of maintenance can be requested; empty if one can."""
        if self.maintenance:
            return f"run {self.maintenance[0][:8]} maintains tables"
        if self.queued:
            return f"{self.queued} runs wait in the queue"
        # Maintenance may take long. A slot must stay free for a contract that becomes due during it.
        left = None if self.slots is None else self.slots - self.running
        if left is not None and left < min(2, self.slots or 1):
            return f"{self.running} of {self.slots} slots are taken, and one must stay free for loads"
        return ""


def open_runs(instance: DagsterInstance, now: float) -> OpenRuns:
    """Return the unfinished runs of an instance."""
    records = run_storage.unfinished_runs(instance)
    others = [record for record in records if MAINTENANCE not in record.dagster_run.tags]
    of_tables = [record for record in others if STREAM not in record.dagster_run.tags]
    queued = [record for record in of_tables if record.dagster_run.status is DagsterRunStatus.QUEUED]
    starts = [record.start_time or record.create_timestamp.timestamp() for record in others]
    return OpenRuns(
        len(queued),
        len(of_tables) - len(queued),
        run_storage.run_slots(instance),
        min((at for at in starts if at > now - _LONGEST_RUN), default=float("inf")),
        {
            key.to_user_string(): record.dagster_run.run_id[:8]
            for record in of_tables
            for key in record.dagster_run.asset_selection or ()
        },
        tuple(r.dagster_run.run_id for r in records if MAINTENANCE in r.dagster_run.tags),
    )


def why_not_now(plan: Plan, seconds: float) -> str:
    """Return why work of some seconds would delay a contract; empty if it would not.

    Overdue partitions that wait for an input or a person do not count, because they need no slot.
    """
    if plan.catching_up:
        return f"the planner is reading the event log: {plan.catching_up}"
    if plan.requests:
        return f"{len(plan.requests)} runs are requested now"
    work = [d for d in plan.decisions.values() if d.state in _WORK]
    if work:
        return f"{names(name(d.target) for d in work)} is {work[0].state}"
    soon = [d for d in plan.decisions.values() if d.state in _SOON and d.due_at is not None]
    first = min(soon, key=lambda d: d.due_at or 0.0, default=None)
    if first is not None and first.due_at is not None and plan.now <= first.due_at <= plan.now + seconds:
        return f"{name(first.target)} is due at {moment(first.due_at)}, and the maintenance may take {seconds:.0f} s"
    return ""
