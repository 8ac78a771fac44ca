"""How a feed's keys say which partition a file is in: folders of time, or one fixed key.

The one place that knows what such folders are called. Does not belong here: what a feed declares beside it (`feed`),
and what becomes of keys that fit nowhere (`misplaced`).
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from enum import StrEnum
from functools import cached_property

Partition = str | None
"""A partition key as Dagster writes it (`2026-09-28-07:00`, `2026-09-28`), or None for an unpartitioned feed."""


class Grain(StrEnum):
    """How a feed is cut. The value is the name of the partition column."""

    HOUR = "hour"
    DAY = "day"
    MONTH = "month"
    NONE = "none"


FOLDERS = {Grain.HOUR: "dt=%Y-%m-%d/hour=%H", Grain.DAY: "dt=%Y-%m-%d", Grain.MONTH: "month=%Y-%m", Grain.NONE: ""}
"""The folders of a feed that declares none."""

TYPES = {Grain.HOUR: "timestamp", Grain.DAY: "date", Grain.MONTH: "date"}
"""The type of the column that holds the start of a feed's partition; of one fixed key there is none."""

_DIGITS = {"%Y": r"\d{4}", "%m": r"\d{2}", "%d": r"\d{2}", "%H": r"\d{2}"}
_NEEDED = {
    Grain.HOUR: {"%Y", "%m", "%d", "%H"},
    Grain.DAY: {"%Y", "%m", "%d"},
    Grain.MONTH: {"%Y", "%m"},
    Grain.NONE: set[str](),
}


@dataclass(frozen=True)
class Layout:
    """Folders of time below a prefix.

    Args:
        grain: What one partition is.
        folders: Their names, each with the directives `%Y %m %d %H` it is made of, coarse before fine.

    Raises:
        ValueError: the folders do not say the grain's times.
    """

    grain: Grain
    folders: str

    def __post_init__(self) -> None:
        found = re.findall("%.", self.folders)
        if set(found) != _NEEDED[self.grain] or len(found) != len(set(found)):
            needed = " ".join(sorted(_NEEDED[self.grain])) or "none"
            raise ValueError(
                f"folders of a feed by {self.grain} have the directives {needed}, once each, unlike {self}"
            )
        if found != sorted(found, key=list(_DIGITS).index) or not all("%" in name for name in self._names):
            raise ValueError(f"each folder names a time, coarse before fine, unlike {self}")

    def __str__(self) -> str:
        return repr(self.folders)

    @property
    def depth(self) -> int:
        """How many folders lie between the prefix and a partition's files."""
        return len(self._names)

    def partition_of(self, folders: Sequence[str]) -> Partition:
        """The partition whose files lie in these folders; None where there is none."""
        start = self.start_in(folders) if len(folders) == self.depth else None
        if start is None:
            return None
        return f"{start.date()}-{start.hour:02}:00" if self.grain is Grain.HOUR else str(start.date())

    def start_in(self, folders: Sequence[str]) -> datetime | None:
        """The UTC start of the time that these folders are of: the first ones, or all; None where they are of none."""
        names = self._names[: len(folders)]
        if not all(pattern.fullmatch(f) for pattern, f in zip(self._patterns, folders, strict=False)):
            return None
        try:
            return datetime.strptime("/".join(folders), "/".join(names)).replace(tzinfo=UTC)
        except ValueError:
            return None

    def tells_day(self, depth: int) -> bool:
        """Whether so many folders say the day, or all that is to be said."""
        return depth == self.depth or "%d" in "/".join(self._names[:depth])

    def below(self, partition: str) -> str:
        """The folders of a partition, with the slash at their end."""
        return _formatted(start_of(partition), self._names)

    def of_day(self, day: date) -> str:
        """The folders below which all files of a day lie; for whole months those of its month."""
        names = [name for name in self._names if "%H" not in name]
        return _formatted(datetime(day.year, day.month, day.day, tzinfo=UTC), names)

    def partitions_of(self, day: date) -> list[Partition]:
        """The partitions of a day, or the one it lies in."""
        if self.grain is Grain.HOUR:
            return [f"{day}-{hour:02}:00" for hour in range(24)]
        return [None if self.grain is Grain.NONE else str(self.first_of(day))]

    def end_of(self, partition: str) -> datetime:
        """The UTC end of a partition's window; of the last one there can be, the last moment."""
        start = start_of(partition)
        try:
            if self.grain is Grain.MONTH:
                return (start + timedelta(days=31)).replace(day=1)
            return start + {Grain.HOUR: timedelta(hours=1), Grain.DAY: timedelta(days=1)}[self.grain]
        except OverflowError:
            return datetime.max.replace(tzinfo=UTC)

    def first_of(self, day: date) -> date:
        """The day on which the partition begins that a day lies in."""
        return day.replace(day=1) if self.grain is Grain.MONTH else day

    @cached_property
    def _names(self) -> list[str]:
        return self.folders.split("/") if self.folders else []

    @cached_property
    def _patterns(self) -> list[re.Pattern[str]]:
        return [re.compile(_pattern(name), re.ASCII) for name in self._names]


def start_of(partition: str) -> datetime:
    """The UTC start of a partition's window."""
    day = date.fromisoformat(partition[:10])
    hour = int(partition[11:13]) if len(partition) > 10 else 0
    return datetime(day.year, day.month, day.day, hour, tzinfo=UTC)


def _pattern(name: str) -> str:
    parts = re.split("(%.)", name)
    return "".join(_DIGITS.get(part) or re.escape(part) for part in parts)


def _formatted(at: datetime, names: Sequence[str]) -> str:
    values = {"%Y": f"{at.year:04}", "%m": f"{at.month:02}", "%d": f"{at.day:02}", "%H": f"{at.hour:02}"}
    return "".join(re.sub("%.", lambda match: values[match[0]], name) + "/" for name in names)


def folders_in_words(folders: str) -> str:
    """Folders as people write them: `dt=YYYY-MM-DD/hour=HH`."""
    for directive, letters in {"%Y": "YYYY", "%m": "MM", "%d": "DD", "%H": "HH"}.items():
        folders = folders.replace(directive, letters)
    return folders
