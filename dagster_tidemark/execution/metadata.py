"""What the UI shows of a table: its columns, and what a materialization says of it and of its partitions.

Does not belong here: what an asset's page says before any run (`asset_page`), and check results (`load_check`).
"""

from collections.abc import Mapping
from typing import Any

import dagster as dg

from dagster_tidemark.lakehouse.content import Content
from dagster_tidemark.lakehouse.table import Table
from dagster_tidemark.tags import CONTENT

COLUMNS = "dagster/column_schema"


def column_schema(table: Table, more: Mapping[str, str] | None = None) -> dg.TableSchema:
    """A table's columns as the UI shows them.

    Args:
        more: Columns that it has beside the declared ones.
    """
    columns = {**table.columns, **(more or {})}
    return dg.TableSchema([dg.TableColumn(c, kind, table.comment_on(c) or None) for c, kind in columns.items()])


def partition_metadata(partition: str | None, content: Content) -> dict[str, Any]:
    """What a materialization says of its partition. Nothing of its run: Dagster plots it by partition."""
    rows = {} if partition is None else {"dagster/partition_row_count": content.rows}
    return {CONTENT: content.version, **rows}


def table_state(snapshot_id: int | None, rows: int | None) -> dict[str, Any]:
    """What a materialization says of its whole table.

    Args:
        rows: How many it holds; None where the run has changed nothing.
    """
    counted = {} if rows is None else {"dagster/row_count": rows}
    return {**counted, "snapshot id": str(snapshot_id)}
