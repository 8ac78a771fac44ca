"""The arithmetic of contracts, case by case; times in minutes after midnight UTC of Monday 2026-10-05."""

from datetime import datetime
from zoneinfo import ZoneInfo

import pytest

from dagster_tidemark.planner.contracts import (
    CronContract,
    FreshnessStatus,
    LagContract,
    Pace,
    Window,
    deadline,
    due,
    first_tick,
    margin_of,
    reserve,
    tick_at_or_after,
    tick_before,
    verdict,
    warn_at,
)

MIDNIGHT = datetime(2026, 10, 5, tzinfo=ZoneInfo("UTC")).timestamp()
DAY = 24 * 60.0
HOUR_7 = Window(MIDNIGHT + 7 * 3600, MIDNIGHT + 8 * 3600)
MONDAY = Window(MIDNIGHT, MIDNIGHT + 86_400)
SUNDAY = Window(MIDNIGHT - 86_400, MIDNIGHT)
BY_NINE = CronContract("0 9 * * *", bound=30 * 60)
QUICK = Pace(run_duration=60, margin=20)


def at(minutes: float) -> float:
    return MIDNIGHT + minutes * 60


def minutes(moment: float) -> float:
    return (moment - MIDNIGHT) / 60


def test_margin_is_two_ticks_plus_the_run_launch() -> None:
    assert margin_of(5) == 12


# A contract on lag.


def test_deadline_of_a_lag_contract_is_the_arrival_plus_the_window() -> None:
    assert minutes(deadline(LagContract(3600), at(430), HOUR_7)) == 490


def test_warning_time_exists_only_if_the_contract_has_one() -> None:
    assert warn_at(LagContract(3600, warn=1800), at(430)) == at(460)
    assert warn_at(LagContract(3600), at(430)) is None
    assert warn_at(BY_NINE, at(430)) is None


@pytest.mark.parametrize(
    ("window", "lead", "kept"),
    [
        (3600, 60, 120),  # 60 + 120 + 20 seconds are less than a quarter of an hour
        (3600, 410, 470),  # 410 + 470 + 20 are exactly a quarter
        (3600, 411, 0),
        (300, 60, 0),
        (60, 5, 0),
    ],
)
def test_retry_time_is_reserved_if_a_quarter_of_the_window_allows_it(window: float, lead: float, kept: float) -> None:
    assert reserve(LagContract(window), Pace(lead, 20)) == kept


def test_run_is_requested_lead_reserve_and_margin_before_the_deadline() -> None:
    asked = due(LagContract(3600), at(430), HOUR_7, QUICK)
    assert asked.deadline == at(490)
    assert asked.deadline - asked.at == 60 + 120 + 20
    assert asked.deadline - asked.start_by == 60 + 20


@pytest.mark.parametrize(
    ("scale", "fail", "warn"), [(1, 3600, 1800), (0.05, 180, 90), (0.001, 60, 60), (2, 7200, 3600)]
)
def test_time_scale_multiplies_lag_windows_down_to_one_minute(scale: float, fail: float, warn: float) -> None:
    assert LagContract(3600, 1800).scaled(scale) == LagContract(fail, warn)
    assert LagContract(3600).scaled(scale).warn is None


def test_time_scale_does_not_change_a_time_of_day() -> None:
    assert BY_NINE.scaled(0.05) == BY_NINE


# A partition that was never built.


def test_new_partition_in_an_open_window_is_due_by_its_contract() -> None:
    asked = due(LagContract(1800), at(425), HOUR_7, QUICK, built=False)
    assert minutes(asked.at) == 455 - 200 / 60


def test_new_partition_is_due_at_once_when_its_window_has_ended() -> None:
    assert due(LagContract(86_400), at(425), HOUR_7, QUICK, built=False).at == HOUR_7.end
    assert due(LagContract(86_400), at(600), HOUR_7, QUICK, built=False).at == at(600)
    assert due(LagContract(86_400), at(425), HOUR_7, QUICK).at > HOUR_7.end, (
        "one that was built has its contract's time"
    )


def test_first_build_without_time_windows_is_due_at_once() -> None:
    assert due(LagContract(86_400), at(425), None, QUICK, built=False).at == at(425)
    assert due(BY_NINE, at(425), None, QUICK, built=False).at == at(425)


# A contract on a deadline.


def test_cron_tick_of_a_window_is_the_first_not_before_its_end() -> None:
    assert first_tick(BY_NINE, SUNDAY) == at(9 * 60)
    assert first_tick(CronContract("0 0 * * *", 600), SUNDAY) == at(0)
    assert first_tick(BY_NINE, HOUR_7) == at(9 * 60)
    assert first_tick(LagContract(60), SUNDAY) is None
    assert first_tick(BY_NINE, None) is None


@pytest.mark.parametrize(
    ("arrival", "tick"),
    [
        (-700, 9 * 60),  # during the window
        (8 * 60 + 30, 9 * 60),  # just by half past eight
        (8 * 60 + 30.01, 9 * 60 + DAY),  # after it: with the next tick
        (3 * 7 * DAY, 3 * 7 * DAY + 9 * 60),  # a late file weeks later: with the next tick, once
    ],
)
def test_data_after_the_lower_bound_is_due_by_the_next_cron_tick(arrival: float, tick: float) -> None:
    assert minutes(deadline(BY_NINE, at(arrival), SUNDAY)) == tick


