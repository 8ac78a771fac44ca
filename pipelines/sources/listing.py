"""From the objects that lie below a prefix to the version and the arrival of a partition.

Belongs here: what a listing is and what follows from it. Does not belong here: who asked for it
(`automation.landing`) and how a server is asked (`sources.s3`).
"""

import bisect
import hashlib
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from typing import Protocol

from pipelines.sources.feed import Feed, OutsideLayout, Partition

_MANY = 50
_Texts = list[str]  # by a name, where a class has a method `list`


@dataclass(frozen=True, order=True)
class LandedObject:
    """One object of the landing bucket, as a listing tells of it. Times are UTC, sizes bytes."""

    key: str
    etag: str
    size: int
    last_modified: datetime
    version_id: str | None = None

    @property
    def source_version(self) -> str:
        """What tells this content of the key from any other that was or will be there."""
        if self.version_id:
            return self.version_id
        return f"{self.etag}-{self.size}-{round(self.last_modified.timestamp() * 1000)}"


@dataclass(frozen=True)
class Listing:
    """The objects below a prefix at one moment (the Date header of the answer, whole seconds).

    `misplaced` are those that were meant as data and are none, where only data was looked for.
    """

    objects: tuple[LandedObject, ...]
    listed_at: datetime
    misplaced: tuple[LandedObject, ...] = field(default=(), compare=False)


class Bucket(Protocol):
    """What a listing is asked of."""

    def list(self, prefix: str) -> Listing: ...


@dataclass
class FakeBucket:
    """A bucket in memory, for tests. `now` is its clock; a listing costs what it finds, whatever else lies there."""

    now: datetime = datetime(2026, 10, 1, tzinfo=UTC)
    objects: dict[str, LandedObject] = field(default_factory=dict)
    prefixes_listed: _Texts = field(default_factory=_Texts)
    _keys: _Texts = field(default_factory=_Texts)  # sorted

    def put(self, key: str, body: bytes) -> None:
        etag = hashlib.md5(body, usedforsecurity=False).hexdigest()
        if key not in self.objects:
            bisect.insort(self._keys, key)
        self.objects[key] = LandedObject(key, etag, len(body), self.now)

    def delete(self, key: str) -> None:
        del self.objects[key]
        self._keys.pop(bisect.bisect_left(self._keys, key))

    def list(self, prefix: str) -> Listing:
        self.prefixes_listed.append(prefix)
        found = []
        for position in range(bisect.bisect_left(self._keys, prefix), len(self._keys)):
            if not self._keys[position].startswith(prefix):
                break
            found.append(self.objects[self._keys[position]])
        return Listing(tuple(found), self.now.replace(microsecond=0))


def look(bucket: Bucket, feed: Feed, partition: Partition) -> Listing:
    """The data objects of one partition: one LIST below its prefix."""
    listing = bucket.list(feed.prefix_of(partition))
    return _data_of(feed, listing)


def look_at_all(bucket: Bucket, feed: Feed, day: date | None = None) -> tuple[dict[Partition, Listing], datetime]:
    """The data objects of every partition (of a day) that has any, and when they were listed: one LIST."""
    listing = bucket.list(feed.prefix if day is None else f"{feed.prefix}dt={day}/")
    by_partition: dict[Partition, list[LandedObject]] = {}
    for landed in listing.objects:
        if _is_data(landed, feed):
            by_partition.setdefault(feed.partition_of(landed.key), []).append(landed)
    looked = {partition: Listing(tuple(found), listing.listed_at) for partition, found in by_partition.items()}
    return looked, listing.listed_at


def look_at_each(bucket: Bucket, feed: Feed, partitions: Collection[Partition]) -> dict[Partition, Listing]:
    """The data objects of each of these partitions: a LIST each, or one of the feed where they are many."""
    if len(partitions) <= _MANY:
        return {partition: look(bucket, feed, partition) for partition in partitions}
    listing = bucket.list(feed.prefix)
    below: dict[str, list[LandedObject]] = {}
    for landed in listing.objects:
        below.setdefault(feed.folder_of(landed.key), []).append(landed)
    return {p: _data_of(feed, Listing(tuple(below.get(feed.prefix_of(p), ())), listing.listed_at)) for p in partitions}


def data_version(objects: Iterable[LandedObject]) -> str:
    """The data version of a partition: the same for the same objects, however often and in whatever order seen."""
    lines = sorted(f"{o.key}\t{o.source_version}" for o in objects)
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:32]


NO_FILES = data_version(())
"""The data version of a partition in which nothing lies."""


def arrival(
    listing: Listing,
    *,
    previously_listed_at: datetime | None,
    notified_at: datetime | None,
) -> datetime:
    """When the change that this listing shows arrived.

    The smallest LastModified that is not older than the previous listing, else the notification's own time,
    else the time of this listing; never outside the two listings (a multipart upload's LastModified is when
    it began).
    """
    since = previously_listed_at or datetime.min.replace(tzinfo=UTC)
    new = [o.last_modified for o in listing.objects if o.last_modified >= since]
    when = min(new, default=None) or notified_at or listing.listed_at
    return min(max(when, since), max(listing.listed_at, since))


def _data_of(feed: Feed, listing: Listing) -> Listing:
    data = tuple(o for o in listing.objects if _is_data(o, feed))
    misplaced = tuple(o for o in listing.objects if not _is_data(o, feed) and feed.is_meant_as_data(o.key))
    return Listing(data, listing.listed_at, misplaced)


def _is_data(landed: LandedObject, feed: Feed) -> bool:
    if not feed.is_named_like_data(landed.key):
        return False
    try:
        feed.partition_of(landed.key)
    except OutsideLayout:
        return False
    return True
