"""The sensor `freshness_report`: requests the days of `ops/freshness` that have ended and are missing.

The planner does not build this asset: its data does not arrive, and its runs must not delay runs that have a deadline.
Does not belong here: the computation (`execution.freshness_report`).
"""

import json
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, date, datetime, timedelta
from itertools import takewhile
from typing import Any

import dagster as dg
from dagster import DagsterInstance, DagsterRunStatus, RunsFilter

from dagster_tidemark.dagster_internals import event_time, partitions
from dagster_tidemark.dagster_internals.asset_graph import AnyGraph
from dagster_tidemark.dagster_internals.instance_store import UNREADABLE
from dagster_tidemark.dagster_internals.sensor_states import sensor_cursors
from dagster_tidemark.engine.lag_history import FRESHNESS_ASSET, REPORTED_BY, period_of
from dagster_tidemark.pauses import end_of_pause
from dagster_tidemark.planner.run_retries import backoff
from dagster_tidemark.sensors.cursors import cursor_of
from dagster_tidemark.sensors.scope import LocationScope
from dagster_tidemark.tags import CODE_LOCATION, NOT_RETRIED, PREFIX, PRIORITY, REQUESTED_BY

NAME = "freshness_report"
_SETTLES = timedelta(minutes=5)
"""Time from the end of a day to its report. Runs and observations of its last minutes are then in the log."""
_LOOK_BACK = timedelta(days=31)
_MOST = 7
"""Most days of a run, which holds their events in memory."""


def freshness_sensor(scope: LocationScope) -> dg.SensorDefinition:
    """Return the sensor that requests `ops/freshness`. It begins with the day of its first tick."""

    @dg.sensor(
        name=scope.named(NAME),
        description="Requests the days of ops/freshness that have ended and are missing, one run at a time.",
        asset_selection=dg.AssetSelection.assets(FRESHNESS_ASSET),
        minimum_interval_seconds=60,
        default_status=dg.DefaultSensorStatus.RUNNING,
    )
    def freshness_report(context: dg.SensorEvaluationContext) -> dg.SensorResult | dg.SkipReason:
        now = event_time.now()
        today = datetime.fromtimestamp(now, UTC).date()
        since = cursor_of(context, _since, None, f"reports begin with {today}")
        if since is None:
            return dg.SensorResult(skip_reason=f"reports begin with {today}", cursor=json.dumps({"since": str(today)}))
        days = missing_days(context.instance, scope.location, since, now)
        if not days:
            return dg.SkipReason("every ended day is reported")
        ours = {REQUESTED_BY: scope.named(NAME), CODE_LOCATION: scope.location}
        if why := _why_not_now(context.instance, ours, now):
            return dg.SkipReason(f"{days[0]} is missing: {why}")
        return dg.SensorResult(
            run_requests=[_request(_first_in_a_row(days), {**ours, PRIORITY: "-5", **NOT_RETRIED})],
            cursor=context.cursor,
        )

    return freshness_report


def missing_days(instance: DagsterInstance, location: str, since: date, now: float) -> list[date]:
    """Return the ended days that a code location has not reported: of the last 31 days, from `since` on.

    The oldest come first.
    """
    last = datetime.fromtimestamp(now, UTC) - _SETTLES
    first = max(since, (last - _LOOK_BACK).date())
    days = [first + timedelta(days=n) for n in range((last.date() - first).days)]
    days = [day for day in days if period_of(day)[1] <= last.timestamp()]
    if not days:
        return []
    of_days = dg.AssetRecordsFilter(FRESHNESS_ASSET, asset_partitions=[day.isoformat() for day in days])
    records = instance.fetch_materializations(of_days, limit=1000).records
    there = {record.partition_key for record in records if _reported_by(record) == location}
    return [day for day in days if day.isoformat() not in there]


def _since(said: Any) -> date:
    return date.fromisoformat(said["since"])


def _reported_by(record: dg.EventLogRecord) -> object:
    made = record.asset_materialization
    value = made.metadata.get(REPORTED_BY) if made is not None else None
    return value.value if value is not None else None


def reports_need(instance: DagsterInstance, location: str, assets: AnyGraph) -> timedelta:
    """Return the age of a location's oldest day without a report, which needs its events; zero without reports."""
    begun = []
    for each in sensor_cursors(instance):
        if each.sensor.removeprefix(PREFIX) == NAME:
            with suppress(*UNREADABLE):  # the sensor logs it and begins again
                begun.append(_since(json.loads(each.cursor)))
    if not begun or not assets.has(FRESHNESS_ASSET):
        return timedelta(0)
    now, since = event_time.now(), min(begun)
    unended = (datetime.fromtimestamp(now, UTC) - _SETTLES).date()
    first = min([*missing_days(instance, location, since, now), max(since, unended)])
    return timedelta(seconds=max(0.0, now - period_of(first)[0]))


def _first_in_a_row(days: Sequence[date]) -> list[date]:
    in_a_row = takewhile(lambda each: each[1] == days[0] + timedelta(days=each[0]), enumerate(days[:_MOST]))
    return [day for _, day in in_a_row]


def _request(days: Sequence[date], tags: dict[str, str]) -> dg.RunRequest:
    first, last = days[0].isoformat(), days[-1].isoformat()
    if first == last:
        return dg.RunRequest(asset_selection=[FRESHNESS_ASSET], partition_key=first, tags=tags)
    return dg.RunRequest(asset_selection=[FRESHNESS_ASSET], tags=tags | partitions.range_tags(first, last))


def _why_not_now(instance: DagsterInstance, tags: dict[str, str], now: float) -> str:
    """Return why no run is requested now: one is under way, or the pause after failed ones lasts. Empty if none."""
    records = instance.get_run_records(RunsFilter(tags=tags), limit=_MOST)
    if not records:
        return ""
    newest = records[0]
    if not newest.dagster_run.is_finished:
        return f"run {newest.dagster_run.run_id} is under way"
    failed = list(takewhile(lambda each: each.dagster_run.status is not DagsterRunStatus.SUCCESS, records))
    ended = newest.end_time or newest.update_timestamp.timestamp()
    again = end_of_pause(ended, backoff(len(failed)) if failed else 0.0, now)
    if again <= now:
        return ""
    return f"{len(failed)} runs failed, the next at {datetime.fromtimestamp(again, UTC):%H:%M} UTC"
