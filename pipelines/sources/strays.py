"""Objects below a feed's prefix that belong to none of its partitions.

A load looks at its partitions, and on the way to them at the folders above: what lies there beside the partitions was
meant for somebody and would be missed by nobody. Belongs here: which objects those are. Does not belong here: what
becomes of them.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import date
from typing import Protocol

from pipelines.sources.feed import Feed, Grain, OutsideLayout, Partition, start_of
from pipelines.sources.listing import Bucket, LandedObject

OUTSIDE_LAYOUT = "outside_layout"
BEFORE_START = "before_start_date"


@dataclass(frozen=True)
class Stray:
    """An object that belongs to no partition, why (a stable code), and in words."""

    landed: LandedObject
    reason: str
    message: str


@dataclass(frozen=True)
class Folder:
    """What lies directly in a folder: objects, and the prefixes of further folders."""

    objects: tuple[LandedObject, ...]
    folders: tuple[str, ...]


class Shelves(Bucket, Protocol):
    """A bucket whose folders can be listed one by one."""

    def list_folder(self, prefix: str) -> Folder:
        """One LIST with a delimiter."""
        ...


def days_of(partitions: Iterable[Partition]) -> set[str]:
    """The days (`2026-10-01`) that these partitions lie in."""
    return {partition[:10] for partition in partitions if partition}


def strays(bucket: Shelves, feed: Feed, days: Collection[str], start: date) -> list[Stray]:
    """The strays beside the feed's days, and beside the hours of these days (`2026-10-01`).

    Args:
        start: The first day of which there are partitions.
    """
    if feed.grain is Grain.NONE:
        return []
    top = bucket.list_folder(feed.prefix)
    found = list(top.objects)
    for folder in top.folders:
        if not _is_a_day(folder.removeprefix(feed.prefix).rstrip("/"), start):
            found += bucket.list(folder).objects
    if feed.grain is Grain.HOUR:
        for day in sorted(day for day in days if _is_a_day(f"dt={day}", start)):
            of_day = bucket.list_folder(f"{feed.prefix}dt={day}/")
            found += of_day.objects
            for folder in of_day.folders:
                if feed.partition_around(folder) is None:
                    found += bucket.list(folder).objects
    judged = (_judged(feed, landed, start) for landed in found)
    return [stray for stray in judged if stray]


def is_looked_at(feed: Feed, key: str, days: Collection[str], start: date) -> bool:
    """Whether `strays` for these days looks where this key lies."""
    top = key.removeprefix(feed.prefix).partition("/")[0]
    return not _is_a_day(top, start) or top.removeprefix("dt=") in days


def _is_a_day(folder: str, start: date) -> bool:
    try:
        return folder.startswith("dt=") and len(folder) == 13 and date.fromisoformat(folder[3:]) >= start
    except ValueError:
        return False


def _judged(feed: Feed, landed: LandedObject, start: date) -> Stray | None:
    if not feed.is_meant_as_data(landed.key):
        return None
    try:
        partition = feed.partition_of(landed.key)
    except OutsideLayout as outside:
        return Stray(landed, OUTSIDE_LAYOUT, str(outside))
    if partition is not None and start_of(partition).date() < start:
        return Stray(landed, BEFORE_START, f"{landed.key!r} is of a time before the start date {start}")
    return None
