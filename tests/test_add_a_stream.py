"""docs/streams.md, followed in the grocer's project: a message becomes a row, an alert and an answer."""

import os
import shutil
from pathlib import Path

import pytest

from dagster_tidemark.settings import Settings
from tests import pages
from tests.checkout import CHECKOUT
from tests.warm_python import run_python

_WORK = """
import json, os, sys, threading, time
from datetime import UTC, datetime, timedelta
from pathlib import Path
import boto3, dagster as dg
import pipelines
from pyiceberg.catalog import load_catalog
assert Path(pipelines.__file__).parents[1] == Path.cwd(), "not the copy"
from pipelines.definitions import defs
repository = defs.get_repository_def()
repository.load_all_definitions()
sqs = boto3.client("sqs")
deadline = time.time() + 120
def until(look):
    while True:
        try:
            return look()
        except Exception:
            if time.time() > deadline:
                raise
            time.sleep(0.2)
def url(name):
    return until(lambda: sqs.get_queue_url(QueueName=name)["QueueUrl"])
def rows(table, where):
    found = load_catalog("lake").load_table(table).scan(where).to_arrow().to_pylist()
    assert found
    return found
def said(queue):
    [message] = sqs.receive_message(QueueUrl=url(queue), WaitTimeSeconds=20)["Messages"]
    return json.loads(message["Body"])

for name in ("shift_pings", "shift_door_questions"):
    job, instance = repository.get_job(name), dg.DagsterInstance.ephemeral()
    threading.Thread(target=job.execute_in_process, kwargs={"instance": instance}, daemon=True).start()
url("pings")
exec(sys.argv[1], {})  # the page's two messages
(row,) = until(lambda: rows("raw.pings", "door_id = 'd1'"))
(entry,) = until(lambda: rows("ops.quarantine", "asset = 'raw/pings'"))
for minute, volts in enumerate((2.3, 2.35)):
    at = datetime.now(UTC) - timedelta(hours=1, minutes=-minute)
    body = {"door_id": "d2", "pinged_at": at.isoformat(), "battery_v": volts}
    sqs.send_message(QueueUrl=url("pings"), MessageBody=json.dumps(body))
alert = until(lambda: said("low-batteries"))
for number, door in enumerate(("d2", "d9")):
    body = {"request_id": str(number), "door_id": door}
    sqs.send_message(QueueUrl=url("door-questions"), MessageBody=json.dumps(body))
    print("answer", until(lambda: said("door-answers")), flush=True)
key = dg.AssetKey(["alerts", "low_batteries"])
assets = [a for a in defs.assets if isinstance(a, dg.AssetsDefinition) and key in a.keys]
with dg.DagsterInstance.ephemeral() as instance:
    assert dg.materialize(assets, resources=defs.resources, instance=instance).success
(kept,) = rows("alerts.low_batteries", "rule = 'low_battery'")
assert kept["alert_id"] == alert["alert_id"] and kept["retracted_at"] is None
print("row", row["battery_v"], row["message_source"], entry["reason"])
print("alert", alert["kind"], alert["door_id"], alert["battery_v"], flush=True)
os._exit(0)
"""


@pytest.fixture
def followed(tmp_path: Path) -> Path:
    """The grocer's project with the modules of the page."""
    shutil.copytree(CHECKOUT / "pipelines", tmp_path / "pipelines", ignore=shutil.ignore_patterns("__pycache__"))
    page = pages.page("streams.md")
    assert [Path(path).parts[1] for path in pages.written(tmp_path, page)] == [
        *("schemas", "assets", "streams"),
        *("transforms", "schemas", "streams", "assets"),
        *("schemas", "assets", "streams"),
    ]
    return tmp_path


def run(project: Path, arguments: list[str], settings: Settings) -> str:
    own = {"PYTHONPATH": str(project), "TIDEMARK_PROJECT": str(project), "TIDEMARK_CODE_LOCATION": "pipelines"}
    done = run_python(arguments, cwd=project, env=os.environ | settings.exports() | own, timeout=200)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return done.stdout


def test_streams_page_example_works_beside_the_grocer_streams(
    cloud: Settings, spark_server: Settings, followed: Path
) -> None:
    sends = pages.python_of(pages.blocks(pages.page("streams.md"), "sh")[0])
    told = run(followed, ["-c", _WORK, sends], spark_server).splitlines()
    assert "row 2.9 sqs:pings battery_out_of_range" in told
    assert "alert raise d2 2.3" in told
    assert [line for line in told if line.startswith("answer")] == [
        "answer {'request_id': '0', 'battery_v': 2.35}",
        "answer {'request_id': '1', 'error': 'nobody knows this door'}",
    ]


def test_streams_page_tests_pass(followed: Path, platform_settings: Settings) -> None:
    (tests,) = [code for code in pages.blocks(pages.page("streams.md"), "python") if "\ndef test_" in code]
    (followed / "test_pings.py").write_text(tests)
    run(followed, ["-m", "pytest", "-q", "-p", "no:cacheprovider", "test_pings.py"], platform_settings)
