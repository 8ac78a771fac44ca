"""Old records of the event log: their rows, their sizes, and their deletion in small transactions.

Dagster's public API deletes whole runs only. It leaves the rows of their checks, and on SQLite the file of each run.

Does not belong here: the choice of records (`retention`), and ticks (`dagster_internals.old_ticks`).
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TypeVar

import dagster as dg
import sqlalchemy as sa
from dagster import DagsterInstance
from dagster._core.execution.backfill import BULK_ACTION_TERMINAL_STATUSES, BulkActionsFilter, BulkActionStatus
from dagster._core.instance import RUNLESS_RUN_ID
from dagster._core.storage.dagster_run import NOT_FINISHED_STATUSES
from dagster._core.storage.event_log import SqlEventLogStorage, SqliteEventLogStorage
from dagster._core.storage.event_log.schema import (
    AssetCheckExecutionsTable,
    AssetEventTagsTable,
    SqlEventLogStorageTable,
)
from dagster._core.storage.runs import SqlRunStorage
from dagster._core.storage.schedules.sql_schedule_storage import SqlScheduleStorage
from dagster._core.storage.tags import BACKFILL_ID_TAG, RUN_KEY_TAG

from dagster_tidemark.dagster_internals.event_storage import asset_of, log_connection, unix_seconds

_LOG, _CHECKS, _TAGS = SqlEventLogStorageTable.c, AssetCheckExecutionsTable.c, AssetEventTagsTable.c
_T = TypeVar("_T")
_AT_ONCE = 200
"""Rows that one transaction deletes, and values in one query."""
_KINDS = tuple(
    kind.value
    for kind in (
        dg.DagsterEventType.ASSET_MATERIALIZATION,
        dg.DagsterEventType.ASSET_OBSERVATION,
        dg.DagsterEventType.ASSET_MATERIALIZATION_PLANNED,
    )
)


@dataclass(frozen=True)
class LoggedEvent:
    """An event on an asset, without its text.

    Args:
        id: Storage id.
        kind: Dagster's name of the event's type.
        at: Time when it was written (Unix seconds).
        size: Characters of its text.
    """

    id: int
    kind: str
    asset: str
    partition: str | None
    run_id: str
    at: float
    size: int


@dataclass(frozen=True)
class LoggedCheck:
    """A row of Dagster's table of check executions.

    Args:
        id: Id of the row.
        event_id: Storage id of its evaluation; None while it is only planned.
        about: Storage id of the materialization that was checked, if known.
        status: Dagster's name of the outcome, or PLANNED.
        at: Time of the evaluation or of its plan (Unix seconds).
    """

    id: int
    asset: str
    check: str
    partition: str | None
    run_id: str
    event_id: int | None
    about: int | None
    status: str
    at: float
    size: int


def is_sql(instance: DagsterInstance) -> bool:
    """Return True if the instance keeps its runs, events and ticks in databases that this module can read."""
    return (
        isinstance(instance.run_storage, SqlRunStorage)
        and isinstance(instance.event_log_storage, SqlEventLogStorage)
        and isinstance(instance.schedule_storage, SqlScheduleStorage)
    )


def asset_events(instance: DagsterInstance) -> Iterator[LoggedEvent]:
    """Yield the materializations, observations and planned materializations of the log, in the order of ids."""
    columns = (
        _LOG.id,
        _LOG.dagster_event_type,
        _LOG.asset_key,
        _LOG.partition,
        _LOG.run_id,
        _LOG.timestamp,
        sa.func.length(_LOG.event),
    )
    after = 0
    while True:
        query = (
            sa.select(*columns)
            .where(_LOG.dagster_event_type.in_(_KINDS), _LOG.id > after, _LOG.asset_key.is_not(None))
            .order_by(_LOG.id)
            .limit(50_000)
        )
        with log_connection(instance) as connection:
            rows = connection.execute(query).fetchall()
        for id, kind, key, partition, run_id, at, size in rows:
            yield LoggedEvent(id, kind, asset_of(key), partition, run_id or "", unix_seconds(at), size)
        if not rows:
            return
        after = rows[-1][0]


def checks(instance: DagsterInstance) -> list[LoggedCheck]:
    """Return the rows of all check executions, in the order of ids."""
    columns = (
        _CHECKS.id,
        _CHECKS.asset_key,
        _CHECKS.check_name,
        _CHECKS.partition,
        _CHECKS.run_id,
        _CHECKS.evaluation_event_storage_id,
        _CHECKS.materialization_event_storage_id,
        _CHECKS.execution_status,
        _CHECKS.evaluation_event_timestamp,
        _CHECKS.create_timestamp,
        sa.func.coalesce(sa.func.length(_CHECKS.evaluation_event), 0),
    )
    with log_connection(instance) as connection:
        rows = connection.execute(sa.select(*columns).order_by(_CHECKS.id)).fetchall()
    return [
        LoggedCheck(
            id,
            asset_of(key),
            check,
            partition,
            run_id or "",
            event,
            about,
            status,
            unix_seconds(at or made),
            size,
        )
        for id, key, check, partition, run_id, event, about, status, at, made, size in rows
    ]


def last_ids(instance: DagsterInstance, count: int) -> dict[int, str]:
    """Return the ids of the latest events of any kind, each with its run (empty without a run)."""
    query = sa.select(_LOG.id, _LOG.run_id).order_by(_LOG.id.desc()).limit(count)
    with log_connection(instance) as connection:
        return {id: run_id or "" for id, run_id in connection.execute(query)}


def needed_by_unfinished(instance: DagsterInstance) -> tuple[frozenset[str], frozenset[str]]:
    """Return the runs and the backfills that unfinished work refers to.

    These are the runs that an unfinished run repeats, and the backfills whose runs the daemon still reads.
    """
    runs = instance.get_runs(dg.RunsFilter(statuses=NOT_FINISHED_STATUSES))
    repeated = {id for run in runs for id in (run.parent_run_id, run.root_run_id) if id}
    unfinished = [status for status in BulkActionStatus if status not in BULK_ACTION_TERMINAL_STATUSES]
    backfills = instance.get_backfills(filters=BulkActionsFilter(statuses=unfinished))
    return frozenset(repeated), frozenset(backfill.backfill_id for backfill in backfills)


def backfill_of(run: dg.DagsterRun) -> str | None:
    """Return the id of the backfill that requested a run, if any."""
    return run.tags.get(BACKFILL_ID_TAG)


def has_run_key(run: dg.DagsterRun) -> bool:
    """Return True if a sensor or schedule requested a run with a key.

    Dagster launches a run again if no run with the key exists.
    """
    return RUN_KEY_TAG in run.tags


def sizes_of_runs(instance: DagsterInstance, run_ids: Collection[str]) -> dict[str, int]:
    """Return the bytes of each run's events: the text of its rows, and its own file on SQLite."""
    found = dict.fromkeys(run_ids, 0)
    for some in _some(run_ids):
        query = (
            sa.select(_LOG.run_id, sa.func.sum(sa.func.length(_LOG.event)))
            .where(_LOG.run_id.in_(some))
            .group_by(_LOG.run_id)
        )
        with log_connection(instance) as connection:
            found |= {run_id: int(size) for run_id, size in connection.execute(query)}
    for run_id in run_ids:
        found[run_id] += sum(file.stat().st_size for file in _files(instance, run_id))
    return found


