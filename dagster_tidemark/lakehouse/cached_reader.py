"""Reader of a table for a long-lived process. It needs no Spark, and reads only after changes.

Does not belong here: writing (`append`), and reading with Spark (`read`).
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
    """Table of the lake as of the last `refresh`; empty before the first `refresh`. Not thread-safe.

    Args:
        lake: Catalog of `append.open_lake`.
        table: The declaration. A table that does not exist yet counts as empty.
    """

    def __init__(self, lake: Catalog, table: Table) -> None:
        self.table = table
        self._lake = lake
        self._found: Appendable | None = None

    def refresh(self) -> bool:
        """Load the newest snapshot for later reads, in some milliseconds. Return True if the snapshot has changed."""
        before = self.head
        try:
            if self._found is None:
                if not self._lake.table_exists(self.table.name):
                    return False
                self._found = Appendable(self._lake, self.table, writes=False)
            else:
                self._found.refresh()
        except NoSuchTableError:  # the table was dropped, and the next writer creates it again
            self._found = None
        return self.head != before

    @property
    def head(self) -> int | None:
        """Snapshot that is read; None if the table has no snapshot."""
        return None if self._found is None else self._found.head

    def rows(self, columns: Sequence[str], among: Mapping[str, Collection[Any]] | None = None) -> pa.Table:
        """Return some columns of the rows that match all conditions of `among`.

        Args:
            among: Column to accepted values. Partitions, files and row groups without an accepted value are skipped.
        """
        if self._found is None or self.head is None:
            return pa.table({column: pa.nulls(0) for column in columns})
        where: BooleanExpression = AlwaysTrue()
        for column, values in (among or {}).items():
            where = And(where, one_of(column, values))
        return self._found.rows(where, tuple(columns))

    def partitions(self) -> list[Mapping[str, Any]]:
        """Return the values of the partition columns, for each partition that has files. Only metadata is read."""
        return [] if self._found is None or self.head is None else self._found.partitions()
