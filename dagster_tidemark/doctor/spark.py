"""The Spark server: its versions, a job through the catalog, and its Python workers."""

import platform
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from datetime import UTC
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from dagster_tidemark.doctor.checks import Check, CheckFailed, same_clock
from dagster_tidemark.doctor.scratch import drop, scratch_namespace
from dagster_tidemark.lakehouse.append import open_lake
from dagster_tidemark.lakehouse.session import ICEBERG_VERSION, opened_session, without_token
from dagster_tidemark.lakehouse.shipping import shipped
from dagster_tidemark.lakehouse.table import CATALOG
from dagster_tidemark.settings import Settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_VERSIONS = """
SELECT current_timestamp() AS at, java_method('java.lang.System', 'getProperty', 'java.version') AS java,
       java_method('org.apache.iceberg.IcebergBuild', 'version') AS iceberg
"""
_JAVA = ("17", "21")
_NO_CATALOG = ("CATALOG_NOT_FOUND", f"plugin for '{CATALOG}'", "REQUIRES_SINGLE_PART_NAMESPACE")
_TASKS = 8  # more than one per worker host of a small cluster
_PYARROW = 20
_CONF = "print its configuration with `tidemark spark-conf`, and its jars with `tidemark jars`"
_PYTHON = (
    "set PYSPARK_PYTHON in the environment of the Connect server to a Python {python} that has pyspark, pyarrow and "
    "numpy on every worker (`tidemark spark-conf` prints it)"
)


def checks(settings: Settings) -> list[Check]:
    """Return the checks. Each opens its own session, so a hanging check does not stop the others."""
    at = without_token(settings.spark_remote or "")
    remedy = f"start the Spark Connect server at {at or 'SPARK_REMOTE'}, give it free workers, and read its log"
    return [
        Check("spark", lambda: server(settings), remedy),
        Check("spark job", lambda: job(settings), f"{remedy}; {_CONF}"),
        Check("spark workers", lambda: workers(settings), f"{remedy}; {_PYTHON.format(python=_minor())}"),
    ]


def server(settings: Settings) -> str:
    """Return the versions of Spark, Iceberg and Java.

    Raises:
        CheckFailed: a version is not that of this machine, or the clocks differ.
    """
    import pyspark

    with opened_session(settings) as spark:
        with same_clock("Spark") as compared:
            [row] = _selected(spark)
            clock = compared(row.at.astimezone(UTC))
        found = str(spark.version)
    if found != pyspark.__version__:
        raise CheckFailed(
            f"the server is Spark {found}, and this machine has pyspark {pyspark.__version__}",
            "install the same version on both sides: Spark in the server's image, pyspark in this one",
        )
    # IcebergBuild.version() returns the line of a build: "Apache Iceberg 1.12.0 (commit ...)" or the number alone.
    if row.iceberg and ICEBERG_VERSION not in row.iceberg:
        raise CheckFailed(f"the server has Iceberg {row.iceberg}, expected {ICEBERG_VERSION}", _CONF)
    if row.java.partition(".")[0] not in _JAVA:
        raise CheckFailed(
            f"the server runs on Java {row.java}, expected {' or '.join(_JAVA)}", "set JAVA_HOME on its host"
        )
    return f"Spark {found}, Iceberg {ICEBERG_VERSION}, Java {row.java}, {clock}"


def _selected(spark: "SparkSession") -> list[Any]:
    try:
        return spark.sql(_VERSIONS).collect()
    except Exception as error:  # the client has many error classes
        if "IcebergBuild" in str(error):
            raise CheckFailed("the server has no Iceberg on its class path", _CONF) from error
        raise


