"""Files in the bucket for libraries that read them: a file object, and what their errors say of a file.

A bucket that refuses says nothing of a file, but a library may report the refusal as damage. Does not belong here: what
is in a file (`file_format`).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pyarrow as pa

from dagster_tidemark.lakehouse.parsing.random_access import RandomAccess
from dagster_tidemark.lakehouse.readers.files import LIMITS_OF_ARROW, ObjectStore, SourceFile, Unusable
from dagster_tidemark.sources.listing import ObjectVersion


class RemoteFile(RandomAccess):
    """A file in an object store, read in parts: what is asked for is fetched, and nothing else."""

    def __init__(self, store: ObjectStore, file: SourceFile) -> None:
        super().__init__(_Stored(store, file))


@dataclass(frozen=True)
class _Stored:
    """A file in an object store as a `Source`."""

    store: ObjectStore
    file: SourceFile

    @property
    def key(self) -> str:
        return self.file.key

    @property
    def size(self) -> int:
        return self.file.size

    def read(self, begin: int, length: int) -> bytes:
        return self.store.part(self.file, begin, length)


@contextmanager
def arrow_faults(format: str) -> Iterator[None]:
    """What Arrow raises of a file is raised as `Unusable`: the file is none of this format, or damaged.

    Args:
        format: The format's name for a reader of the message.

    Raises:
        Unusable: in place of what Arrow raises, but for a limit of Arrow itself.
    """
    try:
        yield
    except LIMITS_OF_ARROW:
        raise
    except (pa.ArrowException, OSError, UnicodeError) as error:  # a column's name may be no text
        raise Unusable("unreadable", f"no {format} file, or a damaged one: {error}") from error


@contextmanager
def refusals_raised(store: ObjectStore) -> Iterator[ObjectStore]:
    """The store, for one file: what it raises is raised at the end, whatever a library has made of it."""
    noting = _Noting(store)
    try:
        yield noting
    except Exception as error:
        if noting.refusal is not None and error is not noting.refusal:
            raise noting.refusal from error
        raise
    if noting.refusal is not None:
        raise noting.refusal


class _Noting:
    """A store that notes what it raises."""

    def __init__(self, store: ObjectStore) -> None:
        self.name, self._store = store.name, store
        self.refusal: Exception | None = None

    def read(self, of: ObjectVersion, first: int | None = None, last: int | None = None) -> bytes:
        with self._noted():
            return self._store.read(of, first, last)

    def part(self, of: ObjectVersion, begin: int, length: int) -> bytes:
        with self._noted():
            return self._store.part(of, begin, length)

    def check(self, of: ObjectVersion) -> None:
        with self._noted():
            self._store.check(of)

    @contextmanager
    def _noted(self) -> Iterator[None]:
        try:
            yield
        except Exception as refusal:
            self.refusal = refusal
            raise
