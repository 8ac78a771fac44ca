"""Contract of freshness policies and states."""

from datetime import timedelta
from itertools import islice

import dagster as dg
from dagster import DagsterEventType

from dagster_tidemark.dagster_internals import freshness


def test_freshness_state_is_reported_and_each_change_logged_once(instance: dg.DagsterInstance) -> None:
    key = dg.AssetKey("table")

    def changes() -> list[tuple[str, str]]:
        events = instance.event_log_storage.get_event_records(
            dg.EventRecordsFilter(DagsterEventType.FRESHNESS_STATE_CHANGE)
        )
        found = [r.event_log_entry.dagster_event.asset_freshness_state_change_data for r in events]  # type: ignore[union-attr]
        return [(c.previous_state.value, c.new_state.value) for c in reversed(found)]

    states: tuple[freshness.Freshness, ...] = ("PASS", "PASS", "FAIL", "FAIL", "PASS")
    for state in states:
        freshness.report_freshness(instance, {"table": state}, 1.0)
    assert changes() == [("UNKNOWN", "PASS"), ("PASS", "FAIL"), ("FAIL", "PASS")]
    assert instance.get_freshness_state_records([key])[key].freshness_state.value == "PASS"


def test_freshness_policy_exposes_its_windows_and_deadline() -> None:
    window = dg.FreshnessPolicy.time_window(fail_window=timedelta(hours=2), warn_window=timedelta(hours=1))
    assert isinstance(window, freshness.TimeWindowFreshnessPolicy)
    assert window.warn_window is not None
    assert (window.fail_window.to_timedelta(), window.warn_window.to_timedelta()) == (
        timedelta(hours=2),
        timedelta(hours=1),
    )
    cron = dg.FreshnessPolicy.cron(
        deadline_cron="0 9 * * *", lower_bound_delta=timedelta(minutes=30), timezone="Europe/Berlin"
    )
    assert isinstance(cron, freshness.CronFreshnessPolicy)
    assert (cron.deadline_cron, cron.lower_bound_delta, cron.timezone) == (
        "0 9 * * *",
        timedelta(minutes=30),
        "Europe/Berlin",
    )


def test_cron_ticks_include_a_start_that_is_a_tick() -> None:
    ticks = islice(freshness.cron_ticks("0 * * * *", 7200.0), 2)
    assert [tick.timestamp() for tick in ticks] == [7200.0, 10800.0]
