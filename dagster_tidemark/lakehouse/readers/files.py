"""What lies in the landing bucket, as a load sees it: a version of a file, and why one cannot be taken.

Belongs here: the names that looking into files (`probe`), reading them (`in_memory`, `batch`) and judging their
rows (`validation`) share. Does not belong here: any reading.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

import pyarrow as pa

from dagster_tidemark.errors import Terminal, Transient
from dagster_tidemark.sources.feed import Feed, Partition
from dagster_tidemark.sources.listing import ObjectVersion

LIMITS_OF_ARROW = (MemoryError, pa.ArrowCapacityError, pa.ArrowCancelled)
"""What Arrow raises of itself, never of what a file holds; its lack of memory is a MemoryError too."""

SPELLED_OUT = 20
"""Largest number of names in a message; further names are counted."""


class ObjectStore(Protocol):
    """Where the files lie."""

    name: str

    def read(self, of: ObjectVersion, first: int | None = None, last: int | None = None) -> bytes:
        """The content of an object as it was listed, or its first or last bytes.

        Raises:
            ObjectChanged: it is another one by now, or gone.
            ObjectUnavailable: this object is not given, though it is there.
            BucketUnavailable: the bucket does not answer, or refuses everything.
        """
        ...

    def part(self, of: ObjectVersion, begin: int, length: int) -> bytes:
        """Bytes from the middle of an object; raises what `read` raises."""
        ...

    def check(self, of: ObjectVersion) -> None:
        """Ask whether an object is as it was listed; raises what `read` raises."""
        ...


@dataclass(frozen=True)
class SourceFile:
    """One version of one file, as a listing told of it. `size` in bytes.

    Of one that lies where no file of the feed does, `misplaced` and `message` say why; it is not read.
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
class FileFault:
    """Why a whole file cannot be taken. `reason` is a stable code."""

    file: SourceFile
    reason: str
    message: str


class Unusable(Terminal):
    """A file that cannot be taken; a retry helps once the file was replaced."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


def foreign(feed: Feed, found: Collection[str]) -> Unusable:
    """Return the fault of a file that has none of a feed's columns: its rows would be rows of nulls."""
    return Unusable(
        "missing_column",
        f"it has none of the declared columns {_some(feed.columns)}; found {_some(found)}. Declare its columns, in "
        "a feed of their own if they mean something else",
    )


def _some(names: Collection[str]) -> str:
    listed = list(names)
    more = f" and {len(listed) - SPELLED_OUT} more" if len(listed) > SPELLED_OUT else ""
    return ", ".join(listed[:SPELLED_OUT]) + more


class NotScanned(Transient):
    """Files that the engine fails on or does not get, each with the error. That is no verdict: a retry may help."""

    def __init__(self, files: Mapping[SourceFile, str]) -> None:
        super().__init__("; ".join(f"{file.key}: {said}" for file, said in files.items()))
        self.files = files
