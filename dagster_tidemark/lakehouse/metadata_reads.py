"""Tables seen directly, past Spark: their metadata, and a few of their rows.

What Spark's server answers in 50 to 500 ms takes 3 to 150 ms here, and is the same: the catalog is asked anew each
time, and a snapshot is a snapshot. It is never the last word. What cannot be seen from here (another catalog than the
server's, a store that does not answer, too many rows) is None, and whoever asked asks Spark.

Belongs here: looking. Does not belong here: commits (`append`), and what the answers mean.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from typing import TYPE_CHECKING, TypeVar, cast
from urllib.parse import urlsplit
from weakref import WeakKeyDictionary

from dagster_tidemark.catalog_options import sqlalchemy_uri
from dagster_tidemark.lakehouse.session import settings_of, without_token
from dagster_tidemark.lakehouse.table import CATALOG, Table
from dagster_tidemark.settings import Settings

if TYPE_CHECKING:
    import pyarrow as pa
    from pyiceberg.catalog import Catalog
    from pyiceberg.expressions import BooleanExpression
    from pyiceberg.table import Table as IcebergTable
    from pyspark.sql import SparkSession

MOST_ROWS = 100_000
MOST_FILES = 200
"""Above these a query of Spark's is faster, or needs less memory."""

_MOST_CONDITIONS = 50
_SECONDS_TO_CONNECT = 3
_THIS_HOST = ("127.0.0.1", "localhost")
_T = TypeVar("_T")
_lakes: WeakKeyDictionary[SparkSession, Catalog | None] = WeakKeyDictionary()

logger = logging.getLogger(__name__)


def loaded(spark: SparkSession, table: Table) -> IcebergTable | None:
    """A table as it is now; None if that cannot be seen, or if it is not there."""
    return _seen(spark, lambda lake: lake.load_table(table.name))


def few_rows(
    spark: SparkSession,
    table: Table,
    columns: Sequence[str],
    where: Sequence[Mapping[str, object]],
    snapshot_id: int | None = None,
) -> pa.Table | None:
    """Rows of a table, if they are few; None where Spark has to say.

    Args:
        where: Values by column; a row is meant that has all of one of these. No value: null.
        snapshot_id: The snapshot to read; None for the newest of the table, or of its branch.
    """
    if not 0 < len(where) <= _MOST_CONDITIONS:
        return None

    from pyiceberg.io.pyarrow import ArrowScan

    def look(lake: Catalog) -> pa.Table | None:
        found = lake.load_table(table.name)
        ref = found.metadata.refs.get(table.branch) if table.branch else None
        at = snapshot_id if snapshot_id is not None or ref is None else ref.snapshot_id
        if at is None and table.branch:
            return None  # Spark names the branch that is missing
        if at is not None and found.metadata.snapshot_by_id(at) is None:
            return None  # it has expired
        scan = found.scan(any_of(where), selected_fields=tuple(columns), snapshot_id=at)
        files = list(scan.plan_files())
        if len(files) > MOST_FILES or sum(task.file.record_count for task in files) > MOST_ROWS:
            return None
        # Not through the scan's own ways: those would plan it once more.
        return ArrowScan(found.metadata, found.io, scan.projection(), scan.row_filter).to_table(files)

    return _seen(spark, look)


def _seen(spark: SparkSession, look: Callable[[Catalog], _T]) -> _T | None:
    from pyiceberg.exceptions import NoSuchTableError

    if spark not in _lakes:
        _lakes[spark] = _opened(spark)
    lake = _lakes[spark]
    try:
        return look(lake) if lake else None
    except NoSuchTableError:
        return None
    except Exception as error:  # of the catalog, the store or a file; whether it is a fault, Spark says
        _lakes[spark] = None  # not once more: to wait for what does not answer takes longer than to ask Spark
        said = without_token(f"{type(error).__name__}: {error}").partition("\n")[0]
        logger.warning("the rest of this session asks Spark about tables, which cannot be seen directly: %s", said)
        return None


def _opened(spark: SparkSession) -> Catalog | None:
    """The catalog of the session's server; None where it is another one than that of these settings."""
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
    except Exception as error:  # no driver for it is installed here, or it does not answer
        logger.info("tables are seen through Spark only: %s", type(error).__name__)
        return None


def _told(spark: SparkSession, option: str) -> str | None:
    return spark.conf.get(f"spark.sql.catalog.{CATALOG}.{option}", None)


def _impatient(settings: Settings) -> dict[str, str] | None:
    """Return options with which a database that does not answer is given up; None where it cannot be seen from here."""
    if settings.catalog_options["type"] != "jdbc":
        return {}
    uri = sqlalchemy_uri(settings.catalog_uri)
    if uri.startswith("sqlite:") and urlsplit(settings.spark_remote or "sc://localhost").hostname not in _THIS_HOST:
        return None  # a file of that name is here another file
    if uri.startswith("postgresql"):
        uri += f"{'&' if '?' in uri else '?'}connect_timeout={_SECONDS_TO_CONNECT}"
    return {"uri": uri, "init_catalog_tables": "false"}


def any_of(where: Sequence[Mapping[str, object]]) -> BooleanExpression:
    """Return a condition that matches rows with all values of one of these mappings; no value means null."""
    from pyiceberg.expressions import AlwaysTrue, And, BooleanExpression, Or

    from dagster_tidemark.lakehouse.append import equal, is_null

    def all_of(values: Mapping[str, object]) -> BooleanExpression:
        every = [is_null(c) if value is None else equal(c, value) for c, value in values.items()]
        return reduce(And, every, cast(BooleanExpression, AlwaysTrue()))

    return reduce(Or, map(all_of, where))