def delete_run(instance: DagsterInstance, run_id: str) -> str:
    """Delete an ended run with its logs, events and checks. If this is interrupted, a repetition completes it.

    The row of the run is deleted last: until then the run is found again. Its events disappear from the log in one
    transaction.

    Returns:
        Why its logs stay in their store; empty if they were deleted.
    """
    if not instance.has_run(run_id):  # another prune was faster: without its file, its events cannot be deleted
        delete_file(instance, run_id)
        return ""
    why = ""
    try:
        instance.compute_log_manager.delete_logs(prefix=[run_id])
    except Exception as error:  # stores of logs raise errors of any type; some cannot delete
        why = f"{type(error).__name__}: {error}".partition("\n")[0]
    _delete_events_of_run(instance, run_id)
    with log_connection(instance) as connection:
        connection.execute(AssetCheckExecutionsTable.delete().where(_CHECKS.run_id == run_id))
    instance.run_storage.delete_run(run_id)  # `instance.delete_run` would delete the events again
    delete_file(instance, run_id)
    return why


def _delete_events_of_run(instance: DagsterInstance, run_id: str) -> None:
    storage = instance.event_log_storage
    assert isinstance(storage, SqlEventLogStorage)
    if not isinstance(storage, SqliteEventLogStorage):
        storage.delete_events(run_id)
        return
    # On SQLite, Dagster would also open the run's own file, which takes most of the time. The file is deleted anyway.
    with log_connection(instance) as connection:
        storage.delete_events_for_run(connection, run_id)
    storage.free_concurrency_slots_for_run(run_id)


