"""Dagster's partitions: subsets, names of time windows, tags of runs, and evaluation as of a time.

Dagster determines the existing partitions from a context: a time, and a store of dynamic partitions. The planner's
`Moment` gives both, so that results depend on neither the clock nor an instance.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from datetime import UTC, datetime

import dagster as dg
from dagster._core.definitions.partitions.subset import PartitionsSubset as PartitionsSubset
from dagster._core.definitions.partitions.utils import generate_partition_key_based_definition_id
from dagster._core.instance.types import DynamicPartitionsStore
from dagster._core.storage.tags import (
    ASSET_PARTITION_RANGE_END_TAG,
    ASSET_PARTITION_RANGE_START_TAG,
    PARTITION_NAME_TAG,
)
from dagster._time import dst_safe_strftime

from dagster_tidemark.planner.graph import Moment

KeysOf = Callable[[str], Sequence[str]]
"""Function from the name of a dynamic partitions definition to the definition's existing keys."""


def window_name(window: dg.TimeWindow, definition: dg.TimeWindowPartitionsDefinition) -> str:
    """Return the partition key that Dagster gives to a window of a definition."""
    return dst_safe_strftime(window.start, definition.timezone, definition.fmt, definition.cron_schedule)


@contextmanager
def evaluated_as_of(at: datetime, keys_of: KeysOf) -> Iterator[None]:
    """Make Dagster evaluate partitions as of a time during the block, independent of the clock and of any instance.

    Args:
        at: The time, with a time zone.
        keys_of: Function that returns the keys of dynamic partitions.
    """
    _forget()
    try:
        with dg.partition_loading_context(at, _Store(keys_of)):
            yield
    finally:
        _forget()


def _forget() -> None:
    # Dagster caches these results by key, whatever the time and the dynamic partitions. A partition that was looked up
    # before it existed would stay missing, and a removed partition would stay present.
    dg.TimeWindowPartitionsDefinition.time_windows_for_partition_keys.cache_clear()
    dg.MultiPartitionsDefinition._get_partition_keys.cache_clear()


class _Store(DynamicPartitionsStore):
    """Store of dynamic partitions whose keys a function returns."""

    def __init__(self, keys_of: KeysOf) -> None:
        self._keys_of = keys_of

    def get_dynamic_partitions(self, partitions_def_name: str) -> Sequence[str]:
        return list(self._keys_of(partitions_def_name))

    def get_paginated_dynamic_partitions(
        self, partitions_def_name: str, limit: int, ascending: bool, cursor: str | None = None
    ) -> dg.PaginatedResults[str]:
        keys = self.get_dynamic_partitions(partitions_def_name)
        return dg.PaginatedResults.create_from_sequence(keys, limit=limit, ascending=ascending, cursor=cursor)

    def has_dynamic_partition(self, partitions_def_name: str, partition_key: str) -> bool:
        return partition_key in self._keys_of(partitions_def_name)

    def get_dynamic_partitions_definition_id(self, partitions_def_name: str) -> str:
        return generate_partition_key_based_definition_id(self.get_dynamic_partitions(partitions_def_name))


def range_tags(first: str, last: str) -> dict[str, str]:
    """Return the tags of a run over the range of partitions from the first to the last key."""
    return {ASSET_PARTITION_RANGE_START_TAG: first, ASSET_PARTITION_RANGE_END_TAG: last}


def partition_ends(tags: Mapping[str, str]) -> tuple[str | None, ...]:
    """Return the partition of a run, or the first and last partition of its range, from its tags. None means none."""
    if ASSET_PARTITION_RANGE_START_TAG in tags:
        return tags[ASSET_PARTITION_RANGE_START_TAG], tags.get(ASSET_PARTITION_RANGE_END_TAG)
    return (tags.get(PARTITION_NAME_TAG),)


def is_partition_tag(tag: str) -> bool:
    """Return True for tags with the partition key of a run, or with the key's part for one dimension."""
    return tag.startswith(PARTITION_NAME_TAG)


LATER = datetime(2200, 1, 1, tzinfo=UTC).timestamp()
"""A distant time (Unix seconds). All time partitions of any plan exist before it."""


def as_of(moment: Moment, at: float | None = None) -> AbstractContextManager[None]:
    """Make Dagster evaluate partitions as of the planner's moment during the block.

    Args:
        at: Time to use instead of the moment's time (Unix seconds).
    """
    effective = datetime.fromtimestamp(moment.now if at is None else at, UTC)
    return evaluated_as_of(effective, lambda name: moment.dynamic.get(name, ()))
