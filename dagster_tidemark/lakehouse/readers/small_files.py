"""Which files are small: fetched whole and read in the memory of the run. Spark scans the others.

Does not belong here: how the rows of either are made (`in_memory`, `spark_scan`).
"""

from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa

from dagster_tidemark.lakehouse.readers.file_format import Shape
from dagster_tidemark.lakehouse.readers.files import LIMITS_OF_ARROW, SourceFile, Unusable
from dagster_tidemark.lakehouse.readers.format_registry import format_of
from dagster_tidemark.sources.feed import Feed
from dagster_tidemark.sources.file_endings import GZIP

SMALL = 1 << 20  # bytes up to which a file is fetched whole
_TOGETHER = 32 << 20  # bytes of small files of one load, inflated; they pass through the memory of the run
_ROWS_TOGETHER = 200_000  # of them; a row of ten texts takes about a kilobyte underway, so 200 MB
_USUAL_RATIO = 8  # of text to its gzip


def fetched_whole(files: Sequence[SourceFile]) -> set[SourceFile]:
    """Files that are small, as long as all of them together are not too large."""
    # The smallest first: they gain most from not being a Spark scan of their own.
    whole, together = set(), 0
    for file in sorted((f for f in files if not f.misplaced), key=lambda f: f.size):
        together += file.size * (_USUAL_RATIO if file.key.endswith(GZIP) else 1)
        if file.size > SMALL or together > _TOGETHER:
            break
        whole.add(file)
    return whole


def fitting(feed: Feed, in_hand: Mapping[SourceFile, tuple[Shape, bytes]]) -> Iterator[SourceFile]:
    """Of files that were fetched those whose rows fit into the run's memory; the others are for Spark to stream."""
    rows = size = 0
    for file in sorted(in_hand, key=lambda f: f.size):
        found, inflated = _weight_of(feed, file.key, in_hand[file][1])
        rows, size = rows + found, size + inflated
        if rows > _ROWS_TOGETHER or size > _TOGETHER:
            return
        yield file


def _weight_of(feed: Feed, key: str, body: bytes) -> tuple[int, int]:
    """The rows and bytes that a small file becomes. A megabyte of gzip can hold a gigabyte, and so can a few kilobytes
    of Parquet: a value that stands there once may be that of every row."""
    try:
        return format_of(key).weight(feed, key, body, _TOGETHER)
    except LIMITS_OF_ARROW:
        raise
    except (Unusable, pa.ArrowException, OSError, ValueError):
        return 0, len(body)  # whoever reads it says why
