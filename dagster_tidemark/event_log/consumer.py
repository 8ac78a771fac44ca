"""Reads new events of the event log into the history, from the last position on.

Belongs here: the order of reading, its limits per tick, and the position after a restart. Does not belong here: the
content of events (`event_log.intake`) and their meaning (`planner.history`).
"""

import logging
import time
import uuid
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from dagster import DagsterInstance

from dagster_tidemark.dagster_internals import event_storage, event_time, instance_store, run_storage
from dagster_tidemark.event_log import checkpoint, deployed, journal, reading_again
from dagster_tidemark.event_log.checkpoint_parts import Loading, Parts, Saving
from dagster_tidemark.event_log.event_rows import Event
from dagster_tidemark.event_log.intake import Intake
from dagster_tidemark.event_log.reader import LogReader
from dagster_tidemark.event_log.run_facts import RunFacts, run_facts
from dagster_tidemark.planner.event_records import Outcome
from dagster_tidemark.planner.graph import Graph, Target
from dagster_tidemark.planner.history import History
from dagster_tidemark.tags import HISTORY, JOURNAL

_BETWEEN_LOOKS_AT_THE_CLOCK = 200
_BETWEEN_RUNS_CLOSED = 2000
_RUN_EVENTS_WITHIN = 60.0
_ASSETS_READ_AGAIN_AT_ONCE = 100
_SAVE_AFTER_EVENTS = 2000
_SAVE_SECONDS = 600.0
_SAVE_WHILE_CATCHING_UP_SECONDS = 60.0
_SLICE_SECONDS = 1.0
"""Longest time in a tick for saving or loading the checkpoint, in seconds."""
_PARTITIONS_IN_A_NOTE = 2000
_NOTE_WHEN_QUIET_SECONDS = 30.0
_NOTE_SECONDS = 300.0

_ASSETS_READ_AGAIN = "reading the events of wiped or added assets"

_log = logging.getLogger(__name__)


