"""Interface that each file format implements: rows in batches, as texts or as values of the declared types.

The classes are plain data that can be sent to Spark's workers, which have only pyarrow and numpy. Does not belong here:
formats (`csv_rows`, `json_rows`, `readers.parquet`), and types (`kernels`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice, pairwise
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dagster_tidemark.lakehouse.parsing.value_forms import ValueForm
from dagster_tidemark.lakehouse.readers.files import LONGEST_NAME, MOST_NAMES
from dagster_tidemark.sources.text_formats import AnyText


@dataclass(frozen=True)
class DeclaredContent:
    """A feed's declaration of the content of its files.

    Args:
        columns: Column name to the name of its type in Spark.
        encoding: Encoding of text files. The byte order mark of a UTF-16 file decides its byte order
            (`text.charset_of`).
        multiline: True if a record may have several lines.
        format: The declared format of text files; None if the name's extension decides the format of each file.
        names: Column to the other names that it may have in files.
        forms: The declared forms of values, by column (`readers.declared_forms`).
        is_exact: True if a row is rejected if a declared type cannot hold a whole value (`Feed.exact`).
    """

    columns: Mapping[str, str]
    encoding: str = "utf-8"
    multiline: bool = False
    format: AnyText | None = None
    names: Mapping[str, Sequence[str]] = field(default_factory=dict)
    forms: Mapping[str, ValueForm] = field(default_factory=dict)
    is_exact: bool = False

    def nulls_of(self, kind: str) -> Sequence[str]:
        """Return the texts that mean a missing value in a column of a type."""
        return self.format.nulls_of(kind) if self.format else ()

    def found_in(self, names: Collection[str]) -> dict[str, str]:
        """Return the declared columns that a file has, each with its name in the file.

        Args:
            names: The names of the file's columns. `readers.probe` has refused files where two names mean one declared
                column.
        """
        found = {c: next((n for n in (c, *self.names.get(c, ())) if n in names), None) for c in self.columns}
        return {c: name for c, name in found.items() if name is not None}


class FileBytes(Protocol):
    """Bytes of one version of one file. An error of `read` is an error of the store, never of the content."""

    @property
    def key(self) -> str:
        """Key of the file in the bucket."""
        ...

    @property
    def size(self) -> int:
        """Number of bytes."""
        ...

    def read(self, begin: int, length: int) -> bytes:
        """Return `length` bytes from `begin`; fewer at the end of the file."""
        ...


@dataclass(frozen=True)
class Rows:
    """Consecutive rows of one file, in order.

    Args:
        columns: Each declared column, as texts (`string`) or as values of the declared type (`kernels.arrow_type`).
            A missing value is null. A faulty row has only nulls.
        count: Number of rows.
        records: For text formats, each row as it is written in the file. For other formats, each faulty row in a
            readable form.
        faults: For each row, the fault of the whole row, or null if it is sound. None if all rows are sound.
        others: For formats without a header, the names of members (see `joined_names`) if no row has a declared column;
            otherwise None.
    """

    columns: Mapping[str, pa.Array]
    count: int
    records: pa.Array | None = None
    faults: pa.Array | None = None
    others: Sequence[str] | None = None

    def where(self, mask: pa.Array) -> Rows:
        """Return the rows that a mask selects."""
        columns = {name: column.filter(mask) for name, column in self.columns.items()}
        records = None if self.records is None else self.records.filter(mask)
        faults = None if self.faults is None else self.faults.filter(mask)
        return Rows(columns, mask.true_count, records, faults, self.others)


def joined_names(one: Sequence[str] | None, other: Sequence[str] | None) -> Sequence[str] | None:
    """Return the `Rows.others` for two sets of rows together: the first `MOST_NAMES` names, each shortened."""
    if one is None or other is None:
        return None
    if len(one) >= MOST_NAMES:
        return one
    shortened = (name[:LONGEST_NAME] for name in other)
    return list(islice(dict.fromkeys(chain(one, shortened)), MOST_NAMES))


def in_order(one: Rows, places: npt.NDArray[np.int64], other: Rows, other_places: npt.NDArray[np.int64]) -> Rows:
    """Merge two sets of rows, in the order of their places."""
    order = pa.array(np.argsort(np.concatenate([places, other_places]), kind="stable"))

    def mixed(first: pa.Array, second: pa.Array) -> pa.Array:
        return pa.concat_arrays([first, second]).take(order)

    faults = None
    if one.faults is not None or other.faults is not None:
        both = (pa.nulls(rows.count, pa.string()) if rows.faults is None else rows.faults for rows in (one, other))
        faults = mixed(*both)
    columns = {c: mixed(column, other.columns[c]) for c, column in one.columns.items()}
    others = joined_names(one.others, other.others)
    return Rows(columns, one.count + other.count, mixed(one.records, other.records), faults, others)


@dataclass(frozen=True)
class Part:
    """Part of a file: the records that begin in the bytes from `begin` to `end`. `end` may exceed the file's size."""

    begin: int = 0
    end: int = 1 << 62


WHOLE = Part()


def equal_parts(size: int, about: int) -> list[Part]:
    """Divide a file of `size` bytes into parts of about `about` bytes."""
    number = max(1, round(size / about))
    edges = [size * n // number for n in range(number)]
    return [Part(begin, end) for begin, end in pairwise([*edges, WHOLE.end])]


RowsOf = Callable[[DeclaredContent, Any, FileBytes, Part], Iterator[Rows]]
"""Function `(declared, shape, source, part)` that returns the rows of a part of a file, in batches of some thousand.

It raises `files.Unusable` if the file cannot be loaded. Then no row of the file is loaded.
"""
