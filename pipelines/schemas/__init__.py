"""What a row is: the grocer's tables. One module per layer."""

from pipelines.lakehouse.tables import Table
from pipelines.schemas import core, marts

TABLES = {table.name: table for module in (core, marts) for table in vars(module).values() if isinstance(table, Table)}
"""Every declared table by its name."""
