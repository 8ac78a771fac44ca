"""Pruning of an instance: choose old records, prove that no decision changes, then delete.

Belongs here: the order of the steps. Does not belong here: the rules of the choice (`retention.choice`), the comparison
of histories (`retention.proof`), and deletions in the storages (`dagster_internals.old_records`, `old_ticks`).

The runs go first, the oldest first, and each in a way that a repetition completes. A prune that is killed in any step
therefore leaves the log as an earlier prune would have left it.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta

from dagster import DagsterInstance

from dagster_tidemark.dagster_internals import event_time, instance_store, old_records, old_ticks
from dagster_tidemark.dagster_internals.old_ticks import OldEvaluation, OldTicks
from dagster_tidemark.engine.lag_history import pruned_before
from dagster_tidemark.errors import Terminal
from dagster_tidemark.event_log import checkpoint
from dagster_tidemark.retention.choice import Choice, RecordChooser
from dagster_tidemark.retention.locations import LINEAGE, LISTENERS, PruneRefused, known_locations
from dagster_tidemark.retention.proof import MakeGraph, catch_up, difference
from dagster_tidemark.tags import PREFIX, PRUNED

SHORTEST = timedelta(hours=1)
"""Shortest age: a planner writes its results into the journal within minutes, and a person reads logs for a while."""

_OWN_SENSORS = frozenset(
    {
        "asset_events",
        "automation",
        "catch_up",
        "contracts",
        "dead_runs",
        "freshness_report",
        "incidents",
        "landing",
        LINEAGE,
        "maintenance",
        "prune",
        "reconcile_all",
        "reconcile_recent",
        "streams",
    }
)
_BETWEEN_LOOKS = 50
_ROUNDS = 4
_NOTES = 3
"""Attempts to note a partition. Events that are written at the same time may be newer than the note."""
_UNPROVEN = "have assets whose facts would differ after a restart"


class TooShort(Terminal):
    """The age of records to delete is shorter than an hour."""


@dataclass(frozen=True)
class Amount:
    """Number of records of a kind, and their bytes in the storage."""

    count: int = 0
    size: int = 0


@dataclass(frozen=True)
class Pruning:
    """The result of pruning, or of a dry run.

    Args:
        before: Records that ended before this time are old (Unix seconds).
        applied: True if the records were deleted.
        amounts: Amount of deleted records, by kind.
        kept: Number of old runs that stay, by reason.
        noted: Partitions whose facts were written into the journal first, or must be.
        unproven: Assets whose records stay, because a restarted planner would know something else without them.
    """

    before: float
    applied: bool
    amounts: Mapping[str, Amount]
    kept: Mapping[str, int] = field(default_factory=dict)
    noted: int = 0
    unproven: tuple[str, ...] = ()


def prune(
    instance: DagsterInstance,
    make_graph: MakeGraph,
    older_than: timedelta,
    *,
    apply: bool,
    unplanned: bool = False,
    sensors: Collection[str] | None = None,
    progress: Callable[[str], None] = lambda line: None,
) -> Pruning:
    """Delete old records that no decision needs, or list them.

    Args:
        make_graph: Makes the planner's graph of the code location's assets.
        apply: True to delete. Without it, nothing in the instance changes.
        unplanned: True to include runs of assets and jobs that Tidemark does not plan.
        sensors: The sensors that the code location declares; None if they are unknown.

    Raises:
        TooShort: the age is shorter than an hour.
        PruneRefused: it is unknown which records are needed. Nothing was deleted.
    """
    if older_than < SHORTEST:
        raise TooShort(f"an age of {older_than} is too short: expected at least {SHORTEST}; keep records for longer")
    if not old_records.is_sql(instance):
        raise PruneRefused(
            "the storages of this instance are no SQL databases of Dagster's, so old records cannot be found in them; "
            "use SQLite or PostgreSQL"
        )
    now = event_time.now()
    before = now - older_than.total_seconds()
    graph = make_graph()
    known = known_locations(instance, graph, sensors)
    key = checkpoint.key_of(graph)
    chooser = RecordChooser(instance, graph, known, location=key, before=before, now=now, unplanned=unplanned)
    choice, noted, unproven = _proven(instance, make_graph, chooser.choice(), apply=apply)
    planned = {name for name, node in graph.nodes.items() if node.automated}
    ticks = old_ticks.old_ticks(instance, before, known.ours, lambda name: unplanned or is_own_sensor(name))
    evaluations = old_ticks.old_evaluations(instance, before, planned)
    files = old_records.files_without_run(instance, before)
    found = Pruning(before, False, _amounts(choice, ticks, evaluations, files), choice.kept, noted, unproven)
    if not apply:
        return found
    if choice.runs or choice.event_ids:
        _save_before(instance, before)
    _delete(instance, choice, ticks, evaluations, progress)
    for run_id, _ in files:
        old_records.delete_file(instance, run_id)
    return replace(found, applied=True)


def _save_before(instance: DagsterInstance, before: float) -> None:
    """Save the time before which the log no longer has all events. Reports of lag begin there."""
    instance_store.save(instance, PRUNED, str(max(before, pruned_before(instance))))


def is_own_sensor(name: str) -> bool:
    """Return True if a sensor or schedule is one of the library's."""
    own = name.removeprefix(PREFIX)
    return own in _OWN_SENSORS or own.startswith(("automation", LISTENERS))


