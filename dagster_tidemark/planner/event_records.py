"""Records made from events (changes, materializations, failures, runs), and the changes that a record contains.

Belongs here: the records, and conclusions from any two records. Does not belong here: how they are collected
(`planner.history`).
"""

from dataclasses import dataclass, field
from enum import StrEnum

from dagster_tidemark.planner.contracts import Window
from dagster_tidemark.planner.graph import Input, Target

_DAY = 86_400.0


class Outcome(StrEnum):
    """How a run ended."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELED = "canceled"
    """Canceled by a person."""
    LOST = "lost"
    """Lost by the platform: its process died, or it never started. This is no failure of its partitions."""


@dataclass(frozen=True, slots=True)
class Change:
    """A change of a partition's content.

    Args:
        arrived_at: When its data arrived at the sources (Unix seconds). None if a rebuild changed it without new data.
        run_id: The run that made it, or None.
    """

    id: int
    arrived_at: float | None
    run_id: str | None = None


@dataclass(frozen=True, slots=True)
class Built:
    """Latest materialization of a partition, by a run that was created at storage id `as_of`.

    Args:
        started_at: When the run was created (Unix seconds).
        code_version: Version of the code that built it, or None.
    """

    id: int
    as_of: int
    run_id: str
    started_at: float = 0.0
    code_version: str | None = None


@dataclass(frozen=True)
class Failure:
    """Attempts since a partition's last build that ended without building it.

    Args:
        attempts: Failed attempts in a row.
        as_of: Storage id at the creation of the last attempt.
        lost: Attempts in a row that the platform lost; 0 if the last attempt failed.
        seconds: Duration of the last attempt.
    """

    attempts: int
    as_of: int
    ended_at: float
    code_version: str | None = None
    lost: int = 0
    seconds: float = 0.0


@dataclass(frozen=True)
class Materialization:
    """Write of a partition, by a run that was created at storage id `as_of`; `at` in Unix seconds."""

    target: Target
    id: int
    run_id: str
    as_of: int
    version: str
    at: float
    started_at: float
    code_version: str | None


@dataclass
class OpenRun:
    """A run that has not ended.

    Args:
        planned: Targets that it still has to build, with the id of their planned event.
        created_at: When the first planned event was written.
        as_of: Id of the first planned event. The run sees all older events.
        written: Writes by asset, until the run has written all its partitions of that asset.
        built: By asset, the number of partitions it has built.
        run_id: Its id, one string for all partitions that it builds. A copy per event would take 96 bytes each.
    """

    created_at: float = 0.0
    as_of: int = 0
    planned: dict[Target, int] = field(default_factory=dict)
    written: dict[str, list[Materialization]] = field(default_factory=dict)
    built: dict[str, int] = field(default_factory=dict)
    run_id: str = ""


def contains(built: Built, change: Change) -> bool:
    """Return True if a materialization contains a change."""
    return change.id <= built.as_of or (change.run_id is not None and change.run_id == built.run_id)


def reaches(read: Input, arrived_at: float | None, window: Window | None) -> bool:
    """Return True if a change of an input, with this arrival, makes a built partition with this window stale."""
    if read.use_latest:
        return False
    if read.ripple_days is None or arrived_at is None or window is None:
        return True
    last = arrived_at - arrived_at % _DAY + _DAY  # end of the UTC day it arrived on
    return window.start < last and window.end > last - read.ripple_days * _DAY
