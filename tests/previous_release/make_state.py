"""Make `state.tar.xz`: what a laptop's platform of an earlier release leaves behind, by that release's own code.

    python -m tests.previous_release.make_state 77fc152 0.1.0 pipelines.tidemark

It takes that commit out of git into a temporary folder, runs its whole platform there (daemon, local cloud, Spark) on
the shop, lets files and messages come, deletes a run, keeps a preview, writes the lock, and records what the release
itself says of it all. The warehouse is a bucket of the local cloud: the paths in its metadata then hold anywhere.

Belongs here: the recipe. Does not belong here: what a later release makes of the state (`test_upgrade.py`).
"""

import io
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import boto3

from tests.checkout import CHECKOUT
from tests.conftest import JARS, free_port
from tests.live.waiting import eventually

HERE = Path(__file__).parent
STATE = HERE / "state.tar.xz"
RECORDED = "recorded.json"
WAREHOUSE = "s3://lake/warehouse"
_LEFT_OUT = ("logs", "run", "jars", "bytecode", ".logs_queue", "storage")
"""Folders of logs, sockets and caches, also below `dagster`."""
_SAVE = """
from dagster import DagsterInstance
from PACKAGE.engine.code_plan import follow
from PACKAGE import load_settings
import shop.definitions
with DagsterInstance.get() as instance:
    follow(shop.definitions.defs, instance, contract_scale=load_settings().contract_scale).save(instance)
"""
_LAST_NOTE = """
import dagster as dg
with dg.DagsterInstance.get() as instance:
    found = instance.fetch_observations(dg.AssetKey(["tidemark", "journal"]), limit=1).records
print(found[0].timestamp if found else 0.0)
"""
_DELETE_RUN = """
import dagster as dg
with dg.DagsterInstance.get() as instance:
    [record] = instance.fetch_materializations(dg.AssetKey.from_user_string("ASSET"), limit=1).records
    instance.delete_run(record.run_id)
print(record.run_id)
"""
_ROWS = """
import json
from pyiceberg.catalog import load_catalog
lake = load_catalog("lake")
rows = lake.load_table("TABLE").scan().to_arrow().to_pylist() if lake.table_exists("TABLE") else []
print(json.dumps(rows, default=str))
"""


