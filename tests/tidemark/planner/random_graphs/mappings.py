"""How an input's partitions map to its reader's: the ways of Dagster, a user's own, and broken ones.

The oracle asks the mappings themselves which partitions a partition reads; they are Dagster's, not the planner's.
"""

from collections.abc import Iterable
from typing import Any

import dagster as dg
from dagster._core.definitions.partitions.mapping import UpstreamPartitionsResult

from tests.tidemark.planner.random_graphs.shapes import LENGTH, STATIC, TIMES, Read, World, definition


class Shifted(dg.PartitionMapping):
    """A user's own: a static key reads itself and the one before."""

    @property
    def description(self) -> str:
        return "itself and the one before"

    def validate_partition_mapping(self, *args: Any, **kwargs: Any) -> None:
        """Any two definitions will do."""

    def get_upstream_mapped_partitions_result_for_partitions(
        self, downstream_partitions_subset: Any, downstream_partitions_def: Any, upstream_partitions_def: Any, *_: Any
    ) -> Any:
        wanted = {k for key in downstream_partitions_subset.get_partition_keys() for k in _before(key)}
        return UpstreamPartitionsResult(
            partitions_subset=upstream_partitions_def.subset_with_partition_keys(wanted),
            required_but_nonexistent_subset=upstream_partitions_def.empty_subset(),
        )

    def get_downstream_partitions_for_partitions(
        self, upstream_partitions_subset: Any, upstream_partitions_def: Any, downstream_partitions_def: Any, *_: Any
    ) -> Any:
        changed = set(upstream_partitions_subset.get_partition_keys())
        return downstream_partitions_def.subset_with_partition_keys(
            key for key in STATIC if changed & set(_before(key))
        )


def _before(key: str) -> Iterable[str]:
    at = STATIC.index(key)
    return STATIC[max(0, at - 1) : at + 1]


class Raising(dg.IdentityPartitionMapping):
    """A user's mapping with a defect, for some partitions or for all."""

    def get_upstream_mapped_partitions_result_for_partitions(
        self, downstream_partitions_subset: Any, *args: Any, **kwargs: Any
    ) -> Any:
        raise ValueError("the author of this mapping made a mistake")

    def get_downstream_partitions_for_partitions(self, upstream_partitions_subset: Any, *args: Any, **more: Any) -> Any:
        raise ValueError("the author of this mapping made a mistake")


class SometimesRaising(dg.IdentityPartitionMapping):
    """A user's mapping that works for nothing but static keys of two letters."""

    def get_upstream_mapped_partitions_result_for_partitions(
        self, downstream_partitions_subset: Any, *args: Any, **kwargs: Any
    ) -> Any:
        _refuse(downstream_partitions_subset)
        return super().get_upstream_mapped_partitions_result_for_partitions(
            downstream_partitions_subset, *args, **kwargs
        )

    def get_downstream_partitions_for_partitions(self, upstream_partitions_subset: Any, *args: Any, **more: Any) -> Any:
        _refuse(upstream_partitions_subset)
        return super().get_downstream_partitions_for_partitions(upstream_partitions_subset, *args, **more)


def _refuse(subset: Any) -> None:
    if any(len(key) > 2 for key in subset.get_partition_keys()):
        raise ValueError("a key of more than two letters")


WAYS: dict[str, Any] = {
    "finer": lambda: dg.TimeWindowPartitionMapping(allow_nonexistent_upstream_partitions=True),
    "before": lambda: dg.TimeWindowPartitionMapping(start_offset=-1, end_offset=-1),
    "around": lambda: dg.TimeWindowPartitionMapping(start_offset=-1),
    "all": dg.AllPartitionMapping,
    "last": dg.LastPartitionMapping,
    "specific": lambda: dg.SpecificPartitionsPartitionMapping([STATIC[0]]),
    "static": lambda: dg.StaticPartitionMapping({STATIC[0]: STATIC[1], STATIC[1]: STATIC[2], STATIC[2]: STATIC[0]}),
    "dimension": lambda: dg.MultiToSingleDimensionPartitionMapping("day"),
    "other dimension": lambda: dg.MultiToSingleDimensionPartitionMapping("of"),
    "own": Shifted,
    "raises": Raising,
    "raises sometimes": SometimesRaising,
}
"""Mappings that are written down in a declaration; an empty way is Dagster's default."""

VOLATILE = ("all", "last")
"""Ways that give other partitions as time goes by."""


def ways(theirs: str, ours: str) -> list[str]:
    """How partitions of one grain can be read by another's."""
    if theirs == "single" or (ours == "single" and theirs == "single"):
        return [""]
    if ours == "single":
        return ["", "", "last", "all", *(["specific"] if theirs == "static" else [])]
    if theirs == ours:
        of_time = ["before", "around"] if theirs in ("days", "hours", "weekdays") else []
        return ["", "", "", *of_time, *(["static", "own"] if theirs == "static" else [])]
    if theirs in TIMES and ours in TIMES:
        if "weekdays" in (theirs, ours):
            return ["last"]
        return ["finer", "finer", "last"] if LENGTH[theirs] <= LENGTH[ours] else ["", "", "last"]
    if theirs == "days" and ours.startswith("days x"):
        return ["dimension"]
    if ours == "days" and theirs.startswith("days x"):
        return ["dimension"]
    if (theirs, ours) in (("static", "days x static"), ("dynamic", "days x dynamic")):
        return ["other dimension"]
    if (ours, theirs) in (("static", "days x static"), ("dynamic", "days x dynamic")):
        return ["other dimension"]
    return ["all", *(["specific"] if theirs == "static" else []), *(["last"] if theirs in TIMES else [])]


class Readings:
    """Which partitions a partition reads, by the mappings themselves, at a moment."""

    def __init__(self, world: World, store: Any) -> None:
        self._world, self._store = world, store
        self._by = {table.key: definition(world, table.grain) for table in world.tables}
        self._known: dict[tuple[str, Read, str | None], tuple[str | None, ...]] = {}

    def of(self, key: str, read: Read, partition: str | None, now: Any) -> tuple[str | None, ...]:
        """The partitions of an input that a partition reads and that exist; none where the mapping raises."""
        theirs, ours = self._by[read.key], self._by[key]
        if theirs is None:
            return (None,)
        if ours is None and read.way in ("", "all"):
            with dg.partition_loading_context(now, self._store):
                return tuple(theirs.get_partition_keys())
        if theirs == ours and read.way == "":
            return (partition,)
        lasting = read.way not in VOLATILE and "dynamic" not in self._world.table(read.key).grain
        at = (key, read, partition)
        if lasting and at in self._known:
            return self._known[at]
        found = self._ask(read, partition, ours, theirs, now)
        if lasting and found and read.way not in ("finer", "around"):
            self._known[at] = found
        return found

    def _ask(self, read: Read, partition: str | None, ours: Any, theirs: Any, now: Any) -> tuple[str | None, ...]:
        mapping = WAYS[read.way]() if read.way else dg.TimeWindowPartitionMapping()
        try:
            with dg.partition_loading_context(now, self._store):
                subset = None if ours is None else ours.subset_with_partition_keys([partition])
                result = mapping.get_upstream_mapped_partitions_result_for_partitions(subset, ours, theirs)
                return tuple(sorted(result.partitions_subset.get_partition_keys()))
        except Exception:
            return ()

    def partitions(self, key: str, now: Any) -> list[str | None]:
        """The partitions of an asset that exist."""
        by = self._by[key]
        if by is None:
            return [None]
        with dg.partition_loading_context(now, self._store):
            return list(by.get_partition_keys())
