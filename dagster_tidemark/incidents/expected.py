"""Expected arrivals: when a window of a source should have data, by zone, weekday and calendar.

Pure. Belongs here: due times, and the windows that are due without data. Does not belong here: the incident about a
missing window (`incidents.causes`).
"""

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from dagster_tidemark.errors import Terminal
from dagster_tidemark.incidents.routing import WEEKDAYS, unknown_day
from dagster_tidemark.planner.contracts import Window
from dagster_tidemark.planner.graph import Graph
from dagster_tidemark.planner.history import History
from dagster_tidemark.sources.feed import Partition

LOOK_BACK = timedelta(days=7)
"""A missing window is reported for this long."""
_LONGEST_WINDOW = timedelta(days=32)


class ExpectationRefused(Terminal):
    """An expectation is declared wrongly."""


@dataclass(frozen=True, kw_only=True)
class ExpectedArrival:
    """Expectation that each time window of a source has data by a time of day, or within a time span.

    Args:
        source: Key of the source asset: `raw/orders`.
        by: Time of day, such as `06:00`, on the day when the window begins plus `day` days.
        day: 1: on the next day; 0: on the same day, for folders named by the day of delivery.
        within: Time span after the end of the window, in place of `by`.
        timezone: Zone of `by`, of `days` and of `except_on`.
        days: Days on which data is due: `("mon", "tue", "wed", "thu", "fri")`; by default every day.
        except_on: Dates on which no data is due: a set of dates, or a calendar such as
            `holidays.country_holidays("DE")` of the package `holidays`.
        grace: Time after the due time until a missing window is reported.

    Raises:
        ExpectationRefused: a value is wrong.
    """

    source: str
    by: str = ""
    day: int = 1
    within: timedelta | None = None
    timezone: str = "UTC"
    days: Sequence[str] = WEEKDAYS
    except_on: Container[date] = ()
    grace: timedelta = timedelta(0)

    def __post_init__(self) -> None:
        owner = f"ExpectedArrival({self.source})"
        if bool(self.by) == (self.within is not None):
            raise ExpectationRefused(f"{owner}: give either by= (a time of day such as 06:00) or within= (a timedelta)")
        try:
            _ = (time.fromisoformat(self.by or "00:00"), ZoneInfo(self.timezone))
        except (ValueError, ZoneInfoNotFoundError) as error:
            raise ExpectationRefused(
                f"{owner}: by={self.by!r}, timezone={self.timezone!r}: {error}; write 06:00 and Europe/Berlin"
            ) from error
        if why := unknown_day(self.days):
            raise ExpectationRefused(f"{owner}: {why}")

    def due_at(self, window: Window) -> float | None:
        """Return when data of a window is due, in Unix seconds; None if it is not due on that day."""
        zone = ZoneInfo(self.timezone)
        if self.within is not None:
            at = window.end + self.within.total_seconds()
            on = datetime.fromtimestamp(at, zone).date()
        else:
            # A window may begin at midnight of another zone: it belongs to the day that holds most of it.
            middle = window.start + min(window.end - window.start, 86_400.0) / 2
            on = datetime.fromtimestamp(middle, zone).date() + timedelta(days=self.day)
            at = datetime.combine(on, time.fromisoformat(self.by), zone).astimezone(UTC).timestamp()
        return None if WEEKDAYS[on.weekday()] not in self.days or on in self.except_on else at


@dataclass(frozen=True)
class MissingWindow:
    """A window without data after its due time and grace."""

    source: str
    partition: Partition
    due_at: float


Windows = Callable[[str, float, float], Iterable[Partition]]
"""Returns the partitions of a source whose window ends after the first time, up to and including the second."""


def missing_windows(
    expected: Sequence[ExpectedArrival],
    graph: Graph,
    history: History,
    windows: Windows,
    since: Mapping[str, float],
    now: float,
) -> list[MissingWindow]:
    """Return the windows that are due and have no data.

    Args:
        since: Time since which each source is checked, by source. Earlier windows were not expected.
    """
    found = []
    for each in expected:
        node = graph.nodes.get(each.source)
        if node is None:
            continue
        earliest = max(since.get(each.source, now), now - LOOK_BACK.total_seconds())
        until = now + _LONGEST_WINDOW.total_seconds() if each.by else now
        known = history.known.get(each.source, ())
        for partition in windows(each.source, earliest - _LONGEST_WINDOW.total_seconds(), until):
            window = node.window(partition)
            if partition in known or window is None:
                continue
            due_at = each.due_at(window)
            if due_at is not None and earliest <= due_at and due_at + each.grace.total_seconds() <= now:
                found.append(MissingWindow(each.source, partition, due_at))
    return found


def require_sources(expected: Sequence[ExpectedArrival], sources: Container[str]) -> None:
    """Raise unless each expectation is about an asset of the code location.

    Raises:
        ExpectationRefused: an asset does not exist.
    """
    for each in expected:
        if each.source not in sources:
            raise ExpectationRefused(f"ExpectedArrival({each.source}): there is no such asset; correct source")
