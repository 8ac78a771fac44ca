"""What a row is: the grocer's tables. One module per layer."""

from pipelines.schemas import core, marts
from pipelines.tidemark import Table

TABLES = {table.name: table for module in (core, marts) for table in vars(module).values() if isinstance(table, Table)}
"""Every declared table by its name."""
