"""The catalog and the warehouse through pyiceberg, as shifts and `status` use them."""

from datetime import datetime

import pyarrow as pa
import sqlalchemy

from dagster_tidemark.catalog_options import sqlalchemy_uri
from dagster_tidemark.doctor.checks import Check, CheckFailed, same_clock
from dagster_tidemark.doctor.scratch import drop, drop_old, scratch_namespace
from dagster_tidemark.lakehouse.append import open_lake
from dagster_tidemark.settings import Settings

_ROWS = pa.table({"id": pa.array([1, 2], pa.int64())})
_CONNECT_SECONDS = 5


def check(settings: Settings) -> Check:
    """Return the check."""
    remedy = f"start the catalog ({settings.catalog_shown}); see TIDEMARK_CATALOG_URI and TIDEMARK_WAREHOUSE"
    return Check("catalog", lambda: catalog(settings), remedy)


def catalog(settings: Settings) -> str:
    """Create, append to, read and drop a table in a new namespace.

    Raises:
        CheckFailed: the table has other rows than were written, or the clocks differ.
    """
    clock = _clock(settings)
    lake, namespace = open_lake(settings), scratch_namespace()
    removed = drop_old(lake, settings)
    try:
        lake.create_namespace(namespace)
        table = lake.create_table(f"{namespace}.written", schema=_ROWS.schema)
        table.append(_ROWS)
        found = lake.load_table(f"{namespace}.written").scan().to_arrow().num_rows
    finally:
        drop(lake, settings, namespace)
    if found != _ROWS.num_rows:
        raise CheckFailed(
            f"a table has {found} rows after {_ROWS.num_rows} were written", "look for a cache before the catalog"
        )
    left = f", and removed {removed} tables of interrupted checks" if removed else ""
    return f"{settings.catalog_shown}: created, appended, read and dropped a table{left}{clock}"


def _clock(settings: Settings) -> str:
    if not settings.catalog_uri.startswith("jdbc:postgresql:"):
        return ""
    engine = sqlalchemy.create_engine(
        sqlalchemy_uri(settings.catalog_uri),
        poolclass=sqlalchemy.NullPool,
        connect_args={"connect_timeout": _CONNECT_SECONDS},
    )
    with same_clock(settings.catalog_shown) as compared, engine.connect() as connection:
        at: datetime = connection.execute(sqlalchemy.text("SELECT now()")).scalar_one()
        return f"; {compared(at)}"
