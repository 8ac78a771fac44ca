"""Listings of the landing bucket, and the versions and arrival times that are derived from them.

Belongs here: the listing, its data version and its arrival time. Does not belong here: requesting a listing
(`sensors.landing`), and the calls to a server (`sources.s3`).
"""

import bisect
import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Protocol

from dagster_tidemark.errors import Transient

_Texts = list[str]  # aliases, because a class below has a method `list`
_Objects = list["LandedObject"]


@dataclass(frozen=True, order=True)
class LandedObject:
    """One object of the landing bucket as listed. Times are UTC, sizes bytes."""

    key: str
    etag: str
    size: int
    last_modified: datetime
    version_id: str | None = None

    @property
    def source_version(self) -> str:
        """Identifier of this content of the key. It changes whenever the object is overwritten."""
        if self.version_id:
            return self.version_id
        return f"{self.etag}-{self.size}-{round(self.last_modified.timestamp() * 1000)}"


@dataclass(frozen=True)
class Listing:
    """The objects below a prefix at one moment (the Date header of the answer, whole seconds).

    If `objects` contains only data, `misplaced` contains the other objects that were meant as data.
    """

    objects: tuple[LandedObject, ...]
    listed_at: datetime
    misplaced: tuple[LandedObject, ...] = ()


class BucketUnavailable(Transient):
    """The bucket or some of its objects cannot be reached, or access is refused. A retry may help later."""


class ObjectChanged(Transient):
    """An object no longer matches its listing. A new listing helps.

    Args:
        key: The object's key.
    """

    def __init__(self, key: str, reason: str) -> None:
        super().__init__(f"{key} was replaced or deleted after it was listed: {reason}")
        self.key = key


class ObjectUnavailable(Transient):
    """An object exists but cannot be read. A retry may help later.

    Reasons are an archived object, an object of another account, and a disabled encryption key.

    Args:
        key: The object's key.
        archived: True if its storage class does not allow immediate reads. This is intended, and lasts.
    """

    def __init__(self, key: str, reason: str, *, archived: bool = False) -> None:
        super().__init__(f"{key} exists but cannot be read: {reason}")
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
    """A bucket that can be listed. Every method may raise `BucketUnavailable`."""

    def probe(self) -> None:
        """Check that the bucket answers."""
        ...

    def list(self, prefix: str) -> Listing:
        """Return the objects below a prefix in key order."""
        ...

    def pages(self, prefix: str) -> Iterator[Listing]:
        """Yield the same listing in one or more parts, each with the time of the first part."""
        ...

    def list_folder(self, prefix: str) -> _Objects:
        """Return the objects directly in a folder (a prefix that ends in "/"), without its subfolders."""
        ...


@dataclass
class FakeBucket:
    """A bucket in memory, for tests. `now` is its clock. The cost of a listing depends only on the objects it finds."""

    now: datetime = datetime(2026, 10, 1, tzinfo=UTC)
    objects: dict[str, LandedObject] = field(default_factory=dict)
    prefixes_listed: _Texts = field(default_factory=_Texts)
    _keys: _Texts = field(default_factory=_Texts)  # sorted

    def put(self, key: str, body: bytes, last_modified: datetime | None = None) -> None:
        etag = hashlib.md5(body, usedforsecurity=False).hexdigest()
        if key not in self.objects:
            bisect.insort(self._keys, key)
        self.objects[key] = LandedObject(key, etag, len(body), last_modified or self.now)

    def delete(self, key: str) -> None:
        del self.objects[key]
        self._keys.pop(bisect.bisect_left(self._keys, key))

    def probe(self) -> None:
        """Return at once: it always answers."""

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
    """Return the data version of a partition. The same objects in any order give the same version."""
    lines = sorted(f"{o.key}\t{o.source_version}" for o in objects)
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:32]


NO_FILES = data_version(())
"""The data version of a partition without objects."""

_MISPLACED = "-misplaced-"


def content_of(objects: Iterable[LandedObject]) -> str:
    """Return a hash of the bytes of some objects, as far as their ETags show it, without their names and times.

    A file that was uploaded again under a new name has the same hash, if it was uploaded in the same way.
    """
    found = sorted(f"{each.etag} {each.size}" for each in objects)
    return hashlib.sha256("\n".join(found).encode()).hexdigest()[:16]


def version_of_listing(listing: Listing) -> str:
    """Return the data version of a listed partition, made of its data and its misplaced objects."""
    version = data_version(listing.objects)
    return version + (f"{_MISPLACED}{data_version(listing.misplaced)[:8]}" if listing.misplaced else "")


def of_data_alone(version: str) -> str:
    """Return the part of a data version that depends on data alone."""
    return version.partition(_MISPLACED)[0]


EXPIRED_SUFFIX = "-expired"
"""Suffix for the version of a partition whose files were removed after the time that the feed declares."""
ACCEPTED_SUFFIX = "-accepted"
"""Suffix for the version of an empty partition after a person accepted the removal of its files. The version then
differs from the last one, so that the removal counts as a change."""
AGAIN_SUFFIX = "-again-"
"""Suffix for the version of unchanged files that a person wants to be read again. A number follows it."""


def lacks_files(version: str) -> bool:
    """Return True if a partition with this data version has no data files: none came, or they were withdrawn."""
    if version.endswith((EXPIRED_SUFFIX, ACCEPTED_SUFFIX)):
        return False
    return of_data_alone(version.partition(AGAIN_SUFFIX)[0]) == NO_FILES


def arrival(
    listing: Listing,
    *,
    previously_listed_at: datetime | None,
    notified_at: datetime | None,
) -> datetime:
    """Return the arrival time of the change that this listing shows.

    The result is the smallest LastModified that is not older than the previous listing, else the notification's own
    time, else the time of this listing. It always lies between the two listings: the LastModified of a multipart
    upload, for example, is the upload's start.
    """
    since = previously_listed_at or datetime.min.replace(tzinfo=UTC)
    new = [o.last_modified for o in listing.objects if o.last_modified >= since]
    when = min(new, default=None) or notified_at or listing.listed_at
    return min(max(when, since), max(listing.listed_at, since))
