"""One thousand random months of expected arrivals, in zones and with calendars, against an independent oracle.

The oracle reads the wall clock of each zone (`wall_clock`), walks the days of the month, and knows what it delivered.
"""

import calendar
import random
import time
from collections import Counter
from datetime import date, timedelta

import pytest

from dagster_tidemark import ExpectedArrival
from dagster_tidemark.incidents.arrivals import ArrivedFiles, Contents, arrivals
from dagster_tidemark.incidents.incident import ArrivalState
from dagster_tidemark.planner.contracts import Window
from dagster_tidemark.planner.graph import Graph, Node
from dagster_tidemark.planner.history import History
from tests.proof.conftest import Report
from tests.tidemark.incidents.test_expected import NAMES, ZONES, wall_clock

MONTHS = 1000
DAY = 86_400.0


class Calendar:
    """Days of each year, by month and day, as a calendar of public holidays has them."""

    def __init__(self, days: set[tuple[int, int]]) -> None:
        self._days = days

    def __contains__(self, day: object) -> bool:
        return isinstance(day, date) and (day.month, day.day) in self._days


@pytest.mark.proof
@pytest.mark.timeout(1800)
def test_the_states_of_a_thousand_random_months_are_those_of_the_oracle(report: Report) -> None:
    begun, counted = time.monotonic(), Counter[str]()
    for seed in range(MONTHS):
        counted.update(month(random.Random(seed)))
    wrong = counted.pop("wrong", 0)
    report("expected-months", {"months": MONTHS, "wrong": wrong, **counted, "seconds": round(time.monotonic() - begun)})
    assert wrong == 0


def month(chance: random.Random) -> Counter[str]:
    """Play a month, look at random times, and count the windows in each state, and the wrong ones."""
    zone, year, number = chance.choice(ZONES), chance.randint(2018, 2030), chance.randint(1, 12)
    off = Calendar({(1, 1), (12, 25), (chance.randint(1, 12), 1), *((number, chance.randint(1, 28)) for _ in range(3))})
    weekdays = tuple(chance.sample(NAMES, chance.randint(3, 7)))
    minute, later, grace = chance.randrange(60, 1380, 15), chance.choice([0, 1, 2]), chance.choice([0, 900, 7200])
    expected = ExpectedArrival(
        source="raw/a",
        by=f"{minute // 60:02}:{minute % 60:02}",
        day=later,
        timezone=zone,
        days=weekdays,
        except_on=off,
        grace=timedelta(seconds=grace),
        files=chance.choice([1, 2]),
        may_be_empty=chance.random() < 0.3,
        distinct=chance.random() < 0.5,
    )
    days = [date(year, number, day) for day in range(1, calendar.monthrange(year, number)[1] + 1)]
    due: dict[str, float] = {}
    spans: dict[str, Window] = {}
    for day in days:
        on = day + timedelta(days=later)
        begin, at = wall_clock(zone, day.year, day.month, day.day, 0), wall_clock(zone, *on.timetuple()[:3], minute)
        if begin == begin and at == at:  # the clock shows both
            spans[str(day)] = Window(begin, begin + DAY)
            if NAMES[on.weekday()] in weekdays and on not in off:
                due[str(day)] = at
    delivered = {
        key: (due.get(key, span.end) + chance.choice([-7200, -60, grace - 1, grace + 1, 9000]), chance.choice(KINDS))
        for key, span in spans.items()
    }
    found: Counter[str] = Counter()
    for _ in range(6):
        now = chance.uniform(min(span.end for span in spans.values()), max(due.values(), default=0.0) + 3 * DAY)
        history, files = _at(delivered, now, expected.files)
        graph = Graph({"raw/a": Node("raw/a", source=True, window=lambda key: spans[str(key)])})
        history.graph = graph
        got = arrivals(
            [expected],
            graph,
            history,
            lambda _, after, until: [key for key, span in spans.items() if after < span.end <= until],
            {"raw/a": 0.0},
            now,
            _contents(files),
        )
        for each in got:
            wanted = _wanted(str(each.partition), due, delivered, expected, now)
            found[str(wanted)] += 1
            found["wrong"] += each.state is not wanted
        judged = {str(each.partition) for each in got}
        found["wrong"] += sum(key not in judged for key, at in due.items() if now - 7 * DAY <= at <= now)
    return found


KINDS = ("whole", "whole", "whole", "never", "empty", "half", "again")


def _at(delivered: dict[str, tuple[float, str]], now: float, files: int) -> tuple[History, dict[str, ArrivedFiles]]:
    """Return the deliveries observed until a time: `half` lacks a file, all of kind `again` have the same bytes."""
    history, contents = History(Graph({"raw/a": Node("raw/a", source=True)})), {}
    for number, (key, (at, kind)) in enumerate(delivered.items(), start=1):
        if kind == "never" or at > now:
            continue
        history.observed(("raw/a", key), id=number, version=key, arrived_at=at, listed_at=at)
        size = 0 if kind == "empty" else 100
        contents[key] = ArrivedFiles(
            files - 1 or 1 if kind == "half" else files, size, "again" if kind == "again" else key
        )
    return history, contents


def _contents(files: dict[str, ArrivedFiles]) -> Contents:
    return lambda _, asked: {key: files[str(key)] for key in asked}


def _wanted(
    key: str, due: dict[str, float], delivered: dict[str, tuple[float, str]], expected: ExpectedArrival, now: float
) -> ArrivalState:
    if key not in due:
        return ArrivalState.NOT_EXPECTED
    last, (at, kind) = due[key] + expected.grace.total_seconds(), delivered[key]
    here = kind != "never" and at <= now
    fault = None if here else ArrivalState.MISSING
    if here and kind == "empty" and not expected.may_be_empty:
        fault = ArrivalState.EMPTY
    elif here and kind == "half" and expected.files == 2:
        fault = ArrivalState.FEWER
    elif here and kind == "again" and expected.distinct:
        same = [day for day, (when, how) in delivered.items() if how == "again" and when <= now and day < key]
        fault = ArrivalState.REPEATED if same else None
    if fault is not None:
        return fault if now >= last else ArrivalState.PENDING
    return ArrivalState.ON_TIME if at <= last else ArrivalState.LATE