def test_cron_tick_before_the_end_of_the_window_does_not_count() -> None:
    assert minutes(deadline(BY_NINE, at(60), MONDAY)) == 9 * 60 + DAY


def test_last_tick_in_a_repeated_hour_is_the_one_that_the_way_forward_finds() -> None:
    contract = CronContract("30 2 * * *", bound=0.0, timezone="Europe/Berlin")
    begin = datetime(2026, 10, 25, tzinfo=ZoneInfo("UTC")).timestamp()
    for minute in range(0, 240, 5):
        now = begin + minute * 60
        last = tick_before(contract, now)
        assert last < now <= tick_at_or_after(contract, last + 1)


def test_cron_contract_requests_the_run_at_the_lower_bound() -> None:
    assert minutes(due(BY_NINE, at(60), SUNDAY, QUICK).at) == 8 * 60 + 30


def test_cron_contract_requests_a_slow_run_before_the_lower_bound() -> None:
    assert minutes(due(BY_NINE, at(60), SUNDAY, Pace(run_duration=40 * 60, margin=60)).at) == 9 * 60 - 41


def test_data_between_early_start_and_lower_bound_is_due_again_at_once() -> None:
    slow = Pace(run_duration=40 * 60, margin=60)
    asked = due(BY_NINE, at(8 * 60 + 25), SUNDAY, slow)
    assert minutes(asked.deadline) == 9 * 60 and asked.at < at(8 * 60 + 25)


def test_unbuilt_partition_is_due_by_its_own_tick_despite_late_data() -> None:
    assert minutes(due(BY_NINE, at(8 * 60 + 45), SUNDAY, QUICK, built=False).deadline) == 9 * 60
    assert minutes(due(BY_NINE, at(8 * 60 + 45), SUNDAY, QUICK, built=False).at) == 8 * 60 + 45


def test_unbuilt_partition_waits_for_the_lower_bound_of_its_own_tick() -> None:
    assert minutes(due(BY_NINE, at(-60), SUNDAY, QUICK, built=False).at) == 8 * 60 + 30


def test_unbuilt_partition_is_due_at_once_after_its_own_tick() -> None:
    assert minutes(due(BY_NINE, at(3 * DAY), SUNDAY, QUICK, built=False).at) == 3 * DAY


def test_table_without_time_windows_is_due_by_the_next_cron_tick() -> None:
    by_monday_six = CronContract("0 6 * * 1", bound=3600)
    assert minutes(deadline(by_monday_six, at(4 * 60), None)) == 6 * 60
    assert minutes(deadline(by_monday_six, at(5 * 60 + 1), None)) == 7 * DAY + 6 * 60


@pytest.mark.parametrize(("day", "utc"), [("2026-10-24", 7), ("2026-10-25", 8), ("2027-03-27", 8), ("2027-03-28", 7)])
def test_cron_deadline_keeps_local_time_across_daylight_saving_changes(day: str, utc: int) -> None:
    local = CronContract("0 9 * * *", 1800, timezone="Europe/Berlin")
    begin = datetime.fromisoformat(day).replace(tzinfo=ZoneInfo("Europe/Berlin")).timestamp()
    tick = datetime.fromtimestamp(deadline(local, begin, None), ZoneInfo("UTC"))
    assert (tick.hour, tick.minute) == (utc, 0)


# How a promise stands.


@pytest.mark.parametrize(
    ("now", "expected"),
    [
        (459, FreshnessStatus.MET),
        (460, FreshnessStatus.MET),
        (461, FreshnessStatus.AT_RISK),
        (490, FreshnessStatus.AT_RISK),
        (490.1, FreshnessStatus.BREACHED),
    ],
)
def test_contract_is_met_then_at_risk_then_breached(now: float, expected: FreshnessStatus) -> None:
    assert verdict(at(490), at(460), at(now)) is expected


def test_contract_without_a_warning_is_met_until_it_is_breached() -> None:
    assert verdict(at(490), None, at(490)) is FreshnessStatus.MET
    assert verdict(at(490), None, at(491)) is FreshnessStatus.BREACHED


ZONES = ["UTC", "Europe/Berlin", "America/Santiago", "Asia/Beirut", "Australia/Lord_Howe", "Africa/Cairo"]
ZONES += ["America/New_York", "Asia/Kathmandu", "Pacific/Apia", "Africa/Casablanca", "America/Havana"]
CRONS = ["0 0 * * *", "0 * * * *", "*/15 * * * *", "30 2 * * *", "0 0 * * 0", "0 0 1 * *", "30 0 * * *", "0 */6 * * *"]


@pytest.mark.parametrize("schedule", CRONS)
@pytest.mark.parametrize("zone", ZONES)
def test_cron_ticks_are_ordered_correctly_around_every_clock_change(zone: str, schedule: str) -> None:
    contract, local = CronContract(schedule, 0.0, zone), ZoneInfo(zone)
    begin = datetime(2026, 1, 1, tzinfo=ZoneInfo("UTC")).timestamp()
    days = [begin + 86_400 * n for n in range(365)]
    offsets = [datetime.fromtimestamp(day, local).utcoffset() for day in days]
    changes = [day for day, offset, after in zip(days, offsets, offsets[1:], strict=False) if offset != after]
    for at in (day + 900 * n for day in changes for n in range(-96, 192)):
        assert tick_before(contract, at) < at <= tick_at_or_after(contract, at)
