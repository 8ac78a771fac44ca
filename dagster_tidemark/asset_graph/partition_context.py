"""Context for Dagster's partitions definitions and mappings, as of the planner's moment.

Dagster determines the existing partitions from a context: a time, and a store of dynamic partitions. Belongs here: this
context, made from the planner's `Moment`, so that answers depend on neither the clock nor an instance.
"""

from contextlib import AbstractContextManager
from datetime import UTC, datetime

from dagster_tidemark.dagster_internals.partitions import evaluated_as_of
from dagster_tidemark.planner.graph import Moment

LATER = datetime(2200, 1, 1, tzinfo=UTC).timestamp()
"""Distant time (Unix seconds): all time partitions of any plan exist before it."""


def as_of(moment: Moment, at: float | None = None) -> AbstractContextManager[None]:
    """Let Dagster evaluate partitions as of a moment within the block.

    Args:
        at: Replaces the time of the moment (Unix seconds).
    """
    effective = datetime.fromtimestamp(moment.now if at is None else at, UTC)
    return evaluated_as_of(effective, lambda name: moment.dynamic.get(name, ()))
