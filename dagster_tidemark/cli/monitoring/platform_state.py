"""State of the platform as Dagster's storage has it: what `tidemark status` shows, and the daemon, queue and sensors.

Belongs here: reading, with the functions of `status`. Does not belong here: metrics (`metric_families`) and health
(`health`).
"""

from collections import Counter
from collections.abc import Mapping, Sequence, Sized
from dataclasses import dataclass
from types import MappingProxyType

import dagster as dg
from dagster import DagsterInstance

from dagster_tidemark.asset_graph.sensor_names import FIRST
from dagster_tidemark.cli.contract_rows import ContractRow, NoSuchAsset, kept_rows
from dagster_tidemark.cli.storage import opened_instance
from dagster_tidemark.dagster_internals import event_storage, instance_store, run_storage, sensor_states
from dagster_tidemark.dagster_internals.event_time import now
from dagster_tidemark.engine import saved_overview
from dagster_tidemark.engine.doubts import (
    ASSET_EVENTS,
    CONTRACTS,
    LANDING,
    STREAMS,
    Doubts,
    Watched,
    doubts,
    since_look,
)
from dagster_tidemark.event_log.observations import QUARANTINE, dead_letters_told
from dagster_tidemark.incidents.incident import Book
from dagster_tidemark.incidents.store import IncidentStore
from dagster_tidemark.maintenance.maintenance_overview import MaintenanceOverview, kept_overview
from dagster_tidemark.planner.decisions import RANGES
from dagster_tidemark.settings import Settings
from dagster_tidemark.tags import PREFIX

_DAY = 86_400.0
QUARANTINE_AGES = ("arrived within a day", "arrived within a week", "arrived earlier")
"""Metadata of the check `quarantine`: the number of entries by the age of their files."""
_ALWAYS, _IF_CHANNELS = (CONTRACTS, RANGES, "dead_runs"), "incidents"


@dataclass(frozen=True)
class PlatformState:
    """State of a deployment at one time (Unix seconds).

    Args:
        evaluated_at: Time of the last evaluation by the sensor `contracts`; None if there was none.
        rows: The rows of `tidemark status --json`.
        doubts: Causes of unknown states.
        expected_sensors: The library's sensors that should tick, without prefix.
        streams: Names of the streams, by the key of their asset.
        within: Share (0 to 1) of the last day in which the check `contract` passed, for each asset with a contract.
        feeds: Source assets of the feeds.
        ticks: Duration of each sensor's last tick in seconds.
        quarantine: Number of quarantine entries of each asset that has any, by age.
        beats: Time of the last heartbeat of each of Dagster's daemons.
        queued_since: Time when each waiting run entered the run queue (Unix seconds).
        slots: Limit of simultaneous runs; None without a limit.
        running: Number of runs that occupy a slot.
        book: Incidents and their unsent messages.
        dead_letters: Number of notifications in the dead-letter queue.
        tables: Assets that may have a table.
        maintenance_due: Number of due maintenance actions of each table, by asset; empty if the sensor `maintenance`
            has not run lately. Tables that it cannot read are left out.
    """

    at: float
    evaluated_at: float | None
    rows: Sequence[ContractRow]
    doubts: Doubts
    expected_sensors: Sequence[str]
    streams: Mapping[str, str]
    within: Mapping[str, float]
    feeds: Sequence[str]
    ticks: Mapping[str, sensor_states.TickTime]
    quarantine: Mapping[str, Mapping[str, int]]
    beats: Mapping[str, float]
    queued_since: Sequence[float]
    slots: int | None
    running: int
    book: Book
    dead_letters: int
    tables: Sequence[str]
    maintenance_due: Mapping[str, int]


def platform_state(settings: Settings) -> PlatformState:
    """Return the present state.

    Raises:
        StorageUnreachable: Dagster's storage does not answer.
        Terminal: `dagster.yaml` is wrong, or names a package that is not installed.
    """
    with opened_instance() as instance:
        return state_of(instance, settings)


