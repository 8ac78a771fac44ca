"""What a file format is: what is asked of its files, from the first look to the verdict on one that fails.

`probe`, `in_memory`, `spark_scan` and `verdict` ask these questions and know no format by name. Does not belong here:
the formats themselves (`csv_text`, `json_text`, `parquet`) and which there are (`format_registry`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import reduce
from typing import Any, Generic, NamedTuple, TypeVar

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from dagster_tidemark.lakehouse.readers.files import FileFault, ObjectStore, SourceFile
from dagster_tidemark.sources.feed import Feed


@dataclass(frozen=True)
class Shape:
    """The physical form of a file, as far as it was looked into. A format may have a subclass of its own.

    Args:
        format: The format's name.
        columns: Name and type (Arrow's, in Arrow's words); for CSV in the order they stand in.
        charset: How a text is encoded.
        is_complete: True if the file has no other columns.
    """

    format: str
    columns: tuple[tuple[str, str], ...] = ()
    charset: str = "utf-8"
    is_complete: bool = True

    @staticmethod
    def of_arrow(format: str, schema: pa.Schema) -> Shape:
        """The form of a file whose columns have types, as Arrow sees it."""
        # Sorted: columns are found by name, so files that differ in their order alone are read together.
        return Shape(format, tuple(sorted((column.name, str(column.type)) for column in schema)))


class Written(str):
    """A value of a format without types, as written. It may mean a number or a truth value."""


class Fault(NamedTuple):
    """What a row that is none is kept as, and why it is none."""

    content: str
    why: str


Rows = tuple[Mapping[str, pa.Array], Sequence[Fault | None]]
"""The feed's columns as arrays of text, and for each row what is wrong with it; such a row has no value."""

S = TypeVar("S", bound=Shape)
_LACKING: Any = object()


def _itself(shape: Shape) -> Hashable:
    return shape


@dataclass(frozen=True, kw_only=True, eq=False)
class FileFormat(Generic[S]):
    """A file format: its name, its endings, and how its files are looked into and read.

    A file of up to 1 MB is fetched whole and read by `rows`, a larger one by Spark, in `scan`; what a value is as text
    must not depend on that. Operations raise `Unusable` for a file that cannot be taken. What the store raises is never
    lost, even where a library in between reports something else (`remote_file.refusals_raised`).

    Args:
        name: As in `Shape.format` and in messages.
        endings: Of the names of its files, each with its dot.
        shape: `(store, feed, file, body)`: the file's form, from its bytes where it was fetched whole, else from as few
            of them as do (`body` is None).
        weight: `(feed, key, body, limit)`: about how many rows a small file has and how many bytes of values they are,
            found without holding them; above `limit` bytes not how many exactly.
        rows: `(feed, key, shape, body)`: the rows of a small file.
        scan: `(spark, store, feed, shapes)`: the rows of large files of one group, with `files.columns_of_rows`.
        verify: `(store, file)`: reads a file that Spark fails on to its end, and raises `Unusable` where it is damaged.
        group: Files of whose shapes it gives the same are one scan; by default those of equal shape.
        look_closer: `(spark, store, feed, shapes)`: the shapes as large files are to be read, where a part of a file
            does not say it, and the files that turn out to be none. None for a format whose files always say it.
        not_supported: Words with which Spark says that it has no reader for a file whose bytes are all right.
        is_text: True if the files are lines of text. Spark holds each line as a whole.
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
    weight: Callable[[Feed, str, bytes, int], tuple[int, int]] = _LACKING
    rows: Callable[[Feed, str, S, bytes], Rows] = _LACKING
    scan: Callable[[SparkSession, ObjectStore, Feed, Mapping[SourceFile, S]], DataFrame] = _LACKING
    verify: Callable[[ObjectStore, SourceFile], None] = _LACKING
    group: Callable[[S], Hashable] = _itself
    look_closer: (
        Callable[
            [SparkSession, ObjectStore, Feed, Mapping[SourceFile, S]], tuple[Mapping[SourceFile, S], list[FileFault]]
        ]
        | None
    ) = None
    not_supported: tuple[str, ...] = ()
    is_text: bool = False
    has_header: bool = True
    sample: Callable[..., list[dict[str, object]]] | None = None

    def __post_init__(self) -> None:
        lacking = [given.name for given in fields(self) if getattr(self, given.name) is _LACKING]
        if lacking:
            name = "without a name" if "name" in lacking else self.name
            raise ValueError(f"format {name}: it lacks {', '.join(lacking)}")

    def scan_all(
        self, spark: SparkSession, store: ObjectStore, feed: Feed, shapes: Mapping[SourceFile, S]
    ) -> DataFrame:
        """The rows of large files of this format (at least one): of each group one scan."""
        groups: dict[Hashable, dict[SourceFile, S]] = defaultdict(dict)
        for file, shape in shapes.items():
            groups[self.group(shape)][file] = shape
        scans = [self.scan(spark, store, feed, files) for files in groups.values()]
        return reduce(DataFrame.unionByName, scans)
