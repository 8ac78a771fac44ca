"""Reads the event log again from its beginning for assets that were wiped, or are new in the graph.

Belongs here: the wiped assets, and the reconstruction of their history from the log and the planner's notes. Does not
belong here: when it happens (`event_log.consumer`).
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from functools import partial
from itertools import chain
from operator import itemgetter

from dagster import DagsterInstance

from dagster_tidemark.event_log import event_rows, journal
from dagster_tidemark.event_log.event_rows import Event, EventKind
from dagster_tidemark.event_log.intake import Intake
from dagster_tidemark.event_log.reader import LogReader
from dagster_tidemark.event_log.run_facts import RunFacts, run_facts
from dagster_tidemark.planner.event_records import Outcome

_NEVER = float("-inf")
_EVALUATIONS = 10_000
_KINDS = [kind for kind in EventKind if kind is not EventKind.CHECKED]


def wiped(intake: Intake, before: Mapping[str, float] | None, now: Mapping[str, float]) -> list[str]:
    """Return the assets with a history that were wiped between two states of the instance's catalog.

    Not every storage keeps an event for a wipe: a wipe leaves its time in the catalog, or removes the asset from it.
    """
    found = []
    for asset, oldest in intake.oldest.items():
        wiped_at = now.get(asset)
        if wiped_at is None:
            is_wiped = before is None or asset in before
        else:
            is_wiped = oldest <= wiped_at and (before is None or wiped_at > before.get(asset, _NEVER))
        if is_wiped:
            found.append(asset)
    known = intake.history.heard_of if found else set()
    return [asset for asset in found if asset in known]


def read_again(
    instance: DagsterInstance,
    assets: Collection[str],
    intake: Intake,
    reader: LogReader,
    wiped: Mapping[str, float],
    *,
    facts_of: Callable[[DagsterInstance, Collection[str]], dict[str, RunFacts]] = run_facts,
) -> dict[str, RunFacts]:
    """Rebuild the history of assets from their events in the log, up to the reader's position.

    Args:
        wiped: Time of the last wipe by asset (Unix seconds). Older events do not count.
        facts_of: Returns the facts of runs by run id.

    Returns:
        Runs that have ended but are open again in the history.
    """
    history = intake.history
    open_before = set(history.open_runs)
    since = min((wiped.get(asset, _NEVER) for asset in assets), default=_NEVER)
    rows = event_rows.rows_of_assets(instance, assets, _KINDS, since)
    found = [event_rows.event_of(row, reader.place(row.id)) for row in rows if reader.has_read(row.id)]
    events = [event for event in found if event and (event.problem or event.at > wiped.get(event.asset, _NEVER))]
    ended = facts_of(instance, {event.run_id for event in events if event.run_id} - open_before)
    written = {(e.run_id, e.asset, p) for e in events if e.kind is EventKind.MATERIALIZED for p in e.partitions}
    steps: list[tuple[int, Callable[[], object]]] = []
    for event in events:
        steps.append((event.id, partial(intake.apply, _as_it_ended(event, ended, written))))
    for id, note in journal.notes(instance, since):
        if reader.has_read(id):
            steps.append((reader.place(id), partial(journal.restore, history, note, wiped, only=assets)))
    for asset in assets:
        intake.forget(asset)
        history.forget([(asset, partition) for partition in history.facts.with_content(asset)])
    history.forget([target for target in chain(history.facts.builds(), history.failures) if target[0] in assets])
    for _, step in sorted(steps, key=itemgetter(0)):
        step()
    # The history already has the durations of these runs.
    reopened = history.open_runs.keys() & ended.keys()
    return {run_id: replace(ended[run_id], seconds=None) for run_id in reopened}


def read_checks(
    instance: DagsterInstance, checks: Mapping[str, Collection[str]], until: int, intake: Intake, reader: LogReader
) -> None:
    """Apply the latest evaluations of checks that were not blocking before.

    Args:
        checks: Names of these checks by asset.
        until: Storage id; the reader itself has yielded all later evaluations of these checks.
    """
    for check in sorted(frozenset[str]().union(*checks.values())):
        for row in event_rows.last_evaluations(instance, check, _EVALUATIONS):
            passed_over = row.id <= until and reader.has_read(row.id)
            event = event_rows.event_of(row, reader.place(row.id), [check]) if passed_over else None
            if event is not None and check in checks.get(event.asset, ()):
                intake.apply(reader.with_begin(instance, event))


def _as_it_ended(event: Event, ended: Mapping[str, RunFacts], written: Collection[object]) -> Event:
    """Return a planned event without partitions that its run did not build: the run's end was already applied."""
    run = ended.get(event.run_id or "")
    if event.kind is not EventKind.PLANNED or run is None or run.ended_at is None or run.outcome is Outcome.SUCCEEDED:
        return event
    partitions = tuple(p for p in event.partitions if (event.run_id, event.asset, p) in written)
    return replace(event, partitions=partitions)
