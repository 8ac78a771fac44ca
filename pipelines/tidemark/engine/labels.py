"""The label of a decision in the UI's tab Automation: what matters first, because it is cut after 40 characters.

Does not belong here: the whole reason (`planner.wording` and where it is worked out), which follows the label.
"""

from datetime import UTC, datetime

from pipelines.tidemark.planner.decisions import Decision, State

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
    """Why a partition runs, or when it will. Stable while nothing happens, times in UTC.

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
    if decision.due_for != decision.asset:
        begin = f"starts {_moment(due_at)} for {decision.due_for}"
    elif decision.deadline is None:
        begin = f"starts {_moment(due_at)}"
    else:
        begin = f"due {_moment(decision.deadline)}; starts {_moment(due_at, after=decision.deadline)}"
    if decision.oldest_arrival is None:
        return f"{begin}: {decision.stale}"
    arrived = _moment(decision.oldest_arrival, after=due_at)
    return f"{begin}: {'data' if decision.built else 'first data'} of {arrived}"


def _moment(at: float, after: float | None = None) -> str:
    """A time to the minute; of one on the day of another that was named before, the time of day alone."""
    time = datetime.fromtimestamp(at, UTC)
    same_day = after is not None and datetime.fromtimestamp(after, UTC).date() == time.date()
    return f"{time:%H:%M}" if same_day else f"{time:%a %d %b %H:%M}"
