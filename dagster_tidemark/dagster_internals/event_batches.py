"""Writes the events about many partitions of a run together.

By default Dagster writes each event alone. For one event its SQLite storage opens three connections and commits twice:
130 to 190 ms on a busy laptop, where a run of 70 partitions took 20 s to write its events. Does not belong here:
reading the log (`event_storage`).
"""

import logging
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial

from dagster import DagsterEventType, DagsterInstance, EventLogEntry
from dagster._core.storage.event_log import SqliteEventLogStorage
from sqlalchemy.exc import SQLAlchemyError

_logger = logging.getLogger(__name__)
_BATCH_SIZE = "DAGSTER_EVENT_BATCH_SIZE"  # Dagster reads this variable for each event
_MOST = 500
_TOGETHER = {DagsterEventType.ASSET_MATERIALIZATION, DagsterEventType.ASSET_MATERIALIZATION_PLANNED}


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
