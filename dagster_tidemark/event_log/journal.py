"""Notes on the results of runs, in the event log itself, so that the history survives the deletion of runs.

Deleting a run deletes its events, including those of the partitions that it built. The planner's notes belong to no
run: they are observations of a separate asset, each with the state of some partitions. A process that reads the log
from its beginning restores deleted facts from the notes. A wipe of an asset also discards all earlier notes on it.

Belongs here: the format of a note, and how it is restored. Does not belong here: when a note is written
(`event_log.consumer`).
"""

import contextlib
from collections import deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import dagster as dg
from dagster import DagsterInstance

from dagster_tidemark.event_log import event_rows
from dagster_tidemark.event_log.checkpoint import keys_of, newest, packed, replace_row, row_of, take_keys, unpacked
from dagster_tidemark.event_log.event_rows import Event, EventKind
from dagster_tidemark.planner.graph import Target
from dagster_tidemark.planner.history import History
from dagster_tidemark.planner.run_durations import SAMPLES
from dagster_tidemark.tags import JOURNAL

_FORM = 1
_SAID = {"location", "process", "wipes_until", "shifts", "leads", "strides", "first_seen", "rows"}
_OF_OTHERS = 20  # later notes by other code locations on the instance
_WHAT = "what"
_SAYS = "Notes of the planner: they keep a partition's history after the run that built it was deleted."


def write(
    instance: DagsterInstance,
    history: History,
    targets: Collection[Target],
    *,
    location: str,
    process: str,
    wipes_until: float,
    shifts: Sequence[tuple[int, int]],
) -> None:
    """Write a note with the state of some partitions.

    Args:
        location: The key of the code location's checkpoint.
        process: A unique id of the process, which need not read its own notes.
        wipes_until: Time (Unix seconds); the history includes all earlier wipes.
        shifts: Offsets of storage ids, see `LogReader.shifts`.
    """
    assets = {asset for asset, _ in targets}
    samples, per_partition = history.durations.samples, history.durations.per_partition
    ranges = history.durations.ranges
    note = {
        "form": _FORM,
        "location": location,
        "process": process,
        "wipes_until": wipes_until,
        "shifts": [list(shift) for shift in shifts],
        "leads": {asset: list(samples[asset]) for asset in assets if asset in samples},
        "strides": {asset: per_partition[asset] for asset in assets if asset in per_partition},
        "ranges": {asset: ranges[asset] for asset in assets if asset in ranges},
        "first_seen": {asset: history.first_seen[asset] for asset in assets if asset in history.first_seen},
        **beside_rows(history),
        "rows": [row_of(history, target) for target in sorted(targets, key=repr)],
    }
    metadata = {_WHAT: dg.MetadataValue.text(_SAYS), JOURNAL: dg.MetadataValue.text(packed(note))}
    instance.report_runless_asset_event(dg.AssetObservation(JOURNAL.split("/"), metadata=metadata))


def beside_rows(history: History) -> dict[str, Any]:
    """Return the content of a note other than rows: partition keys, and invalid partition keys of events."""
    no_keys = sorted((target for target in history.set_aside if history.problem(target)), key=repr)
    said = keys_of(history) | {"no_keys": [list(target) for target in no_keys]}
    return {name: of for name, of in said.items() if of}


def opened(event: Event) -> dict[str, Any] | None:
    """Return the note in an event; None if it cannot be read, such as a note of a later version."""
    note = unpacked(event.content, _FORM)
    return note if note is not None and note.keys() >= _SAID else None


def notes(instance: DagsterInstance, since: float) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the notes written after a time (Unix seconds) with their storage ids, in ascending order."""
    for row in event_rows.rows_of_assets(instance, [JOURNAL], [EventKind.OBSERVED], since):
        event = event_rows.event_of(row, row.id)
        note = opened(event) if event else None
        if note is not None:
            yield row.id, note


def last_shifts(instance: DagsterInstance, location: str) -> list[tuple[int, int]]:
    """Return the offsets of storage ids (`LogReader.shifts`) from a code location's latest note."""
    for row in event_rows.last_rows_of(instance, JOURNAL, EventKind.OBSERVED, limit=_OF_OTHERS):
        event = event_rows.event_of(row, row.id)
        note = opened(event) if event else None
        if note is not None and note["location"] == location:
            return [(first, by) for first, by in note["shifts"]]
    return []


def up_to_date(history: History, note: Mapping[str, Any]) -> set[Target]:
    """Return the partitions of a note whose facts equal those of the history, or are newer."""
    found = set()
    for row in note["rows"]:
        with contextlib.suppress(TypeError, ValueError):  # a later version's rows have more fields
            known = row_of(history, (row[0], row[1]))
            if row == known or newest(row) > newest(known):
                found.add((row[0], row[1]))
    return found


def restore(
    history: History,
    note: Mapping[str, Any],
    wiped: Mapping[str, float],
    *,
    only: Collection[str] | None = None,
    knows_better: bool = True,
) -> set[Target]:
    """Restore facts that the log no longer has from a note, and return the note's partitions.

    Args:
        wiped: Time of the last wipe by asset (Unix seconds).
        only: Assets to restore; None means all.
        knows_better: True to prefer the note if note and history have the same latest event. When the note was written,
            the log had more of the earlier events.
    """
    assets = history.graph.nodes.keys() if only is None else history.graph.nodes.keys() & set(only)
    told = set()
    for row in note["rows"]:
        target = (row[0], row[1])
        if target[0] not in assets or wiped.get(target[0], float("-inf")) >= note["wipes_until"]:
            continue
        with contextlib.suppress(TypeError, ValueError):  # a later version's rows have more fields
            known = row_of(history, target)
            ahead = newest(row) - newest(known)
            if known != row and (ahead > 0 or (ahead == 0 and knows_better)):
                replace_row(history, row)
                history.dirty.add(target)
                history.revision += 1
            told.add(target)
    if only is None and knows_better:
        take_keys(history, note)
        heard_of = [(asset, partition) for asset, partition in note.get("no_keys", ()) if asset in assets]
        history.are_keys_now(target for target in heard_of if history.problem(target) is None)
    is_newest = only is None and knows_better  # notes are read in the order of their writing
    durations = history.durations
    samples = {asset: deque(seconds, SAMPLES) for asset, seconds in note["leads"].items()}
    of_runs: Sequence[tuple[dict[str, Any], Mapping[str, Any]]] = (
        (durations.samples, samples),
        (durations.per_partition, note["strides"]),
        (durations.ranges, note.get("ranges", {})),
    )
    for kept, noted in of_runs:
        new = assets & (noted.keys() if is_newest else noted.keys() - kept.keys())
        kept.update((asset, noted[asset]) for asset in new)
    for asset, at in note["first_seen"].items():
        if asset in assets:
            history.first_seen[asset] = min(at, history.first_seen.get(asset, at))
    return told
