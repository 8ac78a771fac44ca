"""What is remembered of an event: changes, materializations, failures, runs; and which of them contains which.

Belongs here: the records, and what follows from two of them alone. Does not belong here: how they are collected
(`planner.history`).
"""

from collections.abc import Collection
from dataclasses import dataclass, field
from enum import StrEnum

from dagster_tidemark.planner.contracts import Window
from dagster_tidemark.planner.graph import Input, Target

SAMPLES = 20
"""Durations of runs that are remembered of an asset."""

DEFAULT_LEAD = 60.0
FEW = 8
"""A run over more partitions says nothing about how long one takes."""

_TOO_FEW_TO_TELL = 3
_DAY = 86_400.0


class Outcome(StrEnum):
    """How a run ended."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELED = "canceled"
    """By a person."""
    LOST = "lost"
    """With the platform: its process died, or it never began. It says nothing of what it was to build."""


@dataclass(frozen=True, slots=True)
class Change:
    """A change of a partition's content.

    Args:
        arrived_at: Unix seconds, of the data at the sources. None: rebuilt with other content, and nothing arrived.
        run_id: The run that made it, if one did.
    """

    id: int
    arrived_at: float | None
    run_id: str | None = None


@dataclass(frozen=True, slots=True)
class Built:
    """The latest materialization of a partition, by a run that was created at storage id `as_of`.

    Args:
        started_at: When the run was created, in Unix seconds.
        code_version: Of the code that built it; None where it says none.
    """

    id: int
    as_of: int
    run_id: str
    started_at: float = 0.0
    code_version: str | None = None


@dataclass(frozen=True)
class Failure:
    """Attempts that ended without building a partition, since it was last built.

    Args:
        attempts: Those that failed, in a row.
        as_of: When the last one was created.
        lost: Those in a row that were lost with the platform; 0 if the last one failed.
        seconds: How long the last one lasted.
    """

    attempts: int
    as_of: int
    ended_at: float
    code_version: str | None = None
    lost: int = 0
    seconds: float = 0.0


@dataclass(frozen=True)
class Materialization:
    """A partition was written, by a run that was created at storage id `as_of`; `at` in Unix seconds."""

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
        planned: What it still has to build, to the id of its planned event.
        created_at: When the first of those was written.
        as_of: The id of the first of those: it sees at least what is older.
        written: What it has built of an asset whose other partitions it has not written down yet.
        built: How many partitions of each asset it has built.
        run_id: Its id: one text for all partitions that it builds. Each event has a copy, of 96 bytes.
    """

    created_at: float = 0.0
    as_of: int = 0
    planned: dict[Target, int] = field(default_factory=dict)
    written: dict[str, list[Materialization]] = field(default_factory=dict)
    built: dict[str, int] = field(default_factory=dict)
    run_id: str = ""


def lead_of(samples: Collection[float]) -> float:
    """Seconds a run takes, by the last ones: the longest, but of more than a few at most twice the second longest.

    The longest, because what is promised for nine o'clock has to be there also if the run is slow again; a single
    outlier (a run that hung for an hour) would make the next twenty start that much too early.
    """
    if not samples:
        return DEFAULT_LEAD
    *_, second, longest = [0.0, *sorted(samples)]
    return min(longest, 2 * second) if len(samples) > _TOO_FEW_TO_TELL else longest


def contains(built: Built, change: Change) -> bool:
    """Whether a materialization contains a change."""
    return change.id <= built.as_of or (change.run_id is not None and change.run_id == built.run_id)


def reaches(read: Input, arrived_at: float | None, window: Window | None) -> bool:
    """Whether a change of an input that arrived at a time makes a built partition of this window stale."""
    if read.use_latest:
        return False
    if read.ripple_days is None or arrived_at is None or window is None:
        return True
    last = arrived_at - arrived_at % _DAY + _DAY  # the UTC day it arrived on ends then
    return window.start < last and window.end > last - read.ripple_days * _DAY
