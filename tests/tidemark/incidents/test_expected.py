"""Expected arrivals: due times over zones and calendars against an oracle of its own, and the incident of a miss."""

import calendar
import random
from dataclasses import replace
from datetime import date, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from dagster_tidemark import ExpectedArrival
from dagster_tidemark.incidents.expected import ExpectationRefused
from dagster_tidemark.incidents.incident import CauseKind
from dagster_tidemark.planner.contracts import Window
from tests.tidemark.incidents.test_causes import HOUR_1, Location

ZONES = ("UTC", "Europe/Berlin", "America/New_York", "Asia/Kolkata", "Australia/Lord_Howe", "Pacific/Apia")
NAMES = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")


def wall_clock(zone: str, year: int, month: int, day: int, minute: int) -> float:
    """Return the first moment at which clocks show a time; not a number if they skip it."""
    naive = datetime(year, month, day) + timedelta(minutes=minute)
    at = naive.replace(tzinfo=ZoneInfo("UTC")).timestamp() - 18 * 3600
    found = []
    for half_hour in range(0, 36 * 60, 30):
        moment = datetime.fromtimestamp(at + half_hour * 60, ZoneInfo(zone))
        offset = moment.utcoffset() or timedelta(0)
        candidate = naive.replace(tzinfo=ZoneInfo("UTC")).timestamp() - offset.total_seconds()
        if datetime.fromtimestamp(candidate, ZoneInfo(zone)).replace(tzinfo=None) == naive:
            found.append(candidate)
    return min(found, default=float("nan"))


@pytest.mark.parametrize("zone", ZONES)
def test_due_times_of_expected_arrivals_match_the_local_clock(zone: str) -> None:
    chance = random.Random(zone)
    for _ in range(20):
        year, month = chance.randint(2015, 2035), chance.randint(1, 12)
        days = tuple(chance.sample(NAMES, chance.randint(1, 7)))
        off = {date(year, month, chance.randint(1, 28)) for _ in range(3)}
        minute = chance.randrange(0, 1440, 5)
        by, later = f"{minute // 60:02}:{minute % 60:02}", chance.choice([0, 1, 2])
        expected = ExpectedArrival(source="raw/a", by=by, day=later, timezone=zone, days=days, except_on=off)
        for day in range(1, calendar.monthrange(year, month)[1] + 1):
            due_on = date(year, month, day) + timedelta(days=later)
            begin = wall_clock(zone, year, month, day, 0)
            if begin != begin:
                continue  # this midnight, or this day, does not exist there
            found = expected.due_at(Window(begin, begin + 86_400))
            if NAMES[due_on.weekday()] not in days or due_on in off:
                assert found is None
            elif (wanted := wall_clock(zone, due_on.year, due_on.month, due_on.day, minute)) == wanted:
                assert found == wanted, (zone, due_on, by)


def test_missed_arrival_is_one_incident_that_lists_each_partition_until_data_arrives() -> None:
    location = Location(every=30.0)
    location.expected = [ExpectedArrival(source="raw/prices", within=timedelta(minutes=5), grace=timedelta(minutes=5))]
    location.arrives("orders", hours=1)
    location.look()
    location.simulation.run_until(location.simulation.time(hours=2, minutes=8))
    location.until(hours=2, minutes=9, seconds=30)
    assert location.all == []
    location.until(hours=2, minutes=10, seconds=30)
    (opened,) = location.book.open
    assert (opened.cause.kind, opened.cause.subject) == (CauseKind.MISSING, "raw/prices")
    assert [(each.asset, each.partitions) for each in opened.assets] == [("raw/prices", (HOUR_1,))]
    location.simulation.run_until(location.simulation.time(hours=3, minutes=9))
    location.until(hours=3, minutes=11)
    (grown,) = location.all
    assert grown.assets[0].partitions == (HOUR_1, "2026-10-05-02:00") and grown.is_open
    for hour in (1, 2):
        location.arrives("prices", f"2026-10-05-{hour:02}:00", hours=3, minutes=12)
    location.until(hours=3, minutes=18)
    assert [(each.id, each.is_open) for each in location.all] == [(opened.id, False)]


def test_expected_arrival_ignores_partitions_before_its_declaration() -> None:
    location = Location(every=30.0)
    location.simulation.run_until(location.simulation.time(hours=5))
    location.expected = [ExpectedArrival(source="raw/prices", within=timedelta(minutes=5))]
    location.until(hours=5, minutes=4)
    assert location.all == []


def test_invalid_expected_arrivals_are_refused() -> None:
    good = ExpectedArrival(source="raw/a", by="06:00")
    for wrong, said in (
        ({"by": ""}, "give either by"),
        ({"within": timedelta(hours=1)}, "give either by"),
        ({"by": "6 am"}, "write 06:00"),
        ({"by": "06:00+02:00"}, "it has an offset"),
        ({"timezone": "Mars/North"}, "Europe/Berlin"),
        ({"days": ("Monday",)}, "unknown day"),
        ({"days": ()}, "days is empty"),
        ({"except_on": {"2026-12-25"}}, "equals no date"),
        ({"except_on": [datetime(2026, 12, 25)]}, "equals no date"),
        ({"except_on": "2026-12-25"}, "expected dates"),
        ({"grace": timedelta(minutes=-5)}, "is negative"),
    ):
        with pytest.raises(ExpectationRefused, match=said):
            replace(good, **wrong)  # type: ignore[arg-type]
