"""What a file format is: what is asked of its files.

`probe`, `in_memory` and `batch` ask these questions and know no format by name. Does not belong here:
the formats themselves (`csv_text`, `json_text`, `parquet`) and which there are (`format_registry`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Any, Generic, TypeVar

import pyarrow as pa

from dagster_tidemark.lakehouse.parsing.rows import WHOLE, Declared, Part, Rows, Source
from dagster_tidemark.lakehouse.readers.files import ObjectStore, SourceFile
from dagster_tidemark.sources.feed import Feed


@dataclass(frozen=True)
class Shape:
    """The physical form of a file, as far as it was looked into. A format may have a subclass of its own.

    Args:
        format: The format's name.
        columns: Name and type (Arrow's, in Arrow's words); for CSV in the order they stand in.
        charset: How a text is encoded.
        is_complete: True if the file has no other columns.
        is_over_lines: Whether a record may have several lines.
    """

    format: str
    columns: tuple[tuple[str, str], ...] = ()
    charset: str = "utf-8"
    is_complete: bool = True
    is_over_lines: bool = False

    @staticmethod
    def of_arrow(format: str, schema: pa.Schema) -> Shape:
        """The form of a file whose columns have types, as Arrow sees it."""
        # Sorted: columns are found by name, so files that differ in their order alone are read together.
        return Shape(format, tuple(sorted((column.name, str(column.type)) for column in schema)))


class Written(str):
    """A value of a format without types, as written. It may mean a number or a truth value."""


S = TypeVar("S", bound=Shape)
_LACKING: Any = object()


def _whole(shape: Shape, key: str, size: int, about: int) -> Sequence[Part]:
    return (WHOLE,)


@dataclass(frozen=True, kw_only=True, eq=False)
class FileFormat(Generic[S]):
    """A file format: its name, its endings, and how its files are looked into and read.

    A small file is read in the run's process, a larger one by Spark's workers, both by `rows_of`. Operations raise
    `Unusable` for a file that cannot be taken. What the store raises is never lost, even where a library in between
    reports something else (`remote_file.refusals_raised`).

    Args:
        name: As in `Shape.format` and in messages.
        endings: Of the names of its files, each with its dot.
        shape: `(store, feed, file, body)`: the file's form, from its bytes where it was fetched whole, else from as few
            of them as do (`body` is None).
        rows_of: `(declared, shape, source, part)`: the rows of a part of a file, see `parsing.rows`. It and all that it
            uses is sent to Spark's workers, which have pyarrow and numpy.
        parts: `(shape, key, size, about)`: the parts of about so many bytes in which tasks may read a file; by default
            it is read as a whole.
        texts_of: `(declared, shape, record)`: of a format whose rows come with their records, the texts of the declared
            columns in the record of a row without a fault.
        is_text: True if the files are lines of text.
        has_header: True if a file names its columns once, so that no row has a column that is not named.
        sample: `(body, limit)`: up to `limit` sound rows as Python values for `tidemark new feed --sample`. Values of
            a format without types are `Written`. It may also take `encoding` and `multiline`. None for a format
            without samples.

    Raises:
        ValueError: something that every format has is not given; the message names it and the format.
    """

    name: str = _LACKING
    endings: tuple[str, ...] = _LACKING
    shape: Callable[[ObjectStore, Feed, SourceFile, bytes | None], S] = _LACKING
    rows_of: Callable[[Declared, S, Source, Part], Iterator[Rows]] = _LACKING
    parts: Callable[[S, str, int, int], Sequence[Part]] = _whole
    texts_of: Callable[[Declared, S, str], Sequence[str | None]] | None = None
    is_text: bool = False
    has_header: bool = True
    sample: Callable[..., list[dict[str, object]]] | None = None

    def __post_init__(self) -> None:
        lacking = [given.name for given in fields(self) if getattr(self, given.name) is _LACKING]
        if lacking:
            name = "without a name" if "name" in lacking else self.name
            raise ValueError(f"format {name}: it lacks {', '.join(lacking)}")
