"""The label of a decision in the UI's tab Automation: what matters first, because it is cut after 40 characters.

Does not belong here: the whole reason (`planner.wording` and where it is worked out), which follows the label.
"""

from datetime import datetime
from zoneinfo import ZoneInfo

from dagster_tidemark.planner.decisions import Decision, State

_MATTERS_MOST = (
    State.BLOCKED,
    State.UNANSWERED,
    State.BACKING_OFF,
    State.HELD,
    State.NO_DATA,
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
    """A sort key: first what hinders a run, last what need not run; of equals the one that is due first."""
    due = decision.deadline if decision.due_at is None else decision.due_at
    return _MATTERS_MOST.index(decision.state), float("inf") if due is None else due, decision.partition or ""


def label(decision: Decision) -> str:
    """Return the reason why a partition runs, or the time when it will. Stable while nothing happens.

    Times are in UTC, or in the time zone of the asset's contract, which is then named.

    `due Mon 23 Nov 09:00; starts 08:00: data of 07:12` by its own contract, `starts Mon 23 Nov 08:00 for
    marts/report: ...` by a reader's, else the state: `run: ...`, `waiting for input: ...`.
    """
    if decision.state is State.REQUESTED:
        return f"run: {decision.reason}"
    if decision.state is not State.NOT_DUE or decision.due_at is None:
        return f"{decision.state}: {decision.reason}"
    return _when(decision, decision.due_at)


def why(decision: Decision) -> str:
    """Why a partition is asked for, in the words of its label while it was not due: the due time first."""
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
    """A time to the minute; of one on the day of another that was named before, the time of day alone."""
    time = datetime.fromtimestamp(at, ZoneInfo(zone))
    same_day = after is not None and datetime.fromtimestamp(after, ZoneInfo(zone)).date() == time.date()
    return f"{time:%H:%M}" if same_day else f"{time:%a %d %b %H:%M}"
