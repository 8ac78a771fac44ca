"""Context for Dagster's partitions definitions and mappings, as of the planner's moment.

Dagster determines the existing partitions from a context: a time, and a store of dynamic partitions. Belongs here: this
context, made from the planner's `Moment`, so that answers depend on neither the clock nor an instance. The parts of
Dagster used here are not annotated as public: tests/tidemark/automation/test_adapter.py tests them.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime

import dagster as dg
from dagster._core.definitions.partitions.context import partition_loading_context
from dagster._core.definitions.partitions.utils import generate_partition_key_based_definition_id
from dagster._core.instance.types import DynamicPartitionsStore
from dagster._core.types.pagination import PaginatedResults

from dagster_tidemark.planner.graph import Moment

LATER = datetime(2200, 1, 1, tzinfo=UTC).timestamp()
"""Distant time (Unix seconds): all time partitions of any plan exist before it."""


class _Store(DynamicPartitionsStore):
    """Store of a moment's dynamic partitions."""

    def __init__(self, moment: Moment) -> None:
        self._moment = moment

    def get_dynamic_partitions(self, partitions_def_name: str) -> Sequence[str]:
        return list(self._moment.dynamic.get(partitions_def_name, ()))

    def get_paginated_dynamic_partitions(
        self, partitions_def_name: str, limit: int, ascending: bool, cursor: str | None = None
    ) -> PaginatedResults[str]:
        keys = self.get_dynamic_partitions(partitions_def_name)
        return PaginatedResults.create_from_sequence(keys, limit=limit, ascending=ascending, cursor=cursor)

    def has_dynamic_partition(self, partitions_def_name: str, partition_key: str) -> bool:
        return partition_key in self._moment.dynamic.get(partitions_def_name, ())

    def get_dynamic_partitions_definition_id(self, partitions_def_name: str) -> str:
        return generate_partition_key_based_definition_id(self.get_dynamic_partitions(partitions_def_name))


@contextmanager
def as_of(moment: Moment, at: float | None = None) -> Iterator[None]:
    """Let Dagster evaluate partitions as of a moment within the block.

    Args:
        at: Replaces the time of the moment (Unix seconds).
    """
    effective = datetime.fromtimestamp(moment.now if at is None else at, UTC)
    _forget()
    try:
        with partition_loading_context(effective, _Store(moment)):
            yield
    finally:
        _forget()


def _forget() -> None:
    # Dagster caches these answers by key, regardless of the time and the dynamic partitions. A partition that was
    # requested before it exists would stay invisible, and a removed one visible.
    dg.TimeWindowPartitionsDefinition.time_windows_for_partition_keys.cache_clear()
    dg.MultiPartitionsDefinition._get_partition_keys.cache_clear()