@dataclass
class LogConsumer:
    """A history, and its position in the event log of an instance.

    Args:
        key: The key of the checkpoint in the instance's storage.
        catalog: Time of the last wipe of each asset of the instance (Unix seconds); None before the first query.
        rebuilds: Unfinished rebuilds, by run id.
        by_people: Unfinished runs that a person requested, not a sensor.
        begun: Unfinished runs that have left the queue.
        keeps: True to write notes and checkpoints for other processes.
        facts_of: Returns the facts of runs by run id.
    """

    history: History
    key: str
    reader: LogReader = field(default_factory=LogReader)
    catalog: dict[str, float] | None = None
    rebuilds: set[str] = field(default_factory=set)
    by_people: set[str] = field(default_factory=set)
    begun: set[str] = field(default_factory=set)
    caught_up: bool = False
    keeps: bool = True
    facts_of: Callable[[DagsterInstance, Collection[str]], dict[str, RunFacts]] = run_facts
    intake: Intake = field(init=False)
    _to_read_again: list[str] = field(default_factory=list)
    _checks_to_read: dict[str, frozenset[str]] = field(default_factory=dict)
    _checks_until: int = 0
    _process: str = field(default_factory=lambda: uuid.uuid4().hex)
    _wipes_until: float = 0.0
    _noted_at: float = float("-inf")
    _noted_shifts: list[tuple[int, int]] = field(default_factory=list)
    _noted_keys: dict[str, Any] = field(default_factory=dict)
    _durations_until: dict[str, float] = field(default_factory=dict)
    _unsaved: int = 0
    _saved_at: float = field(default_factory=time.monotonic)
    _loading: Loading | None = None
    _saving: Saving | None = None
    _parts: Parts = field(default_factory=dict)
    _changed: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.intake = Intake(self.history)

    @property
    def cursor(self) -> int:
        """Storage id; the history has all events up to it."""
        return self.reader.after

    @property
    def planned(self) -> set[Target]:
        """Targets whose run has appeared since this set was last cleared."""
        return self.intake.planned

    @property
    def notes(self) -> dict[str, str]:
        """Problem with an asset's events, by asset."""
        return self.intake.notes

    @classmethod
    def started(cls, instance: DagsterInstance, graph: Graph) -> "LogConsumer":
        """Return a consumer that continues from an earlier process's checkpoint, or starts at the log's first event."""
        key = checkpoint.key_of(graph)
        made = cls(History(graph), key)
        made.history.replaced = {key: of.get("code_version") for key, of in deployed.kept(instance, graph).items()}
        head = checkpoint.best_of(instance_store.saved_under(instance, HISTORY).values(), graph)
        if head is not None:
            try:
                made._loading, made.reader = Loading(made.history, head), LogReader.of_state(head["reader"])
            except instance_store.UNREADABLE as error:
                made._begin_again(error)
        made.reader.know(journal.last_shifts(instance, key))
        made._noted_shifts = list(made.reader.shifts)
        if made._loading is not None:
            made._load(instance, made._loading, after(_SLICE_SECONDS))
        return made

    def _load(self, instance: DagsterInstance, loading: Loading, stop: Callable[[], bool]) -> bool:
        """Load the history of an earlier process from its checkpoint. Return False if some parts are not loaded yet."""
        try:
            if not loading.step(instance, stop):
                return False
            kept = checkpoint.completed(self.history, loading.state)
            self.catalog, unread, touched = (kept.rest[name] for name in ("catalog", "unread", "touched"))
            nodes = self.history.graph.nodes
            self.intake.unread = {(asset, p): why for asset, p, why in unread if asset in nodes}
            self.intake.touched = {(asset, p) for asset, p in touched if asset in nodes}
        except instance_store.UNREADABLE as error:
            self._begin_again(error)
            return True
        self._to_read_again += kept.added
        self._look_for_checks(_more_blocking(self.history.graph, kept.blocking))
        self.intake.tell()
        self.intake.goes_back_to(float("-inf"), self.history.heard_of)
        self._parts = {asset: tuple(of) for asset, of in loading.state.get("parts", {}).items()}
        self._loading = None
        return True

    def _begin_again(self, error: Exception) -> None:
        """Forget a checkpoint that another release wrote in a different format."""
        _log.warning("the checkpoint cannot be loaded; reading the event log from its beginning: %r", error)
        self.history.clear()
        self.intake = Intake(self.history)
        self._loading, self.catalog, self.reader = None, None, LogReader()

    def adopt(self, graph: Graph) -> None:
        """Continue with a different version of the code, which may add or remove assets."""
        self._saving, self._parts = None, {}
        if self._loading is not None:
            self.history.adopt(graph)
            return
        before = self.history.graph.nodes
        self._look_for_checks(_more_blocking(graph, {key: node.blocking for key, node in before.items()}))
        self._to_read_again += [key for key in graph.nodes if key not in before or before[key].refused]
        mended = {asset for asset, _ in self.history.adopt(graph) - self.intake.unread.keys()}
        self.intake.tell()
        self._to_read_again += sorted(mended & graph.nodes.keys() - {*self._to_read_again})

    def _look_for_checks(self, checks: dict[str, frozenset[str]]) -> None:
        """Schedule these checks: their earlier evaluations, which the reader skipped, must be read."""
        if checks:
            self._checks_to_read |= checks
            self._checks_until = self.cursor

    def _learn_of_checks_elsewhere(self, instance: DagsterInstance) -> None:
        """Find blocking checks that other code locations declare on assets of this one.

        Checks that this code location has removed do not count: they ran in runs of this location.
        """
        if not self.intake.elsewhere:
            return
        locations = run_storage.locations_of_runs(instance, [run for run in self.intake.elsewhere.values() if run])
        homes = deployed.locations(instance, self.history.graph)
        for (asset, check), run_id in self.intake.elsewhere.items():
            location = locations.get(run_id or "")
            if run_id is None or (homes and location is not None and location not in homes):
                self.history.guarded_elsewhere(asset, check, blocking=True)
                self._look_for_checks({asset: frozenset({check})})
                _log.warning(
                    "%s: the blocking check %s is declared in %s: downstream assets wait for it after each write",
                    asset,
                    check,
                    location or "no code location",
                )
        self.intake.elsewhere.clear()

    def read(self, instance: DagsterInstance, stop: Callable[[], bool]) -> str:
        """Read new events. Return "" if all were read, else a description of the progress when it had to stop."""
        if self._loading is not None and not self._load(instance, self._loading, stop):
            return f"loading the checkpoint, {self._loading.read} partitions so far"
        # Earlier evaluations are applied before new ones, and after the full history of their assets.
        if self._checks_to_read:
            if not self._read_again(instance, stop):
                return _ASSETS_READ_AGAIN
            reading_again.read_checks(instance, self._checks_to_read, self._checks_until, self.intake, self.reader)
            self._checks_to_read = {}
        # Query the runs first: a run that has ended wrote all its events before, so the code below reads them.
        open_runs = self.facts_of(instance, self.history.open_runs)
        unsaved = self._unsaved
        if not self._read_events(instance, stop):
            self._save_now_and_then(instance, _SAVE_WHILE_CATCHING_UP_SECONDS)
            return f"read the event log up to {self.cursor} of {event_storage.last_event_id(instance)}"
        self._close(open_runs)
        self._learn_of_checks_elsewhere(instance)
        self._notice_wipes(instance)
        if not self._read_again(instance, stop):
            return _ASSETS_READ_AGAIN
        if not self.caught_up:
            while self.keeps and len(self.intake.touched) >= _PARTITIONS_IN_A_NOTE and self._note(instance):
                if stop():
                    return "writing the journal"
            self.caught_up, self._saved_at = True, float("-inf")
            self.history.drop_failures_of_other_code()  # of a checkpoint or a note of the replaced process
            # The next tick saves after it has read these notes, so that the next process need not read them.
            return ""
        if self.keeps:
            self._note_now_and_then(instance, quiet=unsaved == self._unsaved)
        self._save_now_and_then(instance, _SAVE_SECONDS)
        return ""

    def _read_events(self, instance: DagsterInstance, stop: Callable[[], bool]) -> bool:
        graph = self.history.graph
        checks = frozenset[str]().union(*(graph.blocking(key) for key in graph.nodes))
        news = self.reader.new(instance, checks, first_time=not self.caught_up)
        for count, event in enumerate(news, start=1):
            self._apply(event)
            self._unsaved += 1
            if count % _BETWEEN_LOOKS_AT_THE_CLOCK == 0 and stop():
                return False
            if not self.caught_up and count % _BETWEEN_RUNS_CLOSED == 0:
                self._close(self._over(instance, event.at))
        return True

    def _apply(self, event: Event) -> None:
        self._changed.add(event.asset)
        if event.asset != JOURNAL:
            self.intake.apply(event)
            return
        note = journal.opened(event)
        if note is not None and note["process"] != self._process:
            told = journal.restore(self.history, note, self.catalog or {}, knows_better=not self.caught_up)
            if not self.caught_up:
                self._durations_until |= dict.fromkeys(note["strides"], note["wipes_until"])
            # A newer result of this process is in no note yet.
            self.intake.touched -= told & journal.up_to_date(self.history, note)
            self._changed.update(asset for asset, _ in told)
            self.intake.goes_back_to(note["wipes_until"], {asset for asset, _ in told})

    def _over(self, instance: DagsterInstance, reached: float) -> dict[str, RunFacts]:
        """Return open runs that have built all targets, or ended before this time. Used while catching up."""
        runs = self.history.open_runs
        over = {run_id: RunFacts(run.created_at, Outcome.SUCCEEDED) for run_id, run in runs.items() if not run.planned}
        found = self.facts_of(instance, [run_id for run_id in runs if run_id not in over])
        ended = {i: run for i, run in found.items() if run.ended_at and run.ended_at < reached - _RUN_EVENTS_WITHIN}
        return over | ended

    def _close(self, runs: dict[str, RunFacts]) -> None:
        for run_id, run in runs.items():
            if run.ended_at is None:
                if run.rebuild:
                    self.rebuilds.add(run_id)
                if run.by_person:
                    self.by_people.add(run_id)
                if not run.queued:
                    self.begun.add(run_id)
                continue
            self.rebuilds.discard(run_id)
            self.begun.discard(run_id)
            self.by_people.discard(run_id)
            if (open_run := self.history.open_runs.get(run_id)) is not None:
                self._changed.update(asset for asset, _ in open_run.planned)
                self._changed.update(open_run.written)
            try:
                self.history.ended(
                    run_id,
                    at=run.ended_at,
                    outcome=run.outcome,
                    seconds=None if self._is_in_a_note(run_id, run.ended_at) else run.seconds,
                    by_person=run.by_person,
                )
            except Exception:  # affects only the targets of this run: the other runs are closed anyway
                self.history.open_runs.pop(run_id, None)
                _log.exception("the end of run %s cannot be applied", run_id)

    def _is_in_a_note(self, run_id: str, ended_at: float) -> bool:
        """Return True if a note that was read has the duration of a run."""
        run = self.history.open_runs.get(run_id)
        built = run.built if run else {}
        return bool(built) and all(ended_at < self._durations_until.get(asset, 0.0) for asset in built)

    def _notice_wipes(self, instance: DagsterInstance) -> None:
        looked_at, before = event_time.now(), self.catalog
        self.catalog = event_storage.catalog(instance)
        self._to_read_again += reading_again.wiped(self.intake, before, self.catalog)
        self._wipes_until = looked_at

    def _read_again(self, instance: DagsterInstance, stop: Callable[[], bool]) -> bool:
        """Rebuild the history of wiped or new assets from the log. Return False if some are left."""
        wiped = self.catalog or {}
        self._to_read_again.sort(
            key=lambda asset: wiped.get(asset, float("-inf"))
        )  # assets wiped last have the fewest events
        while self._to_read_again:
            some = set(self._to_read_again[-_ASSETS_READ_AGAIN_AT_ONCE:])
            known = some & self.history.graph.nodes.keys()
            reopened = reading_again.read_again(
                instance, known, self.intake, self.reader, wiped, facts_of=self.facts_of
            )
            self._close(reopened)
            self._to_read_again = [asset for asset in self._to_read_again if asset not in some]
            self._changed |= some
            self._unsaved += 1
            if stop():
                return False
        return True

    def _note_now_and_then(self, instance: DagsterInstance, *, quiet: bool) -> None:
        waited = event_time.now() - self._noted_at
        long = waited >= _NOTE_SECONDS or waited < 0  # the clock may be set back
        is_lull = quiet and not self.history.open_runs and waited >= _NOTE_WHEN_QUIET_SECONDS
        many = len(self.intake.touched) >= _PARTITIONS_IN_A_NOTE
        if self.reader.shifts != self._noted_shifts or many or ((long or is_lull) and self._has_news()):
            self._note(instance)

    def _has_news(self) -> bool:
        return bool(self.intake.touched) or journal.beside_rows(self.history) != self._noted_keys

    def _note(self, instance: DagsterInstance) -> bool:
        runs = self.history.open_runs.values()
        held = {m.target for run in runs for written in run.written.values() for m in written}
        targets = list(islice((t for t in self.intake.touched if t not in held), _PARTITIONS_IN_A_NOTE))
        self.write_note(instance, targets)
        self.intake.touched.difference_update(targets)
        self._noted_at, self._noted_shifts = event_time.now(), list(self.reader.shifts)
        self._noted_keys = journal.beside_rows(self.history)
        return bool(targets)

    def write_note(self, instance: DagsterInstance, targets: Collection[Target]) -> None:
        """Write a note with the present facts on some partitions."""
        journal.write(
            instance,
            self.history,
            targets,
            location=self.key,
            process=self._process,
            wipes_until=self._wipes_until,
            shifts=self.reader.shifts,
        )

    def _save_now_and_then(self, instance: DagsterInstance, seconds: float) -> None:
        if self._saving is None:
            if not self.keeps or self._unsaved < _SAVE_AFTER_EVENTS or time.monotonic() < self._saved_at + seconds:
                return
            self._saving = self._begin_to_save()
        self._go_on_saving(instance, self._saving, after(_SLICE_SECONDS))

    def save(self, instance: DagsterInstance) -> None:
        """Save a checkpoint for the next process."""
        if self._loading is None:
            self._go_on_saving(instance, self._begin_to_save(), lambda: False)

    def _begin_to_save(self) -> Saving:
        rest = {
            "catalog": self.catalog,
            "unread": [[*target, why] for target, why in self.intake.unread.items()],
            "touched": [list(target) for target in self.intake.touched],
        }
        head = checkpoint.head_of(self.history, self.reader.state(), rest)
        saving = Saving(self.history, self.key, head, dict(self._parts), self._changed)
        self._unsaved, self._changed = 0, set()
        return saving

    def _go_on_saving(self, instance: DagsterInstance, saving: Saving, stop: Callable[[], bool]) -> None:
        if saving.step(instance, stop):
            self._saving, self._parts, self._saved_at = None, saving.parts, time.monotonic()


def _more_blocking(graph: Graph, before: Mapping[str, Collection[str]]) -> dict[str, frozenset[str]]:
    """Return the blocking checks of each asset that were not blocking before."""
    more = {key: node.blocking.difference(before.get(key, ())) for key, node in graph.nodes.items()}
    return {key: checks for key, checks in more.items() if checks}


def after(seconds: float) -> Callable[[], bool]:
    """Return a function that returns True once some seconds have passed."""
    end = time.monotonic() + seconds
    return lambda: time.monotonic() > end
