"""The proof that a deletion changes no decision: the history is read with and without the records to delete.

A reader that continues from the saved checkpoint, and a reader that has lost it, are compared with the same readers
without the records. Belongs here: reading and comparing. Does not belong here: the choice of records
(`retention.choice`), and the meaning of a history (`planner.history`).
"""

import contextlib
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from dagster import DagsterInstance

from dagster_tidemark.dagster_internals import event_storage, event_time
from dagster_tidemark.event_log import checkpoint, event_rows, journal
from dagster_tidemark.event_log.consumer import LogConsumer
from dagster_tidemark.event_log.event_rows import Event, EventKind
from dagster_tidemark.event_log.reader import LogReader
from dagster_tidemark.event_log.redefined import PartitionsDefinitions
from dagster_tidemark.event_log.run_facts import RunFacts, run_facts
from dagster_tidemark.planner.graph import Graph, Target
from dagster_tidemark.planner.history import History
from dagster_tidemark.retention.locations import PruneRefused

MakeGraph = Callable[[], Graph]
"""Makes a new graph of the same assets. A history changes its graph, so two histories need two."""

_ATTEMPTS = 100
_MOMENTS = 3
_RECENT = 10_000
"""Number of latest ids that a moment lists one by one. No new event gets an earlier id."""


@dataclass(frozen=True)
class LostFacts:
    """The effect of a deletion on restarted planners.

    Args:
        rows: Partitions whose facts differ. A note in the journal restores them.
        assets: Assets with other facts that differ, such as check results, which no note restores.
        truth: The history that decides today.
    """

    rows: frozenset[Target]
    assets: frozenset[str]
    truth: LogConsumer


class _CheckpointIsNewer(Exception):
    """A planner has saved a checkpoint that contains later events than the readers compare."""


@dataclass
class _Moment:
    """The position in the event log where all readers stop, although other processes write to the log.

    Args:
        now: Unix seconds.
        old: Storage id; each event up to it was in the log.
        recent: Ids of the later events that were in the log.
        last: The largest storage id.
        dynamic: Keys of dynamic partitions definitions, by name.
        runs: Facts of runs, from the first query of each.
    """

    now: float
    old: int
    recent: frozenset[int]
    last: int
    dynamic: Mapping[str, Any] | None = None
    runs: dict[str, RunFacts] = field(default_factory=dict)

    @classmethod
    def of(cls, instance: DagsterInstance, graph: Graph) -> "_Moment":
        last = event_storage.last_event_id(instance)
        old = max(0, last - _RECENT)
        recent = event_rows.ids_after(instance, old, tuple(EventKind), limit=10 * _RECENT)
        dynamic = event_storage.dynamic_partitions(instance, graph.dynamic) if graph.dynamic else None
        return cls(event_time.now(), old, frozenset(recent), max([last, *recent]), dynamic)

    def has(self, id: int) -> bool:
        return id <= self.old or id in self.recent

    def facts_of(self, instance: DagsterInstance, run_ids: Collection[str]) -> dict[str, RunFacts]:
        """Return the facts of runs. A run with events after the moment has not ended for these readers."""
        new = [run_id for run_id in run_ids if run_id not in self.runs]
        if new:
            found = run_facts(instance, new)
            # A run that has ended wrote all its events before.
            later = {row.run_id for row in event_rows.rows_after(instance, self.last, tuple(EventKind))}
            self.runs |= {id: replace(run, ended_at=None) if id in later else run for id, run in found.items()}
        return {run_id: self.runs[run_id] for run_id in run_ids}


def difference(instance: DagsterInstance, make_graph: MakeGraph, ids: Collection[int]) -> LostFacts:
    """Return what restarted planners would know differently without some events of the log.

    All readers stop at the same event, so events that others write in the meantime make no difference.

    Args:
        ids: Storage ids of the events.

    Raises:
        PruneRefused: the log cannot be read to its end.
    """
    for _ in range(_MOMENTS):
        with contextlib.suppress(_CheckpointIsNewer):
            return _difference(instance, make_graph, ids, _Moment.of(instance, make_graph()))
    raise PruneRefused(
        "planners save checkpoints faster than the event log is read, so it is unknown which events are needed; "
        "try again"
    )


def _difference(instance: DagsterInstance, make_graph: MakeGraph, ids: Collection[int], moment: _Moment) -> LostFacts:
    truth = _read(instance, make_graph(), moment)
    lost = _read(instance, make_graph(), moment, keeps_checkpoint=False)
    rows, assets = set[Target](), set[str]()
    for full, keeps in ((truth, True), (lost, False)):
        less = _read(instance, make_graph(), moment, without=ids, keeps_checkpoint=keeps)
        for target in _targets(full.history) | _targets(less.history):
            if _row(full, target) != _row(less, target) and _row(truth, target) != _row(less, target):
                rows.add(target)
        rows.update(_first_seen_later(full.history, less.history))
        assets.update(_assets_that_differ(full, less))
    return LostFacts(frozenset(rows), frozenset(assets), truth)


