"""Reads the event log: Dagster's records of assets and checks, and the log's SQL table. Writes many events together.

By default Dagster writes each event alone. For one event its SQLite storage opens three connections and commits twice:
130 to 190 ms on a busy laptop, where a run of 70 partitions took 20 s to write its events.

Does not belong here: reading the log's table as plain rows (`event_log.event_rows`).
"""

import json
import logging
import os
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from datetime import UTC, datetime
from functools import lru_cache, partial

import dagster as dg
import sqlalchemy
from dagster import (
    AssetRecordsFilter,
    DagsterEventType,
    DagsterInstance,
    EventLogEntry,
    EventLogRecord,
    EventRecordsResult,
)
from dagster._core.assets import AssetDetails
from dagster._core.definitions.data_version import CODE_VERSION_TAG
from dagster._core.storage.asset_check_execution_record import AssetCheckExecutionRecordStatus
from dagster._core.storage.event_log import SqlEventLogStorage, SqliteEventLogStorage
from dagster._core.storage.event_log.in_memory import InMemoryEventLogStorage
from dagster._core.storage.event_log.schema import AssetKeyTable, SqlEventLogStorageTable
from sqlalchemy.exc import SQLAlchemyError

from dagster_tidemark.sources.layout import Partition

CODE_VERSION = CODE_VERSION_TAG
"""Tag of a materialization with the asset's code version. Without a declared version, its value is the run's id."""
LOG_COLUMNS = SqlEventLogStorageTable.c
"""Columns of the log's table: id, dagster_event_type, asset_key, partition, run_id, timestamp, event."""
_PAGE = 1000
_AT_ONCE = 20  # maximum number of simultaneous runs of an asset; they may end in another order than they began
_EVALUATED = {AssetCheckExecutionRecordStatus.SUCCEEDED, AssetCheckExecutionRecordStatus.FAILED}
_logger = logging.getLogger(__name__)
_Fetch = Callable[..., EventRecordsResult]
_BATCH_SIZE = "DAGSTER_EVENT_BATCH_SIZE"  # Dagster reads this variable for each event
_MOST = 500
_TOGETHER = {DagsterEventType.ASSET_MATERIALIZATION, DagsterEventType.ASSET_MATERIALIZATION_PLANNED}


def log_connection(instance: DagsterInstance) -> AbstractContextManager[sqlalchemy.Connection]:
    """Return a connection to the database with the log's table; see `LOG_COLUMNS`."""
    storage = instance.event_log_storage
    assert isinstance(storage, SqlEventLogStorage)
    return storage.index_connection()


def stored_key(asset: str) -> str:
    """Return an asset's key in the form of the column `asset_key` in the log's table."""
    return dg.AssetKey(asset.split("/")).to_string()


@lru_cache(maxsize=10_000)
def asset_of(key: str) -> str:
    """Return the asset of a key in this form."""
    return "/".join(json.loads(key))


def stored_time(at: float) -> datetime:
    """Return a time (Unix seconds) in the form of Dagster's tables: in UTC, without a time zone."""
    return datetime.fromtimestamp(at, UTC).replace(tzinfo=None)


def unix_seconds(stored: datetime | None) -> float:
    """Return a time of Dagster's tables in Unix seconds; 0 if there is none."""
    return 0.0 if stored is None else stored.replace(tzinfo=stored.tzinfo or UTC).timestamp()


def partitions_of_text(event: str) -> tuple[Partition, ...]:
    """Return the partitions of a planned materialization, or (None,) if it has none.

    Args:
        event: The event as text, from the column `event` of the log's table.
    """
    planned = dg.deserialize_value(event, EventLogEntry).get_dagster_event().asset_materialization_planned_data
    return tuple(planned.partitions_subset.get_partition_keys()) if planned.partitions_subset else (None,)


def latest_observations(
    instance: DagsterInstance, key: dg.AssetKey, partitions: set[str] | None = None
) -> dict[Partition, dict[str, str]]:
    """Return the tags of each partition's latest observation, in two queries.

    Args:
        partitions: Keys of the partitions; None means all.
    """
    found = _latest_records(instance, DagsterEventType.ASSET_OBSERVATION, key, partitions)
    return {p: dict(r.asset_observation.tags) for p, r in found.items() if r.asset_observation}


def latest_observed(
    instance: DagsterInstance, key: dg.AssetKey, partitions: set[str]
) -> dict[Partition, dg.AssetObservation]:
    """Return the latest observation of each of these partitions, in two queries."""
    found = _latest_records(instance, DagsterEventType.ASSET_OBSERVATION, key, partitions)
    return {p: r.asset_observation for p, r in found.items() if r.asset_observation}


