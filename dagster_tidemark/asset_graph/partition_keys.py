"""Existence, order and time windows of an asset's partitions, for the planner.

Makes a `Keys` for each kind of Dagster's partitions definitions, with `asset_graph.time_partitions` for time
partitions. All results come from the definition itself. Does not belong here: mappings between the partitions of two
assets (`asset_graph.partition_mappings`).

Results that depend on the key alone are cached forever. The set of existing partitions depends on the `Moment`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import product
from typing import Any

import dagster as dg

from dagster_tidemark.asset_graph.declarations import Refused
from dagster_tidemark.asset_graph.time_partitions import TimePartitions
from dagster_tidemark.dagster_internals.partitions import PartitionsSubset, as_of
from dagster_tidemark.planner.contracts import Window
from dagster_tidemark.planner.graph import Moment
from dagster_tidemark.sources.layout import SEPARATOR, Partition

_NO_KEY = "no partition, but the asset is partitioned"


def ends_of_range(text: str) -> tuple[str, str] | None:
    """Return the first and the last key of a range `A..B` or, as Dagster writes it, `A...B`; None for other text."""
    first, dots, last = text.replace("...", "..").partition("..")
    return (first, last) if dots else None


@dataclass(frozen=True)
class Keys:
    """Partitions of one definition. Functions with the same name as in `graph.Node` have the same meaning.

    Args:
        definition: Dagster's partitions definition; None for an asset without partitions.
        subset: Function that returns Dagster's subset with one partition, even if the partition does not exist yet.
        ends: Function that returns the first and the last existing partition; fewer if less than two exist.
        timed: True if each partition covers one time window.
        dynamic: Function that returns the dynamic keys in a partition's key, each with the name of its definition.
        moving: True if partitions can appear or disappear while the code stays the same.
        odd: Function that returns dynamic keys that were added but are not valid, each with the reason.
        dimensions: For multi-partitions, the `Keys` of each dimension by name, in the key's order; else empty.
    """

    definition: dg.PartitionsDefinition | None
    problem: Callable[[Partition], str | None]
    subset: Callable[[Partition], PartitionsSubset | None]
    ends: Callable[[], Sequence[Partition]]
    keys: Callable[[], Sequence[Partition]]
    exists: Callable[[Partition], bool] = lambda _: True
    order: Callable[[Partition], Any] = lambda _: 0
    follows: Callable[[Partition, Partition], bool] = lambda _first, _second: False
    window: Callable[[Partition], Window | None] = lambda _: None
    exists_from: Callable[[Partition], float] = lambda _: float("-inf")
    dynamic: Callable[[Partition], frozenset[tuple[str, Partition]]] = lambda _: frozenset()
    timed: bool = False
    moving: bool = False
    odd: Callable[[], Mapping[Partition, str]] = dict
    dimensions: Mapping[str, "Keys"] = field(default_factory=dict)


@dataclass
class KeysOf:
    """Factory of the `Keys` of definitions at one moment. Assets with equal definitions share one `Keys`."""

    moment: Moment
    _known: dict[Any, Keys] = field(default_factory=dict)

    def __call__(self, definition: dg.PartitionsDefinition | None) -> Keys:
        """Return the keys of a definition; None means an asset without partitions."""
        try:
            known = self._known.get((type(definition), definition))
        except TypeError:  # the definition is user-defined and not hashable
            return self._made(definition)
        if known is None:
            known = self._known[(type(definition), definition)] = self._made(definition)
        return known

    def _made(self, definition: dg.PartitionsDefinition | None) -> Keys:
        match definition:
            case None:
                return _unpartitioned()
            case dg.TimeWindowPartitionsDefinition():
                return _of_time(TimePartitions(definition, self.moment))
            case dg.MultiPartitionsDefinition():
                return _multi(definition, {d.name: self(d.partitions_def) for d in definition.partitions_defs})
            case dg.StaticPartitionsDefinition():
                return _static(definition)
        return _listed(definition, self.moment)


def split(partition: Partition) -> Sequence[str]:
    """Return the parts of a multi-partition's key, in the order of its dimensions."""
    return (partition or "").split(SEPARATOR)


def joined(parts: Sequence[Partition]) -> Partition:
    """Return the key of a multi-partition from the keys of its dimensions, in the order of the dimensions."""
    return SEPARATOR.join(part or "" for part in parts)


def _unpartitioned() -> Keys:
    return Keys(
        None,
        problem=lambda p: None if p is None else f"partition {p!r}, but the asset is not partitioned",
        subset=lambda _: None,
        ends=lambda: (None,),
        keys=lambda: (None,),
    )


def _of_time(partitions: TimePartitions) -> Keys:
    return Keys(
        partitions.definition,
        problem=partitions.problem,
        subset=partitions.subset,
        ends=partitions.ends,
        keys=partitions.keys,
        exists=partitions.exists,
        order=partitions.order,
        follows=partitions.follows,
        window=partitions.window,
        exists_from=partitions.exists_from,
        timed=True,
        moving=True,
    )


