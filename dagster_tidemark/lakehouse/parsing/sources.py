"""Sources of bytes: one version of one file, in memory or in a bucket.

Spark's workers read a bucket through Arrow's file system, with requests for byte ranges. Does not belong here: the
content of files, and the store that the run's own process reads (`readers.files.ObjectStore`).
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pyarrow as pa
from pyarrow import fs

from dagster_tidemark.errors import Terminal
from dagster_tidemark.lakehouse.parsing.rows import FileBytes
from dagster_tidemark.lakehouse.readers.files import Unusable

_PATIENCE_S = 20.0


class ReaderMissing(Terminal):
    """Error of the process that reads a file: it lacks a library. The content of the file is unknown."""


class StoreFault(Exception):
    """Error of the store: it refuses a file, or has a different version. The content of the file is unknown."""


@dataclass(frozen=True)
class MemoryFile:
    """Source whose bytes are in memory."""

    key: str
    body: bytes

    @property
    def size(self) -> int:
        """Number of bytes."""
        return len(self.body)

    def read(self, begin: int, length: int) -> bytes:
        """Return `length` bytes from `begin`; fewer at the end of the file."""
        return self.body[begin : begin + length]


@dataclass(frozen=True)
class BucketAddress:
    """Address of a bucket, for Spark's workers. The workers take credentials from their environment.

    Args:
        endpoint: `https://host:port` of a store outside AWS; None for AWS.
        key: Text that is used as access key and as secret key. Only the local stand-in for the cloud needs one, and it
            accepts any text.
    """

    name: str
    region: str
    endpoint: str | None = None
    key: str | None = None

    def connect(self) -> fs.FileSystem:
        """Return Arrow's file system of the bucket."""
        scheme, _, host = (self.endpoint or "").rpartition("://")
        return fs.S3FileSystem(
            region=self.region,
            endpoint_override=host or None,
            scheme=scheme or "https",
            access_key=self.key,
            secret_key=self.key,
            connect_timeout=_PATIENCE_S,
            request_timeout=_PATIENCE_S,
        )


class BucketFile:
    """Source in a bucket.

    Raises:
        StoreFault: the file cannot be opened, or is not the listed version.
    """

    def __init__(self, system: fs.FileSystem, bucket: str, key: str, size: int, etag: str) -> None:
        self.key, self.size = key, size
        try:
            self._file = system.open_input_file(f"{bucket}/{key}")
            found_etag = (self._file.metadata() or {}).get("ETag", b"").decode().strip('"')
            found_size = self._file.size()
        except (OSError, pa.ArrowException) as error:
            raise StoreFault(str(error)) from error
        if found_size != size or (etag and found_etag and found_etag != etag):
            raise StoreFault(
                f"it was written again: {found_size} bytes, {found_etag}; the listing says {size} bytes, {etag}"
            )

    def read(self, begin: int, length: int) -> bytes:
        """Return `length` bytes from `begin`; fewer at the end of the file.

        Raises:
            StoreFault: the store refuses the request, or returns too few bytes.
        """
        wanted = max(0, min(length, self.size - begin))
        if not wanted:
            return b""
        try:
            found: bytes = self._file.read_at(wanted, begin)
        except (OSError, pa.ArrowException) as error:
            raise StoreFault(str(error)) from error
        if len(found) < wanted:
            raise StoreFault(f"it ends after {begin + len(found)} bytes; the listing says {self.size} bytes")
        return found


class WatchedSource:
    """Source that keeps an error of the store, to raise it later.

    A library may report such an error as damage of the file, or ignore it. Both would be wrong about the file.
    """

    def __init__(self, source: FileBytes) -> None:
        self.key, self.size = source.key, source.size
        self._source = source
        self._error: Exception | None = None

    def read(self, begin: int, length: int) -> bytes:
        """Return `length` bytes from `begin`; fewer at the end of the file."""
        try:
            return self._source.read(begin, length)
        except Exception as error:  # stores raise errors of any type; the library that reads may hide the error
            self._error = error
            raise

    @contextmanager
    def errors_raised(self) -> Iterator[None]:
        """At the end of the block, raise the error of the store, if any, instead of the library's error."""
        try:
            yield
        except Exception as error:  # each library has its own error types
            if self._error is not None and error is not self._error:
                raise self._error from error
            raise
        if self._error is not None:
            raise self._error


class RandomAccess(io.RawIOBase):
    """File object for libraries, over a source. It reads only the requested bytes.

    Args:
        longest_read: Largest number of bytes that one read may request.

    Raises:
        Unusable: a read requests more than `longest_read` bytes.
    """

    def __init__(self, source: FileBytes, longest_read: int | None = None) -> None:
        self._source, self._longest_read = source, longest_read
        self._at = 0

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
        rest = max(0, self._source.size - self._at)
        length = rest if size is None or size < 0 else min(size, rest)
        if self._longest_read is not None and length > self._longest_read:
            raise Unusable("unreadable", f"it has {length} bytes of metadata; at most {self._longest_read} are read")
        found = self._source.read(self._at, length) if length else b""
        self._at += len(found)
        return found
