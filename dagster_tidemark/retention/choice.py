"""The choice of old records that no decision needs.

A record is old if it ended before a time. It is superseded if a newer one of the same kind exists for the same asset
and partition. The newest materialization, observation, plan and check result of each partition always stay, with their
runs. Belongs here: the choice, as plain data. Does not belong here: its proof (`retention.proof`) and the deletion
(`retention.prune`).
"""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import dagster as dg
from dagster import DagsterInstance, DagsterRunStatus

from dagster_tidemark.dagster_internals import old_records, run_storage
from dagster_tidemark.dagster_internals.old_records import LoggedCheck, LoggedEvent
from dagster_tidemark.event_log import journal
from dagster_tidemark.event_log.checkpoint import newest
from dagster_tidemark.planner.graph import Graph
from dagster_tidemark.retention.locations import KnownLocations
from dagster_tidemark.tags import JOURNAL, MAINTENANCE, REQUESTED_BY, STREAM

OWN_JOB = "prune"
"""Value of the tag `tidemark/requested-by` of the runs that prune."""

_ENDED = [DagsterRunStatus.SUCCESS, DagsterRunStatus.FAILURE, DagsterRunStatus.CANCELED]
_PAGE = 500
_TAIL = 20
"""Number of the log's latest rows that stay. A reader recognizes its position by the last row that it has read, and
SQLite would give the ids of deleted last rows out again."""
_DAY = 86_400.0
_OF_TIDEMARK = "tidemark/"
"""Prefix of the tags that the library writes on observations of feeds, streams and received events."""
_NOT_PLANNED = "not planned by Tidemark (`--unplanned delete` deletes them)"
_HOLDS = "hold the newest event or check result of a partition"
_MARKS = "mark the position of a reader of the event log"
_OPEN = "were open when a checkpoint was saved"
_UNFINISHED = "are part of unfinished work"
_RUN_KEYS = "have a run key (Dagster would launch them again)"
_LINEAGE = "are not reported to OpenLineage yet"
_OPS = frozenset({"ops/incidents", "ops/landing_events", "ops/maintenance"})
"""The library's own external assets, which no asset reads."""


@dataclass(frozen=True)
class OldRun:
    """A run to delete. `size` is the bytes of its events."""

    id: str
    ended_at: float
    assets: frozenset[str]
    size: int


@dataclass(frozen=True)
class OldNote:
    """An observation of the journal to delete: later notes have all its partitions."""

    id: int
    size: int


@dataclass(frozen=True)
class Choice:
    """The records to delete, each kind in the order of deletion.

    Args:
        runs: Ended runs.
        events: Events without a run.
        checks: Results of checks that no run evaluated.
        notes: Notes of the planner.
        kept: Number of old runs that stay, by reason.
        of_runs: Run ids of the events of `runs`, by storage id.
    """

    runs: Sequence[OldRun] = ()
    events: Sequence[LoggedEvent] = ()
    checks: Sequence[LoggedCheck] = ()
    notes: Sequence[OldNote] = ()
    kept: Mapping[str, int] = field(default_factory=dict)
    of_runs: Mapping[int, str] = field(default_factory=dict)

    @property
    def event_ids(self) -> frozenset[int]:
        """Storage ids of the events to delete."""
        of_checks = {each.event_id for each in self.checks if each.event_id is not None}
        events, notes = {event.id for event in self.events}, {note.id for note in self.notes}
        return frozenset(of_checks | events | notes | self.of_runs.keys())

    def without(self, assets: Collection[str], why: str) -> "Choice":
        """Return the choice without the records of some assets, whose runs are kept for a reason."""
        runs = [run for run in self.runs if run.assets.isdisjoint(assets)]
        ids = {run.id for run in runs}
        kept = dict(Counter(self.kept) + Counter({why: len(self.runs) - len(runs)}))
        return Choice(
            runs,
            [each for each in self.events if each.asset not in assets],
            [each for each in self.checks if each.asset not in assets],
            (),  # a note may have partitions of any asset
            kept,
            {id: run_id for id, run_id in self.of_runs.items() if run_id in ids},
        )


