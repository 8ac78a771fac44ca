"""What a load is declared with: a feed, the table it becomes, and the way from one to the other.

Does not belong here: what a load finds (`load_state`) and does (`load`).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from pyspark.sql import DataFrame

from pipelines.tidemark.lakehouse.readers.files import ObjectStore
from pipelines.tidemark.lakehouse.tables import Table
from pipelines.tidemark.sources.feed import Feed
from pipelines.tidemark.sources.layout import TYPES
from pipelines.tidemark.sources.listing import Bucket


class Landing(Bucket, ObjectStore, Protocol):
    """A landing bucket that can be listed and read."""


_UNVERSIONED = "none"


@dataclass(frozen=True)
class Load:
    """How a feed becomes a table.

    Args:
        transform: From typed landing rows (the feed's columns, the partition column, lineage) to table rows.
        code_version: The asset's; rows remember it as `loaded_by`. Empty: it has none.

    Raises:
        ValueError: a column of the row key may be null or is no exact number; the partition is none of them or a column
            of the files; or feed and table are cut differently.
    """

    feed: Feed
    table: Table
    transform: Callable[[DataFrame], DataFrame]
    code_version: str

    def __post_init__(self) -> None:
        nullable = [c for c in self.table.row_key if c in self.feed.columns and c not in self.feed.required]
        if nullable:
            raise ValueError(f"feed {self.feed.name}: {nullable} identify a row, so they have to be `required`")
        inexact = [c for c in self.table.row_key if self.table.columns.get(c) in ("double", "float")]
        if inexact:
            raise ValueError(
                f"table {self.table.name}: {inexact} identify a row and are no exact numbers: NaN and -0.0 "
                "are equal here and not there; declare a decimal, an integer or a string"
            )
        self._refuse_grain()
        if not self.code_version:  # which would say of its rows that they are to be loaded again (`plan.AGAIN`)
            object.__setattr__(self, "code_version", _UNVERSIONED)
        table = self.table
        for column in table.partition_columns:
            if column in self.feed.columns:
                raise ValueError(
                    f"feed {self.feed.name}: {column!r} is a column of its files, and what {table.name} is partitioned "
                    "by: the partition comes from a file's place, so give it another name"
                )
            if table.row_key and column not in table.row_key:
                raise ValueError(
                    f"table {table.name}: a row is looked for in its own partition only, so {column!r} "
                    f"has to be in row_key beside {list(table.row_key)}"
                )

    def _refuse_grain(self) -> None:
        by = [self.table.columns[column] for column in self.table.partition_columns]
        fitting = TYPES.get(self.feed.grain)
        if by != ([fitting] if fitting else []):
            needs = f"a {fitting} column" if fitting else "nothing"
            raise ValueError(
                f"feed {self.feed.name} is cut by {self.feed.grain}: {self.table.name} has to be partitioned by {needs}"
            )

    @property
    def asset(self) -> str:
        return self.table.name.replace(".", "/")
