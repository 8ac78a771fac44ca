"""Direct reads of tables without Spark: their metadata, and a few of their rows.

A read takes 3 to 150 ms here, and 50 to 500 ms through Spark's server. The results are the same, because each read
queries the catalog again, and snapshots do not change. A direct read may be impossible: the server has a different
catalog, the store does not answer, or the table has too many rows. Then the result is None, and the caller queries
Spark.

Belongs here: reading. Does not belong here: commits (`append`), and the meaning of the results.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from typing import TYPE_CHECKING, TypeVar, cast
from urllib.parse import urlsplit
from weakref import WeakKeyDictionary

from dagster_tidemark.catalog_options import sqlalchemy_uri
from dagster_tidemark.lakehouse.session import error_line, settings_of
from dagster_tidemark.lakehouse.table import CATALOG, Table
from dagster_tidemark.settings import Settings

if TYPE_CHECKING:
    import pyarrow as pa
    from pyiceberg.catalog import Catalog
    from pyiceberg.expressions import BooleanExpression
    from pyiceberg.table import Table as IcebergTable
    from pyiceberg.table.snapshots import Snapshot
    from pyspark.sql import SparkSession

    from dagster_tidemark.lakehouse.table_changes import Stored

MOST_ROWS = 100_000
MOST_FILES = 200
"""Above these limits, a Spark query is faster or needs less memory."""

_MOST_CONDITIONS = 50
_SECONDS_TO_CONNECT = 3
_CATALOG_IS_NEW = ("no such table: iceberg_tables", 'relation "iceberg_tables" does not exist')
"""Errors of SQLite and PostgreSQL before the server's first use of a JDBC catalog, which creates its tables."""
_THIS_HOST = ("127.0.0.1", "localhost")
_T = TypeVar("_T")
_lakes: WeakKeyDictionary[SparkSession, Catalog | None] = WeakKeyDictionary()

logger = logging.getLogger(__name__)


def loaded(spark: SparkSession, table: Table) -> IcebergTable | None:
    """Return the current state of a table; None if the table does not exist or cannot be read directly."""
    return _seen(spark, lambda lake: lake.load_table(table.name))


def properties_of(snapshot: Snapshot) -> Mapping[str, str]:
    """Return the properties in a snapshot's summary, without the operation."""
    return snapshot.summary.additional_properties if snapshot.summary else {}


def stored(spark: SparkSession, table: Table) -> Stored | None:
    """Return a table as plain data; None if the table does not exist or cannot be read directly."""
    from dagster_tidemark.lakehouse.iceberg_schema import stored_of

    found = loaded(spark, table)
    return stored_of(found) if found else None


def few_rows(
    spark: SparkSession,
    table: Table,
    columns: Sequence[str],
    where: Sequence[Mapping[str, object]],
    snapshot_id: int | None = None,
) -> pa.Table | None:
    """Return rows of a table if there are only a few; None if the caller must query Spark.

    Args:
        where: Alternative conditions, each a mapping of columns to values. A row matches if it has all values of one
            mapping. The value None matches null.
        snapshot_id: The snapshot to read; None for the newest snapshot of the table or of its branch.
    """
    if not 0 < len(where) <= _MOST_CONDITIONS:
        return None

    from pyiceberg.io.pyarrow import ArrowScan

    def look(lake: Catalog) -> pa.Table | None:
        found = lake.load_table(table.name)
        ref = found.metadata.refs.get(table.branch) if table.branch else None
        at = snapshot_id if snapshot_id is not None or ref is None else ref.snapshot_id
        if at is None and table.branch:
            return None  # Spark reports the missing branch
        if at is not None and found.metadata.snapshot_by_id(at) is None:
            return None  # the snapshot has expired
        scan = found.scan(any_of(where), selected_fields=tuple(columns), snapshot_id=at)
        files = list(scan.plan_files())
        if len(files) > MOST_FILES or sum(task.file.record_count for task in files) > MOST_ROWS:
            return None
        # A method of the scan would plan the files a second time.
        return ArrowScan(found.metadata, found.io, scan.projection(), scan.row_filter).to_table(files)

    return _seen(spark, look)