def all_observed(
    instance: DagsterInstance, key: dg.AssetKey, partitions: set[str]
) -> dict[Partition, list[tuple[float, dg.AssetObservation]]]:
    """Return the observations of each of these partitions with their times (Unix seconds), oldest first."""
    found: dict[Partition, list[tuple[float, dg.AssetObservation]]] = {}
    for record in _all_records(instance.fetch_observations, key, partitions):
        if (seen := record.asset_observation) is not None:
            found.setdefault(seen.partition, []).append((record.timestamp, seen))
    return found


def all_metadata(
    instance: DagsterInstance, key: dg.AssetKey, name: str, partitions: set[str]
) -> dict[Partition, list[tuple[float, object]]]:
    """Return one metadata value of the materializations of these partitions, each with its time, oldest first.

    Materializations without the value are left out.
    """
    found: dict[Partition, list[tuple[float, object]]] = {}
    for record in _all_records(instance.fetch_materializations, key, partitions):
        made = record.asset_materialization
        if made is not None and (value := made.metadata.get(name)) is not None:
            found.setdefault(made.partition, []).append((record.timestamp, value.value))
    return found


def _all_records(fetch: _Fetch, key: dg.AssetKey, partitions: set[str]) -> Iterator[EventLogRecord]:
    cursor, has_more = None, True
    while has_more:
        page = fetch(AssetRecordsFilter(key, sorted(partitions)), limit=_PAGE, cursor=cursor, ascending=True)
        yield from page.records
        cursor, has_more = page.cursor, page.has_more


def latest_metadata(
    instance: DagsterInstance, key: dg.AssetKey, name: str, partitions: set[str] | None = None
) -> dict[Partition, object]:
    """Return one metadata value of each partition's latest materialization, in two queries.

    Partitions without the value are left out.

    Args:
        name: The name of the metadata value.
        partitions: Keys of the partitions; None means all.
    """
    found = _latest_records(instance, DagsterEventType.ASSET_MATERIALIZATION, key, partitions)
    said = {p: r.asset_materialization.metadata.get(name) for p, r in found.items() if r.asset_materialization}
    return {partition: value.value for partition, value in said.items() if value is not None}


def _latest_records(
    instance: DagsterInstance, kind: DagsterEventType, key: dg.AssetKey, partitions: set[str] | None
) -> dict[Partition, EventLogRecord]:
    fetch = {
        DagsterEventType.ASSET_OBSERVATION: instance.fetch_observations,
        DagsterEventType.ASSET_MATERIALIZATION: instance.fetch_materializations,
    }[kind]
    ids = list(instance.event_log_storage.get_latest_storage_id_by_partition(key, kind, partitions).values())
    found: dict[Partition, EventLogRecord] = {}
    for start in range(0, len(ids), _PAGE):
        some = ids[start : start + _PAGE]
        records = fetch(AssetRecordsFilter(key, storage_ids=some), limit=len(some)).records
        found |= {r.partition_key: r for r in records}
    if not ids and partitions is None:
        found |= {r.partition_key: r for r in fetch(AssetRecordsFilter(key), limit=1).records}
    return found


def last_event_id(instance: DagsterInstance) -> int:
    """Return the storage id of the latest event of any kind."""
    return instance.event_log_storage.get_maximum_record_id() or 0


def runs_planned_after(instance: DagsterInstance, asset: str, after: int) -> set[str]:
    """Return the ids of the runs of an asset that were created after the event with a storage id."""
    query = sqlalchemy.select(LOG_COLUMNS.run_id).where(
        LOG_COLUMNS.asset_key == stored_key(asset),
        LOG_COLUMNS.dagster_event_type == DagsterEventType.ASSET_MATERIALIZATION_PLANNED.value,
        LOG_COLUMNS.id > after,
    )
    with log_connection(instance) as connection:
        return {run_id for (run_id,) in connection.execute(query)}


def commits_in_order(instance: DagsterInstance) -> bool:
    """Return True if events become visible in the order of their ids, because only one process writes at a time."""
    return isinstance(instance.event_log_storage, SqliteEventLogStorage | InMemoryEventLogStorage)


def catalog(instance: DagsterInstance) -> dict[str, float]:
    """Return the time when each asset of an instance was last wiped (Unix seconds); minus infinity if never."""
    query = sqlalchemy.select(AssetKeyTable.c.asset_key, AssetKeyTable.c.asset_details)
    with log_connection(instance) as connection:
        rows = connection.execute(query).fetchall()
    return {asset_of(key): _wiped_at(details) for key, details in rows}


