"""Slots of the run queue that shifts may hold. One slot always remains for runs of tables.

All code locations of an instance share its slots, so their shifts are counted together. Does not belong here: the start
of shifts (`sensors.streams`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable

from dagster import DagsterInstance, DagsterRun, RunRecord

from dagster_tidemark.dagster_internals import run_storage
from dagster_tidemark.tags import STREAM, WORKER

ShiftPost = tuple[str, str, str]
"""Code location, stream and worker. A shift and its successor, which starts before it ends, have the same post."""


def most_shifts(instance: DagsterInstance) -> int | None:
    """Return the most shifts that leave one slot of the run queue for tables; None if the queue has no limit."""
    limit = run_storage.queue_limit(instance)
    return None if limit is None else max(0, limit - 1)


def is_of_location(run: DagsterRun, home: str) -> bool:
    """Return True if a run belongs to a code location, or its location is unknown.

    Args:
        home: The name of the code location; empty if it is unknown. Then every run belongs to it.
    """
    return not home or run_storage.location_of(run) in (None, home)


def held_posts(shifts: Iterable[RunRecord], home: str) -> dict[ShiftPost, int]:
    """Return the posts of unfinished shifts, each with the storage id of its oldest shift.

    Args:
        home: The name of this code location. Shifts of an unknown location count as its own.
    """
    found: dict[ShiftPost, int] = {}
    for record in shifts:
        post = _post_of(record.dagster_run, home)
        found[post] = min(found.get(post, record.storage_id), record.storage_id)
    return found


def without_a_slot(instance: DagsterInstance, run: DagsterRun) -> str:
    """Return the reason why a shift that has just started must end; empty if it may work.

    Sensors of two code locations that look at the same time both find the last slot free. The older shift keeps it.
    """
    most = most_shifts(instance)
    if most is None:
        return ""
    home = run_storage.location_of(run) or ""
    held = held_posts(run_storage.unfinished_shifts(instance), home)
    mine = held.get(_post_of(run, home))
    if mine is None or sum(first < mine for first in held.values()) < most:
        return ""
    return told_of_slots(len(held), [location for location, *_ in held if location != home], most)


def told_of_slots(shifts: int, others: Collection[str], most: int) -> str:
    """Return the reason why a shift may not work, with the remedy.

    Args:
        shifts: The number of all shifts.
        others: The code location of each shift of another location.
        most: The most shifts that may work.
    """
    named = ", ".join(f"{count} of code location {name}" for name, count in sorted(Counter(others).items()))
    return (
        f"shifts would leave no slot for tables: {shifts} shifts{f' ({named})' if named else ''}, {most + 1} slots; "
        f"set concurrency.runs.max_concurrent_runs to {shifts + 1} or more"
    )


def post_of(run: DagsterRun) -> tuple[str, str]:
    """Return the stream and the worker of a shift."""
    return run.tags[STREAM], run.tags.get(WORKER, "0")


def _post_of(run: DagsterRun, home: str) -> ShiftPost:
    location = run_storage.location_of(run)
    return home if location is None else location, *post_of(run)