def delete_file(instance: DagsterInstance, run_id: str) -> None:
    """Delete the file of events of a deleted run, which SQLite has.

    The file of a run that still exists must stay: a webserver that has opened it once would find no table in it.
    """
    for file in _files(instance, run_id):
        file.unlink(missing_ok=True)


def delete_events(instance: DagsterInstance, ids: Iterable[int]) -> None:
    """Delete events without a run, and their tags."""
    for some in _some(ids):
        of_none = sa.and_(_LOG.id.in_(some), _LOG.run_id == RUNLESS_RUN_ID)
        with log_connection(instance) as connection:
            rows = connection.execute(sa.select(_LOG.id, _LOG.event).where(of_none)).fetchall()
        _delete_copies(instance, [text for _, text in rows])
        with log_connection(instance) as connection:
            connection.execute(SqlEventLogStorageTable.delete().where(of_none))
            connection.execute(AssetEventTagsTable.delete().where(_TAGS.event_id.in_([id for id, _ in rows])))


def delete_checks(instance: DagsterInstance, some_checks: Sequence[LoggedCheck]) -> None:
    """Delete the results of checks that no run evaluated."""
    delete_events(instance, [each.event_id for each in some_checks if each.event_id is not None])
    for some in _some(each.id for each in some_checks):
        with log_connection(instance) as connection:
            connection.execute(AssetCheckExecutionsTable.delete().where(_CHECKS.id.in_(some)))


def files_without_run(instance: DagsterInstance, before: float) -> list[tuple[str, int]]:
    """Return the ids of runs that are deleted but still have a file of events on SQLite, with the file's bytes.

    Args:
        before: Files changed after this time (Unix seconds) are left out: their run may just have begun.
    """
    storage = instance.event_log_storage
    if not isinstance(storage, SqliteEventLogStorage):
        return []
    old = {
        run_id: path.stat().st_size
        for run_id in storage.get_all_run_ids()
        if run_id and (path := Path(storage.path_for_shard(run_id))).exists() and path.stat().st_mtime < before
    }
    found: list[tuple[str, int]] = []
    for some in _some(old):
        known = {run.run_id for run in instance.get_runs(dg.RunsFilter(run_ids=list(some)))}
        found += [(run_id, old[run_id]) for run_id in some if run_id not in known]
    return found


def _files(instance: DagsterInstance, run_id: str) -> list[Path]:
    """Return the files of a run's own database; none unless the storage has one file for each run."""
    storage = instance.event_log_storage
    if not isinstance(storage, SqliteEventLogStorage) or run_id in (RUNLESS_RUN_ID, "index"):
        return []
    path = Path(storage.path_for_shard(run_id))
    return [file for ending in ("", "-wal", "-shm") if (file := path.with_name(path.name + ending)).exists()]


def _delete_copies(instance: DagsterInstance, texts: Sequence[str]) -> None:
    """Delete the second copy of events without a run. SQLite has it, in a file with other ids."""
    storage = instance.event_log_storage
    if not isinstance(storage, SqliteEventLogStorage) or not texts:
        return
    with storage.run_connection(RUNLESS_RUN_ID) as connection:
        last = connection.execute(sa.select(sa.func.max(_LOG.id))).scalar()
        connection.execute(SqlEventLogStorageTable.delete().where(_LOG.event.in_(texts), _LOG.id != last))


def _some(values: Iterable[_T]) -> Iterator[list[_T]]:
    every = iter(values)
    while found := list(islice(every, _AT_ONCE)):
        yield found
