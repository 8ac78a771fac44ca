"""The table type: what a table of the lake declares about itself.

Belongs here: the declaration and what follows from it alone. Plain strings and no pyspark, so that a code
location can load its declarations without paying for Spark's import.
"""

from dataclasses import dataclass

CATALOG = "lake"

LINEAGE = {"source_file": "string", "source_version": "string", "arrived_at": "timestamp", "loaded_by": "string"}
"""Columns of every table that is loaded from files: which object a row came from, and what code loaded it."""


@dataclass(frozen=True)
class Table:
    """An Iceberg table.

    Args:
        name: `namespace.table`; the asset key joined by a dot.
        columns: Column name to Spark SQL type, in order.
        partitioned_by: The column that holds the start of the partition (`hour` timestamp, `day` or `week`
            date), or None.
        row_key: The columns that identify a row.
        comment: One line: what one row is.
    """

    name: str
    columns: dict[str, str]
    row_key: tuple[str, ...]
    partitioned_by: str | None = None
    comment: str = ""

    @property
    def identifier(self) -> str:
        """The table's name in Spark SQL."""
        return f"{CATALOG}.{self.name}"
