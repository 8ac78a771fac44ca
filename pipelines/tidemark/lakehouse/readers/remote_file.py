"""A file in the bucket as Python reads one, for readers that jump about in it.

Does not belong here: what is read.
"""

import io

from pipelines.tidemark.lakehouse.readers.files import ObjectStore, SourceFile


class RemoteFile(io.RawIOBase):
    """A file in an object store, read in parts: what is asked for is fetched, and nothing else."""

    def __init__(self, store: ObjectStore, file: SourceFile) -> None:
        self._store, self._file, self._at = store, file, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._file.size}[whence] + offset
        return self._at

    def read(self, size: int | None = -1) -> bytes:
        left = max(0, self._file.size - self._at)
        length = left if size is None or size < 0 else min(size, left)
        found = self._store.part(self._file, self._at, length)
        self._at += len(found)
        return found
