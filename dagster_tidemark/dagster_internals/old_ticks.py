"""Old ticks and evaluations in the schedule storage: their rows, and their deletion in small transactions.

Does not belong here: the choice of sensors and assets (`retention`), and the event log (`old_records`).
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

import sqlalchemy as sa
from dagster import DagsterInstance
from dagster._core.scheduler.instigation import TickStatus
from dagster._core.storage.schedules.schema import AssetDaemonAssetEvaluationsTable, JobTickTable
from dagster._core.storage.schedules.sql_schedule_storage import SqlScheduleStorage

from dagster_tidemark.dagster_internals.event_storage import asset_of, stored_time, unix_seconds

_TICKS, _EVALUATIONS = JobTickTable.c, AssetDaemonAssetEvaluationsTable.c
_SUCCEEDED = [TickStatus.SKIPPED, TickStatus.SUCCESS]
_FAILED = [TickStatus.FAILURE]
_SLICE = 6 * 3600.0
"""Seconds of ticks that one transaction deletes: some 4,000 of a sensor."""
_AT_ONCE = 500


@dataclass(frozen=True)
class OldTicks:
    """Complete ticks of a sensor or schedule before a time, but neither the newest tick nor the newest success.

    Args:
        before: Time before which its failed ticks are old (Unix seconds).
        succeeded_before: Time before which its other ticks are old (Unix seconds).
        oldest: Time of the oldest of these ticks (Unix seconds).
        size: Characters of their bodies.
    """

    name: str
    origin_id: str
    selector_id: str
    before: float
    succeeded_before: float
    oldest: float
    count: int
    size: int


@dataclass(frozen=True)
class OldEvaluation:
    """An evaluation of an asset's automation condition that is not its newest."""

    id: int
    size: int


def old_ticks(
    instance: DagsterInstance, before: float, locations: Collection[str], is_ours: Callable[[str], bool]
) -> list[OldTicks]:
    """Return the old ticks of the sensors and schedules of some code locations.

    Args:
        is_ours: Returns True for the name of a sensor or schedule whose ticks count.
    """
    found = []
    for state in instance.all_instigator_state():
        if state.repository_selector.location_name not in locations or not is_ours(state.instigator_name):
            continue
        of_it = _TICKS.selector_id == state.selector_id
        with _storage(instance).connect() as connection:
            is_success = _TICKS.status.in_([status.value for status in _SUCCEEDED])
            is_failure = _TICKS.status.in_([status.value for status in _FAILED])
            newest = connection.execute(sa.select(sa.func.max(_TICKS.timestamp)).where(of_it)).scalar()
            last_good = connection.execute(sa.select(sa.func.max(_TICKS.timestamp)).where(of_it, is_success)).scalar()
            until = min(before, unix_seconds(newest)) if newest else before
            good_until = min(until, unix_seconds(last_good)) if last_good else until
            counted = (sa.func.count(), sa.func.min(_TICKS.timestamp), sa.func.sum(sa.func.length(_TICKS.tick_body)))
            is_old = sa.or_(
                sa.and_(is_failure, _TICKS.timestamp < stored_time(until)),
                sa.and_(is_success, _TICKS.timestamp < stored_time(good_until)),
            )
            count, oldest, size = connection.execute(sa.select(*counted).where(of_it, is_old)).one()
        if count:
            ids = (state.instigator_origin_id, state.selector_id)
            found.append(
                OldTicks(state.instigator_name, *ids, until, good_until, unix_seconds(oldest), count, int(size or 0))
            )
    return found


def delete_ticks(instance: DagsterInstance, ticks: OldTicks) -> None:
    """Delete old ticks, the oldest first."""
    until = ticks.oldest
    while until < ticks.before:
        until = min(until + _SLICE, ticks.before)
        instance.purge_ticks(ticks.origin_id, ticks.selector_id, until, _FAILED)
        good_until = min(until, ticks.succeeded_before)
        instance.purge_ticks(ticks.origin_id, ticks.selector_id, good_until, _SUCCEEDED)


def old_evaluations(instance: DagsterInstance, before: float, assets: Collection[str]) -> list[OldEvaluation]:
    """Return the old evaluations of some assets, except the newest of each asset, in the order of ids."""
    table = AssetDaemonAssetEvaluationsTable
    newest = sa.select(sa.func.max(_EVALUATIONS.id)).group_by(_EVALUATIONS.asset_key)
    query = (
        sa.select(_EVALUATIONS.id, _EVALUATIONS.asset_key, sa.func.length(_EVALUATIONS.asset_evaluation_body))
        .select_from(table)
        .where(_EVALUATIONS.create_timestamp < stored_time(before), _EVALUATIONS.id.not_in(newest))
        .order_by(_EVALUATIONS.id)
    )
    with _storage(instance).connect() as connection:
        rows = connection.execute(query).fetchall()
    return [OldEvaluation(id, int(size or 0)) for id, key, size in rows if _asset(key) in assets]


def delete_evaluations(instance: DagsterInstance, evaluations: Sequence[OldEvaluation]) -> None:
    """Delete evaluations, some in each transaction."""
    ids = [each.id for each in evaluations]
    for start in range(0, len(ids), _AT_ONCE):
        some = _EVALUATIONS.id.in_(ids[start : start + _AT_ONCE])
        with _storage(instance).connect() as connection:
            connection.execute(AssetDaemonAssetEvaluationsTable.delete().where(some))


def _storage(instance: DagsterInstance) -> SqlScheduleStorage:
    storage = instance.schedule_storage
    assert isinstance(storage, SqlScheduleStorage)
    return storage


def _asset(key: str | None) -> str:
    try:
        return asset_of(key or "")
    except ValueError:  # the key of a check
        return ""