def _wiped_at(details: str | None) -> float:
    found = dg.deserialize_value(details, AssetDetails).last_wipe_timestamp if details else None
    return float("-inf") if found is None else found


def dynamic_partitions(instance: DagsterInstance, names: Collection[str]) -> dict[str, list[str]]:
    """Return the existing keys of each dynamic partitions definition in Dagster's order: oldest first."""
    return {name: list(instance.get_dynamic_partitions(name)) for name in names}


def check_results(instance: DagsterInstance, asset: str, check: str, since: float) -> list[tuple[float, bool]]:
    """Return the results of an asset check since a time, and some earlier ones, newest first.

    Returns:
        For each result the time (Unix seconds), and True if the check passed.
    """
    key = dg.AssetCheckKey(dg.AssetKey.from_user_string(asset), check)
    found: list[tuple[float, bool]] = []  # newest first
    cursor = None
    while not found or found[-1][0] >= since:
        records = instance.event_log_storage.get_asset_check_execution_history(key, _PAGE, cursor)
        for record in records:
            event = record.event.dagster_event if record.event else None
            result = event.event_specific_data if event else None
            if isinstance(result, dg.AssetCheckEvaluation):
                warned = result.severity is dg.AssetCheckSeverity.WARN
                found.append((record.event.timestamp if record.event else 0.0, result.passed or warned))
        if len(records) < _PAGE:
            break
        cursor = records[-1].id
    return found


def latest_check_metadata(instance: DagsterInstance, key: dg.AssetCheckKey) -> dict[str, object] | None:
    """Return the metadata of a check's latest evaluation; None if it was never evaluated."""
    # If a run plans to evaluate the check, Dagster's latest record is that plan, which has no metadata.
    records = instance.event_log_storage.get_asset_check_execution_history(key, _AT_ONCE, status=_EVALUATED)
    events = [record.event for record in records if record.event and record.event.dagster_event]
    latest = max(events, key=lambda event: event.timestamp, default=None)
    if latest is None or latest.dagster_event is None:
        return None
    return {name: of.value for name, of in latest.dagster_event.asset_check_evaluation_data.metadata.items()}


@contextmanager
def events_in_batches(instance: DagsterInstance) -> Iterator[None]:
    """Write planned and recorded materializations of a run's partitions in batches, for runs within the block.

    A batch has at most 500 events of one output. If the process dies, a batch is either stored or not. PostgreSQL's
    storage has its own batches. For other storages Dagster falls back to single events.
    """
    storage, before = instance.event_log_storage, os.environ.get(_BATCH_SIZE)
    if isinstance(storage, SqliteEventLogStorage):
        vars(storage)["store_event_batch"] = partial(_store, storage)
    os.environ[_BATCH_SIZE] = before or str(_MOST)
    try:
        yield
    finally:
        vars(storage).pop("store_event_batch", None)
        if before is None:
            del os.environ[_BATCH_SIZE]


def _store(storage: SqliteEventLogStorage, events: Sequence[EventLogEntry]) -> None:
    """Store events of one run, as `SqliteEventLogStorage.store_event` does, with one transaction for each database.

    If this raises, Dagster stores all events again, one by one. So the index comes first, which others may have locked,
    and a failure of the run's own file is only logged. The index has all that other runs and the planner read.
    """
    for event in events:
        if event.dagster_event_type not in _TOGETHER:
            storage.store_event(event)
    together = [event for event in events if event.dagster_event_type in _TOGETHER]
    if not together:
        return
    rows = [storage.prepare_insert_event(event) for event in together]
    with storage.index_transaction() as connection:
        ids = []
        for row in rows:
            key = connection.execute(row).inserted_primary_key
            assert key is not None
            ids.append(key[0])
        storage._store_asset_event_tags(connection, together, ids)
        stored = zip(together, ids, strict=True)
        last = {(e.get_dagster_event().asset_key, e.dagster_event_type): (e, id_) for e, id_ in stored}
        for event, id_ in last.values():  # the table of assets has only the last event of each
            storage._store_asset_event(connection, event, id_)
    try:
        with storage.run_connection(together[0].run_id) as connection:
            for row in rows:
                connection.execute(row)
    except SQLAlchemyError:
        _logger.exception("run %s: its own log lacks %d events", together[0].run_id, len(together))
