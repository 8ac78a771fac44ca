"""Figures of tables from their metadata in the catalog: commits, snapshots, files. No Spark is needed.

Belongs here: reading, and the debt of maintenance. Does not belong here: metrics (`metric_families`).
"""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dagster_tidemark.settings import Settings

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table


@dataclass(frozen=True)
class TableFigures:
    """A table's figures, as of its current snapshot.

    Args:
        commits: Number of commits since the table was created (Iceberg's sequence number). Rises with each commit.
        snapshots: Number of snapshots that have not expired.
        data_files: Number of data files.
        delete_files: Number of files with deleted rows, which each read applies.
        size_bytes: Size of the data files.
        rows: Number of rows.
    """

    commits: int
    snapshots: int
    data_files: int
    delete_files: int
    size_bytes: int
    rows: int


_AT_ONCE = 8  # as `lakehouse.stored_tables`: one after the other, 150 tables may take 20 s from a store


def table_figures(settings: Settings, assets: Iterable[str]) -> dict[str, TableFigures | str]:
    """Return the figures of each asset's table; instead of figures, why the table's metadata cannot be read.

    Assets without a table are left out.

    Raises:
        CatalogUnreadable: the catalog does not answer.
    """
    from dagster_tidemark.lakehouse.stored_tables import opened_catalog

    lake = opened_catalog(settings)
    if lake is None:  # the catalog has never had a table
        return {}
    named = [asset for asset in assets if "/" in asset or "." in asset]
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        found = dict(zip(named, pool.map(lambda asset: _look(lake, asset.replace("/", ".")), named), strict=True))
    return {asset: each for asset, each in found.items() if each is not None}


def _look(lake: Catalog, name: str) -> TableFigures | str | None:
    """Return a table's figures, or why they cannot be read, or None if there is no table."""
    from pyiceberg.exceptions import NoSuchTableError

    try:
        return figures_of(lake.load_table(name))
    except NoSuchTableError:
        return None
    except Exception as error:  # the catalog, the store or the file fails; the text may hold a login
        return type(error).__name__


def figures_of(table: Table) -> TableFigures:
    """Return the figures of a table."""
    current = table.current_snapshot()
    summary = current.summary if current is not None else None

    def _total(name: str) -> int:
        return int(summary[name] or 0) if summary is not None and name in summary.additional_properties else 0

    return TableFigures(
        commits=getattr(table.metadata, "last_sequence_number", 0),  # tables of format 1 have none
        snapshots=len(table.metadata.snapshots),
        data_files=_total("total-data-files"),
        delete_files=_total("total-delete-files"),
        size_bytes=_total("total-files-size"),
        rows=_total("total-records"),
    )
