"""Dagster's freshness states and cron schedules."""

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Literal

import dagster as dg
from dagster import DagsterInstance
from dagster._core.definitions.freshness import CronFreshnessPolicy as CronFreshnessPolicy
from dagster._core.definitions.freshness import FreshnessState, FreshnessStateChange
from dagster._core.definitions.freshness import TimeWindowFreshnessPolicy as TimeWindowFreshnessPolicy
from dagster._utils.schedules import cron_string_iterator

Freshness = Literal["PASS", "WARN", "FAIL", "UNKNOWN"]


def report_freshness(instance: DagsterInstance, states: Mapping[str, Freshness], at: float) -> None:
    """Report the freshness state of assets to Dagster.

    Dagster's daemon would measure freshness from materializations instead. The UI shows the reported state, and
    `AutomationCondition.freshness_failed()` reads it.
    """
    keys = {asset: dg.AssetKey.from_user_string(asset) for asset in states}
    records = instance.get_freshness_state_records(list(keys.values()))
    for asset, state in states.items():
        held = records.get(keys[asset])
        before = FreshnessState.UNKNOWN if held is None else held.freshness_state
        if held is None or before != state:
            change = FreshnessStateChange(
                key=keys[asset], new_state=FreshnessState(state), previous_state=before, state_change_timestamp=at
            )
            instance.report_runless_asset_event(change)


def cron_ticks(schedule: str, start: float) -> Iterator[datetime]:
    """Yield Dagster's ticks of a cron schedule in UTC, from a time (Unix seconds) on. The time itself may be a tick.

    Raises:
        Exception: the schedule is invalid.
    """
    return cron_string_iterator(start, schedule, "UTC")
