"""Facts about each partition that the event log names.

One record for each partition, in a dictionary for each asset: a history of millions of partitions has to fit into the
memory of a code server. Five dictionaries by asset and partition take 300 bytes more for each partition.

Belongs here: where the facts are kept, also those about partition keys, which no event records. Does not belong here:
how an event changes them (`planner.history`).
"""

import contextlib
from collections.abc import Collection, Iterator, Set
from dataclasses import dataclass, field

from dagster_tidemark.planner.event_records import Built, Change
from dagster_tidemark.planner.graph import Target
from dagster_tidemark.sources.feed import Partition


class PartitionRecord:
    """Facts of the event log about one partition.

    Args:
        changes: Its changes, oldest first: the latest, and earlier ones that a reader does not contain.
        first_arrival: When its first data arrived (Unix seconds).
        version: Data version of its content. It outlives a wipe.
        listed_at: When the source was listed that had this version (Unix seconds), for partitions of sources.
        built: Its latest materialization by a run.
    """

    __slots__ = ("_changes", "_version", "built", "first_arrival", "listed_at")

    def __init__(
        self,
        changes: tuple[Change, ...] = (),
        first_arrival: float | None = None,
        version: str | None = None,
        listed_at: float | None = None,
        built: Built | None = None,
    ) -> None:
        self.changes, self.version = changes, version
        self.first_arrival, self.listed_at, self.built = first_arrival, listed_at, built

    @property
    def changes(self) -> tuple[Change, ...]:
        """The changes, oldest first. Only `PartitionFacts.change` replaces them."""
        return self._changes if isinstance(self._changes, tuple) else (self._changes,)

    @changes.setter
    def changes(self, changes: tuple[Change, ...]) -> None:
        # Most partitions have one change. A tuple around it would take 64 bytes.
        self._changes: Change | tuple[Change, ...] = changes[0] if len(changes) == 1 else changes

    @property
    def version(self) -> str | None:
        """The data version."""
        return self._version.hex() if isinstance(self._version, bytes) else self._version

    @version.setter
    def version(self, version: str | None) -> None:
        self._version: bytes | str | None = version and _packed(version)


def _packed(version: str) -> bytes | str:
    """Return a hash of 64 digits as bytes, which take 48 bytes less; any other version as it is."""
    with contextlib.suppress(ValueError):
        if len(version) == 64 and (packed := bytes.fromhex(version)).hex() == version:
            return packed
    return version


_NONE = PartitionRecord()
_Records = dict[Partition, PartitionRecord]
_NO_PARTITIONS: _Records = {}


class PartitionFacts:
    """The facts about all partitions. An unknown partition has empty facts."""

    def __init__(self) -> None:
        # The keys of the first are the partitions with content. A separate set of them would take more memory.
        self._with_content: dict[str, _Records] = {}
        self._without: dict[str, _Records] = {}

    def __len__(self) -> int:
        return sum(len(known) for _, known in self._records())

    def __iter__(self) -> Iterator[Target]:
        return ((asset, partition) for asset, known in self._records() for partition in known)

    def _records(self) -> Iterator[tuple[str, _Records]]:
        yield from self._with_content.items()
        yield from self._without.items()

    def of(self, target: Target) -> PartitionRecord:
        """Return the facts about a partition, to read them."""
        asset, partition = target
        found = self._with_content.get(asset, _NO_PARTITIONS).get(partition)
        return found or self._without.get(asset, _NO_PARTITIONS).get(partition, _NONE)

    def to_change(self, target: Target) -> PartitionRecord:
        """Return the facts about a partition, to change all but its changes."""
        found = self.of(target)
        if found is _NONE:
            found = PartitionRecord()
            self.put(target, found)
        return found

    def change(self, target: Target, changes: tuple[Change, ...]) -> None:
        """Replace the changes of a partition."""
        facts = self.to_change(target)
        facts.changes = changes
        if bool(changes) != (target[1] in self.with_content(target[0])):
            self.put(target, facts)

    def put(self, target: Target, facts: PartitionRecord) -> None:
        """Replace the facts about a partition."""
        self.forget(target)
        into = self._with_content if facts.changes else self._without
        into.setdefault(target[0], {})[target[1]] = facts

    def forget(self, target: Target) -> None:
        """Forget the facts about a partition."""
        for known in (self._with_content, self._without):
            known.get(target[0], _NO_PARTITIONS).pop(target[1], None)

    def with_content(self, asset: str) -> Set[Partition]:
        """Return the partitions of an asset that have content. Later events change the returned set."""
        return self._with_content.get(asset, _NO_PARTITIONS).keys()

    def without_content(self) -> Iterator[Target]:
        """Yield each partition with facts but no content, such as a wiped one."""
        return ((asset, partition) for asset, known in self._without.items() for partition in known)

    def assets_with_content(self) -> set[str]:
        """Return each asset that has a partition with content."""
        return {asset for asset, known in self._with_content.items() if known}

    def changes(self, target: Target) -> tuple[Change, ...]:
        """Return the changes of a partition; empty if it has no content."""
        return self.of(target).changes

    def built(self, target: Target) -> Built | None:
        """Return the latest materialization of a partition by a run."""
        return self.of(target).built

    def is_built(self, target: Target) -> bool:
        """Return True if a run has built a partition."""
        return self.of(target).built is not None

    def first_arrival(self, target: Target) -> float | None:
        """Return when the first data of a partition arrived."""
        return self.of(target).first_arrival

    def version(self, target: Target) -> str | None:
        """Return the data version of a partition's content."""
        return self.of(target).version

    def builds(self) -> dict[Target, Built]:
        """Return the latest materialization of each partition that a run has built."""
        return {
            (asset, partition): facts.built
            for asset, known in self._records()
            for partition, facts in known.items()
            if facts.built is not None
        }

    def assets_built(self) -> Iterator[str]:
        """Yield each asset that a run has built, with or without anything to write."""
        for asset, known in self._records():
            if any(facts.built is not None for facts in known.values()):
                yield asset


@dataclass
class DynamicKeys:
    """Facts about partition keys, noticed by comparing the keys at two times.

    Args:
        existing: Keys at the planner's last check, by name of the dynamic partitions definition.
        removed: Time when the removal of a partition was noticed (Unix seconds).
        appeared: Two times between which a new partition appeared (Unix seconds).
        declared: Time when a deploy declared a partition key that had events before (Unix seconds).
    """

    existing: dict[str, Collection[str]] = field(default_factory=dict)
    removed: dict[Target, float] = field(default_factory=dict)
    appeared: dict[Target, tuple[float, float]] = field(default_factory=dict)
    declared: dict[Target, float] = field(default_factory=dict)
