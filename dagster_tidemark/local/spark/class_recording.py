"""A Spark server that runs a sample of a platform's statements, and records the loaded classes.

Belongs here: the statements whose classes an archive should hold. Does not belong here: when they are recorded and used
(`local.spark.class_archive`).
"""

import fcntl
import os
import shutil
import subprocess
import sys
import time
from datetime import UTC, datetime
from decimal import Decimal
from functools import partial
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from dagster_tidemark.lakehouse import catalog, content, read, write
from dagster_tidemark.lakehouse.session import new_session
from dagster_tidemark.lakehouse.table import Table
from dagster_tidemark.local.host.sockets import port_answers
from dagster_tidemark.settings import Settings, load_settings

_HOUR = "2026-10-01-00:00"
_TABLE = Table(
    "recording.rows",
    {"hour": "timestamp", "id": "bigint", "name": "string", "amount": "decimal(18,4)"},
    ("hour", "id"),
    "hour",
)
_SECONDS_TO_START = _SECONDS_TO_WRITE = 300  # some 15 s each on an idle machine; no person waits for them
_KEPT = 3  # newest archives of 200 MB each; checkouts may share the folder


def record(settings: Settings, archive: Path) -> None:
    """Record an archive with a server on its own catalog, unless the archive exists."""
    folder = settings.state_dir / "run" / "classes"  # fixed, so that killed recordings leave only one folder
    with (settings.jars_dir / ".classes.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # checkouts and test runs may share one folder
        shutil.rmtree(folder, ignore_errors=True)
        if not archive.exists():
            folder.mkdir(parents=True)
            written = _recorded(settings, folder)
            shutil.move(written, archive.with_suffix(".part"))
            archive.with_suffix(".part").rename(archive)
            shutil.rmtree(folder)
            for old in sorted(archive.parent.glob("classes-*.jsa"), key=lambda file: file.stat().st_mtime)[:-_KEPT]:
                old.unlink()


def _recorded(settings: Settings, folder: Path) -> Path:
    own = {
        "state_dir": folder,
        "catalog": {},
        "catalog_uri": f"jdbc:sqlite:{folder}/catalog.db",
        "warehouse": f"{folder}/warehouse",
        "spark_remote": f"sc://127.0.0.1:{settings.port_spark}",
    }
    alone, written = settings.model_copy(update=own), folder / "classes.jsa"
    options = f"-XX:ArchiveClassesAtExit={written}", "-XX:TieredStopAtLevel=1"  # every statement runs only once
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("TIDEMARK_CATALOG")}
    server = subprocess.Popen(
        [sys.executable, "-m", "dagster_tidemark.local.spark.server", *options],
        # Without Kafka's jars: such an archive also fits a server with them, but not the other way round.
        env=inherited | alone.exports() | {"TIDEMARK_KAFKA_BOOTSTRAP_SERVERS": ""},
    )
    _wait_for(server, settings.port_spark)
    spark = new_session(alone)
    _use(spark)
    spark.stop()
    server.terminate()
    server.wait(_SECONDS_TO_WRITE)
    return written


def _wait_for(server: "subprocess.Popen[bytes]", port: int) -> None:
    deadline = time.monotonic() + _SECONDS_TO_START
    while not port_answers(port):
        if server.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"the Spark server that records classes did not start (exit code {server.poll()})")
        time.sleep(0.1)


def _use(spark: SparkSession) -> None:
    catalog.ensure(spark, _TABLE)
    hour = datetime(2026, 10, 1, tzinfo=UTC)
    rows = [(hour, number, f"row {number}", Decimal(number)) for number in range(20)]
    frame = spark.createDataFrame(rows, ", ".join(f"{name} {kind}" for name, kind in _TABLE.columns.items()))
    for count in (10, 20):
        write.overwrite(frame.limit(count), _TABLE, [_HOUR], run_id=f"overwrite {count}")
    commit = write.merge(
        frame,
        _TABLE,
        within=partial(_TABLE.predicate, [_HOUR]),
        on=_TABLE.same_key(),
        wins="s.amount > t.amount",
        goes="(s.id < 0)",
        run_id="merge",
    )
    content.content_of(spark, _TABLE, [_HOUR], commit.snapshot_id)
    table = read.read(spark, _TABLE, [_HOUR])
    totals = table.groupBy(F.to_date("hour").alias("day")).agg(F.sum("amount"), F.countDistinct("name"))
    table.join(totals, F.to_date("hour") == F.col("day")).orderBy("id").collect()
    table.mapInArrow(lambda batches: batches, table.schema).persist().count()  # as loads read files


if __name__ == "__main__":
    record(load_settings(), Path(sys.argv[1]))
