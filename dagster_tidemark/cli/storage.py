"""Opens Dagster's instance for a command. If the storage does not answer, the command ends with a one-line error."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dagster import DagsterInstance, DagsterInvalidConfigError
from sqlalchemy.exc import SQLAlchemyError

from dagster_tidemark.cli.commands import without_warnings
from dagster_tidemark.errors import Terminal, Transient

_SECONDS_TO_CONNECT = "3"
_DRIVERS = ("psycopg2", "dagster_postgres", "dagster_mysql", "pymysql", "mysql", "sqlite3")


class StorageUnreachable(Transient):
    """Dagster's storage does not answer, so the state of runs and contracts is unknown."""


@contextmanager
def opened_instance() -> Iterator[DagsterInstance]:
    """Open the instance of `DAGSTER_HOME`.

    Raises:
        StorageUnreachable: the instance's storage does not answer.
        Terminal: `DAGSTER_HOME` is no folder, or its `dagster.yaml` is wrong or names a missing package.
    """
    # A suspended PostgreSQL server accepts connections but never answers.
    os.environ.setdefault("PGCONNECT_TIMEOUT", _SECONDS_TO_CONNECT)
    try:
        with without_warnings(), _instance() as instance:
            yield instance
    except Exception as error:  # drivers have their own error classes
        if not isinstance(error, SQLAlchemyError) and type(error).__module__.partition(".")[0] not in _DRIVERS:
            raise
        raise StorageUnreachable(f"Dagster's storage is unreachable: {_first_cause(error)}") from error


@contextmanager
def instance_beside_the_lake() -> Iterator[DagsterInstance]:
    """Open the instance for a command that also uses the lake, whose errors may come from the same drivers.

    Raises:
        StorageUnreachable, Terminal: as in `opened_instance`, only while it is opened.
    """
    with opened_instance() as instance:
        instance.get_runs_count()
    with _instance() as instance:
        yield instance


def _instance() -> DagsterInstance:
    home = os.environ.get("DAGSTER_HOME", "")
    if not Path(home).expanduser().is_absolute() or not Path(home).expanduser().is_dir():
        raise Terminal(f"DAGSTER_HOME={home}: expected the absolute path of an existing folder with dagster.yaml")
    try:
        return DagsterInstance.get()
    except DagsterInvalidConfigError as error:
        said = " ".join(str(error).split())
        raise Terminal(f"dagster.yaml is refused: {said}; compare it with the page Production") from error
    except Exception as error:  # Dagster wraps the error of an import
        missing = _missing_package(error)
        if missing not in _DRIVERS:
            raise
        raise Terminal(
            f"dagster.yaml needs the package {missing}, which is not installed: "
            "pip install 'dagster-tidemark[production]'"
        ) from error


def _missing_package(error: BaseException | None) -> str | None:
    while error is not None:
        if isinstance(error, ModuleNotFoundError):
            return (error.name or "").partition(".")[0]
        error = error.__cause__ or error.__context__
    return None


def _first_cause(error: BaseException) -> str:
    while (before := error.__cause__ or error.__context__) is not None:
        error = before
    return str(error).strip().partition("\n")[0]
