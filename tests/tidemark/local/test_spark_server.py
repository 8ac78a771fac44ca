"""The Spark server of the platform: as much memory as it is given, and nothing kept of a killed run."""

import os
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from dagster_tidemark.local.spark.jars import fetch_jars
from dagster_tidemark.local.spark.server import command, environment, prepare, work_dir
from dagster_tidemark.settings import Settings
from tests.conftest import end_service, make_settings, port_answers_within

CLIENT = """
import sys, time
from pyspark.sql import SparkSession
session = SparkSession.builder.remote(sys.argv[1]).create()
session.range(3).createOrReplaceTempView("mine")
print(session.table("mine").count(), flush=True)
time.sleep(300)
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Settings, psutil.Process]]:
    """A server with 640 MB that drops a session after ten seconds of silence, where ours waits 20 minutes."""
    settings = make_settings(tmp_path_factory.mktemp("spark")).model_copy(update={"spark_memory": "640m"})
    fetch_jars(settings)
    prepare(settings)
    properties = work_dir(settings) / "spark.properties"
    written = properties.read_text()
    quick = written.replace("defaultSessionTimeout=20m", "defaultSessionTimeout=10s")
    assert quick != written
    properties.write_text(quick + "spark.connect.session.manager.maintenanceInterval=1s\n")
    with (settings.state_dir / "spark.log").open("wb") as log:
        process = subprocess.Popen(
            command(settings),
            env=environment(settings, dict(os.environ)),
            stdout=log,
            stderr=log,
            cwd=settings.state_dir,
        )
    try:
        port_answers_within(process, settings.port_spark, settings.state_dir / "spark.log", seconds=60)
        yield settings, psutil.Process(process.pid)
    finally:
        end_service(process)


def test_jars_included_in_spark_are_not_fetched(server: tuple[Settings, psutil.Process]) -> None:
    settings, _ = server
    names = " ".join(jar.name for jar in fetch_jars(settings))
    assert not any(part in names for part in ("netty-common", "slf4j", "hadoop-client", "bundle-", "kafka"))


def test_spark_server_heap_size_is_the_configured_one(server: tuple[Settings, psutil.Process]) -> None:
    _, process = server
    assert "-Xmx640m" in process.cmdline()


def test_spark_session_of_a_killed_client_is_dropped(server: tuple[Settings, psutil.Process], tmp_path: Path) -> None:
    settings, _ = server
    remote = f"{settings.spark_remote}/;session_id={uuid.uuid4()}"
    client = subprocess.Popen([sys.executable, "-c", CLIENT, remote], stdout=subprocess.PIPE, text=True)
    assert client.stdout is not None
    assert client.stdout.readline().strip() == "3"
    client.kill()
    client.wait()
    client.stdout.close()
    time.sleep(15)

    again = SparkSession.builder.remote(remote).create()
    try:
        with pytest.raises(PySparkException, match="SESSION"):
            again.table("mine").count()
    finally:
        again.stop()  # else it stays the active session of this process, after its server has ended
