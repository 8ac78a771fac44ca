"""The event log as plain rows: what happened to which partitions, in the order of storage ids.

Reads the log's table directly, one query for all assets, and takes from the JSON of an event the few fields a
history needs. Dagster's own records, of which it builds a dozen objects for each event, took ten times as long:
a million events would be ten minutes. tests/automation/test_event_log.py holds every field beside Dagster's record.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import Any

import sqlalchemy
from dagster import DagsterInstance, EventLogEntry
from dagster._core.definitions.data_version import CODE_VERSION_TAG
from dagster._core.storage.event_log import SqlEventLogStorage
from dagster._core.storage.event_log.schema import SqlEventLogStorageTable
from dagster._serdes import deserialize_value

from pipelines.lakehouse.io_manager import CONTENT
from pipelines.sources.feed import Partition

_PAGE = 2000
_TABLE = SqlEventLogStorageTable.c


class Kind(StrEnum):
    """What happened, as Dagster names it."""

    OBSERVED = "ASSET_OBSERVATION"
    PLANNED = "ASSET_MATERIALIZATION_PLANNED"
    MATERIALIZED = "ASSET_MATERIALIZATION"


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened to partitions of an asset.

    Args:
        id: The storage id.
        partitions: Several only of a planned materialization.
        run_id: None for an event that no run wrote.
        at: When it was written, in Unix seconds.
        tags: Of an observation or a materialization.
        content: The content version a materialization was written with.
    """

    id: int
    kind: Kind
    asset: str
    partitions: tuple[Partition, ...]
    run_id: str | None
    at: float
    tags: Mapping[str, str]
    content: str | None = None

    @property
    def code_version(self) -> str | None:
        """Of the code that made a materialization."""
        return self.tags.get(CODE_VERSION_TAG)


def events_after(instance: DagsterInstance, after: int) -> Iterator[Event]:
    """Observations, planned and actual materializations of all assets, from after a storage id on."""
    storage = instance.event_log_storage
    assert isinstance(storage, SqlEventLogStorage)
    columns = (_TABLE.id, _TABLE.dagster_event_type, _TABLE.asset_key, _TABLE.partition, _TABLE.run_id, _TABLE.event)
    kinds = [kind.value for kind in Kind]
    while True:
        query = (
            sqlalchemy.select(*columns)
            .where(_TABLE.dagster_event_type.in_(kinds), _TABLE.id > after)
            .order_by(_TABLE.id)
            .limit(_PAGE)
        )
        with storage.index_connection() as connection:
            rows = connection.execute(query).fetchall()
        for row in rows:
            yield _event(*row)
        if len(rows) < _PAGE:
            return
        after = rows[-1][0]


def _event(id: int, kind: str, key: str, partition: Partition, run_id: str | None, text: str) -> Event:
    entry = json.loads(text)
    told = entry["dagster_event"]["event_specific_data"]
    partitions: tuple[Partition, ...] = (partition,)
    about: Mapping[str, Any] = {}
    if kind == Kind.PLANNED:
        if told.get("partitions_subset") is not None:
            partitions = _subset(text)
    else:
        about = told["asset_observation"] if kind == Kind.OBSERVED else told["materialization"]
    return Event(
        id,
        Kind(kind),
        _asset(key),
        partitions,
        run_id or None,
        entry["timestamp"],
        about.get("tags") or {},
        _content(about.get("metadata_entries") or ()) if kind == Kind.MATERIALIZED else None,
    )


def _content(entries: Any) -> str | None:
    for entry in entries:
        if entry["label"] == CONTENT:
            value = entry["entry_data"]
            return str(value.get("text", value.get("value")))
    return None


def _subset(text: str) -> tuple[Partition, ...]:
    planned = deserialize_value(text, EventLogEntry).get_dagster_event().asset_materialization_planned_data
    return tuple(planned.partitions_subset.get_partition_keys()) if planned.partitions_subset else (None,)


@lru_cache(maxsize=10_000)
def _asset(key: str) -> str:
    return "/".join(json.loads(key))
