"""Overrides: pauses, skips and rebuilds of assets or some of their partitions, which a person requests.

Pure. Belongs here: the records, and which one applies to a partition. Does not belong here: how they are stored
(`engine.override_store`), how a person names assets (`cli.override_selection`), and their effects on decisions
(`planner.staleness`, `planner.evaluate`).

A pause is about time: until its end nothing is requested. A skip and a rebuild are about events: both carry the
storage id of the last event at the time of the command. Work that was pending before a skip is left out. A
rebuild builds the partitions again that were built before it. If both cover a partition, the later one applies. The
earlier one applies again if the later one is ended.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property
from typing import Any, Protocol

from dagster_tidemark.planner.graph import Node
from dagster_tidemark.planner.wording import moment
from dagster_tidemark.sources.feed import Partition


class Ordered(Protocol):
    """Partitions with an order, as a `Node` has. `problem` returns why a key is not a partition."""

    @property
    def order(self) -> Callable[[Partition], Any]: ...

    @property
    def problem(self) -> Callable[[Partition], str | None]: ...


class OverrideKind(StrEnum):
    """Kind of an override, as its command is called."""

    PAUSE = "pause"
    SKIP = "skip"
    REBUILD = "rebuild"


@dataclass(frozen=True)
class Override:
    """A person's command about some assets. All times are Unix seconds.

    Args:
        what: The selection as the person typed it.
        assets: Keys of the selected assets, at the time of the command.
        streams: Names of the selected streams. Only a pause concerns a stream.
        keys: The only partitions that it covers. Without `keys` and `first` it covers all.
        first: First partition of the range that it covers, with `last`.
        by: The person.
        as_of: Storage id of the last event at the time of the command.
        until: End of a pause; None if it lasts until it is resumed.
        codes: Code versions of the assets at the time of a skip.
        location: The code location of the assets.
        ended_at: Time when it was ended or, for a rebuild, found complete. None while it applies.
        ended_by: The person who ended it; empty for a complete rebuild.
    """

    id: str
    kind: OverrideKind
    what: str
    assets: tuple[str, ...]
    by: str
    reason: str
    at: float
    as_of: int = 0
    until: float | None = None
    streams: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    first: str | None = None
    last: str | None = None
    codes: Mapping[str, str | None] = field(default_factory=dict)
    location: str = ""
    ended_at: float | None = None
    ended_by: str = ""

    @property
    def partitions(self) -> str:
        """The covered partitions in words; empty if it covers all."""
        return f"{self.first}..{self.last}" if self.first is not None else ", ".join(self.keys)

    @property
    def whole(self) -> bool:
        """True if it covers all partitions of its assets."""
        return self.first is None and not self.keys

    def lasts(self, now: float) -> bool:
        """Return True if it applies at a time: nobody has ended it, and a pause has not reached its end."""
        return self.ended_at is None and (self.until is None or now < self.until)

    def covers(self, asset: Ordered, partition: Partition) -> bool:
        """Return True if a partition of one of its assets is among its partitions.

        If the asset no longer has the ends of a range, a pause covers all partitions: nothing may run by mistake.
        """
        if self.first is not None:
            if asset.problem(self.first) or asset.problem(self.last):
                return self.kind is OverrideKind.PAUSE
            if partition is None:
                return False
            return bool(asset.order(self.first) <= asset.order(partition) <= asset.order(self.last))
        return not self.keys or partition in self.keys

    def overlaps(self, asset: Ordered, first: Partition, last: Partition) -> bool:
        """Return True if it covers a partition of a range of one of its assets."""
        if self.whole or self.covers(asset, first) or self.covers(asset, last):
            return True
        own = [key for key in (self.first, *self.keys) if key is not None and not asset.problem(key)]
        return any(_is_within(asset.order(key), asset.order(first), asset.order(last)) for key in own)

    def told(self) -> str:
        """Return the person, the end and the reason in words: `by anna until 2026-11-27 12:00:00 UTC: migration`."""
        if self.kind is not OverrideKind.PAUSE:
            return f"by {self.by}: {self.reason}" if self.reason else f"by {self.by}"
        end = "it is resumed" if self.until is None else moment(self.until)
        return f"by {self.by} until {end}: {self.reason}"


@dataclass(frozen=True)
class Overrides:
    """The overrides that may apply to the assets of a graph, the oldest first."""

    records: tuple[Override, ...] = ()

    @classmethod
    def of(cls, records: Iterable[Override], place: Callable[[int], int] = lambda id: id) -> "Overrides":
        """Return the overrides that nobody has ended.

        Args:
            place: Returns the place of an event in the order of events, from its storage id.
        """
        lasting = (each for each in records if each.ended_at is None)
        placed = (replace(each, as_of=at) if (at := place(each.as_of)) != each.as_of else each for each in lasting)
        return cls(tuple(sorted(placed, key=lambda each: (each.as_of, each.at, each.id))))

    def pause_of(self, node: Node, partition: Partition, now: float) -> Override | None:
        """Return the pause of a partition that ends last, or None.

        Assets that one operation builds are paused together, because no run can build only some of them.
        """
        if not self.pauses:
            return None
        keys = {node.key, *node.together}
        found = (each for key in keys for each in self.pauses.get(key, ()))
        lasting = [each for each in found if each.lasts(now) and each.covers(node, partition)]
        return max(lasting, key=lambda each: float("inf") if each.until is None else each.until, default=None)

    def pauses_of_asset(self, key: str, now: float) -> list[Override]:
        """Return the pauses that apply to an asset or some of its partitions."""
        return [each for each in self.pauses.get(key, ()) if each.lasts(now)]

    def is_paused(self, node: Node, now: float) -> bool:
        """Return True if all partitions of an asset are paused."""
        return any(each.whole for key in {node.key, *node.together} for each in self.pauses_of_asset(key, now))

    def cut_of(self, node: Node, partition: Partition) -> Override | None:
        """Return the latest skip or rebuild that covers a partition, or None."""
        if not self.cuts:
            return None
        return next((each for each in reversed(self.cuts.get(node.key, ())) if each.covers(node, partition)), None)

    def skip_of(self, node: Node, partition: Partition) -> Override | None:
        """Return the skip of a partition, or None. A later rebuild replaces a skip."""
        cut = self.cut_of(node, partition)
        return cut if cut is not None and cut.kind is OverrideKind.SKIP else None

    def unfinished_rebuilds(self, node: Node, partition: Partition, built_as_of: int | None) -> list[Override]:
        """Return the rebuilds of a partition that no run has carried out, also those that a later skip holds back.

        Args:
            built_as_of: Storage id up to which the last build read its inputs. None if the partition was never built:
                then only a rebuild after a skip concerns it.
        """
        covering = [each for each in self.cuts.get(node.key, ()) if each.covers(node, partition)]
        if built_as_of is not None:
            return [each for each in covering if each.kind is OverrideKind.REBUILD and each.as_of > built_as_of]
        first = next((n for n, each in enumerate(covering) if each.kind is OverrideKind.SKIP), len(covering))
        return [each for each in covering[first:] if each.kind is OverrideKind.REBUILD]

    @cached_property
    def pauses(self) -> Mapping[str, list[Override]]:
        """The pauses by asset."""
        return self._by_asset(OverrideKind.PAUSE)

    @cached_property
    def cuts(self) -> Mapping[str, list[Override]]:
        """The skips and rebuilds by asset, the oldest first."""
        return self._by_asset(OverrideKind.SKIP, OverrideKind.REBUILD)

    def _by_asset(self, *kinds: OverrideKind) -> dict[str, list[Override]]:
        found: dict[str, list[Override]] = {}
        for each in self.records:
            for key in each.assets if each.kind in kinds else ():
                found.setdefault(key, []).append(each)
        return found


def _is_within(place: Any, first: Any, last: Any) -> bool:
    """Return True if a place is in a range. A range of keys with several dimensions is a range in each of them."""
    if isinstance(place, tuple):
        return all(_is_within(*each) for each in zip(place, first, last, strict=True))
    return bool(first <= place <= last)


def changed_assets(before: Overrides, after: Overrides) -> set[str]:
    """Return the assets whose skips or rebuilds differ."""
    keys = before.cuts.keys() | after.cuts.keys()
    return {key for key in keys if before.cuts.get(key) != after.cuts.get(key)}


def without(records: Iterable[Override], ids: Iterable[str], *, at: float, by: str) -> tuple[Override, ...]:
    """Return the records, with some of them ended by a person."""
    ended = set(ids)
    return tuple(
        replace(each, ended_at=at, ended_by=by) if each.id in ended and each.ended_at is None else each
        for each in records
    )
