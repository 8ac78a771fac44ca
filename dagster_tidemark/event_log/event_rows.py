"""The event log as plain rows: events of partitions, in the order of storage ids.

Reads the log's table directly, with one query for all assets, and takes only the fields that a history needs from an
event's JSON. Dagster's own records took ten times as long, ten minutes for a million events: Dagster builds a dozen
objects for each event. `test_event_log.py` compares every field with Dagster's record.

Belongs here: queries of the log's table, and the content of a row. Does not belong here: which rows were read already
(`event_log.reader`), and the meaning of an event (`event_log.intake`).
"""

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple

import sqlalchemy
from dagster import DagsterInstance
from sqlalchemy.sql.elements import ColumnElement

from dagster_tidemark.dagster_internals.event_storage import (
    CODE_VERSION,
    LOG_COLUMNS,
    asset_of,
    log_connection,
    partitions_of_text,
    stored_key,
    stored_time,
)
from dagster_tidemark.sources.feed import Partition
from dagster_tidemark.tags import CONTENT, DATA_VERSION, JOURNAL

_PAGE = 2000
_IDS_IN_A_QUERY = 500
_COLUMNS = (
    LOG_COLUMNS.id,
    LOG_COLUMNS.dagster_event_type,
    LOG_COLUMNS.asset_key,
    LOG_COLUMNS.partition,
    LOG_COLUMNS.run_id,
    LOG_COLUMNS.event,
)


_IS_DECLARED = "dagster/data_version_is_user_provided"
"""Tag of an event whose data version comes from the asset's function (`MaterializeResult(data_version=...)`)."""
_IS_BLOCKING = '"blocking": true'
"""Part of the text of a blocking check's evaluation."""


class EventKind(StrEnum):
    """Kind of an event, by Dagster's name."""

    OBSERVED = "ASSET_OBSERVATION"
    PLANNED = "ASSET_MATERIALIZATION_PLANNED"
    MATERIALIZED = "ASSET_MATERIALIZATION"
    CHECKED = "ASSET_CHECK_EVALUATION"


@dataclass(frozen=True, slots=True)
class Event:
    """Event on partitions of an asset.

    Args:
        id: Place in the order of events: the storage id, unless the storage gave out ids twice.
        partitions: Partitions of the event. Only a planned materialization may have several.
        run_id: Run that wrote the event, if any. For a check: the run that wrote the checked materialization.
        at: Time when the event was written, in Unix seconds.
        tags: Tags of an observation or a materialization.
        content: Content version of a materialization, or the text of a planner's note.
        check: Name of the evaluated check.
        passed: True if the check passed, or if its failure is only a warning.
        evaluated_by: Run that evaluated the check, if any.
        evaluation_began: Place of that run's first event, if another run wrote the checked materialization.
        blocking: True if the check is blocking in the code location that defines it; None if the event lacks this.
        problem: Reason why the event cannot be read; empty if it can.
    """

    id: int
    kind: EventKind
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
    evaluation_began: int | None = None

    @property
    def code_version(self) -> str | None:
        """Code version of a materialization, or None. Dagster uses the run's id if the asset declares no version."""
        told = self.tags.get(CODE_VERSION)
        return None if told == self.run_id else told


class LogRow(NamedTuple):
    """A row of the log's table."""

    id: int
    kind: str
    key: str | None
    partition: Partition
    run_id: str | None
    text: str


def rows_after(
    instance: DagsterInstance, after: int, kinds: Collection[EventKind], *wanted: ColumnElement[bool]
) -> Iterator[LogRow]:
    """Yield all rows after a storage id, in ascending order.

    Args:
        wanted: Further conditions.
    """
    while True:
        found = _rows(instance, _of(kinds), LOG_COLUMNS.id > after, *wanted, limit=_PAGE)
        yield from found
        if len(found) < _PAGE:
            return
        after = found[-1].id


def ids_after(instance: DagsterInstance, after: int, kinds: Collection[EventKind], limit: int) -> list[int]:
    """Return the existing storage ids after an id in ascending order, up to a limit."""
    query = (
        sqlalchemy.select(LOG_COLUMNS.id)
        .where(_of(kinds), LOG_COLUMNS.id > after)
        .order_by(LOG_COLUMNS.id)
        .limit(limit)
    )
    with log_connection(instance) as connection:
        return [int(id) for (id,) in connection.execute(query)]


def rows_with(instance: DagsterInstance, ids: Sequence[int]) -> Iterator[LogRow]:
    """Yield the rows with these ids, in ascending order. Rows deleted in the meantime are left out."""
    for start in range(0, len(ids), _IDS_IN_A_QUERY):
        yield from _rows(instance, LOG_COLUMNS.id.in_(ids[start : start + _IDS_IN_A_QUERY]))


def rows_of_assets(
    instance: DagsterInstance, assets: Collection[str], kinds: Collection[EventKind], since: float
) -> Iterator[LogRow]:
    """Yield the rows of some assets written after a time (Unix seconds), in the order of ids.

    Evaluations of checks are left out, because they cannot be found by asset.
    """
    of_assets = LOG_COLUMNS.asset_key.in_([stored_key(asset) for asset in assets])
    written = [LOG_COLUMNS.timestamp > stored_time(since)] if since > 0 else []
    return rows_after(instance, 0, kinds, of_assets, *written)