class RecordChooser:
    """Chooses the records that ended before a time and that no decision needs.

    Args:
        location: The key of the code location's checkpoint.
        before: Unix seconds.
        unplanned: True to include runs of assets and jobs that Tidemark does not plan.
    """

    def __init__(
        self,
        instance: DagsterInstance,
        graph: Graph,
        known: KnownLocations,
        *,
        location: str,
        before: float,
        now: float,
        unplanned: bool = False,
    ) -> None:
        self._instance, self._known, self._location = instance, known, location
        self._before, self._unplanned = before, unplanned
        self._planned = {key for key, node in graph.nodes.items() if node.automated}
        self._ours = self._planned | set(_own_sources(instance, graph))
        self._events = list(old_records.asset_events(instance))
        self._checks = old_records.checks(instance)
        # `status` computes the share of the last day from the check results of that day.
        self._checks_before = min(before, now - _DAY)
        last = old_records.last_ids(instance, _TAIL)
        self._marks = {*last, *known.tails, *(event.id for event in self._events[-_TAIL:])}
        self._newest = {(e.asset, e.partition, e.kind): e for e in self._events}
        self._needed_checks = {each.id for each in self._newest_checks()}

    def choice(self) -> Choice:
        """Return the records to delete."""
        by_run: dict[str, list[LoggedEvent]] = {}
        for event in self._events:
            by_run.setdefault(event.run_id, []).append(event)
        checks_by_run: dict[str, list[LoggedCheck]] = {}
        for each in self._checks:
            checks_by_run.setdefault(each.run_id, []).append(each)
        needed = self._needed_runs()
        kept, chosen = Counter[str](), list[tuple[dg.DagsterRun, float, frozenset[str]]]()
        for record, ended_at in self._old_runs():
            run = record.dagster_run
            events, checks = by_run.get(run.run_id, []), checks_by_run.get(run.run_id, [])
            assets = _assets_of(run) | {event.asset for event in events} | {check.asset for check in checks}
            why = needed.get(run.run_id) or self._unreported(record) or self._foreign(run, assets, events)
            if why:
                kept[why] += 1
            else:
                chosen.append((run, ended_at, frozenset(assets)))
        ids = {run.run_id for run, *_ in chosen}
        sizes = old_records.sizes_of_runs(self._instance, ids)
        logged = [(e.id, e.run_id) for e in self._events]
        logged += [(c.event_id, c.run_id) for c in self._checks if c.event_id is not None]
        of_runs = {id: run_id for id, run_id in logged if run_id in ids}
        return Choice(
            [OldRun(run.run_id, ended_at, assets, sizes[run.run_id]) for run, ended_at, assets in chosen],
            self._superseded_events(),
            self._superseded_checks(),
            self._superseded_notes(),
            dict(kept),
            of_runs,
        )

    def _old_runs(self) -> Iterator[tuple[dg.RunRecord, float]]:
        """Yield the ended runs with the time of their end, the oldest first."""
        cursor: str | None = None
        while True:
            records = self._instance.get_run_records(
                dg.RunsFilter(statuses=_ENDED), limit=_PAGE, cursor=cursor, ascending=True
            )
            for record in records:
                ended_at = record.end_time or record.update_timestamp.timestamp()
                if ended_at < self._before:
                    yield record, ended_at
            if len(records) < _PAGE:
                return
            cursor = records[-1].dagster_run.run_id

    def _needed_runs(self) -> Mapping[str, str]:
        """Return the reason why a run is needed, by run id."""
        repeated, _ = old_records.needed_by_unfinished(self._instance)
        newest_run = self._instance.get_run_records(limit=1)
        last = old_records.last_ids(self._instance, _TAIL)
        marking = {event.run_id for event in self._events if event.id in self._marks} | set(last.values())
        holding = {event.run_id for event in self._newest.values()}
        holding |= {each.run_id for each in self._checks if each.id in self._needed_checks}
        found: dict[str, str] = {event.run_id: why for event in self._events if (why := self._unheard(event))}
        found |= dict.fromkeys(holding, _HOLDS)
        found |= dict.fromkeys(marking, _MARKS)
        found |= dict.fromkeys((record.dagster_run.run_id for record in newest_run), _MARKS)
        found |= dict.fromkeys(self._known.open_runs, _OPEN)
        return found | dict.fromkeys(repeated, _UNFINISHED)

    def _unheard(self, event: LoggedEvent) -> str:
        """Return the listener that still has to handle an event, in words; empty if there is none."""
        if event.kind != dg.DagsterEventType.ASSET_MATERIALIZATION.value:
            return ""
        names = (each.sensor for each in self._known.listeners if each.needs(event.id, event.asset))
        return next((f"have events that the sensor {name} has not handled yet" for name in names), "")

    def _unreported(self, record: dg.RunRecord) -> str:
        """Return why a run stays although it holds no needed event; empty if it does not."""
        if old_records.has_run_key(record.dagster_run):
            return _RUN_KEYS
        run_id, changed_at = record.dagster_run.run_id, record.update_timestamp.timestamp()
        return _LINEAGE if any(each.needs(run_id, changed_at) for each in self._known.lineage) else ""

    def _foreign(self, run: dg.DagsterRun, assets: Collection[str], events: Sequence[LoggedEvent]) -> str:
        """Return the reason why a run is not for this location to delete; empty if it is."""
        if old_records.backfill_of(run) in self._backfills:
            return _UNFINISHED
        if not self._unplanned and not self._is_planned(run, assets):
            return _NOT_PLANNED
        last = max((event.id for event in events), default=-1)
        for asset in assets:
            for other in self._known.by_asset.get(asset, ()):
                if asset in other.builds:
                    return f"build assets of the code location {other.name}"
                if other.read_until < last or asset in other.unnoted:
                    return f"have events that the code location {other.name} has not saved yet"
        return ""

    @cached_property
    def _backfills(self) -> frozenset[str]:
        return old_records.needed_by_unfinished(self._instance)[1]

    def _is_planned(self, run: dg.DagsterRun, assets: Collection[str]) -> bool:
        home = run_storage.location_of(run)
        if home is not None and self._known.ours and home not in self._known.ours:
            return False
        if run.tags.keys() & {STREAM, MAINTENANCE} or run.tags.get(REQUESTED_BY) == OWN_JOB:
            return self._ours.issuperset(assets)
        return bool(assets) and bool(_assets_of(run)) and self._planned.issuperset(assets)

    def _superseded_events(self) -> list[LoggedEvent]:
        stays = {event.id for event in self._newest.values()} | self._marks
        return [
            event
            for event in self._events
            if not event.run_id
            and event.at < self._before
            and event.id not in stays
            and not self._unheard(event)
            and event.asset in self._ours
            and event.asset not in self._known.by_asset
        ]

    def _superseded_checks(self) -> list[LoggedCheck]:
        return [
            each
            for each in self._checks
            if not each.run_id
            and each.at < self._checks_before
            and each.id not in self._needed_checks
            and each.event_id not in self._marks
            and each.asset in self._ours
            and each.asset not in self._known.by_asset
        ]

    def _newest_checks(self) -> Iterator[LoggedCheck]:
        """Yield the newest results by partition and outcome, also before the last day, and by materialization."""
        last: dict[object, LoggedCheck] = {}
        is_last = {event.id for event in self._newest.values()}
        for each in self._checks:
            of = (each.asset, each.check, each.partition)
            last[of] = last[(*of, each.status)] = last[(*of, each.status, each.at < self._checks_before)] = each
            if each.about in is_last:
                last[(*of, each.status, each.about)] = each
        yield from last.values()

    def _superseded_notes(self) -> list[OldNote]:
        """Return the notes of this location whose partitions are all in later notes."""
        known: dict[tuple[str, str | None], int] = {}
        by_id = {event.id: event for event in self._events if event.asset == JOURNAL}
        own = [
            (id, note)
            for id, note in journal.notes(self._instance, float("-inf"))
            if note["location"] == self._location and id in by_id
        ]
        found = []
        for position, (id, note) in enumerate(reversed(own)):
            rows = {(row[0], row[1]): newest(row) for row in note["rows"]}
            is_old = by_id[id].at < self._before and id not in self._marks
            if position and is_old and all(known.get(of, -2) >= at for of, at in rows.items()):
                found.append(OldNote(id, by_id[id].size))
                continue
            known |= {of: max(at, known.get(of, -2)) for of, at in rows.items()}
        return found[::-1]


def _own_sources(instance: DagsterInstance, graph: Graph) -> Iterator[str]:
    """Yield the sources that planned assets read, and the library's own sources that no asset reads."""
    for key, node in graph.nodes.items():
        readers = [reader for reader, _ in graph.readers.get(key, ())]
        if not node.source:
            continue
        if any(reader.automated for reader in readers) or (not readers and _is_own(instance, key)):
            yield key


def _is_own(instance: DagsterInstance, source: str) -> bool:
    """Return True if the library reports the events of a source: of a feed, a stream, or its own operation."""
    if source in _OPS:
        return True
    newest = instance.fetch_observations(dg.AssetKey.from_user_string(source), limit=1).records
    said = newest[0].asset_observation if newest else None
    return said is not None and any(tag.startswith(_OF_TIDEMARK) for tag in said.tags)


def _assets_of(run: dg.DagsterRun) -> set[str]:
    return {key.to_user_string() for key in run_storage.selected_assets(run)}
