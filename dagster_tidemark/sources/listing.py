"""From the objects that lie below a prefix to the version and the arrival of a partition.

Belongs here: what a listing is and what follows from it. Does not belong here: who asked for it
(`sensors.landing`) and how a server is asked (`sources.s3`).
"""

import bisect
import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Protocol

from dagster_tidemark.errors import Transient

_Texts = list[str]  # by names, where a class has a method `list`
_Objects = list["LandedObject"]


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
    misplaced: tuple[LandedObject, ...] = ()


class BucketUnavailable(Transient):
    """The bucket, or this part of it, does not answer or refuses to. A retry helps once it does."""


class ObjectChanged(Transient):
    """An object is not what a listing said of it any more. A new listing helps.

    Args:
        key: Of the object.
    """

    def __init__(self, key: str, reason: str) -> None:
        super().__init__(f"{key} is another one by now, or gone: {reason}")
        self.key = key


class ObjectUnavailable(Transient):
    """An object is there and not given: archived, somebody else's, its key disabled. A retry helps once that is mended.

    Args:
        key: Of the object.
        archived: Where it is kept nothing is given at once; that is meant to be so, and lasts.
    """

    def __init__(self, key: str, reason: str, *, archived: bool = False) -> None:
        super().__init__(f"{key} is there, and cannot be read: {reason}")
        self.key = key
        self.reason = reason
        self.archived = archived


class ObjectVersion(Protocol):
    """One version of an object."""

    @property
    def key(self) -> str: ...
    @property
    def etag(self) -> str: ...
    @property
    def version_id(self) -> str | None: ...


class Bucket(Protocol):
    """What a listing is asked of. Every method may raise `BucketUnavailable`."""

    def probe(self) -> None:
        """Ask for nothing but an answer."""
        ...

    def list(self, prefix: str) -> Listing:
        """The objects below a prefix in the order of their keys."""
        ...

    def pages(self, prefix: str) -> Iterator[Listing]:
        """The same, in parts that carry the time of the first one; at least one."""
        ...

    def list_folder(self, prefix: str) -> _Objects:
        """The objects directly in a folder (a prefix that ends in "/"), none of its own folders."""
        ...


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

    def probe(self) -> None:
        """It always answers."""

    def list(self, prefix: str) -> Listing:
        self.prefixes_listed.append(prefix)
        found: _Objects = []
        for position in range(bisect.bisect_left(self._keys, prefix), len(self._keys)):
            if not self._keys[position].startswith(prefix):
                break
            found.append(self.objects[self._keys[position]])
        return Listing(tuple(found), self.now.replace(microsecond=0))

    def pages(self, prefix: str) -> Iterator[Listing]:
        yield self.list(prefix)

    def list_folder(self, prefix: str) -> _Objects:
        return [o for o in self.list(prefix).objects if "/" not in o.key[len(prefix) :]]


def data_version(objects: Iterable[LandedObject]) -> str:
    """The data version of a partition: the same for the same objects, however often and in whatever order seen."""
    lines = sorted(f"{o.key}\t{o.source_version}" for o in objects)
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:32]


NO_FILES = data_version(())
"""The data version of a partition in which nothing lies."""

_MISPLACED = "-misplaced-"


def version_of_listing(listing: Listing) -> str:
    """The data version of a partition as it was listed: of its data, and of what is misplaced among them."""
    version = data_version(listing.objects)
    return version + (f"{_MISPLACED}{data_version(listing.misplaced)[:8]}" if listing.misplaced else "")


def of_data_alone(version: str) -> str:
    """The part of a data version that tells of data."""
    return version.partition(_MISPLACED)[0]


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
