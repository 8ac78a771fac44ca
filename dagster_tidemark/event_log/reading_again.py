"""Some assets' part of the event log, read again from its beginning: they were wiped, or are new in the graph.

Belongs here: which assets were wiped, and how their history is made anew from what the log and the planner's notes
say of them. Does not belong here: when (`event_log.consumer`).
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from functools import partial
from itertools import chain
from operator import itemgetter

from dagster import DagsterInstance

from dagster_tidemark.event_log import event_rows, journal
from dagster_tidemark.event_log.event_rows import Event, Kind
from dagster_tidemark.event_log.intake import Intake
from dagster_tidemark.event_log.reader import LogReader
from dagster_tidemark.event_log.run_facts import RunFacts, run_facts
from dagster_tidemark.planner.event_records import Outcome

_NEVER = float("-inf")
_EVALUATIONS = 10_000
_KINDS = [kind for kind in Kind if kind is not Kind.CHECKED]


def wiped(intake: Intake, before: Mapping[str, float] | None, now: Mapping[str, float]) -> list[str]:
    """The assets of which something is known that was wiped between two looks at the instance's catalog.

    A wipe leaves no event that every storage keeps, but its time; or no trace of the asset at all.
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
    instance: DagsterInstance, assets: Collection[str], intake: Intake, reader: LogReader, wiped: Mapping[str, float]
) -> dict[str, RunFacts]:
    """Know of assets what the log says of them up to where its reader is, and nothing else.

    Args:
        wiped: Assets to when they were last wiped (Unix seconds): what is older does not count.

    Returns:
        Runs that are open again in the history and have ended.
    """
    history = intake.history
    open_before = set(history.open_runs)
    since = min((wiped.get(asset, _NEVER) for asset in assets), default=_NEVER)
    rows = event_rows.rows_of_assets(instance, assets, _KINDS, since)
    found = [event_rows.event_of(row, reader.place(row.id)) for row in rows if reader.has_read(row.id)]
    events = [event for event in found if event and (event.problem or event.at > wiped.get(event.asset, _NEVER))]
    ended = run_facts(instance, {event.run_id for event in events if event.run_id} - open_before)
    written = {(e.run_id, e.asset, p) for e in events if e.kind is Kind.MATERIALIZED for p in e.partitions}
    steps: list[tuple[int, Callable[[], object]]] = []
    for event in events:
        steps.append((event.id, partial(intake.apply, _as_it_ended(event, ended, written))))
    for id, note in journal.notes(instance, since):
        steps.append((reader.place(id), partial(journal.restore, history, note, wiped, only=assets)))
    for asset in assets:
        intake.forget(asset)
        history.forget([(asset, partition) for partition in history.known.get(asset, ())])
    history.forget([target for target in chain(history.built, history.failures) if target[0] in assets])
    for _, step in sorted(steps, key=itemgetter(0)):
        step()
    # How long they took was learned when they ended.
    reopened = history.open_runs.keys() & ended.keys()
    return {run_id: replace(ended[run_id], seconds=None) for run_id in reopened}


def read_checks(
    instance: DagsterInstance, checks: Mapping[str, Collection[str]], until: int, intake: Intake, reader: LogReader
) -> None:
    """Know what the log says of checks that were not blocking before, of their latest evaluations.

    Args:
        checks: By asset the names of those checks.
        until: The storage id from which on they were read with all else.
    """
    for check in sorted(frozenset[str]().union(*checks.values())):
        for row in event_rows.last_evaluations(instance, check, _EVALUATIONS):
            passed_over = row.id <= until and reader.has_read(row.id)
            event = event_rows.event_of(row, reader.place(row.id), [check]) if passed_over else None
            if event is not None and check in checks.get(event.asset, ()):
                intake.apply(event)


def _as_it_ended(event: Event, ended: Mapping[str, RunFacts], written: Collection[object]) -> Event:
    """Without what a run planned and did not build: that was told when it ended."""
    run = ended.get(event.run_id or "")
    if event.kind is not Kind.PLANNED or run is None or run.ended_at is None or run.outcome is Outcome.SUCCEEDED:
        return event
    partitions = tuple(p for p in event.partitions if (event.run_id, event.asset, p) in written)
    return replace(event, partitions=partitions)
