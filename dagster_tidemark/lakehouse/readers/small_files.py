"""Choice of small files. They are fetched as a whole and read in this process. Spark's workers read the others.

Does not belong here: reading (`in_memory`, `batch`).
"""

from collections.abc import Sequence

from dagster_tidemark.lakehouse.readers.files import SourceFile
from dagster_tidemark.sources.file_endings import is_compressed

SMALL = 1 << 20  # largest number of bytes of a small file
TOGETHER = 32 << 20  # bytes of all small files of a load, decompressed; the run holds them in memory
LONGEST_TEXT = 8 << 20  # bytes of one small file, decompressed: a JSON record briefly takes up to 50 times its text
ROWS_TOGETHER = 200_000  # rows of all small files; a row of ten texts takes about a kilobyte, so 200 MB
_USUAL_RATIO = 8  # of text to its gzip


def fetched_whole(files: Sequence[SourceFile]) -> set[SourceFile]:
    """Return the small files, up to a total size."""
    # The smallest first: a Spark task for a file costs the same for any size.
    whole, together = set(), 0
    for file in sorted((f for f in files if not f.misplaced), key=lambda f: f.size):
        together += file.size * (_USUAL_RATIO if is_compressed(file.key) else 1)
        if file.size > SMALL or together > TOGETHER:
            break
        whole.add(file)
    return whole
