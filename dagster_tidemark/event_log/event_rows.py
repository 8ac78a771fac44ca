"""The event log as plain rows: what happened to which partitions, in the order of storage ids.

Reads the log's table directly, one query for all assets, and takes from the JSON of an event the few fields a
history needs. Dagster's own records, of which it builds a dozen objects for each event, took ten times as long:
a million events would be ten minutes. `test_event_log.py` holds every field beside Dagster's record.

Belongs here: queries of the log's table, and what a row says. Does not belong here: which rows were read already
(`event_log.reader`), and what an event means (`event_log.intake`).
"""

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from functools import lru_cache
from typing import Any, NamedTuple

import sqlalchemy
from dagster import AssetKey, DagsterInstance, EventLogEntry
from dagster._core.definitions.data_version import CODE_VERSION_TAG
from dagster._core.storage.event_log import SqlEventLogStorage
from dagster._core.storage.event_log.schema import SqlEventLogStorageTable
from dagster._serdes import deserialize_value
from sqlalchemy.sql.elements import ColumnElement

from dagster_tidemark.sources.feed import Partition
from dagster_tidemark.tags import CONTENT, JOURNAL

_PAGE = 2000
_IDS_IN_A_QUERY = 500
_TABLE = SqlEventLogStorageTable.c
_COLUMNS = (_TABLE.id, _TABLE.dagster_event_type, _TABLE.asset_key, _TABLE.partition, _TABLE.run_id, _TABLE.event)


_IS_BLOCKING = '"blocking": true'
"""In the text of an evaluation."""


class Kind(StrEnum):
    """What happened, as Dagster names it."""

    OBSERVED = "ASSET_OBSERVATION"
    PLANNED = "ASSET_MATERIALIZATION_PLANNED"
    MATERIALIZED = "ASSET_MATERIALIZATION"
    CHECKED = "ASSET_CHECK_EVALUATION"


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened to partitions of an asset.

    Args:
        id: Its place in the order of events: the storage id, unless ids were given out twice.
        partitions: Several only of a planned materialization.
        run_id: None for an event that no run wrote. Of a check: the run whose materialization it is about.
        at: When it was written, in Unix seconds.
        tags: Of an observation or a materialization.
        content: The content version a materialization was written with; the text of a note of the planner's own.
        check: The name of the check that was evaluated.
        passed: Whether it passed, or its failure is only a warning.
        evaluated_by: The run that evaluated the check, if one did.
        blocking: True if the check was blocking by its own definition, wherever that is. None: the event says nothing.
        problem: Why the event cannot be read. Empty: it can.
    """

    id: int
    kind: Kind
    asset: str
    partitions: tuple[Partition, ...]
    run_id: str | None
    at: float
    tags: Mapping[str, str]
    content: str | None = None
    check: str = ""
    passed: bool = True
    blocking: bool | None = None
    problem: str = ""
    evaluated_by: str | None = None

    @property
    def code_version(self) -> str | None:
        """Of the code that made a materialization. Dagster tags the run's id where the asset declares none."""
        told = self.tags.get(CODE_VERSION_TAG)
        return None if told == self.run_id else told


class Row(NamedTuple):
    """A row of the log's table."""

    id: int
    kind: str
    key: str | None
    partition: Partition
    run_id: str | None
    text: str


def rows_after(instance: DagsterInstance, after: int, kinds: Collection[Kind]) -> Iterator[Row]:
    """The rows of all assets from after a storage id on, in the order of ids."""
    while True:
        found = _rows(instance, _of(kinds), _TABLE.id > after, limit=_PAGE)
        yield from found
        if len(found) < _PAGE:
            return
        after = found[-1].id


def ids_after(instance: DagsterInstance, after: int, kinds: Collection[Kind], limit: int) -> list[int]:
    """The storage ids there are from after one on, at most so many, in their order."""
    query = sqlalchemy.select(_TABLE.id).where(_of(kinds), _TABLE.id > after).order_by(_TABLE.id).limit(limit)
    with _storage(instance).index_connection() as connection:
        return [int(id) for (id,) in connection.execute(query)]


def rows_with(instance: DagsterInstance, ids: Sequence[int]) -> Iterator[Row]:
    """The rows with these ids, given in their order; those that were deleted meanwhile are left out."""
    for start in range(0, len(ids), _IDS_IN_A_QUERY):
        yield from _rows(instance, _TABLE.id.in_(ids[start : start + _IDS_IN_A_QUERY]))


def rows_of_assets(
    instance: DagsterInstance, assets: Collection[str], kinds: Collection[Kind], since: float
) -> Iterator[Row]:
    """The rows of some assets that were written after a time (Unix seconds), in the order of ids.

    Evaluations of checks are not found by their asset.
    """
    keys, after = [AssetKey(asset.split("/")).to_string() for asset in assets], 0
    written = _TABLE.timestamp > _stored(since) if since > 0 else _TABLE.id > 0
    while True:
        found = _rows(instance, _of(kinds), _TABLE.asset_key.in_(keys), written, _TABLE.id > after, limit=_PAGE)
        yield from found
        if len(found) < _PAGE:
            return
        after = found[-1].id


def last_rows_of(instance: DagsterInstance, asset: str, kind: Kind, limit: int) -> list[Row]:
    """The latest rows of one asset, the newest first."""
    key = AssetKey(asset.split("/")).to_string()
    return _rows(instance, _of([kind]), _TABLE.asset_key == key, limit=limit, descending=True)


