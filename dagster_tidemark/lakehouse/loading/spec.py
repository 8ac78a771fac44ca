"""Declaration of a load: a feed, its table, and the transform from landing rows to table rows.

Does not belong here: the state that a load queries (`load_state`), and its execution (`load`).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from pyspark.sql import DataFrame

from dagster_tidemark.lakehouse.loading.quarantine_table import QUARANTINE
from dagster_tidemark.lakehouse.partitioning import ByDimensions, ByKey, ByTime, Partitioning
from dagster_tidemark.lakehouse.readers.files import ObjectStore
from dagster_tidemark.lakehouse.table import Table
from dagster_tidemark.sources.feed import Feed, Partition
from dagster_tidemark.sources.listing import Bucket
from dagster_tidemark.sources.times import FORMATS, TYPES


class Landing(Bucket, ObjectStore, Protocol):
    """A landing bucket that can be listed and read."""


_UNVERSIONED = "none"


@dataclass(frozen=True)
class Load:
    """Declaration of how a feed becomes a table.

    Args:
        transform: Function from typed landing rows (the feed's columns, the partition column, lineage) to table rows.
        code_version: The asset's code version, which is stored in rows as `loaded_by`. Empty if the asset has none.
        quarantine: The table, or a branch of it, for rejected rows and files.
        read_again: Partitions whose files are all read again, even if the table has them.

    Raises:
        ValueError: the feed cannot be loaded into the table, see `require_loadable`.
    """

    feed: Feed
    table: Table
    transform: Callable[[DataFrame], DataFrame]
    code_version: str
    quarantine: Table = QUARANTINE
    read_again: frozenset[Partition] = frozenset()

    def __post_init__(self) -> None:
        require_loadable(self.feed, self.table)
        if not self.code_version:  # empty means `load_plan.AGAIN`: the file must be read again
            object.__setattr__(self, "code_version", _UNVERSIONED)

    @property
    def asset(self) -> str:
        return self.table.name.replace(".", "/")

    @property
    def numbers_rows(self) -> bool:
        """True if the table stores each row's number within its file."""
        return "source_row" in self.table.columns


def require_loadable(feed: Feed, table: Table) -> None:
    """Check that a feed can be loaded into a table. The code location also calls this when it loads.

    Raises:
        ValueError: the row key is empty, may be null, has a float or lacks the partition column; a partition column is
            a column of the files; or feed and table are partitioned differently. The message names the column and the
            remedy.
    """
    key = table.row_key
    if not key:
        raise ValueError(
            f"feed {feed.name}: {table.name} has no row_key, so all rows would count as one; name the columns that "
            "identify a row, or 'source_file' and 'source_row' if no columns do"
        )
    for column in table.partition_columns:
        if own := [c for c in feed.columns if c.lower() == column.lower()]:
            raise ValueError(
                f"feed {feed.name}: {own[0]!r} is a column of its files and the partition column of {table.name}: "
                f"the partition comes from a file's path, so rename the partition column (file_{column})"
            )
    if nullable := [c for c in key if c in feed.columns and c not in feed.required]:
        names = ", ".join(map(repr, nullable))
        raise ValueError(
            f"feed {feed.name}: {names} identify a row of {table.name}, so they must be `required`: add them to "
            "required, or take them out of row_key"
        )
    if inexact := [c for c in key if table.columns[c] in ("double", "float")]:
        raise ValueError(
            f"feed {feed.name}, table {table.name}: {inexact} identify a row, but Spark and "
            "Iceberg compare NaN and -0.0 of this type differently; declare a decimal, an integer or a string"
        )
    require_cut_alike(feed, table)
    for column in table.partition_columns:
        if column not in key:
            raise ValueError(
                f"feed {feed.name}, table {table.name}: rows are matched within a partition only, so {column!r} "
                f"must be in row_key with {list(key)}"
            )


def require_cut_alike(feed: Feed, table: Table) -> None:
    """Check that a table is partitioned in the same way as its feed.

    Raises:
        ValueError: the table is partitioned differently. The message names the required partitioning.
    """
    dimensions, by = feed.layout.dimensions, table.partitioning
    if len(dimensions) > 1:
        ours = by.dimensions if isinstance(by, ByDimensions) else {}
        is_alike = set(ours) == set(dimensions) and all(_fits(feed, name, ours[name], table) for name in dimensions)
        needs = f"ByDimensions({{{', '.join(f'{name!r}: {_need(feed, name)}' for name in dimensions)}}})"
    elif dimensions:
        is_alike, needs = _fits(feed, dimensions[0], by, table), _need(feed, dimensions[0])
    else:
        is_alike, needs = by is None, "nothing"
    if not is_alike:
        raise ValueError(
            f"feed {feed.name} has partitions by {feed.layout.by}: {table.name} must be partitioned by {needs}"
        )


def _fits(feed: Feed, dimension: str, by: Partitioning | None, table: Table) -> bool:
    if dimension in feed.keys:
        return isinstance(by, ByKey)
    kind = TYPES[feed.grain]
    if not isinstance(by, ByTime) or table.columns[by.column] != kind or by.format_of(table.columns) != FORMATS[kind]:
        return False
    return kind == "date" or by.timezone == feed.timezone  # the instant of a window's start depends on the time zone


def _need(feed: Feed, dimension: str) -> str:
    if dimension in feed.keys:
        return "ByKey(<string column>)"
    kind = TYPES[feed.grain]
    if kind == "timestamp" and feed.timezone != "UTC":
        return f"ByTime(<timestamp column>, timezone={feed.timezone!r})"
    return f"ByTime(<{kind} column>)" if feed.keys else f"a {kind} column"
