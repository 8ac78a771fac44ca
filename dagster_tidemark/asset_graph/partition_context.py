"""Evaluates Dagster's partitions definitions and mappings as of the planner's moment.

Dagster determines the existing partitions from a context: a time, and a store of dynamic partitions. Belongs here:
making this context from the planner's `Moment`, so that results depend on neither the clock nor an instance.
"""

from contextlib import AbstractContextManager
from datetime import UTC, datetime

from dagster_tidemark.dagster_internals.partitions import evaluated_as_of
from dagster_tidemark.planner.graph import Moment

LATER = datetime(2200, 1, 1, tzinfo=UTC).timestamp()
"""A distant time (Unix seconds). All time partitions of any plan exist before it."""


def as_of(moment: Moment, at: float | None = None) -> AbstractContextManager[None]:
    """Make Dagster evaluate partitions as of the planner's moment during the block.

    Args:
        at: Time to use instead of the moment's time (Unix seconds).
    """
    effective = datetime.fromtimestamp(moment.now if at is None else at, UTC)
    return evaluated_as_of(effective, lambda name: moment.dynamic.get(name, ()))