class Release:
    """A release's platform on the shop, and its commands.

    Args:
        code: The folder of the code location and its `workspace.yaml`.
        state: The platform's state folder.
        package: The library's package.
    """

    def __init__(self, code: Path, state: Path, package: str) -> None:
        self.code, self.state, self.package = code, state, package
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("TIDEMARK_", "AWS_", "SPARK_", "DAGSTER_"))}
        self.environment = kept | {
            "PYTHONPATH": str(self.code),
            "TIDEMARK_CODE_LOCATION": "shop",
            "TIDEMARK_STATE_DIR": str(self.state),
            "TIDEMARK_JARS_DIR": str(JARS),
            "TIDEMARK_WAREHOUSE": WAREHOUSE,
            "TIDEMARK_START_DATE": "2026-11-23",
            "TIDEMARK_CONTRACT_SCALE": "1",
            "TIDEMARK_SPARK_MEMORY": "1g",
            **{f"TIDEMARK_PORT_{name}": str(free_port()) for name in ("UI", "CLOUD", "SPARK", "KAFKA")},
        }

    @classmethod
    def from_git(cls, folder: Path, commit: str, package: str) -> "Release":
        """Take a commit out of git, and put the shop into it."""
        code = folder / "code"
        archive = subprocess.run(["git", "archive", commit], cwd=CHECKOUT, capture_output=True, check=True).stdout
        with tarfile.open(fileobj=io.BytesIO(archive)) as packed:
            packed.extractall(code, filter="data")
        for file in (HERE / "shop").glob("*.py"):
            (code / "shop").mkdir(exist_ok=True)
            (code / "shop" / file.name).write_text(_as_of(package, file.read_text()))
        workspace = code / "workspace.yaml"
        workspace.write_text(workspace.read_text().replace("pipelines.definitions", "shop.definitions"))
        return cls(code, folder / "state", package)

    def command(self, *arguments: str, may_fail: bool = False) -> str:
        """Run a command of the release."""
        main = f"from {self.package}.cli.app import main; main()"
        done = subprocess.run(
            [sys.executable, "-c", main, *arguments],
            cwd=self.code,
            env=self.environment,
            capture_output=True,
            text=True,
        )
        assert may_fail or not done.returncode, f"{arguments}: {done.stdout}{done.stderr}"
        return done.stdout

    def python(self, script: str) -> str:
        """Run a script with the release's package and the environment of its platform. Return its last line."""
        command = [sys.executable, "-W", "ignore", "-c", script.replace("PACKAGE", self.package)]
        done = subprocess.run(command, cwd=self.code, env=self.connected, capture_output=True, text=True)
        assert not done.returncode, done.stderr[-2000:]
        return (done.stdout.splitlines() or [""])[-1]

    @property
    def connected(self) -> dict[str, str]:
        """The environment that `env` prints."""
        lines = self.command("env").splitlines()
        pairs = (line.removeprefix("export ").split("=", 1) for line in lines if line.startswith("export "))
        endpoint = f"http://127.0.0.1:{self.environment['TIDEMARK_PORT_CLOUD']}"
        lake = {f"PYICEBERG_CATALOG__LAKE__S3__{name}": "tidemark" for name in ("ACCESS_KEY_ID", "SECRET_ACCESS_KEY")}
        lake |= {"PYICEBERG_CATALOG__LAKE__S3__ENDPOINT": endpoint, "PYICEBERG_CATALOG__LAKE__S3__REGION": "us-east-1"}
        return self.environment | {name: value.strip("'") for name, value in pairs} | lake

    def client(self, service: str) -> Any:
        """Return an AWS client of the local cloud."""
        endpoint = f"http://127.0.0.1:{self.environment['TIDEMARK_PORT_CLOUD']}"
        key = {"aws_access_key_id": "tidemark", "aws_secret_access_key": "tidemark", "region_name": "us-east-1"}
        return boto3.client(service, endpoint_url=endpoint, **key)

    @contextmanager
    def running(self, log: Path) -> Iterator[None]:
        """Run the platform."""
        main = f"import sys; sys.argv[1:] = ['up']; from {self.package}.cli.app import main; main()"
        with log.open("ab") as output:
            up = subprocess.Popen(
                [sys.executable, "-c", main],
                cwd=self.code,
                env=self.environment | {"FEED": "none"},
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        try:
            eventually(lambda: require("ready after" in log.read_text(), log.read_text()[-500:]), seconds=500)
            yield
        finally:
            up.send_signal(signal.SIGINT)
            up.wait(120)

    def rows(self, table: str) -> list[dict[str, Any]]:
        """Return the rows of a table; none if it does not exist yet."""
        found: list[dict[str, Any]] = json.loads(self.python(_ROWS.replace("TABLE", table)))
        return found


def _as_of(package: str, code: str) -> str:
    """Return code of the shop with the names of a release: up to 0.1.0 all names were in one module."""
    if package == "pipelines.tidemark":
        code = code.replace("dagster_tidemark.streams", "dagster_tidemark")
    return code.replace("dagster_tidemark", package)


def require(holds: bool, why: object = "") -> None:
    assert holds, why


def main(commit: str, version: str, package: str) -> None:
    """Make the state, and pack it."""
    folder = Path(tempfile.mkdtemp(prefix="tidemark-release-"))
    release, log = Release.from_git(folder, commit, package), folder / "platform.log"
    release.command("lock", "update")
    with release.running(log):
        recorded = _story(release)
    recorded |= {"version": version, "commit": commit, "stopped_at": time.time()}
    shutil.copy(release.code / "code-versions.lock", release.state)
    (release.state / RECORDED).write_text(json.dumps(recorded, indent=1))
    _pack(release.state)
    print(f"{STATE}: {STATE.stat().st_size:,} bytes; the platform's log is {log}")


def _story(release: Release) -> dict[str, Any]:
    s3, sqs, now = release.client("s3"), release.client("sqs"), datetime.now(UTC)
    s3.create_bucket(Bucket="lake")

    def land(hours_ago: int, name: str, body: str) -> None:
        at = now - timedelta(hours=hours_ago)
        s3.put_object(Bucket="landing", Key=f"sales/dt={at:%Y-%m-%d}/hour={at:%H}/{name}", Body=body.encode())

    def built(table: str, count: int) -> None:
        wait(lambda: len(release.rows(table)) >= count, f"{count} rows of {table}")

    land(26, "a.csv", "sale_id,amount_usd\n1,1.50\n2,2.50\n")
    built("core.sales", 2)
    built("marts.daily", 1)
    noted_after = time.time()
    wait(lambda: _last_note(release) > noted_after, "a note of the planner")
    deleted = _delete_run_of(release, "core/sales")

    land(25, "b.csv", "sale_id,amount_usd\n3,3.50\n4,-1\n5,5.50\n")
    land(25, "c.csv", "what,ever\n1,2\n")
    land(2, "d.csv", "sale_id,amount_usd\n6,6.50\n")
    built("core.sales", 5)
    queue = sqs.get_queue_url(QueueName="cold-chain-readings")["QueueUrl"]
    for minute in range(0, 15, 3):
        at = now - timedelta(hours=1) + timedelta(minutes=minute)
        body = {"device_id": "d1", "read_at": at.isoformat(), "temperature_c": 9.5}
        sqs.send_message(QueueUrl=queue, MessageBody=json.dumps(body))
    sqs.send_message(
        QueueUrl=queue, MessageBody='{"device_id": "d2", "read_at": "2026-11-25T10:00", "temperature_c": 999}'
    )
    built("raw.readings", 5)
    built("alerts.warm", 1)
    wait(lambda: any(row["reason"] == "absurd" for row in release.rows("ops.quarantine")), "the absurd message's entry")
    wait(lambda: sum(row["sales"] for row in release.rows("marts.daily")) == 5, "the days")
    noted_after = time.time()
    wait(lambda: _last_note(release) > noted_after, "a note of the planner")

    assets = release.code / "shop" / "assets.py"
    text = assets.read_text()
    assets.write_text(
        text.replace('F.count("*").alias("sales")', '(F.count("*") * 2).alias("sales")').replace(
            'ins={"sales": dg.AssetIn(key=["core", "sales"], partition_mapping=WITHIN)},',
            'ins={"sales": dg.AssetIn(key=["core", "sales"], partition_mapping=WITHIN)},\n    owners=["team:shop"],',
        )
    )
    changed = assets.read_text()
    head, _, tail = changed.partition('key=["marts", "daily"]')
    assets.write_text(head + 'key=["marts", "daily"]' + tail.replace('code_version="1"', 'code_version="2"', 1))
    release.command("plan", "--preview", may_fail=True)  # exits with 1: rows differ
    assert (release.state / "preview.json").exists() or list(release.state.rglob("preview*.json")), (
        "no preview was kept"
    )
    assets.write_text(text)
    plan = json.loads(release.command("plan", "--json", may_fail=True))
    time.sleep(70)  # each contract's check is evaluated once more
    release.python(_SAVE)
    tables = ("core.sales", "marts.daily", "ops.quarantine", "raw.readings", "alerts.warm")
    url = sqs.get_queue_url(QueueName="alerts")["QueueUrl"]
    sent = sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10).get("Messages", [])
    return {
        "status": json.loads(release.command("status", "--json", may_fail=True)),
        "plan": plan,
        "tables": {name: release.rows(name) for name in tables},
        "alerts_sent": [json.loads(message["Body"]) for message in sent],
        "deleted_run": deleted,
        "recorded_at": time.time(),
    }


