"""What a format gives of a file: rows in batches, as texts or as values of the declared types.

Plain data that Spark's workers can be sent: they have pyarrow and numpy, and nothing of the project. Does not belong
here: any format (`csv_rows`, `json_rows`, `parquet_rows`), and types (`kernels`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Protocol

import pyarrow as pa


@dataclass(frozen=True)
class Declared:
    """What a feed declares of the content of its files.

    Args:
        columns: Column name to the name of its type in Spark.
        encoding: The feed's; of a file with a mark of UTF-16 see `text.charset_of`.
        multiline: Whether a record may have several lines.
    """

    columns: Mapping[str, str]
    encoding: str = "utf-8"
    multiline: bool = False


class Source(Protocol):
    """The bytes of one version of one file. What `read` raises is about the store, never about the content."""

    @property
    def key(self) -> str:
        """Its name in the bucket."""
        ...

    @property
    def size(self) -> int:
        """Its bytes."""
        ...

    def read(self, begin: int, length: int) -> bytes:
        """Bytes from a place on; fewer only at the end of the file."""
        ...


@dataclass(frozen=True)
class Rows:
    """Consecutive rows of one file, in their order.

    Args:
        columns: Each declared column, as texts (`string`) or as values of the declared type (`kernels.arrow_type`).
            A missing value is null; so is each value of a row with a fault.
        count: How many rows these are.
        records: Of a format of text, each row as it stands there. With a fault: so that a person can read it.
        faults: What is wrong with a row as a whole, null for nothing; None if nothing is wrong with any.
        others: Of a format without a header: the names of members, if no row has a declared column.
    """

    columns: Mapping[str, pa.Array]
    count: int
    records: pa.Array | None = None
    faults: pa.Array | None = None
    others: Sequence[str] | None = None


@dataclass(frozen=True)
class Part:
    """A part of a file that one task reads: the records that begin in these bytes. `end` may be behind the file's."""

    begin: int = 0
    end: int = 1 << 62


WHOLE = Part()


def equal_parts(size: int, about: int) -> list[Part]:
    """A file of some bytes in parts of about so many bytes each."""
    number = max(1, round(size / about))
    edges = [size * n // number for n in range(number)]
    return [Part(begin, end) for begin, end in pairwise([*edges, WHOLE.end])]


RowsOf = Callable[[Declared, Any, Source, Part], Iterator[Rows]]
"""`(declared, shape, source, part)`: the rows of a part of a file, in batches of some thousands. Raises
`files.Unusable` for a file that cannot be taken; then none of its rows is."""
