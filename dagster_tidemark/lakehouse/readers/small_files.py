"""Choice of small files, which this process fetches as a whole and reads. Spark's workers read the other files.

Does not belong here: reading (`in_memory`, `batch`).
"""

from collections.abc import Sequence

from dagster_tidemark.lakehouse.readers.files import SourceFile
from dagster_tidemark.sources.file_endings import is_compressed

SMALL = 1 << 20  # largest size of a small file in bytes
TOGETHER = 32 << 20  # largest decompressed size of all small files of a load in bytes; the run has them in memory
LONGEST_TEXT = 8 << 20  # largest decompressed size of a small file; a JSON record briefly needs 50 times its text
ROWS_TOGETHER = 200_000  # largest number of rows in all small files: 200 MB, at one kilobyte for a row of ten texts
_USUAL_RATIO = 8  # usual size of a text relative to its gzip file


def fetched_whole(files: Sequence[SourceFile]) -> set[SourceFile]:
    """Return the small files, up to a total size."""
    # The smallest files come first, because a Spark task for a file costs the same for any size.
    whole, together = set(), 0
    for file in sorted((f for f in files if not f.misplaced), key=lambda f: f.size):
        together += file.size * (_USUAL_RATIO if is_compressed(file.key) else 1)
        if file.size > SMALL or together > TOGETHER:
            break
        whole.add(file)
    return whole
