"""What the event log says: what changed, and what each partition was built from.

A fold over events in the order of their storage ids; nothing here asks anybody anything. The planner compares
what is with what was incorporated, so an event seen late, twice or after a restart does no harm.

A partition contains what its latest materialization contains: every change of its inputs that was visible when
that run was created (the storage id of its planned event), and those made earlier in the same run.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from pipelines.automation.graph import Graph, Input, Node, Target
from pipelines.sources.feed import Partition, start_of

_DAY = 86_400.0


@dataclass(frozen=True)
class Change:
    """The latest change of a partition's content. `arrived_at` in Unix seconds, of the data at the sources."""

    id: int
    arrived_at: float
    run_id: str | None = None


@dataclass(frozen=True)
class Built:
    """The latest materialization of a partition, by a run that was created at storage id `as_of`."""

    id: int
    as_of: int
    run_id: str


@dataclass(frozen=True)
class Failure:
    """Attempts that ended without building a partition, since it was last built."""

    attempts: int
    as_of: int
    ended_at: float


@dataclass
class OpenRun:
    """A run that has not ended, and what it still has to build: target to the id of its planned event."""

    planned: dict[Target, int] = field(default_factory=dict)


@dataclass
class History:
    """The state folded so far. `unsettled` holds every target that may have something pending."""

    graph: Graph
    changes: dict[Target, Change] = field(default_factory=dict)
    versions: dict[Target, str] = field(default_factory=dict)
    listed_at: dict[Target, float] = field(default_factory=dict)
    built: dict[Target, Built] = field(default_factory=dict)
    failures: dict[Target, Failure] = field(default_factory=dict)
    open_runs: dict[str, OpenRun] = field(default_factory=dict)
    ended_runs: set[str] = field(default_factory=set)
    running: dict[Target, set[str]] = field(default_factory=dict)
    unsettled: set[Target] = field(default_factory=set)
    known: dict[str, set[Partition]] = field(default_factory=dict)

    def observed(self, target: Target, *, id: int, version: str, arrived_at: float, listed_at: float) -> None:
        """A source partition was seen with this data version, in a listing of this time."""
        if listed_at < self.listed_at.get(target, 0.0):
            return  # an older listing that was written later
        self.listed_at[target] = listed_at
        self._changed(target, version, Change(id, arrived_at))

    def planned(self, targets: Iterable[Target], *, id: int, run_id: str) -> None:
        """A run was created that is going to build these."""
        if run_id in self.ended_runs:
            return
        run = self.open_runs.setdefault(run_id, OpenRun())
        for target in targets:
            run.planned[target] = id
            self.running.setdefault(target, set()).add(run_id)

    def materialized(
        self, target: Target, *, id: int, run_id: str | None, as_of: int | None, version: str | None, at: float
    ) -> None:
        """A partition was written. `as_of` is None for an event reported without a run: it clears nothing."""
        version = version or str(id)
        if run_id is None or as_of is None:
            self._changed(target, version, Change(id, at))
            return
        before = self.built.get(target)
        if before is None or id > before.id:
            self.built[target] = Built(id, as_of, run_id)
        arrived_at = min((c.arrived_at for c in self._consumed(target, before, as_of, run_id)), default=at)
        self._close(target, run_id)
        self.failures.pop(target, None)
        self.unsettled.add(target)
        self._changed(target, version, Change(id, arrived_at, run_id))

    def ended(self, run_id: str, *, at: float) -> None:
        """A run ended. What it had not built by then, it failed to build."""
        self.ended_runs.add(run_id)
        for target, as_of in self.open_runs.pop(run_id, OpenRun()).planned.items():
            attempts = self.failures[target].attempts if target in self.failures else 0
            self.failures[target] = Failure(attempts + 1, as_of, at)
            self._stop(target, run_id)
            self.unsettled.add(target)

    def as_of(self, run_id: str, target: Target) -> int | None:
        """The id of a run's planned event for a target, while the run is open."""
        run = self.open_runs.get(run_id)
        return run.planned.get(target) if run else None

    def inputs_of(self, read: Input, partition: Partition) -> Collection[Target]:
        """The partitions of an input that a target reads and that hold anything."""
        if read.upstream is not None:
            wanted: Iterable[Partition] = read.upstream(partition)
        else:
            wanted = self.known.get(read.key, ())
        return [(read.key, p) for p in wanted if (read.key, p) in self.changes]

    def news(self, target: Target) -> list[tuple[Target, Change]]:
        """The changes of a built target's inputs that it does not contain."""
        built = self.built[target]
        node = self.graph.nodes[target[0]]
        return [
            (source, self.changes[source])
            for read in node.inputs
            for source in self.inputs_of(read, target[1])
            if not _contains(built, self.changes[source]) and _reaches(read, self.changes[source], target[1])
        ]

    def _consumed(self, target: Target, before: Built | None, as_of: int, run_id: str) -> Iterable[Change]:
        node = self.graph.nodes[target[0]]
        after = Built(0, as_of, run_id)
        for read in node.inputs:
            for source in self.inputs_of(read, target[1]):
                change = self.changes[source]
                if _contains(after, change) and not (before and _contains(before, change)):
                    yield change

    def _changed(self, target: Target, version: str, change: Change) -> None:
        self.known.setdefault(target[0], set()).add(target[1])
        if self.versions.get(target) == version:
            return
        self.versions[target] = version
        self.changes[target] = change
        for node, read in self.graph.readers.get(target[0], ()):
            if read.downstream is not None:
                readers: Iterable[Partition] = read.downstream(target[1])
            else:
                readers = self.known.get(node.key, ()) if node.partitioned else (None,)
            self.unsettled.update((node.key, partition) for partition in readers)

    def _close(self, target: Target, run_id: str) -> None:
        if run_id in self.open_runs:
            self.open_runs[run_id].planned.pop(target, None)
        self._stop(target, run_id)

    def _stop(self, target: Target, run_id: str) -> None:
        runs = self.running.get(target, set())
        runs.discard(run_id)
        if not runs:
            self.running.pop(target, None)


def _contains(built: Built, change: Change) -> bool:
    return change.id <= built.as_of or (change.run_id is not None and change.run_id == built.run_id)


def _reaches(read: Input, change: Change, partition: Partition) -> bool:
    if read.ripple_days is None:
        return True
    return 0 <= change.arrived_at // _DAY - _day_of(partition) < read.ripple_days


def _day_of(partition: Partition) -> float:
    return start_of(partition or "1970-01-01").timestamp() // _DAY
