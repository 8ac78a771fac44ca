"""Misplaced objects: objects below a feed's prefix that belong to none of its partitions.

Their sender meant them as data, but no load would notice that they are missing. Belongs here: the rule for misplaced
objects, and their summary by folder. Does not belong here: listing the bucket (`partition_listing`), and handling
misplaced objects. Objects below a partition's prefix that are nested too deep or lack a data ending are not misplaced
in this sense: they are part of the partition's listing.
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
"""How far a file's time may be ahead of the clock: clocks of senders may be fast, and some files arrive early. A time
further ahead may be a typing error; the file is loaded when the time is near."""

PAGE = 1000
"""Maximum number of objects that are counted in a folder: the size of one LIST response."""

MOST_FOLDERS = 200
"""Maximum number of folders that are reported individually, newest first. Older ones are reported together."""

_OTHERS = "* "
"""Prefix of the names of combined entries. The reason follows the prefix. Names of folders end in "/"."""


def is_several(name: str) -> bool:
    """Return True if an entry with this source is about several misplaced objects, False if it is about one object."""
    return name.endswith("/") or name.startswith(_OTHERS)


@dataclass(frozen=True)
class Span:
    """First and last day of a feed's partitions, both included."""

    first: date
    last: date

    @classmethod
    def at(cls, now: datetime, start: date) -> Span:
        """Return the span from the start date to a few days after `now`."""
        return cls(start, (now.astimezone(UTC) + AHEAD).date())


@dataclass(frozen=True)
class MisplacedFolder:
    """The folder under which a misplaced object is reported, and the reason why it belongs to no partition.

    Args:
        folder: The folder's prefix, which ends in "/".
        reason: A stable code.
    """

    folder: str
    reason: str
    message: str


def place_of(feed: Feed, key: str, span: Span) -> MisplacedFolder | None:
    """Return the folder and the reason for a misplaced key; None if a partition contains the key."""
    found = feed.classify(key)
    folder, folder_of_day = feed.prefix + found.folders, feed.prefix + found.folders_of_day
    if _is_before(feed, found, span):
        return MisplacedFolder(folder_of_day, BEFORE_START, f"{key!r} is before the start date {span.first}")
    if _is_ahead(found, span):
        early = f"{key!r} is more than {AHEAD.days} days ahead; it is loaded when its time is near"
        return MisplacedFolder(folder_of_day, IN_THE_FUTURE, early)
    if found.unknown:
        name, unknown = found.unknown
        said = (
            f"{key!r} has {name} {unknown!r}, which is not a key of feed {feed.name}; it is loaded once that is added"
        )
        return MisplacedFolder(folder, UNKNOWN_KEY, said)
    if found.partition is not None or (feed.is_one_object and key == feed.prefix):
        return None
    return MisplacedFolder(folder, OUTSIDE_LAYOUT, str(OutsideLayout(key, feed)))


def holds_partitions(feed: Feed, folder: str, span: Span) -> bool:
    """Return True if a folder (ending in "/") may contain partition folders. Objects directly in it are misplaced."""
    found = feed.classify(folder)
    return found.is_above and not _is_before(feed, found, span) and not _is_ahead(found, span)


def _is_before(feed: Feed, found: Classified, span: Span) -> bool:
    return found.day is not None and found.day < feed.layout.times.first_of(span.first)


def _is_ahead(found: Classified, span: Span) -> bool:
    return found.day is not None and found.day > span.last


@dataclass(frozen=True)
class Misplaced:
    """Misplaced objects of a folder.

    Args:
        files: The number of objects that were meant as data, up to a thousand.
        is_more: True if the folder may contain more objects.
        version: A version that changes when these objects change; for a single object, its own version.
        newest: The key of the newest object.
        arrived_at: The time when the newest object was written, in Unix seconds.
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
        """The key of a single object, or the folder of several objects."""
        return self.newest if self.files == 1 and not self.is_more else self.folder

    def __str__(self) -> str:
        if self.name == self.newest:
            return self.message
        count = f"at least {self.files:,} files" if self.is_more else f"{self.files:,} files"
        return f"{count} in {self.folder!r}: {self.message}"

    def as_json(self) -> dict[str, Any]:
        """Return the fields as metadata of an event."""
        return asdict(self)


@dataclass
class _Folder:
    place: MisplacedFolder
    is_more: bool = False
    meant: list[LandedObject] = field(default_factory=list)


class Collector:
    """Collector of a feed's misplaced objects by folder. Objects must be added in key order."""

    def __init__(self, feed: Feed, span: Span) -> None:
        self._feed, self._span = feed, span
        self._folders: dict[str, _Folder] = {}

    def add(self, landed: LandedObject) -> bool:
        """Add an object if it is misplaced. Return True if it is."""
        place = place_of(self._feed, landed.key, self._span)
        if place is None:
            return False
        found = self._folders.setdefault(place.folder, _Folder(place))
        if self._feed.is_meant_as_data(landed.key):
            found.is_more = len(found.meant) >= PAGE
            found.meant += [] if found.is_more else [landed]
        return True

    def is_full(self, folder: str) -> bool:
        """Return True if a folder has as many misplaced objects as are counted. The caller can skip the others."""
        return folder in self._folders and self._folders[folder].is_more

    def folders(self) -> dict[str, Misplaced]:
        """Return the misplaced objects by folder. Leave out folders that contain only markers."""
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
    """Return the entries to report: the newest folders individually, all others combined by reason.

    The function is idempotent: it returns its own result unchanged.
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
        f"in other folders, such as {newest.newest!r}",
    )


def from_json(said: Iterable[Mapping[str, Any]]) -> dict[str, Misplaced]:
    """Return the misplaced objects by folder from the metadata of an event."""
    return {of["folder"]: Misplaced(**of) for of in said}
