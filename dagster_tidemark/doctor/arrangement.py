"""Settings, packages and Dagster's instance: what can be checked without the lake."""

import platform
from collections.abc import Iterator
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec

import dagster as dg
import sqlalchemy

from dagster_tidemark.catalog_options import without_login
from dagster_tidemark.dagster_internals.run_storage import queue_limit
from dagster_tidemark.doctor.checks import PRODUCTION_EXTRA, Check, CheckFailed, same_clock
from dagster_tidemark.production_rules import refusals
from dagster_tidemark.settings import Settings

_CONNECT_SECONDS = 5
_SERVER = "SELECT current_user, now(), current_setting('server_version')"
_MISSING = """
SELECT string_agg(privilege || ' on ' || relname, ', ' ORDER BY relname, privilege)
FROM pg_class CROSS JOIN (VALUES ('SELECT'), ('INSERT'), ('UPDATE'), ('DELETE')) AS wanted (privilege)
WHERE relname IN ('runs', 'run_tags', 'event_logs', 'job_ticks', 'kvs') AND relkind = 'r'
  AND NOT has_table_privilege(current_user, pg_class.oid, privilege)
"""
"""The missing privileges on tables of Dagster; null if none is missing, or if there are no tables yet."""


def checks(settings: Settings) -> Iterator[Check]:
    """Yield the checks. Each line that production refuses is a check."""
    refused = refusals(settings)
    for line in refused:
        said, _, remedy = line.partition(": ")
        yield Check("settings", partial(_refuse, said, remedy), "")
    if not refused:
        yield Check("settings", lambda: f"TIDEMARK_ENVIRONMENT={settings.environment}", "")
    yield Check("packages", partial(packages, settings), PRODUCTION_EXTRA)
    yield Check(
        "dagster", partial(dagster_instance, settings), "start Dagster's database; see DAGSTER_HOME/dagster.yaml"
    )


def _refuse(said: str, remedy: str) -> str:
    raise CheckFailed(said, remedy)


def packages(settings: Settings) -> str:
    """Return the versions of Python, Dagster and pyspark.

    Raises:
        CheckFailed: the catalog or Dagster's storage needs a driver that is not installed.
    """
    if settings.catalog_uri.startswith("jdbc:postgresql:") and find_spec("psycopg2") is None:
        raise CheckFailed(
            "TIDEMARK_CATALOG_URI names PostgreSQL, and its driver psycopg2 is not installed", PRODUCTION_EXTRA
        )
    if settings.kafka_bootstrap_servers and find_spec("confluent_kafka") is None:
        raise CheckFailed(
            "TIDEMARK_KAFKA_BOOTSTRAP_SERVERS is set, and confluent-kafka is not installed",
            "pip install 'dagster-tidemark[kafka]'",
        )
    names = ("dagster-tidemark", "dagster", "pyspark", "pyiceberg")
    return ", ".join([f"Python {platform.python_version()}", *(f"{name} {_version(name)}" for name in names)])


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:  # it runs from a folder
        return "of this folder"


def dagster_instance(settings: Settings) -> str:
    """Open the instance of `DAGSTER_HOME`, read its runs, and check the rights on its tables.

    Raises:
        CheckFailed: `DAGSTER_HOME` is not set, the instance's file is refused, or rights are missing.
    """
    if settings.dagster_home is None:
        raise CheckFailed("DAGSTER_HOME is not set", "set it to the folder with dagster.yaml")
    with dg.DagsterInstance.from_config(str(settings.dagster_home)) as instance:
        count, limit = instance.get_runs_count(), queue_limit(instance)
        launcher = type(instance.run_launcher).__name__
        storages = (instance.run_storage, instance.event_log_storage, instance.schedule_storage)
        found = {str(getattr(each, "postgres_url", "")) for each in storages}
    said = [database(url) for url in sorted(found - {""})] or ["SQLite"]
    at_once = "no limit of runs" if limit is None else f"{limit} runs at once"
    return f"{', '.join(said)}; {count} runs, {launcher}, {at_once}"


def database(url: str) -> str:
    """Check one of Dagster's databases on PostgreSQL: rights and clock.

    Raises:
        CheckFailed: rights are missing, or the clocks differ.
    """
    engine = sqlalchemy.create_engine(
        url, poolclass=sqlalchemy.NullPool, connect_args={"connect_timeout": _CONNECT_SECONDS}
    )
    shown = without_login(url)
    with same_clock(shown) as compared, engine.connect() as connection:
        user, at, server = connection.execute(sqlalchemy.text(_SERVER)).one()
        clock = compared(at)
        missing = connection.execute(sqlalchemy.text(_MISSING)).scalar()
    if missing:
        raise CheckFailed(f"{shown}: the user {user} lacks {missing}", f"GRANT these privileges to {user}")
    return f"PostgreSQL {server.split()[0]} at {shown}, {clock}"
