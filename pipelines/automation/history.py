"""What the event log says: what changed, and what each partition was built from.

A fold over events in the order of their storage ids; nothing here asks anybody anything. The planner compares
what is with what was incorporated, so an event seen late, twice or after a restart does no harm.

A partition contains what its latest materialization contains: every change of its inputs that was visible when
that run was created (the storage id of its planned event), and those made earlier in the same run.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace

from pipelines.automation.graph import Graph, Input, Target
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


@dataclass(frozen=True)
class Materialization:
    """A partition was written, by a run that was created at storage id `as_of`; `at` in Unix seconds."""

    target: Target
    id: int
    run_id: str
    as_of: int
    version: str
    at: float


@dataclass
class OpenRun:
    """A run that has not ended.

    Args:
        planned: What it still has to build, to the id of its planned event.
        written: What it has built of an asset whose other partitions it has not written down yet.
    """

    planned: dict[Target, int] = field(default_factory=dict)
    written: dict[str, list[Materialization]] = field(default_factory=dict)


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
        """A partition was written. `as_of` is None for an event reported without a run: it clears nothing.

        What a run writes of one asset counts once all of it is written down: events come one a partition, and
        consumers would otherwise be asked to run on some of it and then on the rest.
        """
        version = version or str(id)
        if run_id is None or as_of is None:
            self._changed(target, version, Change(id, at))
            return
        run = self.open_runs[run_id]
        run.planned.pop(target, None)
        written = run.written.setdefault(target[0], [])
        written.append(Materialization(target, id, run_id, as_of, version, at))
        if not any(key == target[0] for key, _ in run.planned):
            self._apply(run.written.pop(target[0]))

    def ended(self, run_id: str, *, at: float) -> None:
        """A run ended. What it had not built by then, it failed to build."""
        self.ended_runs.add(run_id)
        run = self.open_runs.pop(run_id, OpenRun())
        for written in run.written.values():
            self._apply(written)
        for target, as_of in run.planned.items():
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

    def _apply(self, written: Sequence[Materialization]) -> None:
        for m in written:
            before = self.built.get(m.target)
            if before is None or m.id > before.id:
                self.built[m.target] = Built(m.id, m.as_of, m.run_id)
            consumed = (c.arrived_at for c in self._consumed(m.target, before, m.as_of, m.run_id))
            self.failures.pop(m.target, None)
            self.unsettled.add(m.target)
            self._stop(m.target, m.run_id)
            self._changed(m.target, m.version, Change(m.id, min(consumed, default=m.at), m.run_id))
        for asset in {m.target[0] for m in written}:
            self._shorten_pauses(asset)

    def _shorten_pauses(self, asset: str) -> None:
        # What held the others up may be over with this success; one that fails for itself is asked once a minute.
        for target, failure in self.failures.items():
            if target[0] == asset and failure.attempts > 1:
                self.failures[target] = replace(failure, attempts=1)

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
