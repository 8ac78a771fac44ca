"""Files of the landing bucket as a load sees them: versions of files, and reasons why a file cannot be loaded.

The modules that inspect files (`probe`), read them (`in_memory`, `batch`) and judge rows (`validation`) share these
classes. Does not belong here: any reading.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

import pyarrow as pa

from dagster_tidemark.errors import Terminal, Transient
from dagster_tidemark.sources.feed import Feed, Partition
from dagster_tidemark.sources.listing import ObjectVersion

LIMITS_OF_ARROW = (MemoryError, pa.ArrowCapacityError, pa.ArrowCancelled)
"""Errors of Arrow that do not depend on the content of a file. Arrow's out-of-memory error is a MemoryError."""

SPELLED_OUT = 20
"""Largest number of names in a message. The message has only the number of further names."""

MOST_NAMES, LONGEST_NAME = 1_000, 200
"""Largest number of names of unknown members that a task reports on a file, and their largest number of characters.

Objects may have values as names, such as ids. Then a file has millions of names.
"""


class ObjectStore(Protocol):
    """Store that has the files of the landing bucket."""

    name: str

    def read(self, of: ObjectVersion) -> bytes:
        """Return the content of an object as it was listed.

        Raises:
            ObjectChanged: the object was deleted, or differs from the listed version.
            ObjectUnavailable: the store has the object, but refuses to return it.
            BucketUnavailable: the bucket does not answer, or refuses all requests.
        """
        ...

    def part(self, of: ObjectVersion, begin: int, length: int) -> bytes:
        """Return `length` bytes of an object from `begin`. Raises the same errors as `read`."""
        ...

    def check(self, of: ObjectVersion) -> None:
        """Check that an object is still the listed version. Raises the same errors as `read`."""
        ...


@dataclass(frozen=True)
class SourceFile:
    """One version of one file, from a listing. `size` is in bytes.

    For a file outside the layout of its feed, `misplaced` is a code for the reason, and `message` explains it. Such a
    file is not read.
    """

    key: str
    version: str
    arrived_at: datetime
    partition: Partition
    size: int = 0
    etag: str = ""
    version_id: str | None = None
    misplaced: str | None = None
    message: str = ""


@dataclass(frozen=True)
class StoredFile:
    """Source in an object store."""

    store: ObjectStore
    file: SourceFile

    @property
    def key(self) -> str:
        """Key of the file in the bucket."""
        return self.file.key

    @property
    def size(self) -> int:
        """Number of bytes."""
        return self.file.size

    def read(self, begin: int, length: int) -> bytes:
        """Return `length` bytes from `begin`; fewer at the end of the file. Raises the errors of the store."""
        wanted = min(length, self.file.size - begin)
        return self.store.part(self.file, begin, wanted) if wanted > 0 else b""


@dataclass(frozen=True)
class FileFault:
    """Reason why a whole file cannot be loaded. `reason` is a stable code."""

    file: SourceFile
    reason: str
    message: str


class Unusable(Terminal):
    """Error of a file that cannot be loaded. A retry helps only if the file was replaced."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


def foreign(feed: Feed, found: Collection[str], rows: str | None = None) -> Unusable:
    """Return the fault of a file without any declared column. Its rows would have only nulls.

    Args:
        rows: The place of an array in the file's JSON objects whose elements may be the rows; None if unknown.
    """
    remedy = "Declare its columns, in a feed of their own if they mean something else"
    if rows is not None:
        remedy = f"Its rows may be the elements of the array {rows!r}: let the feed say format=Json(rows={rows!r})"
    return Unusable(
        "missing_column", f"it has none of the declared columns {_some(feed.columns)}; found {_some(found)}. {remedy}"
    )


def _some(names: Collection[str]) -> str:
    listed = list(names)
    at_least = "at least " if len(listed) >= MOST_NAMES else ""
    more = f" and {at_least}{len(listed) - SPELLED_OUT} more" if len(listed) > SPELLED_OUT else ""
    return ", ".join(listed[:SPELLED_OUT]) + more or "none"


@contextmanager
def arrow_faults(format: str) -> Iterator[None]:
    """Convert Arrow's errors about a file to `Unusable`.

    Args:
        format: The name of the expected format, for the message.

    Raises:
        Unusable: the file does not have the expected format, or is damaged.
    """
    try:
        yield
    except LIMITS_OF_ARROW:
        raise
    except (pa.ArrowException, OSError, UnicodeError) as error:  # the name of a column may be invalid UTF-8
        raise Unusable("unreadable", f"not a valid {format} file, or damaged: {error}") from error


class NotScanned(Transient):
    """Error about files that Spark's workers cannot read, or that crash a worker. A retry may help.

    `files` has the error of each file.
    """

    def __init__(self, files: Mapping[SourceFile, str]) -> None:
        super().__init__("; ".join(f"{file.key}: {reason}" for file, reason in files.items()))
        self.files = files
