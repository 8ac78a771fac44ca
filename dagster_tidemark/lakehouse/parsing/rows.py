"""What a format gives of a file: rows in batches, as texts or as values of the declared types.

Plain data that Spark's workers can be sent: they have pyarrow and numpy, and nothing of the project. Does not belong
here: any format (`csv_rows`, `json_rows`, `parquet_rows`), and types (`kernels`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
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

    def where(self, mask: pa.Array) -> Rows:
        """Return the rows for which a mask is true."""
        columns = {name: column.filter(mask) for name, column in self.columns.items()}
        records = None if self.records is None else self.records.filter(mask)
        faults = None if self.faults is None else self.faults.filter(mask)
        return Rows(columns, mask.true_count, records, faults, self.others)


def in_order(one: Rows, places: npt.NDArray[np.int64], other: Rows, other_places: npt.NDArray[np.int64]) -> Rows:
    """Rows of two kinds as one, in the order of their places."""
    order = pa.array(np.argsort(np.concatenate([places, other_places]), kind="stable"))

    def mixed(first: pa.Array, second: pa.Array) -> pa.Array:
        return pa.concat_arrays([first, second]).take(order)

    faults = None
    if one.faults is not None or other.faults is not None:
        both = (pa.nulls(rows.count, pa.string()) if rows.faults is None else rows.faults for rows in (one, other))
        faults = mixed(*both)
    others = None
    if one.others is not None and other.others is not None:
        others = list(dict.fromkeys([*one.others, *other.others]))
    columns = {c: mixed(column, other.columns[c]) for c, column in one.columns.items()}
    return Rows(columns, one.count + other.count, mixed(one.records, other.records), faults, others)


@dataclass
class Seen:
    """Counts of the rows of a file, or of a part of it, that were read so far.

    Args:
        rows: Rows, those with a fault among them.
        objects: Rows without a fault.
        others: `Rows.others` of all of them; None if a row has a declared column.
    """

    rows: int = 0
    objects: int = 0
    others: dict[str, None] | None = field(default_factory=dict)

    def add(self, found: Rows) -> None:
        """Count more rows."""
        self.rows += found.count
        self.objects += found.count if found.faults is None else found.faults.null_count
        if self.others is not None:
            self.others = None if found.others is None else self.others | dict.fromkeys(found.others)


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
