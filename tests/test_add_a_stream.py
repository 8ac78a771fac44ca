"""The steps of docs/streams.md for a user's stream, pasted into the grocer's project: a message becomes a row."""

import os
import re
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

from dagster_tidemark.settings import Settings
from tests.checkout import CHECKOUT

_STEP = re.compile(r"^\d\. `(?P<file>pipelines/[\w/]+\.py)`.*?\n   ```python\n(?P<code>.*?)   ```", re.S | re.M)
_WORK = """
import json, os, threading, time
from datetime import datetime, timedelta, timezone
from pathlib import Path
import boto3, dagster as dg
import pipelines
from pyiceberg.catalog import load_catalog
assert Path(pipelines.__file__).parents[1] == Path.cwd(), "not the copy"
from pipelines.definitions import defs
repository = defs.get_repository_def()
repository.load_all_definitions()
job = repository.get_job("shift_pings")
instance = dg.DagsterInstance.ephemeral()
threading.Thread(target=lambda: job.execute_in_process(instance=instance), daemon=True).start()
sqs = boto3.client("sqs")
deadline = time.time() + 90
def until(look):
    while True:
        try:
            return look()
        except Exception:
            if time.time() > deadline:
                raise
            time.sleep(0.2)
queue = until(lambda: sqs.get_queue_url(QueueName="pings")["QueueUrl"])
now = datetime.now(timezone.utc).isoformat()
good = {"door_id": "d1", "pinged_at": now, "battery_v": "2.9"}
for said in (good, {**good, "battery_v": 7}):
    sqs.send_message(QueueUrl=queue, MessageBody=json.dumps(said))
def rows(table, where):
    found = load_catalog("lake").load_table(table).scan(where).to_arrow().to_pylist()
    assert found
    return found
(row,) = until(lambda: rows("raw.pings", "door_id = 'd1'"))
(entry,) = until(lambda: rows("ops.quarantine", "asset = 'raw/pings'"))
print(row["battery_v"], row["message_source"], entry["reason"], flush=True)
os._exit(0)
"""


def steps() -> list[tuple[str, str]]:
    """File and code of each step that has code."""
    section = (CHECKOUT / "docs" / "streams.md").read_text()
    return [(match["file"], textwrap.dedent(match["code"])) for match in _STEP.finditer(section)]


def test_the_example_of_the_page_works_beside_the_grocers_streams(cloud: Settings, tmp_path: Path) -> None:
    shutil.copytree(CHECKOUT / "pipelines", tmp_path / "pipelines", ignore=shutil.ignore_patterns("__pycache__"))
    followed = steps()
    assert [Path(file).parts[1] for file, _ in followed] == ["schemas", "assets", "streams"]
    for file, code in followed:
        (tmp_path / file).write_text(code)
    own = {"PYTHONPATH": str(tmp_path), "TIDEMARK_PROJECT": str(tmp_path), "TIDEMARK_CODE_LOCATION": "pipelines"}
    environment = os.environ | cloud.exports() | own
    done = subprocess.run(
        [sys.executable, "-c", _WORK], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=150
    )
    assert done.returncode == 0, done.stderr[-4000:]
    assert done.stdout.splitlines()[-1] == "2.9 sqs:pings battery_out_of_range"
