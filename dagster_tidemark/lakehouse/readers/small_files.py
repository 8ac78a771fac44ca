"""Which files are small: fetched whole and read in this process. Spark's workers read the others.

Does not belong here: how the rows of either are made (`in_memory`, `batch`).
"""

from collections.abc import Sequence

from dagster_tidemark.lakehouse.readers.files import SourceFile
from dagster_tidemark.sources.file_endings import GZIP

SMALL = 1 << 20  # bytes up to which a file is fetched whole
TOGETHER = 32 << 20  # bytes of small files of one load, inflated; they pass through the memory of the run
LONGEST_TEXT = 8 << 20  # bytes of one of them, inflated: a record of JSON takes up to 50 times its text for a moment
ROWS_TOGETHER = 200_000  # of them; a row of ten texts takes about a kilobyte underway, so 200 MB
_USUAL_RATIO = 8  # of text to its gzip


def fetched_whole(files: Sequence[SourceFile]) -> set[SourceFile]:
    """Files that are small, as long as all of them together are not too large."""
    # The smallest first: they gain most from not being a Spark scan of their own.
    whole, together = set(), 0
    for file in sorted((f for f in files if not f.misplaced), key=lambda f: f.size):
        together += file.size * (_USUAL_RATIO if file.key.endswith(GZIP) else 1)
        if file.size > SMALL or together > TOGETHER:
            break
        whole.add(file)
    return whole
