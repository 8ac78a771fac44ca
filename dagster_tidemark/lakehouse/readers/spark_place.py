"""Where files lie for Spark, and where in them a row stands.

Belongs here: paths of keys and keys of paths. Does not belong here: what is in a row.
"""

from collections.abc import Iterable

from pyspark.sql import Column
from pyspark.sql import functions as F

from dagster_tidemark.lakehouse.readers.files import PLACE, ObjectStore, SourceFile


def paths_of(store: ObjectStore, files: Iterable[SourceFile]) -> list[str]:
    """The files as Spark is told of them: names, not patterns."""

    def escaped(key: str) -> str:
        return "".join(f"\\{c}" if c in "\\{}[]*?" else c for c in key)

    return [f"s3a://{store.name}/{escaped(file.key)}" for file in files]


def position() -> tuple[Column, Column]:
    """Block and row of a scan by which Spark does not number rows (`files.PLACE`)."""
    # Taken directly on the scan: only there do the two say where in the file a row stands.
    return F.col("_metadata.file_block_start"), F.monotonically_increasing_id()


def place_of(store: ObjectStore, block: Column, row: Column, path: Column | None = None) -> list[Column]:
    """The columns that say where a row stands (`files.PLACE`)."""
    path = F.col("_metadata.file_path") if path is None else path
    # Spark percent-encodes the path; a "+" in it is a plus, which url_decode alone would turn into a space.
    encoded = F.substring(path, len(f"s3a://{store.name}/") + 1, 1 << 30)
    decoded = F.url_decode(F.replace(encoded, F.lit("+"), F.lit("%2B")))
    key = F.when(F.contains(encoded, F.lit("%")), decoded).otherwise(encoded)
    return [column.alias(name) for name, column in zip(PLACE, (key, block, row), strict=True)]
