"""Notes on what runs built, in the event log itself, so that deleting runs changes nothing.

Deleting a run deletes its events, and with them what the log says of the partitions it built. The planner's own notes
belong to no run: observations of an asset of their own, each with what was known of some partitions then. Whoever reads
the log from its beginning takes from them what the log does not say any more. A wipe of an asset is another matter:
what was noted before it is forgotten with the rest.

Belongs here: the form of a note, and what is taken from it. Does not belong here: when one is written
(`event_log.consumer`).
"""

import contextlib
from collections import deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import dagster as dg
from dagster import DagsterInstance

from dagster_tidemark.event_log import event_rows
from dagster_tidemark.event_log.checkpoint import keys_of, newest, packed, row_of, take, take_keys, unpacked
from dagster_tidemark.event_log.event_rows import Event, Kind
from dagster_tidemark.planner.event_records import SAMPLES
from dagster_tidemark.planner.graph import Target
from dagster_tidemark.planner.history import History
from dagster_tidemark.tags import JOURNAL

_FORM = 1
_SAID = {"location", "process", "wipes_until", "shifts", "leads", "strides", "first_seen", "rows"}
_OF_OTHERS = 20  # notes that code locations on the same instance may have written since
_WHAT = "what"
_SAYS = "The planner's notes: with them, what is known of a partition outlives the deletion of the run that built it."


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
    """Note what is known of some partitions.

    Args:
        location: The key of the code location's checkpoint.
        process: Another one in every process: it need not read its own notes.
        wipes_until: Wipes up to this time (Unix seconds) are in the history.
        shifts: Of the log reader.
    """
    assets = {asset for asset, _ in targets}
    note = {
        "form": _FORM,
        "location": location,
        "process": process,
        "wipes_until": wipes_until,
        "shifts": [list(shift) for shift in shifts],
        "leads": {asset: list(history.leads[asset]) for asset in assets if asset in history.leads},
        "strides": {asset: history.strides[asset] for asset in assets if asset in history.strides},
        "first_seen": {asset: history.first_seen[asset] for asset in assets if asset in history.first_seen},
        **beside_rows(history),
        "rows": [row_of(history, target) for target in sorted(targets, key=repr)],
    }
    metadata = {_WHAT: dg.MetadataValue.text(_SAYS), JOURNAL: dg.MetadataValue.text(packed(note))}
    instance.report_runless_asset_event(dg.AssetObservation(JOURNAL.split("/"), metadata=metadata))


def beside_rows(history: History) -> dict[str, Any]:
    """What a note says beside what is known of partitions: their keys, and what was heard of and is none."""
    no_keys = sorted((target for target in history.set_aside if history.problem(target)), key=repr)
    said = keys_of(history) | {"no_keys": [list(target) for target in no_keys]}
    return {name: of for name, of in said.items() if of}


def opened(event: Event) -> dict[str, Any] | None:
    """The note an event is; None for one that cannot be read: a later version's, or a stranger's."""
    note = unpacked(event.content, _FORM)
    return note if note is not None and note.keys() >= _SAID else None


def notes(instance: DagsterInstance, since: float) -> Iterator[tuple[int, dict[str, Any]]]:
    """The notes written after a time (Unix seconds) with their storage ids, in the order of these."""
    for row in event_rows.rows_of_assets(instance, [JOURNAL], [Kind.OBSERVED], since):
        event = event_rows.event_of(row, row.id)
        note = opened(event) if event else None
        if note is not None:
            yield row.id, note


def last_shifts(instance: DagsterInstance, location: str) -> list[tuple[int, int]]:
    """The shifts a code location's latest note tells of."""
    for row in event_rows.last_rows_of(instance, JOURNAL, Kind.OBSERVED, limit=_OF_OTHERS):
        event = event_rows.event_of(row, row.id)
        note = opened(event) if event else None
        if note is not None and note["location"] == location:
            return [(first, by) for first, by in note["shifts"]]
    return []


def restore(
    history: History,
    note: Mapping[str, Any],
    wiped: Mapping[str, float],
    *,
    only: Collection[str] | None = None,
    knows_better: bool = True,
) -> set[Target]:
    """Take from a note what the log does not say, and give the partitions it is about.

    Args:
        wiped: Assets to when they were wiped (Unix seconds).
        only: These assets.
        knows_better: Where the note and the history know of the same latest event, the note is right: it was written
            when more of what came before was in the log.
    """
    assets = history.graph.nodes.keys() if only is None else history.graph.nodes.keys() & set(only)
    told = set()
    for row in note["rows"]:
        target = (row[0], row[1])
        if target[0] not in assets or wiped.get(target[0], float("-inf")) >= note["wipes_until"]:
            continue
        with contextlib.suppress(TypeError, ValueError):  # a later version says more of a partition than this one knows
            known = row_of(history, target)
            ahead = newest(row) - newest(known)
            if known != row and (ahead > 0 or (ahead == 0 and knows_better)):
                take(history, row)
                history.dirty.add(target)
                history.revision += 1
            told.add(target)
    if only is None and knows_better:
        take_keys(history, note)
        heard_of = [(asset, partition) for asset, partition in note.get("no_keys", ()) if asset in assets]
        history.are_keys_now(target for target in heard_of if history.problem(target) is None)
    for asset in assets & note["leads"].keys():
        history.leads.setdefault(asset, deque(note["leads"][asset], SAMPLES))
    for asset in assets & note["strides"].keys():
        history.strides.setdefault(asset, note["strides"][asset])
    for asset, at in note["first_seen"].items():
        if asset in assets:
            history.first_seen[asset] = min(at, history.first_seen.get(asset, at))
    return told