def state_of(instance: DagsterInstance, settings: Settings) -> PlatformState:
    """Return the present state of an instance."""
    at, kept = now(), saved_overview.kept(instance, settings.code_location)
    watched = kept.watched if kept is not None else Watched()
    rows = _rows(instance, kept, at)
    found = doubts(instance, watched, at)
    automation = sorted({row.sensor or FIRST for row in kept.rows if not row.source}) if kept is not None else []
    parts: list[tuple[str, Sized]] = [
        (LANDING, watched.feeds),
        (STREAMS, watched.posts),
        (ASSET_EVENTS, watched.reported),
    ]
    tables = tuple(row.asset for row in kept.rows if not row.source) if kept is not None else ()
    book = IncidentStore(instance, settings.code_location).read()
    parts.append((_IF_CHANNELS, book.channels))
    expected = [*automation, *_ALWAYS, *(name for name, watches in parts if watches), *watched.sensors]
    expected_names = {name for sensor in expected for name in (sensor, PREFIX + sensor)}
    times = sensor_states.tick_times(instance, expected_names, watched.home or settings.code_location)
    return PlatformState(
        at=at,
        evaluated_at=kept.at if kept is not None else None,
        rows=rows,
        doubts=since_look(found, kept.at, at) if kept is not None else found,
        expected_sensors=list(dict.fromkeys(expected)),
        streams={post.asset: post.stream for post in watched.posts},
        within=_within(instance, [row.asset for row in rows if row.contract], at),
        feeds=tuple(watched.feeds.values()),
        ticks={name.removeprefix(PREFIX): each for name, each in times.items()},
        quarantine={r.asset: _by_age(instance, r.asset) for r in rows if r.files_rejected or r.rows_rejected},
        beats=instance_store.heartbeats(instance),
        queued_since=[run.since for run in run_storage.queued_runs(instance)],
        slots=run_storage.queue_limit(instance),
        running=len(run_storage.starts_of_running(instance)),
        book=book,
        dead_letters=dead_letters_told(instance),
        tables=tables,
        maintenance_due=_due(kept_overview(instance, settings.code_location), tables),
    )


def share_within(results: Sequence[tuple[float, bool]], now: float) -> float | None:
    """Return the share (0 to 1) of the last day in which a check passed; None if there are no results.

    Each result counts until the next one. The time before the first result does not count.

    Args:
        results: The check's results, newest first: the time in Unix seconds, and True if the check passed.
    """
    begin, until, good, judged = now - _DAY, now, 0.0, 0.0
    for at, passed in results:
        seconds = max(0.0, until - max(at, begin))
        judged += seconds
        good += seconds if passed else 0.0
        until = max(at, begin)
    return good / judged if judged else None


def _within(instance: DagsterInstance, assets: Sequence[str], at: float) -> dict[str, float]:
    results = {asset: event_storage.check_results(instance, asset, saved_overview.CHECK, at - _DAY) for asset in assets}
    shares = {asset: share_within(each, at) for asset, each in results.items()}
    return {asset: share for asset, share in shares.items() if share is not None}


def _rows(instance: DagsterInstance, kept: saved_overview.Kept | None, at: float) -> Sequence[ContractRow]:
    if kept is None:
        return ()
    try:
        return kept_rows(instance, kept, None, at, MappingProxyType({}))
    except NoSuchAsset:  # the location has no automated asset
        return ()


def _due(upkeep: MaintenanceOverview | None, assets: Sequence[str]) -> Mapping[str, int]:
    if upkeep is None:
        return {}
    counted = Counter(each.table.replace(".", "/") for each in upkeep.due)
    unreadable = {table.replace(".", "/") for table in upkeep.unreadable}
    return {asset: counted[asset] for asset in sorted({*assets, *counted} - unreadable)}


def _by_age(instance: DagsterInstance, asset: str) -> dict[str, int]:
    key = dg.AssetCheckKey(dg.AssetKey.from_user_string(asset), QUARANTINE)
    said = event_storage.latest_check_metadata(instance, key) or {}
    return {age: count for age in QUARANTINE_AGES if isinstance(count := said.get(age), int)}
