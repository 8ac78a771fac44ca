"""Time windows of feeds, and the digits that represent their starts in a time zone.

Belongs here: the windows, and the time part of a partition key. Does not belong here: the folders that contain the
digits (`layout`).
"""

import re
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from enum import StrEnum
from functools import cached_property
from zoneinfo import ZoneInfo

Digits = dict[str, str]
"""Digits by directive. `OFFSET` is set only for the second of two times with the same digits."""

DIRECTIVES = {"%Y": r"\d{4}", "%m": r"\d{2}", "%d": r"\d{2}", "%H": r"\d{2}", "%M": r"\d{2}"}
OFFSET = "%z"


class Grain(StrEnum):
    """Length of a feed's time partitions. The value is the name of the partition column."""

    QUARTER_HOUR = "quarter_hour"
    HOUR = "hour"
    DAY = "day"
    WEEK = "week"
    MONTH = "month"
    NONE = "none"


FOLDERS = {
    Grain.QUARTER_HOUR: "dt=%Y-%m-%d/hour=%H/minute=%M",
    Grain.HOUR: "dt=%Y-%m-%d/hour=%H",
    Grain.DAY: "dt=%Y-%m-%d",
    Grain.WEEK: "week=%Y-%m-%d",
    Grain.MONTH: "month=%Y-%m",
    Grain.NONE: "",
}
"""The default time folders of a feed. The folder of a week has the date of its Monday."""

TYPES = {
    Grain.QUARTER_HOUR: "timestamp",
    Grain.HOUR: "timestamp",
    Grain.DAY: "date",
    Grain.WEEK: "date",
    Grain.MONTH: "date",
}
"""The type of the column with the start of a window."""

FORMATS = {"timestamp": "%Y-%m-%d-%H:%M", "date": "%Y-%m-%d"}
"""The format of a window's start in a partition key, by the type of the column with this start."""

NEEDED = {grain: frozenset(re.findall("%.", folders)) for grain, folders in FOLDERS.items()}
"""The directives that identify a window."""

_LENGTHS = {Grain.QUARTER_HOUR: timedelta(minutes=15), Grain.HOUR: timedelta(hours=1)}
"""The fixed lengths of windows. Other grains have calendar lengths."""


