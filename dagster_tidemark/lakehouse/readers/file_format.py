"""Interface of file formats.

`probe`, `in_memory` and `batch` use it and know no format by name. Does not belong here: the formats themselves
(`csv_text`, `json_text`, `parquet`) and their list (`format_registry`).
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
    """Physical form of a file, as far as it was inspected. A format may have its own subclass.

    Args:
        format: Name of the format.
        columns: Name and type (by Arrow's name for it) of each column. Those of CSV are in the order of the file.
        charset: Encoding of a text.
        is_complete: True if the file has no other columns.
        is_over_lines: True if a record may have several lines.
    """

    format: str
    columns: tuple[tuple[str, str], ...] = ()
    charset: str = "utf-8"
    is_complete: bool = True
    is_over_lines: bool = False

    @staticmethod
    def of_arrow(format: str, schema: pa.Schema) -> Shape:
        """Return the shape of a file whose columns have types."""
        # Columns are found by name. Sorted, files that differ only in the order of columns have one shape.
        return Shape(format, tuple(sorted((column.name, str(column.type)) for column in schema)))


class UntypedText(str):
    """Value of a format without types, as written. It may be meant as a number or a truth value."""


S = TypeVar("S", bound=Shape)
_LACKING: Any = object()


def _whole(shape: Shape, key: str, size: int, about: int) -> Sequence[Part]:
    return (WHOLE,)


@dataclass(frozen=True, kw_only=True, eq=False)
class FileFormat(Generic[S]):
    """A file format: its name, its endings, and how its files are inspected and read.

    Small files are read in the run's process and large ones by Spark's workers, both by `rows_of`. Operations raise
    `Unusable` for a file that cannot be loaded. An error of the store is never taken for a fault of the file, even if a
    library reports it as one.

    Args:
        name: Name in `Shape.format` and in messages.
        endings: Endings of file names, each with its dot.
        shape: `(feed, source)`: the shape of a file. It reads as few bytes as possible, such as a header or footer.
        rows_of: `(declared, shape, source, part)`: the rows of a part of a file, see `parsing.rows`. It is sent to
            Spark's workers with all its code. Workers have pyarrow and numpy.
        parts: `(shape, key, size, about)`: the parts of about `about` bytes that tasks may read. By default the file is
            read as a whole.
        texts_of: `(declared, shape, record)`: the texts of the declared columns in the record of a sound row. Only for
            a format whose rows have records.
        is_text: True if the files are lines of text.
        has_header: True if a file names its columns once. A row then has no other columns.
        sample: `(body, limit)`: up to `limit` sound rows as Python values for `tidemark new feed --sample`. Values of
            a format without types are `UntypedText`. It may also take `encoding` and `multiline`. None for a format
            without samples.

    Raises:
        ValueError: an argument without a default is missing. The message names it and the format.
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
