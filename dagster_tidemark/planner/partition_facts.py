"""Facts about each partition that the event log names.

One record for each partition, in a dictionary for each asset: a history of millions of partitions has to fit into the
memory of a code server. Five dictionaries by asset and partition take 300 bytes more for each partition.

Belongs here: where the facts are kept. Does not belong here: how an event changes them (`planner.history`).
"""

from collections.abc import Iterator
from dataclasses import dataclass

from dagster_tidemark.planner.event_records import Built, Change
from dagster_tidemark.planner.graph import Target
from dagster_tidemark.sources.feed import Partition


@dataclass(slots=True)
class PartitionRecord:
    """Facts of the event log about one partition.

    Args:
        changes: Its changes, oldest first: the latest, and earlier ones that a reader does not contain.
        first_arrival: When its first data arrived (Unix seconds).
        version: Data version of its content. It outlives a wipe.
        listed_at: When the source was listed that had this version (Unix seconds), for partitions of sources.
        built: Its latest materialization by a run.
    """

    changes: tuple[Change, ...] = ()
    first_arrival: float | None = None
    version: str | None = None
    listed_at: float | None = None
    built: Built | None = None


_NONE = PartitionRecord()
_NO_PARTITIONS: dict[Partition, PartitionRecord] = {}


class PartitionFacts:
    """The facts about all partitions. An unknown partition has empty facts."""

    def __init__(self) -> None:
        self._of: dict[str, dict[Partition, PartitionRecord]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._of.values()))

    def __iter__(self) -> Iterator[Target]:
        return ((asset, partition) for asset, known in self._of.items() for partition in known)

    def of(self, target: Target) -> PartitionRecord:
        """Return the facts about a partition, to read them."""
        return self._of.get(target[0], _NO_PARTITIONS).get(target[1], _NONE)

    def to_change(self, target: Target) -> PartitionRecord:
        """Return the facts about a partition, to change them."""
        known = self._of.setdefault(target[0], {})
        found = known.get(target[1])
        if found is None:
            found = known[target[1]] = PartitionRecord()
        return found

    def put(self, target: Target, facts: PartitionRecord) -> None:
        """Replace the facts about a partition."""
        self._of.setdefault(target[0], {})[target[1]] = facts

    def forget(self, target: Target) -> None:
        """Forget the facts about a partition."""
        self._of.get(target[0], {}).pop(target[1], None)

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
            for asset, known in self._of.items()
            for partition, facts in known.items()
            if facts.built is not None
        }

    def assets_built(self) -> Iterator[str]:
        """Yield each asset that a run has built, with or without anything to write."""
        for asset, known in self._of.items():
            if any(facts.built is not None for facts in known.values()):
                yield asset
