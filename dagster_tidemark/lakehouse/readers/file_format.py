"""Interface that all file formats implement.

`probe`, `in_memory` and `batch` use only this interface, so they work with any format. Does not belong here: the
formats (`csv_text`, `json_text`, `parquet`) and the list of formats (`format_registry`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Any, Generic, TypeVar

import pyarrow as pa

from dagster_tidemark.lakehouse.parsing.rows import WHOLE, DeclaredContent, FileBytes, Part, Rows
from dagster_tidemark.sources.feed import Feed


@dataclass(frozen=True)
class Shape:
    """Physical form of a file, as far as the file was inspected. A format may have its own subclass.

    Args:
        format: Name of the format.
        columns: Name and Arrow type of each column. The columns of a CSV file are in the order of the file.
        charset: Encoding of a text file.
        is_complete: True if `columns` has all columns of the file.
        is_over_lines: True if a record may have several lines.
    """

    format: str
    columns: tuple[tuple[str, str], ...] = ()
    charset: str = "utf-8"
    is_complete: bool = True
    is_over_lines: bool = False

    @staticmethod
    def of_arrow(format: str, schema: pa.Schema) -> Shape:
        """Return the shape of a file that has an Arrow schema."""
        # The columns are sorted, so that files have equal shapes if they differ only in the order of columns.
        return Shape(format, tuple(sorted((column.name, str(column.type)) for column in schema)))


class UntypedText(str):
    """Value of a format without types, as written in the file. The text may be a number or a boolean."""


S = TypeVar("S", bound=Shape)
_LACKING: Any = object()


def _whole(shape: Shape, key: str, size: int, about: int) -> Sequence[Part]:
    return (WHOLE,)


@dataclass(frozen=True, kw_only=True, eq=False)
class FileFormat(Generic[S]):
    """File format: name, endings of file names, and functions that inspect and read files.

    The run's process reads small files, and Spark's workers read large ones, both with `rows_of`. The functions raise
    `Unusable` for a file that cannot be loaded. An error of the store never counts as a fault of the file, even if a
    library reports it as one.

    Args:
        name: Name in `Shape.format` and in messages.
        endings: Endings of file names, each with its dot.
        shape: Function `(feed, source)` that returns the shape of a file. It reads as few bytes as possible, such as a
            header or footer.
        rows_of: Function `(declared, shape, source, part)` that returns the rows of a part of a file, see
            `parsing.rows`. The function is sent to Spark's workers with all its code. Workers have pyarrow and numpy.
        parts: Function `(shape, key, size, about)` that divides a file into parts of about `about` bytes for tasks. By
            default one task reads the whole file.
        texts_of: Function `(declared, shape, record)` that returns the texts of the declared columns in the record of a
            sound row. Only for formats whose rows have records.
        is_text: True if the files are lines of text.
        has_header: True if a file names its columns once, for all rows. False if each row names its own columns.
        sample: Function `(body, limit)` that returns up to `limit` sound rows as Python values, for
            `tidemark new feed --sample`. In formats without types, values are `UntypedText`. The function may also take
            `encoding` and `multiline`. None for formats without samples.

    Raises:
        ValueError: an argument without a default is missing. The message names the argument and the format.
    """

    name: str = _LACKING
    endings: tuple[str, ...] = _LACKING
    shape: Callable[[Feed, FileBytes], S] = _LACKING
    rows_of: Callable[[DeclaredContent, S, FileBytes, Part], Iterator[Rows]] = _LACKING
    parts: Callable[[S, str, int, int], Sequence[Part]] = _whole
    texts_of: Callable[[DeclaredContent, S, str], Sequence[str | None]] | None = None
    is_text: bool = False
    has_header: bool = True
    sample: Callable[..., list[dict[str, object]]] | None = None

    def __post_init__(self) -> None:
        lacking = [given.name for given in fields(self) if getattr(self, given.name) is _LACKING]
        if lacking:
            name = "without a name" if "name" in lacking else self.name
            raise ValueError(f"format {name}: it lacks {', '.join(lacking)}")
