"""Conditions to combine with `derived` or with Dagster's own: by input, by time of day, by schedule, by check.

Each is an `AutomationCondition`, so `&`, `|` and `~` combine them. A condition in `automation_condition=` decides alone
when its asset runs; the asset's contract is still evaluated.
"""

from __future__ import annotations

from functools import reduce
from operator import or_
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import dagster as dg
from dagster import AutomationContext, AutomationResult

from dagster_tidemark.dagster_internals.conditions import update_of_input
from dagster_tidemark.errors import Terminal
from dagster_tidemark.sources.times import time_of_day

Condition = dg.AutomationCondition[Any]


class ConditionRefused(Terminal):
    """A condition is declared wrongly."""


def updated(*inputs: str) -> Condition:
    """Return a condition that is true from an update of any of these inputs until the asset's next run is requested.

    `updated("core/a") & updated("core/b")` waits for both; each is false again after the request. While a run of the
    partition is in progress, the condition is false, and remembers updates.

    Args:
        inputs: Keys of assets that the asset reads.
    """
    if not inputs:
        raise ConditionRefused("updated: expected the key of at least one input")
    # Dagster stores the state of a `since` by the names of its conditions. `any_deps_updated().allow(...)` has the same
    # name for every selection, so that two inputs would share one state and lose each other's updates.
    any_of: Condition = reduce(or_, map(_updated, inputs))
    return any_of


def _updated(name: str) -> Condition:
    key = dg.AssetKey.from_user_string(name)
    changed: Condition = dg.AutomationCondition.asset_matches(key, update_of_input())
    return _until_requested(changed, f"updated({name})")


def _until_requested(event: Condition, label: str) -> Condition:
    """Return a condition that is true from an event until the asset's next run is requested.

    Dagster's `since_last_handled` also ends when a run is done, and so forgets events that came during this run. It
    forgets events between a request and the next evaluation too, because `since` prefers the reset. The condition is
    false during a run: a second run at the same time could end first, and the older one would overwrite its data.
    """
    requested = dg.AutomationCondition.newly_requested() & ~event
    handled = (requested | dg.AutomationCondition.initial_evaluation()).with_label("requested")
    waiting: Condition = (event.since(handled) & ~dg.AutomationCondition.in_progress()).with_label(label)
    return waiting


def every(cron: str, timezone: str = "UTC") -> Condition:
    """Return a condition that is true from a time of a cron schedule until the asset's next run is requested.

    With time partitions it is true for the latest partition only. While a run of the partition is in progress, it is
    false, and remembers the time.
    """
    passed: Condition = dg.AutomationCondition.cron_tick_passed(cron, timezone)
    latest: Condition = dg.AutomationCondition.in_latest_time_window()
    return (latest & _until_requested(passed, "passed")).with_label(f"every({cron}, {timezone})")


def between(start: str, end: str = "24:00", timezone: str = "UTC") -> Condition:
    """Return a condition that is true from one time of day to another: `between("06:00", "22:00")`.

    If `end` is before `start`, the time span contains midnight.

    Args:
        start: First minute: `06:00`.
        end: First minute after the time span: `22:00`; `24:00` is midnight.
        timezone: Zone of both.

    Raises:
        ConditionRefused: a time or the zone is invalid, or both times are the same.
    """
    first, last = _minutes(start), _minutes(end)
    if first == last:
        raise ConditionRefused(f"between({start}, {end}): expected two different times")
    try:
        ZoneInfo(timezone)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise ConditionRefused(f"between: expected a time zone such as Europe/Berlin, found {timezone!r}") from error
    return _Between(first, last, timezone)


def check_passed(asset: str, check: str) -> Condition:
    """Return a condition that is true while the latest result of a check on an asset is passed.

    It is false if the check has no result, or no result for the latest data of its asset.

    Args:
        asset: Key of the asset: `core/orders`.
        check: Name of the check.
    """
    key = dg.AssetKey.from_user_string(asset)
    only = dg.AssetSelection.checks(dg.AssetCheckKey(key, check))
    has = dg.AutomationCondition.any_checks_match(dg.AutomationCondition.check_passed()).allow(only)
    return dg.AutomationCondition.asset_matches(key, has).with_label(f"check_passed({asset}, {check})")


class _Between(dg.AutomationCondition[dg.AssetKey]):
    requires_cursor = False

    def __init__(self, first: int, last: int, timezone: str) -> None:
        self._first, self._last, self._timezone = first, last, timezone

    @property
    def name(self) -> str:
        return f"between({_text(self._first)}, {_text(self._last)}, {self._timezone})"

    def evaluate(self, context: AutomationContext[dg.AssetKey]) -> AutomationResult[dg.AssetKey]:
        now = context.evaluation_time.astimezone(ZoneInfo(self._timezone))
        minute = now.hour * 60 + now.minute
        if self._first < self._last:
            is_open = self._first <= minute < self._last
        else:
            is_open = minute >= self._first or minute < self._last
        return AutomationResult(context, context.candidate_subset if is_open else context.get_empty_subset())


def _minutes(text: str) -> int:
    if text == "24:00":
        return 24 * 60
    try:
        at = time_of_day(text)
    except (TypeError, ValueError) as error:
        raise ConditionRefused(f"between: expected a time of day such as 06:00, found {text!r}: {error}") from error
    return at.hour * 60 + at.minute


def _text(minutes: int) -> str:
    return f"{minutes // 60:02}:{minutes % 60:02}"
