"""Reading of declared tables from the catalog, without Spark.

Belongs here: reading. Does not belong here: the meaning of a difference (`table_changes`).
"""

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchTableError
from sqlalchemy import create_engine, inspect

from dagster_tidemark.catalog_options import sqlalchemy_uri
from dagster_tidemark.errors import Transient
from dagster_tidemark.lakehouse.append import open_lake
from dagster_tidemark.lakehouse.iceberg_schema import stored_of
from dagster_tidemark.lakehouse.session import error_line
from dagster_tidemark.lakehouse.table import Table
from dagster_tidemark.lakehouse.table_changes import Stored
from dagster_tidemark.settings import Settings

_AT_ONCE = 8
_SECONDS_TO_CONNECT = 5


class CatalogUnreadable(Transient):
    """Error if tables cannot be compared with their declarations, because the catalog or metadata is unreadable."""


def stored_tables(settings: Settings, tables: Iterable[Table]) -> dict[str, Stored]:
    """Return the columns, partitioning and row key of each declared table that the catalog has.

    Returns:
        The stored tables by name, without tables that are missing in the catalog.

    Raises:
        CatalogUnreadable: the catalog or the metadata of a table cannot be read; the message names the cause.
    """
    lake = opened_catalog(settings)
    if lake is None:
        return {}
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        found = list(pool.map(lambda table: _look(lake, table.name), tables))
    if failed := [why for _, why in found if isinstance(why, str)]:
        raise CatalogUnreadable(f"the declared columns cannot be compared with the tables. {'. '.join(failed)}")
    return {name: stored for name, stored in found if isinstance(stored, Stored)}


def table_names(lake: Catalog) -> list[str]:
    """Return the name of each table of a catalog."""
    return [".".join(each) for each in _identifiers(lake, ())]


def _identifiers(lake: Catalog, above: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    for namespace in lake.list_namespaces(above):
        if len(namespace) > len(above):
            yield from lake.list_tables(namespace)
            yield from _identifiers(lake, namespace)


def opened_catalog(settings: Settings) -> Catalog | None:
    """Open the catalog. Return None if the catalog has never had a table."""
    try:
        if settings.catalog_options["type"] != "jdbc":
            return open_lake(settings)
        uri = sqlalchemy_uri(settings.catalog_uri)
        if uri.startswith("postgresql"):
            uri += f"{'&' if '?' in uri else '?'}connect_timeout={_SECONDS_TO_CONNECT}"
        elif not Path(settings.catalog_shown.removeprefix("jdbc:sqlite:")).exists():
            return None  # a connection would create the file
        engine = create_engine(uri)
        has_tables = inspect(engine).has_table("iceberg_tables")
        engine.dispose()
        return open_lake(settings, uri=uri, init_catalog_tables="false") if has_tables else None
    except Exception as error:  # drivers and catalogs raise errors of any type
        raise CatalogUnreadable(
            "the declared columns cannot be compared with the tables. "
            f"The catalog {settings.catalog_shown} does not answer: {error_line(error)}"
        ) from error


def _look(lake: Catalog, name: str) -> tuple[str, Stored | str | None]:
    """Return a table's name and the table. Instead of the table, return why it is unreadable, or None if missing."""
    try:
        return name, stored_of(lake.load_table(name))
    except NoSuchTableError:
        return name, None
    except Exception as error:  # the catalog, the store or the file fails
        return name, f"The metadata of {name} cannot be read: {error_line(error)}"