def catch_up(instance: DagsterInstance, truth: LogConsumer) -> None:
    """Read the events after the moment of a comparison, so that a note has the present facts.

    Raises:
        PruneRefused: the log cannot be read to its end.
    """
    assert isinstance(truth.reader, _Without)
    truth.reader.moment, truth.facts_of = None, run_facts
    _read_to_the_end(instance, truth)


def _read(
    instance: DagsterInstance,
    graph: Graph,
    moment: _Moment,
    *,
    without: Collection[int] = (),
    keeps_checkpoint: bool = True,
) -> LogConsumer:
    graph.moment.moves_to(moment.now, moment.dynamic)
    PartitionsDefinitions.of(instance, checkpoint.key_of(graph), graph).date(graph)
    if keeps_checkpoint:
        found = LogConsumer.started(instance, graph)
        read_until = max([found.reader.after, *found.reader.seen])
        if moment.last < read_until <= event_storage.last_event_id(instance):
            raise _CheckpointIsNewer
    else:
        found = LogConsumer(History(graph), checkpoint.key_of(graph))
        found.reader.know(journal.last_shifts(instance, found.key))
    found.keeps, found.facts_of = False, moment.facts_of
    found.reader = _Without.of(found.reader, frozenset(without), moment)
    _read_to_the_end(instance, found)
    return found


def _read_to_the_end(instance: DagsterInstance, consumer: LogConsumer) -> None:
    for _ in range(_ATTEMPTS):
        # The read that finds the end of a run does not close it. The next read does.
        if not consumer.read(instance, lambda: False) and not consumer.read(instance, lambda: False):
            return
    raise PruneRefused("the event log cannot be read to its end, so it is unknown which events are needed; try again")


@dataclass
class _Without(LogReader):
    """Reader of a log that lacks some events, up to a moment."""

    lacks: frozenset[int] = frozenset()
    moment: _Moment | None = None
    _places: tuple[list[tuple[int, int]], frozenset[int]] | None = None

    @classmethod
    def of(cls, reader: LogReader, lacks: frozenset[int], moment: _Moment) -> "_Without":
        return cls(reader.after, reader.seen, reader.tail, reader.newest_at, reader.shifts, lacks, moment)

    def new(self, instance: DagsterInstance, checks: Collection[str], *, first_time: bool) -> Iterator[Event]:
        for event in super().new(instance, checks, first_time=first_time):
            if event.id not in self._lacking():
                yield event

    def may_read(self, id: int) -> bool:
        return self.moment is None or self.moment.has(id)

    def has_read(self, id: int) -> bool:
        return id not in self.lacks and self.may_read(id) and super().has_read(id)

    def _lacking(self) -> frozenset[int]:
        """Return the places of the events to leave out. They change with the shifts."""
        if self._places is None or self._places[0] is not self.shifts:
            self._places = (self.shifts, frozenset(map(self.place, self.lacks)))
        return self._places[1]


def _targets(history: History) -> set[Target]:
    return {*history.facts, *history.failures}


def _row(consumer: LogConsumer, target: Target) -> list[Any]:
    return checkpoint.row_of(consumer.history, target)


def _first_seen_later(full: History, less: History) -> Iterator[Target]:
    """Yield a partition of each asset whose first event would be unknown. A note has the time of that event."""
    for asset, at in full.first_seen.items():
        known = less.facts.with_content(asset) or full.facts.with_content(asset)
        if known and less.first_seen.get(asset) != at:
            yield asset, min(known, key=str)


def _assets_that_differ(full: LogConsumer, less: LogConsumer) -> Iterator[str]:
    """Yield the assets whose facts differ. Facts of partitions are compared elsewhere."""
    one, other = _facts(full.history), _facts(less.history)
    for asset in one.keys() | other.keys():
        if one.get(asset) != other.get(asset):
            yield asset


def _facts(history: History) -> Mapping[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}

    def put(asset: str, name: str, value: object) -> None:
        found.setdefault(asset, {})[name] = value

    for key in history.graph.nodes:
        put(key, "durations", [history.durations.of_run(key), history.durations.of_partition(key)])
        put(key, "usual", history.durations.usual(key))
        put(key, "elsewhere", sorted(history.graph.elsewhere.get(key, ())))
    for target in _targets(history):
        put(target[0], f"check {target[1]}", (history.blocking(target), history.unchecked(target)))
    for (asset, partition), why in history.set_aside.items():
        put(asset, f"aside {partition}", why)
    return found
