"""The table type: what a table of the lake declares about itself.

Belongs here: the declaration and what follows from it alone. Plain strings and no pyspark, so that a code
location can load its declarations without paying for Spark's import.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import timedelta

CATALOG = "lake"

LINEAGE = {"source_file": "string", "source_version": "string", "arrived_at": "timestamp", "loaded_by": "string"}
"""Columns of every table that is loaded from files: which object a row came from, and what code loaded it."""


@dataclass(frozen=True)
class Retention:
    """How many old snapshots a table keeps. Each keeps alive the metadata and the rows of its time.

    Args:
        newest: So many of the newest, however old.
        held_for: And every one for so long after the next commit took its place, however many commits follow: longer
            than runs take. A run whose first snapshot has expired begins again.
        batch: Older ones expire so many at a time.
    """

    newest: int = 1_000
    held_for: timedelta = timedelta(hours=1)
    batch: int = 500


@dataclass(frozen=True)
class Table:
    """An Iceberg table.

    Args:
        name: `namespace.table`; the asset key joined by a dot.
        columns: Column name to Spark SQL type, in order.
        partitioned_by: The column that holds the start of the partition (of an hour a timestamp, of a day or week a
            date), or None.
        row_key: The columns that identify a row.
        comment: One line: what one row is.
        stored_by: The columns its files are kept apart by, where these are not `partitioned_by`.
        retention: Which old snapshots are kept.
        added: Those of `columns` that nobody declared: a load has found them in files (`NewColumns.ADD`).
    """

    name: str
    columns: dict[str, str]
    row_key: tuple[str, ...]
    partitioned_by: str | None = None
    comment: str = ""
    stored_by: tuple[str, ...] = ()
    retention: Retention = Retention()
    added: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        by = self.partitioned_by
        if by is not None and self.columns.get(by) not in ("timestamp", "date"):
            raise ValueError(
                f"table {self.name}: {by}, which it is partitioned by, has to be a timestamp or date column"
            )
        if self.partitioned_by and not self.stored_by:
            object.__setattr__(self, "stored_by", (self.partitioned_by,))

    @property
    def identifier(self) -> str:
        """The table's name in Spark SQL."""
        return f"{CATALOG}.{self.name}"

    @property
    def _is_by_hour(self) -> bool:
        return self.partitioned_by is not None and self.columns[self.partitioned_by] == "timestamp"

    def partition_literal(self, partition: str) -> str:
        """The SQL literal of a partition key in the partition column."""
        if self._is_by_hour:
            return f"TIMESTAMP '{partition[:10]} {partition[11:13]}:00:00'"
        return f"DATE '{partition}'"

    @property
    def partition_key_sql(self) -> str:
        """A SQL expression for the partition key of a row (null for an unpartitioned table)."""
        return self._key_sql(self.partitioned_by and quoted(self.partitioned_by))

    @property
    def partition_key_of_metadata_sql(self) -> str:
        """The same for a row of Iceberg's metadata table `partitions`."""
        return self._key_sql(self.partitioned_by and f"partition.{quoted(self.partitioned_by)}")

    def _key_sql(self, column: str | None) -> str:
        if column is None:
            return "CAST(NULL AS STRING)"
        pattern = "yyyy-MM-dd-HH:00" if self._is_by_hour else "yyyy-MM-dd"
        return f"date_format({column}, '{pattern}')"

    def partition_start_sql(self, key: str) -> str:
        """A SQL expression for the partition column, from a column that holds a partition key."""
        if self._is_by_hour:
            # A cast, since a pattern takes ten times as long.
            return f"CAST(concat(left({key}, 10), ' ', substr({key}, 12)) AS TIMESTAMP)"
        return f"to_date({key})"

    def same_key(self) -> str:
        """A SQL condition on rows `s` and `t`: they have the same key."""
        return " AND ".join(f"t.{c} = s.{c}" for c in map(quoted, self.row_key))

    def predicate(self, partitions: Collection[str] | None, of: str | None = None) -> str:
        """A SQL condition that is true for the rows of these partitions; None means the whole table.

        Args:
            of: The table's alias, where its columns need one.

        Raises:
            ValueError: partitions of an unpartitioned table were asked for, or none at all.
        """
        if partitions is None:
            return "true"
        if not self.partitioned_by or not partitions:
            raise ValueError(f"{self.name} has no partitions {sorted(partitions)}")
        literals = [self.partition_literal(p) for p in sorted(partitions)]
        column = f"{of}.{quoted(self.partitioned_by)}" if of else quoted(self.partitioned_by)
        # Iceberg prunes by a range in one comparison a file, by a long IN in one a literal.
        return f"{column} BETWEEN {literals[0]} AND {literals[-1]} AND {column} IN ({', '.join(literals)})"


def as_ddl(columns: Mapping[str, str]) -> str:
    """Columns as Spark's schemas are written; any name may be a word of SQL's."""
    return ", ".join(f"{quoted(name)} {kind}" for name, kind in columns.items())


def quoted(name: str) -> str:
    """A column's name in SQL."""
    return f"`{name}`"