def rows_held(spark: SparkSession, table: Table, partitions: Sequence[Mapping[str, object]]) -> list[int] | None:
    """Return the number of rows in the data files of each partition; None if the caller must query Spark.

    Args:
        partitions: Values of the partition columns, one mapping per partition.
    """
    if not 0 < len(partitions) <= _MOST_CONDITIONS:
        return None

    from pyiceberg.partitioning import PartitionFieldValue, PartitionKey

    def look(lake: Catalog) -> list[int] | None:
        found = lake.load_table(table.name)
        spec, schema = found.spec(), found.schema()
        names = {field.field_id: schema.find_column_name(field.source_id) for field in spec.fields}
        if table.branch or [names[field.field_id] for field in spec.fields] != list(table.partition_columns):
            return None
        counts = Counter[object]()
        for task in found.scan(any_of(partitions)).plan_files():
            if task.file.spec_id != spec.spec_id:
                return None
            counts[task.file.partition] += task.file.record_count
        keys = (
            PartitionKey([PartitionFieldValue(f, values[names[f.field_id] or ""]) for f in spec.fields], spec, schema)
            for values in partitions
        )
        return [counts[key.partition] for key in keys]

    return _seen(spark, look)


def catalog_of(spark: SparkSession) -> Catalog | None:
    """Return the catalog of the session's server; None if it cannot be reached directly."""
    if spark not in _lakes:
        _lakes[spark] = _opened(spark)
    return _lakes[spark]


def _seen(spark: SparkSession, look: Callable[[Catalog], _T]) -> _T | None:
    from pyiceberg.exceptions import NoSuchTableError

    lake = catalog_of(spark)
    try:
        return look(lake) if lake else None
    except NoSuchTableError:
        return None
    except Exception as error:  # any fault; if it is real, Spark's read reports it
        if any(said in str(error) for said in _CATALOG_IS_NEW):
            return None
        _lakes[spark] = None  # do not try again, because a timeout takes longer than a Spark query
        said = error_line(error)
        logger.warning("reading table metadata through Spark for the rest of this session: %s", said)
        return None


def _opened(spark: SparkSession) -> Catalog | None:
    """Return the catalog of the session's server; None if it is not the catalog of the settings."""
    settings = settings_of(spark)
    if settings is None or _told(spark, "type") != settings.catalog_options["type"]:
        return None
    if (_told(spark, "uri") or "") != settings.catalog_login[0]:
        return None
    more = _impatient(settings)
    if more is None:
        return None
    try:
        from dagster_tidemark.lakehouse.append import open_lake

        return open_lake(settings, **more)
    except Exception as error:  # the catalog's driver is not installed here, or the catalog does not answer
        logger.info("reading table metadata through Spark only: %s", type(error).__name__)
        return None


def _told(spark: SparkSession, option: str) -> str | None:
    return spark.conf.get(f"spark.sql.catalog.{CATALOG}.{option}", None)


def _impatient(settings: Settings) -> dict[str, str] | None:
    """Return catalog options with a short timeout; None if the catalog's database is not reachable from this host."""
    if settings.catalog_options["type"] != "jdbc":
        return {}
    uri = sqlalchemy_uri(settings.catalog_uri)
    if uri.startswith("sqlite:") and urlsplit(settings.spark_remote or "sc://localhost").hostname not in _THIS_HOST:
        return None  # the file is on the server's host; a file with this name here would differ
    if uri.startswith("postgresql"):
        uri += f"{'&' if '?' in uri else '?'}connect_timeout={_SECONDS_TO_CONNECT}"
    return {"uri": uri, "init_catalog_tables": "false"}


def any_of(where: Sequence[Mapping[str, object]]) -> BooleanExpression:
    """Return a condition that matches rows with all values of at least one mapping. The value None matches null."""
    from pyiceberg.expressions import AlwaysTrue, And, BooleanExpression, Or

    from dagster_tidemark.lakehouse.append import equal, is_null

    def all_of(values: Mapping[str, object]) -> BooleanExpression:
        every = [is_null(c) if value is None else equal(c, value) for c, value in values.items()]
        return reduce(And, every, cast(BooleanExpression, AlwaysTrue()))

    return reduce(Or, map(all_of, where))
