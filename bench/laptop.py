"""Measures the time that the laptop's own mechanisms save: `python -m bench.laptop [queue|libraries|jars|spark]...`

Each part prints JSON. Seconds of processor time (`cpu_s`) are comparable on a busy machine; `wall_s` needs an idle one.

A mechanism replaces that of a library only if it saves 2 seconds of a start or 0.3 seconds of a run, or if a promise
needs it. At feab98a6, on two cores that other work shared:

    fork server for runs          2.9 s of processor time of each run, which imports its libraries without it
    queues of the local cloud     14 s of a start: 0.3 s to send the sample's 1,440 messages, 14.6 s with moto's
    archive of Spark's classes    7 s of a start: ready after 6.3 s, 13.2 s without
    jar folder                    3.3 s of a start: 2.3 s of processor time, 5.6 s with `--packages`
    mark on processes             no time, but a start after `kill -9` ends all leftovers
"""

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

from dagster_tidemark.local.dagster.fork_server import LIBRARIES
from dagster_tidemark.local.host.sockets import port_answers
from dagster_tidemark.local.spark import class_archive, jars
from dagster_tidemark.settings import Settings, load_settings
from tests.conftest import free_port

_QUEUE = """
import json, sys, time
from dagster_tidemark.local.cloud.backlogged_queues import use_backlogged_queues
if sys.argv[1] == "ours":
    use_backlogged_queues()
import boto3, moto
found = {}
with moto.mock_aws():
    sqs = boto3.client("sqs", region_name="us-east-1", aws_access_key_id="x", aws_secret_access_key="y")
    for count in (200, 1440):
        url = sqs.create_queue(QueueName=f"q{count}")["QueueUrl"]
        started = time.process_time()
        for _ in range(0, count, 10):
            entries = [{"Id": str(n), "MessageBody": "x" * 300} for n in range(10)]
            sqs.send_message_batch(QueueUrl=url, Entries=entries)
        sent = time.process_time()
        sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10)
        found[f"{count} messages"] = {"send_all_s": round(sent - started, 2),
                                      "receive_10_s": round(time.process_time() - sent, 3)}
print(json.dumps(found))
"""
_FIRST_WRITE = """
import json, time
from dagster_tidemark.lakehouse.session import new_session
from dagster_tidemark.lakehouse import catalog
from dagster_tidemark.lakehouse.table import Table
from dagster_tidemark.settings import load_settings
from dagster_tidemark.lakehouse import write
started = time.time()
spark = new_session(load_settings())
table = Table(f"measured.t{time.time_ns()}", {"hour": "timestamp", "id": "bigint"}, ("hour", "id"), "hour")
catalog.ensure(spark, table)
frame = spark.sql("SELECT timestamp '2026-10-01 00:00:00' AS hour, id FROM range(20)")
write.overwrite(frame, table, ["2026-10-01-00:00"], run_id="measured")
print(round(time.time() - started, 2))
spark.stop()
"""


def _timed(action: Callable[[], object]) -> dict[str, float]:
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    action()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"wall_s": round(time.monotonic() - started, 1), "cpu_s": round(cpu, 1)}


def _python(code: str, *arguments: str, **environment: str) -> str:
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(command, env=os.environ | environment, check=True, capture_output=True, text=True).stdout


def queue() -> dict[str, Any]:
    """Measure moto's own queue and the local cloud's."""
    return {which: json.loads(_python(_QUEUE, which)) for which in ("moto", "ours")}


def libraries() -> dict[str, Any]:
    """Measure the imports that a forked run does not repeat."""
    code = "; ".join(f"import {name}" for name in LIBRARIES)
    return {"a cold run's imports": _timed(lambda: _python(code)), "Python alone": _timed(lambda: _python("pass"))}


def archive_of_classes() -> dict[str, Any]:
    """Measure the start of Spark and its first write, without and with the archive."""
    with tempfile.TemporaryDirectory() as folder:
        settings = load_settings().model_copy(update={"state_dir": Path(folder), "port_spark": free_port()})
        recorded = _timed(lambda: class_archive.record_classes(settings))
        with_archive = class_archive.java_options(settings)
        return {
            "recording": recorded,
            "with the archive": _spark_start(settings, *with_archive),
            "without": _spark_start(settings, "-Dwithout=archive"),
        }


def _spark_start(settings: Settings, *java_options: str) -> dict[str, Any]:
    environment = os.environ | settings.exports() | {"SPARK_REMOTE": f"sc://127.0.0.1:{settings.port_spark}"}
    command = [sys.executable, "-m", "dagster_tidemark.local.spark.server", *java_options]
    started = time.monotonic()
    server = subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL)
    try:
        while not port_answers(settings.port_spark):
            time.sleep(0.05)
        ready = time.monotonic() - started
        first = float(_python(_FIRST_WRITE, **environment))
        used = psutil.Process(server.pid).cpu_times()
        return {
            "until_ready_wall_s": round(ready, 1),
            "first_write_wall_s": first,
            "cpu_s": round(used.user + used.system, 1),
        }
    finally:
        server.terminate()
        server.wait()


def jar_folder() -> dict[str, Any]:
    """Measure Spark's resolution of jars at a start (`--packages`), which the jar folder replaces."""
    submit = [str(jars.spark_home() / "bin" / "spark-submit"), "--class", "none", "spark-internal"]
    environment = jars.environment(load_settings(), dict(os.environ))
    with tempfile.TemporaryDirectory() as folder:
        made = load_settings().model_copy(update={"state_dir": Path(folder)})

        def resolved() -> None:
            jars.run_ivy(made, Path(folder), jars.COORDINATES, jars.EXCLUDED, lambda: None)

        return {
            "download": _timed(resolved),
            "--packages, all in Ivy's cache": _timed(resolved),
            "without --packages": _timed(lambda: subprocess.run(submit, env=environment, capture_output=True)),
        }


PARTS = {"queue": queue, "libraries": libraries, "spark": archive_of_classes, "jars": jar_folder}

if __name__ == "__main__":
    for part in sys.argv[1:] or PARTS:
        print(json.dumps({part: PARTS[part]()}, indent=2), flush=True)