def wait(holds: Callable[[], bool], what: str, seconds: float = 400) -> None:
    """Wait until something holds."""
    print(f"{time.strftime('%H:%M:%S')} waiting for {what}", flush=True)
    eventually(lambda: require(holds(), what), seconds=seconds, every=2)


def _last_note(release: Release) -> float:
    return float(release.python(_LAST_NOTE))


def _delete_run_of(release: Release, asset: str) -> str:
    return release.python(_DELETE_RUN.replace("ASSET", asset))


def _pack(state: Path) -> None:
    for database in state.rglob("*.db"):
        with sqlite3.connect(database) as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            connection.execute("VACUUM")
        connection.close()
        database.write_bytes(_without_places(database.read_bytes()))
    with tarfile.open(STATE, "w:xz", preset=9) as packed:
        packed.add(
            state, arcname="state", filter=lambda each: None if _is_left_out(each.name) or each.issym() else each
        )


def _without_places(database: bytes) -> bytes:
    """Return a database without the folders of this machine, in which Dagster says where its Python is."""
    for place in (CHECKOUT, Path(sys.base_prefix).parent):
        known = str(place).encode()
        database = database.replace(known, b"/" + b"x" * (len(known) - 1))  # texts keep their lengths
    return database


def _is_left_out(name: str) -> bool:
    return any(part in _LEFT_OUT for part in Path(name).parts)


if __name__ == "__main__":
    main(*sys.argv[1:])
