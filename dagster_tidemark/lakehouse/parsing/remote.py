"""Files in a bucket as Spark's workers read them: ranged requests through Arrow's file system.

A worker finds its credentials where Spark's own file system would, in its surroundings; only the laptop's cloud, which
looks at no key, is told one. Does not belong here: what is in a file.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
from pyarrow import fs

_PATIENCE_S = 20.0


class StoreFault(Exception):
    """A file was not given, or is another one by now. That says nothing of its content."""


@dataclass(frozen=True)
class Store:
    """A bucket, as one says it to a worker.

    Args:
        endpoint: `https://host:port` of a store that is not AWS.
        key: Access key and secret in one, of a local cloud.
    """

    bucket: str
    region: str
    endpoint: str | None = None
    key: str | None = None

    def connect(self) -> fs.FileSystem:
        """Arrow's file system on it."""
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


class RemoteFile:
    """One version of one file.

    Attributes:
        refusal: What `read` has raised. A library in between may report it as damage of the file, or not at all.

    Raises:
        StoreFault: it cannot be opened, or it is another version by now.
    """

    def __init__(self, system: fs.FileSystem, bucket: str, key: str, size: int, etag: str) -> None:
        self.key, self.size = key, size
        self.refusal: StoreFault | None = None
        try:
            self._file = system.open_input_file(f"{bucket}/{key}")
            there = (self._file.metadata() or {}).get(b"ETag", b"").decode().strip('"')
            size_there = self._file.size()
        except (OSError, pa.ArrowException) as error:
            raise StoreFault(str(error)) from error
        if size_there != size or (etag and there and there != etag):
            raise StoreFault(f"it was written again: {size_there} bytes, {there}; listed were {size} bytes, {etag}")

    def read(self, begin: int, length: int) -> bytes:
        """Bytes from a place on.

        Raises:
            StoreFault: they are not given.
        """
        try:
            return self._read(begin, max(0, min(length, self.size - begin)))
        except StoreFault as refusal:
            self.refusal = refusal
            raise

    def _read(self, begin: int, wanted: int) -> bytes:
        if not wanted:
            return b""
        try:
            found: bytes = self._file.read_at(wanted, begin)
        except (OSError, pa.ArrowException) as error:
            raise StoreFault(str(error)) from error
        if len(found) < wanted:
            raise StoreFault(f"it ends after {begin + len(found)} bytes; listed were {self.size}")
        return found
