"""Metadata for the UI: the columns of tables, and the metadata of materializations.

Does not belong here: metadata of assets without a run (`asset_page`), and check results (`load_check`).
"""

from collections.abc import Mapping
from typing import Any

import dagster as dg

from dagster_tidemark.lakehouse.content import Content
from dagster_tidemark.lakehouse.table import Table
from dagster_tidemark.tags import CONTENT

COLUMNS = "dagster/column_schema"


def column_schema(table: Table, more: Mapping[str, str] | None = None) -> dg.TableSchema:
    """Return a table's columns for the UI.

    Args:
        more: The table's columns that are not declared, with their types.
    """
    columns = {**table.columns, **(more or {})}
    return dg.TableSchema([dg.TableColumn(c, kind, table.comment_on(c) or None) for c, kind in columns.items()])


def partition_metadata(partition: str | None, content: Content) -> dict[str, Any]:
    """Return metadata about a partition, which Dagster plots by partition. Facts about the run are not included."""
    rows = {} if partition is None else {"dagster/partition_row_count": content.rows}
    return {CONTENT: content.version, **rows}


def table_state(snapshot_id: int | None, rows: int | None) -> dict[str, Any]:
    """Return metadata about a whole table.

    Args:
        rows: Number of the table's rows; None if the run has not changed the table.
    """
    counted = {} if rows is None else {"dagster/row_count": rows}
    return {**counted, "snapshot id": str(snapshot_id)}
