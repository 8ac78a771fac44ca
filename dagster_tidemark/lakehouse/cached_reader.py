"""A table as a process reads it that lives long: again and again, without Spark, and only where something has changed.

Does not belong here: writing (`append`), and what Spark reads (`read`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.expressions import AlwaysTrue, And, BooleanExpression

from dagster_tidemark.lakehouse.append import Appendable, one_of
from dagster_tidemark.lakehouse.table import Table


class LiveTable:
    """A table of the lake as it was at the last look; before the first one it is empty. Used by one thread.

    Args:
        lake: From `append.open_lake`.
        table: The declaration. Where nobody has made the table yet, it is empty.
    """

    def __init__(self, lake: Catalog, table: Table) -> None:
        self.table = table
        self._lake = lake
        self._found: Appendable | None = None

    def refresh(self) -> bool:
        """Look, in some milliseconds, whether it has other rows than before; then those are read from now on."""
        before = self.head
        try:
            if self._found is None:
                if not self._lake.table_exists(self.table.name):
                    return False
                self._found = Appendable(self._lake, self.table, writes=False)
            else:
                self._found.refresh()
        except NoSuchTableError:  # dropped: whoever fills it makes it anew
            self._found = None
        return self.head != before

    @property
    def head(self) -> int | None:
        """The snapshot that is read; None while there is none."""
        return None if self._found is None else self._found.head

    def rows(self, columns: Sequence[str], among: Mapping[str, Collection[Any]] | None = None) -> pa.Table:
        """Some columns of the rows that have one of the given values in each of some columns.

        Args:
            among: Column to values. Partitions, files and row groups without any of them are not read.
        """
        if self._found is None or self.head is None:
            return pa.table({column: pa.nulls(0) for column in columns})
        where: BooleanExpression = AlwaysTrue()
        for column, values in (among or {}).items():
            where = And(where, one_of(column, values))
        return self._found.rows(where, tuple(columns))

    def partitions(self) -> list[Mapping[str, Any]]:
        """The values of the partition columns, of each partition that has files; no file of rows is read."""
        return [] if self._found is None or self.head is None else self._found.partitions()