def _static(definition: dg.StaticPartitionsDefinition) -> Keys:
    keys: tuple[Partition, ...] = tuple(definition.get_partition_keys())
    places = {key: place for place, key in enumerate(keys)}
    if "" in places:
        raise Refused("its partitions have the empty key '', which Dagster cannot build: rename that key")

    def _problem(partition: Partition) -> str | None:
        if partition is None:
            return _NO_KEY
        return None if partition in places else f"{partition!r} is not a partition of the asset"

    return Keys(
        definition,
        problem=_problem,
        subset=_subset(definition),
        ends=lambda: _ends(keys),
        keys=lambda: keys,
        exists=lambda p: p in places,
        order=lambda p: places.get(p, -1),
        follows=lambda a, b: a in places and b in places and places[b] - places[a] == 1,
    )


def _listed(definition: dg.PartitionsDefinition, moment: Moment) -> Keys:
    """Return the `Keys` of dynamic partitions or of a user-defined definition, which only lists its present keys.

    The planner never requests a range of such keys, because the keys in the range can change before the run begins.
    """
    named = definition.name if isinstance(definition, dg.DynamicPartitionsDefinition) else None
    known: tuple[object, dict[Partition, int]] = (None, {})

    def _places() -> Mapping[Partition, int]:
        nonlocal known
        at = moment.revision, None if named else moment.now
        if known[0] != at:
            with as_of(moment):
                known = (at, {key: place for place, key in enumerate(definition.get_partition_keys())})
        return known[1]

    return Keys(
        definition,
        problem=lambda p: _NO_KEY if p is None else None,
        subset=_subset(definition),
        ends=lambda: _ends(tuple(_places())),
        keys=lambda: tuple(_places()),
        exists=lambda p: p in _places(),
        order=lambda p: _places().get(p, -1),
        dynamic=lambda p: frozenset({(named, p)} if named is not None else ()),
        moving=True,
    )


def _multi(definition: dg.MultiPartitionsDefinition, dimensions: Mapping[str, Keys]) -> Keys:
    of = list(dimensions.values())
    timed = [place for place, keys in enumerate(of) if keys.timed]
    listed = [place for place, keys in enumerate(of) if not keys.moving]
    # A range has keys of one dimension only. Ranges along different dimensions cannot be joined to one range.
    along = timed[-1] if timed else (listed[-1] if listed else None)
    oldest_first = sorted(range(len(of)), key=lambda place: place not in timed)

    @lru_cache(maxsize=100_000)
    def _problem(partition: Partition) -> str | None:
        if partition is None:
            return _NO_KEY
        parts = split(partition)
        if len(parts) != len(of):
            return f"{partition!r} is not a key of the dimensions {SEPARATOR.join(dimensions)}"
        wrong = ((name, keys.problem(part)) for (name, keys), part in zip(dimensions.items(), parts, strict=True))
        return next((f"{name}: {problem}" for name, problem in wrong if problem), None)

    def _window(partition: Partition) -> Window | None:
        if len(timed) != 1 or _problem(partition):
            return None
        return of[timed[0]].window(split(partition)[timed[0]])

    def _exists_from(partition: Partition) -> float:
        if _problem(partition):
            return float("inf")
        return max(keys.exists_from(part) for keys, part in zip(of, split(partition), strict=True))

    def _exists(partition: Partition) -> bool:
        if _problem(partition):
            return False
        return all(keys.exists(part) for keys, part in zip(of, split(partition), strict=True))

    def _dynamic(partition: Partition) -> frozenset[tuple[str, Partition]]:
        if _problem(partition):
            return frozenset()
        return frozenset().union(*(keys.dynamic(part) for keys, part in zip(of, split(partition), strict=True)))

    def _order(partition: Partition) -> Any:
        parts = split(partition)
        return tuple(of[place].order(parts[place]) for place in oldest_first) if len(parts) == len(of) else ()

    def _follows(earlier: Partition, later: Partition) -> bool:
        if along is None or _problem(earlier) or _problem(later):
            return False
        one, other = list(split(earlier)), list(split(later))
        return one[:along] + one[along + 1 :] == other[:along] + other[along + 1 :] and of[along].follows(
            one[along], other[along]
        )

    def _both_ends() -> Sequence[Partition]:
        ends = [keys.ends() for keys in of]
        return _ends([joined([e[0] for e in ends]), joined([e[-1] for e in ends])]) if all(ends) else ()

    def _keys() -> Sequence[Partition]:
        found = (joined(parts) for parts in product(*(keys.keys() for keys in of)))
        return [key for key in found if len(split(key)) == len(of)]

    def _odd() -> Mapping[Partition, str]:
        why = f"contains {SEPARATOR!r}, which separates the dimensions of a key: Dagster cannot build it"
        listed = {name: keys.keys() for name, keys in dimensions.items() if keys.moving and not keys.timed}
        return {
            key: f"the {name} {key!r} {why}" for name, of_it in listed.items() for key in of_it if SEPARATOR in str(key)
        }

    return Keys(
        definition,
        problem=_problem,
        subset=_subset(definition),
        ends=_both_ends,
        keys=_keys,
        exists=_exists,
        order=_order,
        follows=_follows,
        window=_window,
        exists_from=_exists_from,
        dynamic=_dynamic,
        timed=len(timed) == 1,
        moving=any(keys.moving for keys in of),
        odd=_odd,
        dimensions=dimensions,
    )


def _subset(definition: dg.PartitionsDefinition) -> Callable[[Partition], PartitionsSubset]:
    return lambda partition: definition.empty_subset().with_partition_keys([partition or ""])


def _ends(keys: Sequence[Partition]) -> Sequence[Partition]:
    return tuple(dict.fromkeys((*keys[:1], *keys[-1:])))