@dataclass(frozen=True)
class Times:
    """The windows of a grain in a time zone.

    Raises:
        ValueError: the time zone does not exist.
    """

    grain: Grain
    timezone: str = "UTC"

    def __post_init__(self) -> None:
        try:
            ZoneInfo(self.timezone)
        except (LookupError, ValueError, OSError) as error:
            raise ValueError(f"unknown timezone {self.timezone!r}; use a name such as Europe/Berlin") from error

    @cached_property
    def finest(self) -> str:
        """The directive of the shortest unit of time."""
        return max(NEEDED[self.grain], key=list(DIRECTIVES).index, default="")

    @property
    def has_offsets(self) -> bool:
        """True if digits may need an offset."""
        return self.timezone != "UTC" and self.grain in _LENGTHS

    @property
    def _zone(self) -> ZoneInfo:
        return ZoneInfo(self.timezone)

    def day_of(self, digits: Digits) -> date | None:
        """Return the day that the digits name, or the first day of their week or month; None if the day is incomplete.

        Raises:
            ValueError: the time does not exist, or no window begins at it.
        """
        try:
            start = self._local(digits)
            if self.finest in digits and digits.get(OFFSET, "") not in self._offsets(digits):
                raise ValueError(f"no such time in {self.timezone}: {start}")
        except OverflowError as error:
            raise ValueError(str(error)) from error
        if "%d" in digits and self.first_of(start.date()) != start.date():
            raise ValueError(f"no {self.grain} begins on {start.date()}")
        if self.grain in _LENGTHS and timedelta(hours=start.hour, minutes=start.minute) % _LENGTHS[self.grain]:
            raise ValueError(f"no {self.grain} begins at {start}")
        return start.date() if digits.keys() >= NEEDED[self.grain] - {"%H", "%M"} else None

    def key(self, digits: Digits) -> str:
        """Return the time part of the partition key for a window's digits."""
        day = f"{digits['%Y']}-{digits['%m']}-{digits.get('%d', '01')}"
        if self.grain not in _LENGTHS:
            return day
        return f"{day}-{digits['%H']}:{digits.get('%M', '00')}{digits.get(OFFSET, '')}"

    def digits(self, key: str) -> Digits:
        """Return the digits of a key, by directive."""
        return {
            "%Y": key[:4],
            "%m": key[5:7],
            "%d": key[8:10],
            "%H": key[11:13] or "00",
            "%M": key[14:16] or "00",
            OFFSET: key[16:],
        }

    def is_key(self, text: str, since: date) -> bool:
        """Return True if a text has the form of a key, and its window ends after the start of the day `since`."""
        if len(text) not in self._lengths or text[:10] < self.first_of(since).isoformat():
            return False
        # Other parts of a key are not checked, for speed: a call may be one of 100,000.
        try:
            if self.grain in _LENGTHS:
                return int(text[14:16]) % (_LENGTHS[self.grain] // timedelta(minutes=1)) == 0
            return self.grain is Grain.DAY or self.first_of(day := date.fromisoformat(text)) == day
        except ValueError:
            return False

    def of_day(self, day: date) -> list[Digits]:
        """Return the windows of a day, or the window that contains the day."""
        first = self.first_of(day)
        said = {"%Y": f"{first.year:04}", "%m": f"{first.month:02}", "%d": f"{first.day:02}"}
        length = _LENGTHS.get(self.grain)
        if length is None:
            return [said]
        minutes = range(0, 24 * 60, length // timedelta(minutes=1))
        found = [said | {"%H": f"{minute // 60:02}", "%M": f"{minute % 60:02}"} for minute in minutes]
        return [digits | {OFFSET: offset} for digits in found for offset in self._offsets(digits)]

    def window(self, key: str) -> tuple[datetime, datetime]:
        """Return the UTC start and end of a window. The last possible window ends at the last representable time."""
        start = self._local(self.digits(key))
        try:
            if length := _LENGTHS.get(self.grain):
                return start.astimezone(UTC), start.astimezone(UTC) + length
            if self.grain is Grain.MONTH:
                following = (start + timedelta(days=31)).replace(day=1)
            else:
                following = start + timedelta(days=7 if self.grain is Grain.WEEK else 1)
            return start.astimezone(UTC), following.astimezone(UTC)
        except OverflowError:
            return start.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)

    def first_of(self, day: date) -> date:
        """Return the first day of the window that contains a day."""
        if self.grain is Grain.WEEK:
            return day - timedelta(days=day.weekday())
        return day.replace(day=1) if self.grain is Grain.MONTH else day

    def local_days(self, day: date) -> list[date]:
        """Return the local days that overlap a UTC day."""
        start = datetime(day.year, day.month, day.day, tzinfo=UTC)
        ends = (start, start + timedelta(days=1, microseconds=-1))
        return sorted({at.astimezone(self._zone).date() for at in ends})

    def _local(self, digits: Digits) -> datetime:
        year, month, day, hour, minute = (int(digits.get(d, at)) for d, at in zip(DIRECTIVES, "11100", strict=True))
        return datetime(year, month, day, hour, minute, tzinfo=self._zone, fold=1 if digits.get(OFFSET) else 0)

    def _offsets(self, digits: Digits) -> list[str]:
        """Return the time zone offset to append, for each time that these digits represent.

        Usually there is one time, with an empty offset. When clocks go back there are two, and the second one gets its
        offset, as in Dagster. When clocks go forward there is none.
        """
        if not self.has_offsets:
            return [""]
        first = self._local(digits | {OFFSET: ""})
        second = first.replace(fold=1)
        if first.utcoffset() == second.utcoffset():
            return [""]
        is_there = first.astimezone(UTC).astimezone(self._zone).replace(tzinfo=None) == first.replace(tzinfo=None)
        return ["", f"{second:%z}"] if is_there else []

    @cached_property
    def _lengths(self) -> frozenset[int]:
        plain = len(re.sub("%.", "00", FORMATS[TYPES[self.grain]].replace("%Y", "2026")))
        return frozenset([plain, plain + len("+0100")] if self.has_offsets else [plain])


def time_of_day(text: str) -> time:
    """Return a time of day.

    Raises:
        ValueError: the text is no time of day, or has an offset, which would be another zone than the declared one.
    """
    at = time.fromisoformat(text)
    if at.tzinfo is not None:
        raise ValueError("it has an offset; write the time alone, and the zone as timezone=")
    return at
