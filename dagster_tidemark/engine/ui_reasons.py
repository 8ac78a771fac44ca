"""Reasons in the UI's tab Automation: the label of a decision, and the condition that carries a label to the UI.

The UI shows 40 characters, so the main point comes first. Does not belong here: the whole reason (`planner.wording` and
its callers), which follows the label.
"""

from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

import dagster as dg
from dagster import AutomationContext, AutomationResult

from dagster_tidemark.dagster_internals.conditions import EntitySubset
from dagster_tidemark.planner.decisions import Decision, State

_MATTERS_MOST = (
    State.BLOCKED,
    State.UNANSWERED,
    State.BACKING_OFF,
    State.HELD,
    State.PAUSED,
    State.NO_DATA,
    State.AWAITED,
    State.THROTTLED,
    State.WAITING,
    State.REQUESTED,
    State.LEFT,
    State.QUEUED,
    State.RUNNING,
    State.NOT_DUE,
    State.INCOMPLETE,
    State.NO_CONSUMER,
)


def urgency(decision: Decision) -> tuple[int, float, str]:
    """Return a sort key: hindered runs first, unneeded ones last. Decisions of the same state sort by due time."""
    due = decision.deadline if decision.due_at is None else decision.due_at
    return _MATTERS_MOST.index(decision.state), float("inf") if due is None else due, decision.partition or ""


def label(decision: Decision) -> str:
    """Return the reason why a partition runs, or the time when it will. Stable while nothing happens.

    Times are in UTC, or in the time zone of the asset's contract, which is then named.

    Due by its own contract: `due Mon 23 Nov 09:00; starts 08:00: data of 07:12`. Due by a reader's contract: `starts
    Mon 23 Nov 08:00 for marts/report: ...`. Otherwise the state: `run: ...`, `waiting for input: ...`.
    """
    if decision.state is State.REQUESTED:
        return f"run: {decision.reason}"
    if decision.state is not State.NOT_DUE or decision.due_at is None:
        return f"{decision.state}: {decision.reason}"
    return _when(decision, decision.due_at)


def why(decision: Decision) -> str:
    """Return the reason for requesting a partition, in the words of its earlier label: the due time first."""
    return (decision.stale or decision.reason) if decision.due_at is None else _when(decision, decision.due_at)


def _when(decision: Decision, due_at: float) -> str:
    zone = decision.zone
    named = "" if zone == "UTC" else f" {zone}"
    if decision.due_for != decision.asset:
        begin = f"starts {_moment(due_at, zone)}{named} for {decision.due_for}"
    elif decision.deadline is None:
        begin = f"starts {_moment(due_at, zone)}{named}"
    else:
        starts = _moment(due_at, zone, after=decision.deadline)
        begin = f"due {_moment(decision.deadline, zone)}{named}; starts {starts}"
    if decision.oldest_arrival is None:
        return f"{begin}: {decision.stale}"
    arrived = _moment(decision.oldest_arrival, zone, after=due_at)
    return f"{begin}: {'data' if decision.built else 'first data'} of {arrived}"


def _moment(at: float, zone: str, after: float | None = None) -> str:
    """Return a time to the minute, without the date if it is on the same day as `after`."""
    time = datetime.fromtimestamp(at, ZoneInfo(zone))
    same_day = after is not None and datetime.fromtimestamp(after, ZoneInfo(zone)).date() == time.date()
    return f"{time:%H:%M}" if same_day else f"{time:%a %d %b %H:%M}"


class Because(dg.AutomationCondition[Any]):
    """A reason, and the partitions it applies to.

    The text is both label and description. The UI shows the label. Dagster stores an explanation again only if the
    description differs from the stored one.
    """

    requires_cursor = False

    def __init__(self, reason: str) -> None:
        self._reason = reason

    @property
    def name(self) -> str:
        return self._reason

    @property
    def description(self) -> str:
        return self._reason

    def get_label(self) -> str:
        return self._reason

    def evaluate(self, context: AutomationContext[Any]) -> AutomationResult[Any]:
        return AutomationResult(context, true_subset=context.candidate_subset)


def because(
    context: AutomationContext[Any], index: int, reason: str, partitions: EntitySubset[Any]
) -> AutomationResult[Any]:
    """Return the reason as the child result of a condition."""
    child = context.for_child_condition(Because(reason), child_indices=[index], candidate_subset=partitions)
    return AutomationResult(child, true_subset=partitions)
