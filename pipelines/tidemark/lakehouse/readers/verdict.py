"""Whether a file is to blame for a scan that failed: judged on its bytes, read here, and on nothing else.

An engine fails for many reasons: storage that refuses or breaks off, memory, a lost server. None of them says anything
of a file, and a file that was turned away is known for good. Does not belong here: what becomes of a file at fault.
"""

from __future__ import annotations

import io

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.errors import PySparkException

from pipelines.tidemark.lakehouse.readers.files import LIMITS_OF_ARROW, ObjectStore, SourceFile, Unusable
from pipelines.tidemark.lakehouse.readers.long_lines import pieces_of
from pipelines.tidemark.lakehouse.readers.text import inflated
from pipelines.tidemark.sources.formats import GZIP, Format, format_of

_BATCH = 8192  # rows

_OF_FORMAT = (
    "ParquetDecodingException",
    "SchemaColumnConvertNotSupportedException",
    "BadConfigurationException",  # a codec that Spark does not have
    "Unsupported encoding: ",
    "not a gzip file",  # zeros behind its end, say
    "Illegal Parquet type",
    "PARQUET_TYPE_ILLEGAL",
    "PARQUET_TYPE_NOT_SUPPORTED",
    "PARQUET_COLUMN_DATA_TYPE_MISMATCH",
    "MALFORMED_CSV_RECORD",  # more columns than it takes
    "DECIMAL_PRECISION_EXCEEDS_MAX_PRECISION",
    "UNSUPPORTED_TIME_TYPE",
    "COLUMN_ALREADY_EXISTS",  # two names that differ in case
)
"""What Spark says of a file that is whole and that it has no reader for."""


def damage_of(store: ObjectStore, file: SourceFile) -> str | None:
    """What is wrong with the bytes of a file; None where they can all be read.

    Raises:
        ObjectChanged, ObjectUnavailable, BucketUnavailable: they could not be had.
    """
    if format_of(file.key) is Format.PARQUET:
        return _damage_of_parquet(store, file)
    return _damage_of_gzip(store, file) if file.key.endswith(GZIP) else None


def is_about_format(failure: PySparkException) -> bool:
    """Whether an engine says that it has no reader for a file whose bytes are all right."""
    said = f"{failure.getCondition()} {failure}"
    return any(words in said for words in _OF_FORMAT)


def _damage_of_parquet(store: ObjectStore, file: SourceFile) -> str | None:
    try:
        with pq.ParquetFile(pa.PythonFile(_Remote(store, file), mode="r")) as opened:
            for _ in opened.iter_batches(batch_size=_BATCH):
                pass
    except LIMITS_OF_ARROW:
        raise
    except (pa.ArrowException, OSError) as error:
        return f"no Parquet file, or a damaged one: {error}"
    return None


def _damage_of_gzip(store: ObjectStore, file: SourceFile) -> str | None:
    try:
        for _ in inflated(pieces_of(store, file)):
            pass
    except Unusable as unusable:
        return str(unusable)
    return None


class _Remote(io.RawIOBase):
    """A file in an object store, read in parts."""

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