def last_rows_of(instance: DagsterInstance, asset: str, kind: EventKind, limit: int) -> list[LogRow]:
    """Return the latest rows of one asset, the newest first."""
    key = stored_key(asset)
    return _rows(instance, _of([kind]), LOG_COLUMNS.asset_key == key, limit=limit, descending=True)


def last_evaluations(instance: DagsterInstance, check: str, limit: int) -> list[LogRow]:
    """Return the latest evaluations of checks with this name, up to a limit, in ascending order."""
    named = LOG_COLUMNS.event.contains(f'"{check}"', autoescape=True)
    return _rows(instance, _of([EventKind.CHECKED]), named, limit=limit, descending=True)[::-1]


def last_id_before(instance: DagsterInstance, id: int, at: float) -> int:
    """Return the largest storage id below an id with an event written up to a time (Unix seconds); 0 if none exists."""
    query = sqlalchemy.select(sqlalchemy.func.max(LOG_COLUMNS.id)).where(
        LOG_COLUMNS.id < id, LOG_COLUMNS.timestamp <= stored_time(at)
    )
    with log_connection(instance) as connection:
        return int(connection.execute(query).scalar() or 0)


def first_id_of(instance: DagsterInstance, run_id: str) -> int | None:
    """Return the smallest storage id among the events of a run; None if the log has none."""
    query = sqlalchemy.select(sqlalchemy.func.min(LOG_COLUMNS.id)).where(LOG_COLUMNS.run_id == run_id)
    with log_connection(instance) as connection:
        found = connection.execute(query).scalar()
    return None if found is None else int(found)


def event_of(row: LogRow, id: int, checks: Collection[str] = ()) -> Event | None:
    """Return the event of a row. If the row cannot be read, the event's `problem` is the reason.

    Return None for the evaluation of a check that is neither blocking nor named in `checks`.
    """
    if (
        row.kind == EventKind.CHECKED
        and _IS_BLOCKING not in row.text
        and not any(f'"{name}"' in row.text for name in checks)
    ):
        return None
    try:
        return _evaluation(row, id, checks) if row.kind == EventKind.CHECKED else _event(row, id)
    except Exception as error:  # an unexpected format must not stop the reading of other events
        asset = _asset_or_text(row.key or "")
        why = f"event {row.id} cannot be read: {type(error).__name__}: {error}"
        return Event(id, EventKind(row.kind), asset, (row.partition,), row.run_id or None, 0.0, {}, problem=why)


def _event(row: LogRow, id: int) -> Event:
    entry = json.loads(row.text)
    told = entry["dagster_event"]["event_specific_data"]
    kind, asset = EventKind(row.kind), asset_of(row.key or "")
    partitions: tuple[Partition, ...] = (row.partition,)
    about: Mapping[str, Any] = {}
    if kind is EventKind.PLANNED:
        if told.get("partitions_subset") is not None:
            partitions = partitions_of_text(row.text)
    else:
        about = told["asset_observation"] if kind is EventKind.OBSERVED else told["materialization"]
    tags = about.get("tags") or {}
    if not all(isinstance(value, str) for value in tags.values()):
        raise ValueError(f"expected text as tag values, found {tags}")
    content = None
    if kind is EventKind.MATERIALIZED or asset == JOURNAL:
        content = _metadata(about.get("metadata_entries") or (), CONTENT if kind is EventKind.MATERIALIZED else JOURNAL)
    if kind is EventKind.MATERIALIZED and content is None and row.run_id and tags.get(_IS_DECLARED) == "true":
        # Dagster computes other versions from code and inputs, so they are equal after each fetch from outside.
        content = tags.get(DATA_VERSION)
    return Event(id, kind, asset, partitions, row.run_id or None, float(entry["timestamp"]), tags, content)


def _evaluation(row: LogRow, id: int, checks: Collection[str]) -> Event | None:
    entry = json.loads(row.text)
    told = entry["dagster_event"]["event_specific_data"]
    blocking = told.get("blocking")
    if not blocking and told["check_name"] not in checks:
        return None
    target, partition = told.get("target_materialization_data"), told.get("partition")
    passed = bool(told["success"]) or str(told["severity"]["__enum__"]).endswith(".WARN")
    built_by = target["run_id"] if target else row.run_id
    # A check evaluated separately from the asset's run, without a partition, covers the whole asset if it passes. If it
    # fails, Dagster names the newest materialization, and the failure blocks only its partitions.
    of_the_whole = passed and partition is None and built_by != row.run_id
    return Event(
        id,
        EventKind.CHECKED,
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
) -> list[LogRow]:
    order = LOG_COLUMNS.id.desc() if descending else LOG_COLUMNS.id
    query = sqlalchemy.select(*_COLUMNS).where(*wanted).order_by(order).limit(limit)
    with log_connection(instance) as connection:
        return [LogRow(*row) for row in connection.execute(query).fetchall()]


def _of(kinds: Collection[EventKind]) -> ColumnElement[bool]:
    return LOG_COLUMNS.dagster_event_type.in_([kind.value for kind in kinds])


def _metadata(entries: Any, label: str) -> str | None:
    for entry in entries:
        if entry["label"] == label:
            value = entry["entry_data"]
            return str(value.get("text", value.get("value")))
    return None


def _asset_or_text(key: str) -> str:
    try:
        return asset_of(key)
    except (ValueError, TypeError):
        return key
