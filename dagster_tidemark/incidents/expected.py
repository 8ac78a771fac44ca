"""Expected arrivals: when a window of a source should have data, by zone, weekday and calendar, and how much.

Pure. Belongs here: the declaration and its due times. Does not belong here: the state of windows
(`incidents.arrivals`), and incidents about them (`incidents.causes`).
"""

from collections.abc import Collection, Container, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from dagster_tidemark.errors import Terminal
from dagster_tidemark.incidents.routing import WEEKDAYS, unknown_day
from dagster_tidemark.planner.contract_status import span
from dagster_tidemark.planner.contracts import InputPromise, Window
from dagster_tidemark.sources.layout import SEPARATOR, Partition
from dagster_tidemark.sources.times import time_of_day


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
        keys: Keys of a source with two dimensions that should have data: `["berlin", "oslo"]`; by default all.
        timezone: Zone of `by`, of `days` and of `except_on`.
        days: Days on which data is due: `("mon", "tue", "wed", "thu", "fri")`; by default every day.
        except_on: Dates on which no data is due: a set of dates, or a calendar such as
            `holidays.country_holidays("DE")` of the package `holidays`.
        grace: Time after the due time until the miss is reported.
        files: Least number of files of a window.
        rows: Least number of rows of a window, as its table contains them after the load. Rejected rows do not count.
        may_be_empty: True if a window whose files have no bytes is in order.
        distinct: True if a window must not have the same bytes as an earlier one, under any name. ETags are compared.
        usual: Least share of the usual bytes, such as 0.5. Usual is the median of earlier windows, from three on.

    Raises:
        ExpectationRefused: a value is wrong.
    """

    source: str
    by: str = ""
    day: int = 1
    within: timedelta | None = None
    keys: Collection[str] = ()
    timezone: str = "UTC"
    days: Sequence[str] = WEEKDAYS
    except_on: Container[date] = ()
    grace: timedelta = timedelta(0)
    files: int = 1
    rows: int = 0
    may_be_empty: bool = False
    distinct: bool = False
    usual: float = 0.0

    def __post_init__(self) -> None:
        owner = f"ExpectedArrival({self.source})"
        if bool(self.by) == (self.within is not None):
            raise ExpectationRefused(f"{owner}: give either by= (a time of day such as 06:00) or within= (a timedelta)")
        try:
            _ = (time_of_day(self.by or "00:00"), ZoneInfo(self.timezone))
        except (ValueError, ZoneInfoNotFoundError) as error:
            raise ExpectationRefused(
                f"{owner}: by={self.by!r}, timezone={self.timezone!r}: {error}; write 06:00 and Europe/Berlin"
            ) from error
        if why := unknown_day(self.days):
            raise ExpectationRefused(f"{owner}: {why}")
        if not self.days:
            raise ExpectationRefused(f"{owner}: days is empty, so nothing is ever expected; write days=('mon', 'tue')")
        if why := _no_calendar(self.except_on):
            raise ExpectationRefused(f"{owner}: {why}")
        if isinstance(self.keys, str):
            raise ExpectationRefused(f"{owner}: keys={self.keys!r}: expected a list, such as [{self.keys!r}]")
        if self.grace < timedelta(0):
            raise ExpectationRefused(f"{owner}: grace={self.grace} is negative; write a time span, or an earlier by=")
        if self.files < 1 or self.rows < 0 or not 0 <= self.usual < 1:
            raise ExpectationRefused(
                f"{owner}: files={self.files}, rows={self.rows}, usual={self.usual}: write one file or "
                "more, no rows or more, and a share below 1"
            )

    @property
    def counts_content(self) -> bool:
        """True if it declares more than the arrival of some data."""
        return self.files > 1 or self.rows > 0 or self.distinct or self.usual > 0

    @property
    def promise(self) -> InputPromise:
        """The expectation as the planner knows it."""
        zone = "" if self.timezone == "UTC" else f" {self.timezone}"
        after = "" if self.within is None else span(self.within.total_seconds())
        said = f"expected by {self.by}{zone}" if self.by else f"expected within {after} of the end of a window"
        return InputPromise(self.source, said, self.due_at, self.longest, self.is_about)

    def is_about(self, partition: Partition) -> bool:
        """Return True if data of a partition is expected, because of its key."""
        return not self.keys or not set(self.keys).isdisjoint(parts_of(partition))

    @property
    def longest(self) -> float:
        """Longest time from the end of a window to its due time, in seconds."""
        if self.within is not None:
            return max(0.0, self.within.total_seconds())
        return (max(0, self.day) + 2) * 86_400.0  # a window may begin on another day of the zone

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
            at = datetime.combine(on, time_of_day(self.by), zone).astimezone(UTC).timestamp()
        return None if WEEKDAYS[on.weekday()] not in self.days or on in self.except_on else at


def parts_of(partition: Partition) -> list[str]:
    """Return the keys of the dimensions in a key of Dagster's multi-partitions, such as `berlin|2026-10-05`."""
    return str(partition).split(SEPARATOR)


def _no_calendar(dates: object) -> str:
    """Return why exceptions would never match a date; empty if they can."""
    if isinstance(dates, str):
        return f"except_on={dates!r}: expected dates, such as {{date(2026, 12, 25)}}"
    if not hasattr(dates, "__contains__"):
        return f"except_on is a {type(dates).__name__}, which can be read only once; write a set of dates"
    is_listed = isinstance(dates, set | frozenset | list | tuple) or type(dates) is dict
    found: Iterable[object] = dates if isinstance(dates, Iterable) and is_listed else ()
    other = next((each for each in found if isinstance(each, datetime) or not isinstance(each, date)), None)
    if other is None:
        return ""
    return f"except_on has {other!r}, which equals no date; write date(2026, 12, 25)"


def require_sources(
    expected: Sequence[ExpectedArrival], sources: Container[str], feeds: Container[str] | None = None
) -> None:
    """Raise unless each expectation is about an asset of the code location.

    Args:
        feeds: The sources whose files are listed; None means all.

    Raises:
        ExpectationRefused: an asset does not exist, or has no files to count.
    """
    for each in expected:
        if each.source not in sources:
            raise ExpectationRefused(f"ExpectedArrival({each.source}): there is no such asset; correct source")
        if each.counts_content and feeds is not None and each.source not in feeds:
            raise ExpectationRefused(
                f"ExpectedArrival({each.source}): files, rows, distinct and usual need a feed; remove them, or name a "
                "feed"
            )
