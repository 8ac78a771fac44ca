"""A `Source` as a file object, for libraries that read files by place.

Does not belong here: the content of files, and errors of libraries about it (`readers.remote_file`).
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager

from dagster_tidemark.lakehouse.parsing.rows import Source


class RandomAccess(io.RawIOBase):
    """A file object that fetches the requested bytes only."""

    def __init__(self, source: Source) -> None:
        self._source, self._at = source, 0
        self._refusal: Exception | None = None

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._source.size}[whence] + offset
        return self._at

    def read(self, size: int | None = -1) -> bytes:
        left = max(0, self._source.size - self._at)
        length = left if size is None or size < 0 else min(size, left)
        if not length:
            return b""
        try:
            found = self._source.read(self._at, length)
        except Exception as refusal:
            self._refusal = refusal
            raise
        self._at += len(found)
        return found

    @contextmanager
    def refusals_raised(self) -> Iterator[None]:
        """Raise the error of the store, even if a library reports another one."""
        try:
            yield
        except Exception as error:
            if self._refusal is not None and error is not self._refusal:
                raise self._refusal from error
            raise
        if self._refusal is not None:
            raise self._refusal