def job(settings: Settings) -> str:
    """Write and read a table by a job through the catalog, and drop the table.

    Raises:
        CheckFailed: the server has no catalog of this name, or reads other rows than were written.
    """
    namespace = scratch_namespace()
    table = f"{CATALOG}.{namespace}.written"
    with opened_session(settings) as spark:
        try:
            spark.sql(f"CREATE NAMESPACE {CATALOG}.{namespace}").collect()
            spark.sql(f"CREATE TABLE {table} (id bigint) USING iceberg").collect()
            spark.sql(f"INSERT INTO {table} SELECT id FROM range(0, 100, 1, 4)").collect()
            [row] = spark.sql(f"SELECT count(*) AS n FROM {table}").collect()
            # This process must read the rows of the server, too: both name the same catalog and warehouse.
            seen = open_lake(settings).load_table(f"{namespace}.written").scan().to_arrow().num_rows
        except Exception as error:  # the client has many error classes
            if any(name in str(error) for name in _NO_CATALOG):
                raise CheckFailed(f"the server has no catalog {CATALOG}", _CONF) from error
            if fault := _fault_of_workers(error):
                raise fault from error
            if type(error).__name__ in ("NoSuchTableError", "NoSuchNamespaceError"):
                raise CheckFailed(
                    "the server wrote a table that this machine does not find",
                    "give both the same TIDEMARK_CATALOG_URI and TIDEMARK_WAREHOUSE",
                ) from error
            raise
        finally:
            # From here first: Spark's PURGE is a job, which takes a minute on a busy cluster. It removes only a table
            # of another catalog. The next doctor removes remains of failed statements.
            with suppress(Exception):
                drop(open_lake(settings), settings, namespace)
            with suppress(Exception):
                spark.sql(f"DROP TABLE IF EXISTS {table} PURGE").collect()
                spark.sql(f"DROP NAMESPACE IF EXISTS {CATALOG}.{namespace}").collect()
    if row.n != 100 or seen != 100:
        raise CheckFailed(f"{table}: 100 rows written, {row.n} read by Spark, {seen} here", _CONF)
    return f"wrote and read 100 rows through {settings.catalog_shown}"


def workers(settings: Settings) -> str:
    """Return the versions of the workers' Python and of its packages.

    Raises:
        CheckFailed: a worker has another Python than this machine, or lacks a package.
    """
    columns = "host string, python string, pyspark string, pyarrow string, numpy string"
    with opened_session(settings) as spark:
        try:
            rows = spark.range(0, _TASKS, 1, _TASKS).mapInArrow(shipped(_versions), columns).collect()
        except Exception as error:  # the client has many error classes
            raise _fault_of_workers(error) or error from error
    here, found = _minor(), sorted({str(row.python) for row in rows})
    if other := [each for each in found if ".".join(each.split(".")[:2]) != here]:
        raise CheckFailed(f"workers run Python {', '.join(other)}, this machine {here}", _PYTHON.format(python=here))
    if missing := sorted({name for row in rows for name in ("pyspark", "pyarrow", "numpy") if not row[name]}):
        raise CheckFailed(f"workers lack {', '.join(missing)}", _PYTHON.format(python=here))
    old = sorted({row.pyarrow for row in rows if int(row.pyarrow.partition(".")[0]) < _PYARROW})
    if old:
        raise CheckFailed(
            f"workers have pyarrow {', '.join(old)}", f"install pyarrow {_PYARROW} or newer on every worker"
        )
    hosts = {row.host for row in rows}
    return f"Python {', '.join(found)}, pyarrow {rows[0].pyarrow} on {len(hosts)} host{'s' if len(hosts) > 1 else ''}"


def _fault_of_workers(error: Exception) -> CheckFailed | None:
    said, python = str(error), _minor()
    if "SerializedLambda" in said:
        # With this variable Spark's launcher puts the jars of the Connect client on the class path of executors.
        return CheckFailed(
            "executors have the jars of Spark's Connect client on their class path",
            "remove SPARK_REMOTE from the environment of Spark's master and workers, and restart them",
        )
    if missing := re.search(r"No module named '(\w+)|PACKAGE_NOT_INSTALLED\] (\w+)", said):
        return CheckFailed(f"workers lack the package {missing[1] or missing[2]}", _PYTHON.format(python=python))
    if "PYTHON_VERSION_MISMATCH" in said:
        return CheckFailed(f"workers have another Python than this machine ({python})", _PYTHON.format(python=python))
    if program := re.search(r"Cannot run program \"?([^\"\s]+)", said):
        return CheckFailed(f"workers cannot start {program[1]}", _PYTHON.format(python=python))
    return None


def _versions(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Return one row for each batch: host, and versions of the worker. An absent package is empty."""
    import importlib.metadata
    import platform
    import socket

    import pyarrow

    def installed(name: str) -> str:
        try:
            return importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            # Spark puts its own pyspark on the path of workers, without metadata.
            return "of Spark" if name == "pyspark" else ""

    for _ in batches:
        row = [socket.gethostname(), platform.python_version(), *map(installed, ("pyspark", "pyarrow", "numpy"))]
        names = ["host", "python", "pyspark", "pyarrow", "numpy"]
        yield pyarrow.RecordBatch.from_arrays([pyarrow.array([value]) for value in row], names=names)


def _minor() -> str:
    return ".".join(platform.python_version_tuple()[:2])