def _proven(
    instance: DagsterInstance, make_graph: MakeGraph, choice: Choice, *, apply: bool
) -> tuple[Choice, int, tuple[str, ...]]:
    """Return the part of a choice whose deletion changes no decision, with the numbers of notes and unproven assets."""
    unproven, noted = set[str](), 0
    for _ in range(_ROUNDS):
        if not choice.event_ids:
            return choice, noted, tuple(sorted(unproven))
        found = difference(instance, make_graph, choice.event_ids)
        noted = noted or len(found.rows)
        for _ in range(_NOTES if apply else 0):
            if not found.rows:
                break
            catch_up(instance, found.truth)
            found.truth.write_note(instance, found.rows)
            found = difference(instance, make_graph, choice.event_ids)
        differing = set(found.assets) | ({asset for asset, _ in found.rows} if apply else set())
        if not differing:
            return choice, noted, tuple(sorted(unproven))
        unproven |= differing
        choice = choice.without(unproven, _UNPROVEN)
    names = ", ".join(sorted(unproven))
    raise PruneRefused(
        f"a restarted planner would know something else without the old records (assets: {names}); nothing was "
        "deleted: start the automation, which writes its journal within five minutes, and try again"
    )


def _delete(
    instance: DagsterInstance,
    choice: Choice,
    ticks: Sequence[OldTicks],
    evaluations: Sequence[OldEvaluation],
    progress: Callable[[str], None],
) -> None:
    left: list[str] = []
    for start in range(0, len(choice.runs), _BETWEEN_LOOKS):
        repeated, _ = old_records.needed_by_unfinished(instance)
        for run in choice.runs[start : start + _BETWEEN_LOOKS]:
            if run.id not in repeated and (why := old_records.delete_run(instance, run.id)):
                left.append(why)
        progress(f"{min(start + _BETWEEN_LOOKS, len(choice.runs))} of {len(choice.runs)} runs deleted")
    if left:
        progress(f"the compute logs of {len(left)} deleted runs stay, delete them in their store: {left[0]}")
    old_records.delete_checks(instance, choice.checks)
    old_records.delete_events(instance, [event.id for event in choice.events])
    old_records.delete_events(instance, [note.id for note in choice.notes])
    for each in ticks:
        old_ticks.delete_ticks(instance, each)
    old_ticks.delete_evaluations(instance, evaluations)


def _amounts(
    choice: Choice, ticks: Sequence[OldTicks], evaluations: Sequence[OldEvaluation], files: Sequence[tuple[str, int]]
) -> dict[str, Amount]:
    return {
        "runs": Amount(len(choice.runs), sum(run.size for run in choice.runs)),
        "events without a run": Amount(len(choice.events), sum(event.size for event in choice.events)),
        "check results": Amount(len(choice.checks), sum(check.size for check in choice.checks)),
        "notes of the planner": Amount(len(choice.notes), sum(note.size for note in choice.notes)),
        "ticks": Amount(sum(each.count for each in ticks), sum(each.size for each in ticks)),
        "evaluations": Amount(len(evaluations), sum(each.size for each in evaluations)),
        "files of deleted runs": Amount(len(files), sum(size for _, size in files)),
    }
