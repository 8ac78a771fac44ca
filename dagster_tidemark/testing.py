"""Helpers for the tests of a project: a local Spark session, frames of a table from a few rows, and the simulator.

Session and frames need Java, but no server, jars or tables. The simulator does not need Java. Does not belong here:
sessions on the lake (`lakehouse.session`), and how the simulator works (`simulation`).
"""

import os
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

import lazy_loader
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from dagster_tidemark.lakehouse.table import Table

if TYPE_CHECKING:
    from dagster_tidemark.simulation.run import CheckFate as CheckFate
    from dagster_tidemark.simulation.run import Run as Run
    from dagster_tidemark.simulation.run import RunFate as RunFate
    from dagster_tidemark.simulation.run import RunPace as RunPace
    from dagster_tidemark.simulation.simulator import Simulation as Simulation

__all__ = ["CheckFate", "Run", "RunFate", "RunPace", "Simulation", "frame_of", "local_session"]

# Imported on first use: the simulator takes two seconds to import, and tests of transforms do not need it.
__getattr__, _, _ = lazy_loader.attach(
    "dagster_tidemark.simulation",
    submod_attrs={"run": ["CheckFate", "Run", "RunFate", "RunPace"], "simulator": ["Simulation"]},
)
_CONF: dict[str, bool | float | int | str | None] = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "1",
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    # For four rows compilation dominates: Java's second compiler and Spark's generated classes.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xshare:auto",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
_ARROW = {
    "bigint": pa.int64(),
    "int": pa.int32(),
    "double": pa.float64(),
    "float": pa.float32(),
    "boolean": pa.bool_(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
}
_DECIMAL = re.compile(r"decimal\((\d+), ?(\d+)\)")


@contextmanager
def local_session() -> Iterator[SparkSession]:
    """Start a Spark session in this process, in UTC, and stop it at the end.

    A fixture of a whole test session shares it:

        @pytest.fixture(scope="session")
        def spark() -> Iterator[SparkSession]:
            with local_session() as session:
                yield session
    """
    remote = os.environ.pop("SPARK_REMOTE", None)  # `eval "$(tidemark env)"` has set it
    try:
        session = SparkSession.builder.master("local[2]").appName("tests").config(map=_CONF).getOrCreate()
    finally:
        if remote is not None:
            os.environ["SPARK_REMOTE"] = remote
    session.sparkContext.pythonExec = sys.executable
    try:
        yield session
    finally:
        session.stop()


def frame_of(session: SparkSession, table: Table, *rows: Mapping[str, object]) -> DataFrame:
    """Return a frame with the columns of a table. A column that a row does not name is null there.

    Raises:
        ValueError: a row names a column that the table does not have, or a column has a nested type.
    """
    for row in rows:
        if unknown := row.keys() - table.columns.keys():
            raise ValueError(
                f"{table.name} has no column {', '.join(sorted(unknown))}; it has {', '.join(table.columns)}"
            )
    schema = pa.schema([(name, _arrow_type(name, kind)) for name, kind in table.columns.items()])
    # Through Arrow: plain rows would start a Python worker, which costs more than the test.
    return session.createDataFrame(pa.Table.from_pylist([dict(row) for row in rows], schema))


def _arrow_type(column: str, kind: str) -> pa.DataType:
    if found := _DECIMAL.fullmatch(kind):
        return pa.decimal128(int(found[1]), int(found[2]))
    if kind not in _ARROW:
        raise ValueError(f"{column} is a {kind}: create this frame with session.createDataFrame")
    return _ARROW[kind]
