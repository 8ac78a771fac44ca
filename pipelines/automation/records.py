"""What is remembered of an event: changes, materializations, failures, runs; and which of them contains which.

Belongs here: the records, and what follows from two of them alone. Does not belong here: how they are collected
(`automation.history`).
"""

from dataclasses import dataclass, field

from pipelines.automation.graph import Input, Target
from pipelines.sources.feed import Partition, start_of

SAMPLES = 20
"""Durations of runs that are remembered of an asset."""

_DAY = 86_400.0


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
    """Attempts that ended without building a partition, since it was last built."""

    attempts: int
    as_of: int
    ended_at: float
    code_version: str | None = None


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
    """

    created_at: float = 0.0
    as_of: int = 0
    planned: dict[Target, int] = field(default_factory=dict)
    written: dict[str, list[Materialization]] = field(default_factory=dict)
    built: dict[str, int] = field(default_factory=dict)


def contains(built: Built, change: Change) -> bool:
    """Whether a materialization contains a change."""
    return change.id <= built.as_of or (change.run_id is not None and change.run_id == built.run_id)


def reaches(read: Input, arrived_at: float | None, partition: Partition) -> bool:
    """Whether a change of an input that arrived at a time makes a built partition stale."""
    if read.use_latest:
        return False
    if read.ripple_days is None or arrived_at is None:
        return True
    return 0 <= arrived_at // _DAY - _day_of(partition) < read.ripple_days


def _day_of(partition: Partition) -> float:
    return start_of(partition or "1970-01-01").timestamp() // _DAY
