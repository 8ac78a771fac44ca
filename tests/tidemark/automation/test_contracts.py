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
    feasible,
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


def test_the_margin_is_two_ticks_and_the_launch() -> None:
    assert margin_of(5) == 12


# A contract on lag.


def test_the_deadline_of_a_lag_contract_is_the_arrival_plus_the_window() -> None:
    assert minutes(deadline(LagContract(3600), at(430), HOUR_7)) == 490


def test_a_warning_comes_where_the_contract_has_one() -> None:
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
def test_time_for_a_second_attempt_is_kept_where_a_quarter_of_the_window_affords_it(
    window: float, lead: float, kept: float
) -> None:
    assert reserve(LagContract(window), Pace(lead, 20)) == kept


def test_a_run_is_asked_for_lead_reserve_and_margin_before_the_deadline() -> None:
    asked = due(LagContract(3600), at(430), HOUR_7, QUICK)
    assert asked.deadline == at(490)
    assert asked.deadline - asked.at == 60 + 120 + 20
    assert asked.deadline - asked.start_by == 60 + 20


@pytest.mark.parametrize(
    ("scale", "fail", "warn"), [(1, 3600, 1800), (0.05, 180, 90), (0.001, 60, 60), (2, 7200, 3600)]
)
def test_the_scale_multiplies_lag_windows_and_never_below_a_minute(scale: float, fail: float, warn: float) -> None:
    assert LagContract(3600, 1800).scaled(scale) == LagContract(fail, warn)
    assert LagContract(3600).scaled(scale).warn is None


def test_the_scale_never_touches_a_time_of_day() -> None:
    assert BY_NINE.scaled(0.05) == BY_NINE


# A partition that was never built.


def test_while_its_window_is_open_a_new_partition_is_due_by_its_contract() -> None:
    asked = due(LagContract(1800), at(425), HOUR_7, QUICK, built=False)
    assert minutes(asked.at) == 455 - 200 / 60


def test_once_its_window_has_ended_a_new_partition_is_due_whatever_the_contract() -> None:
    assert due(LagContract(86_400), at(425), HOUR_7, QUICK, built=False).at == HOUR_7.end
    assert due(LagContract(86_400), at(600), HOUR_7, QUICK, built=False).at == at(600)
    assert due(LagContract(86_400), at(425), HOUR_7, QUICK).at > HOUR_7.end, (
        "one that was built has its contract's time"
    )


def test_where_there_are_no_windows_a_first_build_waits_for_nothing() -> None:
    assert due(LagContract(86_400), at(425), None, QUICK, built=False).at == at(425)
    assert due(BY_NINE, at(425), None, QUICK, built=False).at == at(425)


# A contract on a deadline.


def test_a_windows_own_tick_is_the_first_at_or_after_its_end() -> None:
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
def test_what_arrived_up_to_the_bound_is_due_by_the_tick_and_anything_later_by_the_next(
    arrival: float, tick: float
) -> None:
    assert minutes(deadline(BY_NINE, at(arrival), SUNDAY)) == tick


def test_no_tick_before_a_windows_own_counts() -> None:
    assert minutes(deadline(BY_NINE, at(60), MONDAY)) == 9 * 60 + DAY


def test_it_is_asked_for_from_the_bound_on_when_nothing_later_is_required() -> None:
    assert minutes(due(BY_NINE, at(60), SUNDAY, QUICK).at) == 8 * 60 + 30


def test_it_is_asked_for_earlier_only_if_a_run_takes_longer_than_the_bound() -> None:
    assert minutes(due(BY_NINE, at(60), SUNDAY, Pace(run_duration=40 * 60, margin=60)).at) == 9 * 60 - 41


def test_what_arrives_between_the_early_start_and_the_bound_is_due_again_at_once() -> None:
    slow = Pace(run_duration=40 * 60, margin=60)
    asked = due(BY_NINE, at(8 * 60 + 25), SUNDAY, slow)
    assert minutes(asked.deadline) == 9 * 60 and asked.at < at(8 * 60 + 25)


def test_a_window_that_was_never_built_is_promised_for_its_own_tick_however_late_its_data() -> None:
    assert minutes(due(BY_NINE, at(8 * 60 + 45), SUNDAY, QUICK, built=False).deadline) == 9 * 60
    assert minutes(due(BY_NINE, at(8 * 60 + 45), SUNDAY, QUICK, built=False).at) == 8 * 60 + 45


def test_a_window_that_was_never_built_waits_for_the_bound_of_its_own_tick() -> None:
    assert minutes(due(BY_NINE, at(-60), SUNDAY, QUICK, built=False).at) == 8 * 60 + 30


def test_past_its_own_tick_a_window_that_was_never_built_is_due_at_once() -> None:
    assert minutes(due(BY_NINE, at(3 * DAY), SUNDAY, QUICK, built=False).at) == 3 * DAY


def test_a_table_without_windows_is_due_by_the_next_tick() -> None:
    by_monday_six = CronContract("0 6 * * 1", bound=3600)
    assert minutes(deadline(by_monday_six, at(4 * 60), None)) == 6 * 60
    assert minutes(deadline(by_monday_six, at(5 * 60 + 1), None)) == 7 * DAY + 6 * 60


@pytest.mark.parametrize(("day", "utc"), [("2026-10-24", 7), ("2026-10-25", 8), ("2027-03-27", 8), ("2027-03-28", 7)])
def test_nine_oclock_is_nine_oclock_on_both_sides_of_daylight_saving(day: str, utc: int) -> None:
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
def test_a_promise_is_met_then_at_risk_then_breached(now: float, expected: FreshnessStatus) -> None:
    assert verdict(at(490), at(460), at(now)) is expected


def test_without_a_moment_of_warning_a_promise_is_met_until_it_is_breached() -> None:
    assert verdict(at(490), None, at(490)) is FreshnessStatus.MET
    assert verdict(at(490), None, at(491)) is FreshnessStatus.BREACHED


def test_a_contract_that_leaves_less_time_than_a_run_takes_is_told() -> None:
    assert feasible(LagContract(3600), QUICK)
    assert not feasible(LagContract(60), QUICK)
    assert not feasible(BY_NINE, Pace(run_duration=1800, margin=1))


ZONES = ["UTC", "Europe/Berlin", "America/Santiago", "Asia/Beirut", "Australia/Lord_Howe", "Africa/Cairo"]
ZONES += ["America/New_York", "Asia/Kathmandu", "Pacific/Apia", "Africa/Casablanca", "America/Havana"]
CRONS = ["0 0 * * *", "0 * * * *", "*/15 * * * *", "30 2 * * *", "0 0 * * 0", "0 0 1 * *", "30 0 * * *", "0 */6 * * *"]


@pytest.mark.parametrize("schedule", CRONS)
@pytest.mark.parametrize("zone", ZONES)
def test_when_the_clocks_change_no_tick_is_on_the_wrong_side(zone: str, schedule: str) -> None:
    contract, local = CronContract(schedule, 0.0, zone), ZoneInfo(zone)
    begin = datetime(2026, 1, 1, tzinfo=ZoneInfo("UTC")).timestamp()
    days = [begin + 86_400 * n for n in range(365)]
    offsets = [datetime.fromtimestamp(day, local).utcoffset() for day in days]
    changes = [day for day, offset, after in zip(days, offsets, offsets[1:], strict=False) if offset != after]
    for at in (day + 900 * n for day in changes for n in range(-96, 192)):
        assert tick_before(contract, at) < at <= tick_at_or_after(contract, at)