def last_evaluations(instance: DagsterInstance, check: str, limit: int) -> list[Row]:
    """The latest evaluations of checks of a name, of whichever assets, at most so many; in the order of ids."""
    named = _TABLE.event.contains(f'"{check}"', autoescape=True)
    return _rows(instance, _of([Kind.CHECKED]), named, limit=limit, descending=True)[::-1]


def last_id_before(instance: DagsterInstance, id: int, at: float) -> int:
    """The latest storage id before one whose event was not written after a time (Unix seconds); 0 if there is none."""
    query = sqlalchemy.select(sqlalchemy.func.max(_TABLE.id)).where(_TABLE.id < id, _TABLE.timestamp <= _stored(at))
    with _storage(instance).index_connection() as connection:
        return int(connection.execute(query).scalar() or 0)


def events_after(instance: DagsterInstance, after: int, checks: Collection[str] = ()) -> Iterator[Event]:
    """Yield the events of all assets after a storage id, and the evaluations of blocking checks and of these checks."""
    for row in rows_after(instance, after, tuple(Kind)):
        event = event_of(row, row.id, checks)
        if event is not None:
            yield event


def event_of(row: Row, id: int, checks: Collection[str] = ()) -> Event | None:
    """Return the event of a row. If the row cannot be read, the event's `problem` says why.

    None for the evaluation of a check that does not block and has none of these names.
    """
    if (
        row.kind == Kind.CHECKED
        and _IS_BLOCKING not in row.text
        and not any(f'"{name}"' in row.text for name in checks)
    ):
        return None
    try:
        return _evaluation(row, id, checks) if row.kind == Kind.CHECKED else _event(row, id)
    except Exception as error:  # of a form nobody foresaw: it must not stop the reading of all others
        asset = _asset_or_text(row.key or "")
        why = f"event {row.id} cannot be read: {type(error).__name__}: {error}"
        return Event(id, Kind(row.kind), asset, (row.partition,), row.run_id or None, 0.0, {}, problem=why)


def _event(row: Row, id: int) -> Event:
    entry = json.loads(row.text)
    told = entry["dagster_event"]["event_specific_data"]
    kind, asset = Kind(row.kind), _asset(row.key or "")
    partitions: tuple[Partition, ...] = (row.partition,)
    about: Mapping[str, Any] = {}
    if kind is Kind.PLANNED:
        if told.get("partitions_subset") is not None:
            partitions = _subset(row.text)
    else:
        about = told["asset_observation"] if kind is Kind.OBSERVED else told["materialization"]
    tags = about.get("tags") or {}
    if not all(isinstance(value, str) for value in tags.values()):
        raise ValueError(f"tags that are no text: {tags}")
    content = None
    if kind is Kind.MATERIALIZED or asset == JOURNAL:
        content = _metadata(about.get("metadata_entries") or (), CONTENT if kind is Kind.MATERIALIZED else JOURNAL)
    return Event(id, kind, asset, partitions, row.run_id or None, float(entry["timestamp"]), tags, content)


def _evaluation(row: Row, id: int, checks: Collection[str]) -> Event | None:
    entry = json.loads(row.text)
    told = entry["dagster_event"]["event_specific_data"]
    blocking = told.get("blocking")
    if not blocking and told["check_name"] not in checks:
        return None
    target, partition = told.get("target_materialization_data"), told.get("partition")
    passed = bool(told["success"]) or str(told["severity"]["__enum__"]).endswith(".WARN")
    built_by = target["run_id"] if target else row.run_id
    # Evaluated by itself it says something of the whole asset. That is well where it passes; where it fails, Dagster
    # tells the newest materialization, and only what that wrote is held up.
    of_the_whole = passed and partition is None and built_by != row.run_id
    return Event(
        id,
        Kind.CHECKED,
        "/".join(told["asset_key"]["path"]),
        (partition,),
        None if of_the_whole else built_by or None,
        float(entry["timestamp"]),
        {},
        check=told["check_name"],
        passed=passed,
        evaluated_by=row.run_id or None,
        blocking=blocking,
    )


def _rows(
    instance: DagsterInstance, *wanted: ColumnElement[bool], limit: int | None = None, descending: bool = False
) -> list[Row]:
    order = _TABLE.id.desc() if descending else _TABLE.id
    query = sqlalchemy.select(*_COLUMNS).where(*wanted).order_by(order).limit(limit)
    with _storage(instance).index_connection() as connection:
        return [Row(*row) for row in connection.execute(query).fetchall()]


def _of(kinds: Collection[Kind]) -> ColumnElement[bool]:
    return _TABLE.dagster_event_type.in_([kind.value for kind in kinds])


def _stored(at: float) -> datetime:
    return datetime.fromtimestamp(at, UTC).replace(tzinfo=None)


def _storage(instance: DagsterInstance) -> SqlEventLogStorage:
    storage = instance.event_log_storage
    assert isinstance(storage, SqlEventLogStorage)
    return storage


def _metadata(entries: Any, label: str) -> str | None:
    for entry in entries:
        if entry["label"] == label:
            value = entry["entry_data"]
            return str(value.get("text", value.get("value")))
    return None


def _subset(text: str) -> tuple[Partition, ...]:
    planned = deserialize_value(text, EventLogEntry).get_dagster_event().asset_materialization_planned_data
    return tuple(planned.partitions_subset.get_partition_keys()) if planned.partitions_subset else (None,)


@lru_cache(maxsize=10_000)
def _asset(key: str) -> str:
    return "/".join(json.loads(key))


def _asset_or_text(key: str) -> str:
    try:
        return _asset(key)
    except (ValueError, TypeError):
        return key
