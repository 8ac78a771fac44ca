"""The ORC format: the shape of a file from its footer, its rows, and samples.

A part of a file has whole stripes. A whole file is read in small batches, so that a stripe may be large or hold a long
text a million times. A task that reads a part of a file has a stripe in memory. Does not belong here: values of columns
(`parsing.typed_rows`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyarrow import dataset, orc

from dagster_tidemark.lakehouse.parsing.rows import WHOLE, DeclaredContent, FileBytes, Part, Rows, equal_parts
from dagster_tidemark.lakehouse.parsing.sources import MemoryFile, RandomAccess, ReaderMissing
from dagster_tidemark.lakehouse.parsing.typed_rows import MOST_ROWS, joined, rows_of_table
from dagster_tidemark.lakehouse.readers.file_format import FileFormat, Shape
from dagster_tidemark.lakehouse.readers.files import Unusable, arrow_faults
from dagster_tidemark.sources.feed import Feed
from dagster_tidemark.sources.file_endings import Format, endings_of

CALLED = "ORC"
_STEP = 1024
"""Number of rows to read at once from a whole file: 100 MB if each row has 100 KB."""

_LARGEST_FOOTER = 64 << 20
_LARGEST_STRIPE = 64 << 20
"""Largest average size of the stripes of a file that is read in parts, because a part has a stripe in memory."""


def rows_of(declared: DeclaredContent, shape: Any, source: FileBytes, part: Part = WHOLE) -> Iterator[Rows]:
    """Return the rows of a part of a file (`rows.RowsOf`), in the order of the file.

    Raises:
        Unusable: the file is not an ORC file, or is damaged.
        ReaderMissing: this process lacks the time zone database.
    """
    tables = _tables(declared, source, part)
    while True:
        with orc_faults():
            table = next(tables, None)
        if table is None:
            return
        yield rows_of_table(declared, table)


@contextmanager
def orc_faults() -> Iterator[None]:
    """Convert Arrow's errors about an ORC file.

    Raises:
        Unusable: the file is not an ORC file, is damaged, or has a time that Arrow cannot represent.
        ReaderMissing: this process lacks the time zone database.
    """
    with arrow_faults(CALLED):
        try:
            yield
        except pa.ArrowException as error:
            if "Time zone file" in str(error):
                raise ReaderMissing(
                    f"reading ORC needs the time zone database of the system: install tzdata there ({error})"
                ) from error
            if "out of range for nanosecond" in str(error):
                raise Unusable(
                    "unreadable", f"a time is not between the years 1678 and 2261; write it as a text: {error}"
                ) from error
            raise


def opened(source: FileBytes, longest_read: int | None = None) -> orc.ORCFile:
    """Open an ORC file."""
    return orc.ORCFile(pa.PythonFile(RandomAccess(source, longest_read), mode="r"))


def _tables(declared: DeclaredContent, source: FileBytes, part: Part) -> Iterator[pa.Table | pa.RecordBatch]:
    file = opened(source)
    columns = list(declared.found_in(set(file.schema.names)).values())
    _require_clear(columns, file.schema)
    if part.begin == 0 and part.end >= source.size:
        yield from _of_whole_file(source, file.nrows, columns)
        return
    for n in range(file.nstripes):
        # Arrow does not return the place of a stripe. Stripes usually have equal sizes.
        if part.begin <= source.size * n // file.nstripes < part.end:
            stripe = file.read_stripe(n, columns=columns)
            for at in range(0, stripe.num_rows, MOST_ROWS):
                yield stripe.slice(at, MOST_ROWS)


def _require_clear(columns: Sequence[str], schema: pa.Schema) -> None:
    """Raise Unusable if the name of a column could also mean a member of another one. Arrow then reads the member."""
    nested = [each.name for each in schema if pa.types.is_nested(each.type)]
    for name in columns:
        if outer := next((each for each in nested if name.startswith(f"{each}.")), None):
            raise Unusable(
                "unreadable",
                f"column {name} cannot be told from a member of its nested column {outer}; rename one of them",
            )


def _of_whole_file(source: FileBytes, rows: int, columns: list[str]) -> Iterator[pa.Table]:
    fragment = dataset.OrcFileFormat().make_fragment(pa.PythonFile(RandomAccess(source), mode="r"))
    # No threads, because other tasks use the other cores.
    scanner = fragment.scanner(
        columns=columns, batch_size=_STEP, batch_readahead=0, fragment_readahead=0, use_threads=False
    )
    count = 0
    for table in joined(scanner.to_batches()):
        count += table.num_rows
        yield table
    if count != rows:
        raise Unusable(
            "unreadable", f"not a valid {CALLED} file, or damaged: it has {count} rows, and {rows} by its footer"
        )


@dataclass(frozen=True)
class OrcShape(Shape):
    """Physical form of an ORC file.

    Args:
        stripes: Number of stripes.
    """

    stripes: int = 1


def _shape(feed: Feed, source: FileBytes) -> OrcShape:
    if not source.size:
        raise Unusable("empty", "the file is empty")
    with orc_faults():
        file = opened(source, _LARGEST_FOOTER)
        columns = Shape.of_arrow(Format.ORC, file.schema).columns
        return OrcShape(Format.ORC, columns, stripes=file.nstripes)


def _parts(shape: OrcShape, key: str, size: int, about: int) -> Sequence[Part]:
    if shape.stripes < 2 or size // shape.stripes > _LARGEST_STRIPE:
        return (WHOLE,)
    return equal_parts(size, max(about, size // shape.stripes))


def _sample(body: bytes, limit: int) -> list[dict[str, Any]]:
    with orc_faults():
        rows: list[dict[str, Any]] = opened(MemoryFile("", body)).read().slice(0, limit).to_pylist()
        return rows


ORC = FileFormat(
    name=Format.ORC,
    endings=endings_of(Format.ORC),
    shape=_shape,
    rows_of=rows_of,
    parts=_parts,
    sample=_sample,
)
