"""Objects below a feed's prefix that no partition of it holds.

They were meant for somebody and would be missed by nobody. Belongs here: which objects those are, and what is said of
a folder of them. Does not belong here: who looks (`partition_listing`), and what becomes of them. Objects below the
prefix of a partition, too deep or with another ending than data, are not among them: they are part of its listing.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, date, datetime, timedelta
from typing import Any

from dagster_tidemark.sources.feed import Feed, OutsideLayout
from dagster_tidemark.sources.layout import Classified
from dagster_tidemark.sources.listing import LandedObject, data_version

OUTSIDE_LAYOUT = "outside_layout"
BEFORE_START = "before_start_date"
IN_THE_FUTURE = "in_the_future"
UNKNOWN_KEY = "unknown_key"

AHEAD = timedelta(days=3)
"""How far ahead of the clock the time of a file may be: other clocks are ahead, and some files come early. What is
further ahead is a typing error, or waits until its time is near."""

PAGE = 1000
"""Objects of a folder that are counted: what one LIST returns."""

MOST_FOLDERS = 200
"""Folders that are told one by one, the newest; the others together."""

_OTHERS = "* "
"""What the name of the others ends in, beside their reason; that of a folder ends in "/"."""


@dataclass(frozen=True)
class Span:
    """The days of which a feed has partitions, both included."""

    first: date
    last: date

    @classmethod
    def at(cls, now: datetime, start: date) -> Span:
        """From the start date to a few days after `now`."""
        return cls(start, (now.astimezone(UTC) + AHEAD).date())


@dataclass(frozen=True)
class Place:
    """Where a misplaced object lies: the folder it is told with, and why no partition holds it.

    Args:
        folder: Its prefix, which ends in "/".
        reason: A stable code.
    """

    folder: str
    reason: str
    message: str


def place_of(feed: Feed, key: str, span: Span) -> Place | None:
    """Where a key is misplaced; None where it lies below the prefix of a partition."""
    found = feed.classify(key)
    folder, folder_of_day = feed.prefix + found.folders, feed.prefix + found.folders_of_day
    if _is_before(feed, found, span):
        return Place(folder_of_day, BEFORE_START, f"{key!r} is of a time before the start date {span.first}")
    if _is_ahead(found, span):
        early = f"{key!r} is of a time more than {AHEAD.days} days ahead; it is loaded when its time is near"
        return Place(folder_of_day, IN_THE_FUTURE, early)
    if found.unknown:
        name, unknown = found.unknown
        said = f"{key!r} is of {name} {unknown!r}, which feed {feed.name} does not have; it is loaded once it has"
        return Place(folder, UNKNOWN_KEY, said)
    if found.partition is not None or (feed.is_one_object and key == feed.prefix):
        return None
    return Place(folder, OUTSIDE_LAYOUT, str(OutsideLayout(key, feed)))


def holds_partitions(feed: Feed, folder: str, span: Span) -> bool:
    """Whether the folders of partitions may lie in a folder, which ends in "/"; objects beside them are misplaced."""
    found = feed.classify(folder)
    return found.is_above and not _is_before(feed, found, span) and not _is_ahead(found, span)


def _is_before(feed: Feed, found: Classified, span: Span) -> bool:
    return found.day is not None and found.day < feed.layout.times.first_of(span.first)


def _is_ahead(found: Classified, span: Span) -> bool:
    return found.day is not None and found.day > span.last


@dataclass(frozen=True)
class Misplaced:
    """What is misplaced in a folder.

    Args:
        files: Objects that were meant as data, up to a thousand.
        is_more: Whether the folder may hold more.
        version: Another one when these objects are others; of a single object its own.
        newest: The key of the youngest of them.
        arrived_at: When that one was written, Unix seconds.
    """

    folder: str
    files: int
    is_more: bool
    version: str
    newest: str
    arrived_at: float
    reason: str
    message: str

    @property
    def name(self) -> str:
        """The one object, or the folder of several."""
        return self.newest if self.files == 1 and not self.is_more else self.folder

    def __str__(self) -> str:
        if self.name == self.newest:
            return self.message
        count = f"{self.files:,} files or more" if self.is_more else f"{self.files:,} files"
        return f"{count} in {self.folder!r}: {self.message}"

    def as_json(self) -> dict[str, Any]:
        """For an event's metadata."""
        return asdict(self)


@dataclass
class _Folder:
    place: Place
    is_more: bool = False
    meant: list[LandedObject] = field(default_factory=list)


class Collector:
    """Gathers misplaced objects of a feed by their folders; objects come in the order of their keys."""

    def __init__(self, feed: Feed, span: Span) -> None:
        self._feed, self._span = feed, span
        self._folders: dict[str, _Folder] = {}

    def add(self, landed: LandedObject) -> bool:
        """Whether the object is misplaced, and so was taken."""
        place = place_of(self._feed, landed.key, self._span)
        if place is None:
            return False
        found = self._folders.setdefault(place.folder, _Folder(place))
        if self._feed.is_meant_as_data(landed.key):
            found.is_more = len(found.meant) >= PAGE
            found.meant += [] if found.is_more else [landed]
        return True

    def is_full(self, folder: str) -> bool:
        """Whether more objects of a folder would tell nothing new."""
        return folder in self._folders and self._folders[folder].is_more

    def folders(self) -> dict[str, Misplaced]:
        """Folder to what is misplaced in it; folders of markers alone left out."""
        return {name: _said(self._feed, self._span, f) for name, f in sorted(self._folders.items()) if f.meant}


def _said(feed: Feed, span: Span, found: _Folder) -> Misplaced:
    newest = max(found.meant, key=lambda o: (o.last_modified, o.key))
    place = place_of(feed, newest.key, span) or found.place
    version = newest.source_version if len(found.meant) == 1 else data_version(found.meant)
    return Misplaced(
        place.folder,
        len(found.meant),
        found.is_more,
        version,
        newest.key,
        newest.last_modified.timestamp(),
        place.reason,
        place.message,
    )


def told(folders: Mapping[str, Misplaced]) -> dict[str, Misplaced]:
    """What is told of so many folders: the newest one by one, all others together, by reason.

    Told again of what was told, it is the same.
    """
    alone = sorted((f for n, f in folders.items() if not _is_of_others(n)), key=lambda f: (-f.arrived_at, f.folder))
    others: dict[str, list[Misplaced]] = {}
    for one in (*alone[MOST_FOLDERS:], *(f for n, f in folders.items() if _is_of_others(n))):
        others.setdefault(one.reason, []).append(one)
    found = [*alone[:MOST_FOLDERS], *(_together(reason, of) for reason, of in others.items())]
    return {of.folder: of for of in sorted(found, key=lambda of: of.folder)}


def _is_of_others(name: str) -> bool:
    return _OTHERS in name and not name.endswith("/")


def _together(reason: str, of: Sequence[Misplaced]) -> Misplaced:
    if len(of) == 1 and _is_of_others(of[0].folder):
        return of[0]
    newest = max(of, key=lambda one: (one.arrived_at, one.newest))
    versions = "\n".join(sorted(f"{one.folder}\t{one.version}" for one in of))
    return Misplaced(
        f"{_OTHERS}{reason}",
        sum(one.files for one in of),
        True,
        hashlib.sha256(versions.encode()).hexdigest()[:32],
        newest.newest,
        newest.arrived_at,
        reason,
        f"in other folders, as {newest.newest!r}",
    )


def from_json(said: Iterable[Mapping[str, Any]]) -> dict[str, Misplaced]:
    """Folder to what an event's metadata say of it."""
    return {of["folder"]: Misplaced(**of) for of in said}
