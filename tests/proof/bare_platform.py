"""The grocer's location under Dagster's own launcher and queue, in separate processes, with storage on PostgreSQL.

Belongs here: the processes, the effect of a fault on a process, and calls of `tidemark status`. Does not belong here:
the list of faults, and the expectations (`tests.proof.test_faults_named`).
"""

import json
import os
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import boto3
import dagster as dg
import httpx
import psutil
import yaml
from botocore.exceptions import BotoCoreError, ClientError

from dagster_tidemark.event_log.run_process import process_of
from dagster_tidemark.lakehouse.append import open_lake
from dagster_tidemark.settings import LOCAL_KEY, Settings
from dagster_tidemark.sources.sqs import create_queue
from dagster_tidemark.streams.transport import queues_of
from dagster_tidemark.tags import STREAM
from pipelines.streams import STREAMS
from tests.checkout import CHECKOUT
from tests.conftest import free_ports
from tests.live.waiting import eventually
from tests.tidemark.postgres import postgres_server, start_server

_BIN = Path(sys.executable).parent
_DEPLOYED = yaml.safe_load((CHECKOUT / "deploy" / "dagster.yaml").read_text())
_PARTS = {
    "cloud": ["-m", "dagster_tidemark.local.cloud.server"],
    "spark": ["-m", "dagster_tidemark.local.spark.server"],
    "code": ["-m", "dagster", "api", "grpc", "-m", "{module}", "-h", "127.0.0.1", "-p", "{code}"],
    "daemon": ["-m", "dagster._daemon", "run", "-w", "{workspace}"],
}


@dataclass(frozen=True)
class Status:
    """An answer of `tidemark status --json`."""

    code: int
    seconds: float
    rows: Mapping[str, Mapping[str, Any]]
    error: str

    def states(self) -> dict[str, str]:
        """Return the state of each asset with a contract."""
        return {key: row["state"] for key, row in self.rows.items() if row["contract"]}


@dataclass
class BarePlatform:
    """Processes on free ports, with all state below one folder."""

    folder: Path
    jars: Path
    slots: int = 8
    module: str = "pipelines.definitions"
    contract_scale: float = 0.0001
    processes: dict[str, "subprocess.Popen[bytes]"] = field(default_factory=dict)
    _stack: ExitStack = field(default_factory=ExitStack)

    def __post_init__(self) -> None:
        names = ("ui", "cloud", "spark", "kafka", "code")
        self.ports = dict(zip(names, free_ports(len(names)), strict=True))
        state, self.home = self.folder / "state", self.folder / "home"
        for made in (state, self.home):
            made.mkdir(parents=True)
        settings = Settings(
            state_dir=state,
            jars_dir=self.jars,
            contract_scale=self.contract_scale,
            spark_remote=f"sc://127.0.0.1:{self.ports['spark']}",
            dagster_home=self.home,
            spark_memory="1g",
            # By its slash this is another cloud than the laptop's own, where a lost queue would be created again.
            aws_endpoint_url=f"http://127.0.0.1:{self.ports['cloud']}/",
            aws_access_key_id=LOCAL_KEY,
            aws_secret_access_key=LOCAL_KEY,
            **{f"port_{name}": port for name, port in self.ports.items() if name != "code"},  # type: ignore[arg-type]
        )
        self.settings = settings
        self.environment = os.environ | settings.exports()
        self.workspace = self.home / "workspace.yaml"
        server = {"host": "127.0.0.1", "port": self.ports["code"], "location_name": "tidemark"}
        self.workspace.write_text(yaml.safe_dump({"load_from": [{"grpc_server": server}]}))

    def open(self) -> None:
        """Start everything."""
        login = self._stack.enter_context(postgres_server())
        self.postgres = login["port"]
        arguments = self._postgres().cmdline()
        self._postgres_data = Path(arguments[arguments.index("-D") + 1])
        configuration = {
            "storage": {"postgres": {"postgres_db": login}},
            "telemetry": {"enabled": False},
            "concurrency": {"runs": {"max_concurrent_runs": self.slots}},
            **{part: _DEPLOYED[part] for part in ("run_coordinator", "sensors")},
        }
        (self.home / "dagster.yaml").write_text(yaml.safe_dump(configuration))
        for name in _PARTS:
            self.start(name)
            if name == "code":
                self._answers(name)

    def _create_queues(self) -> None:
        """Create the queues of the streams, as the operator of this cloud does."""
        keys = {"aws_access_key_id": LOCAL_KEY, "aws_secret_access_key": LOCAL_KEY}
        for queue in queues_of(STREAMS):
            create_queue(queue, **self.settings.aws_options() | keys)

    def start(self, name: str, **environment: str) -> None:
        """Start a part again.

        Args:
            environment: Variables that the part has besides the others.
        """
        if name == "postgres":
            self.processes[name] = start_server(self._postgres_data, self.postgres)
            return
        replaced = {"code": str(self.ports["code"]), "workspace": str(self.workspace), "module": self.module}
        arguments = [part.format(**replaced) for part in _PARTS[name]]
        self.run(name, arguments, **environment)
        if name == "cloud":  # it keeps no queues
            self._answers(name)
            self._create_queues()

    def run(self, name: str, arguments: Sequence[str], cwd: Path = CHECKOUT, **environment: str) -> None:
        """Start a process of Python in a session of its own. Its output is appended to a file with its name."""
        with (self.folder / f"{name}.log").open("ab") as log:
            self.processes[name] = subprocess.Popen(
                [sys.executable, *arguments],
                env=self.environment | environment,
                cwd=cwd,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=_with_signals,
            )

    def close(self) -> None:
        """End every process."""
        for process in self.processes.values():
            for each in [*_family(process.pid)]:
                with suppress(psutil.Error):
                    each.send_signal(signal.SIGCONT)
                    each.kill()
            process.wait()
        self._stack.close()

    def _postgres(self) -> psutil.Process:
        below = psutil.Process().children(recursive=True)
        return next(p for p in below if p.name() == "postgres" and "-D" in p.cmdline() and p.status() != "zombie")

    def _answers(self, name: str) -> None:
        def answered() -> None:
            with socket.socket() as probe:
                probe.settimeout(1)
                assert probe.connect_ex(("127.0.0.1", self.ports[name])) == 0, self.log(name)[-2000:]

        eventually(answered, seconds=90)

    def log(self, name: str) -> str:
        """Return the output of a part."""
        return (self.folder / f"{name}.log").read_text(errors="replace")

    def signal(self, name: str, number: signal.Signals, *, family: bool = False) -> None:
        """Send a signal to a part, and to its children if `family`."""
        pid = self._postgres().pid if name == "postgres" else self.processes[name].pid
        for each in _family(pid) if family else [psutil.Process(pid)]:
            with suppress(psutil.Error):
                each.send_signal(number)

    def kill(self, name: str) -> None:
        """Kill a part, and its children."""
        killed = _family(self._postgres().pid if name == "postgres" else self.processes[name].pid)
        self.signal(name, signal.SIGKILL, family=True)
        psutil.wait_procs(killed, timeout=10)
        if name in self.processes:
            self.processes[name].wait()

    def switch(self, sensor: str, to: Literal["start", "stop"]) -> None:
        """Switch a sensor on or off, as an operator does."""
        command = [_BIN / "dagster", "sensor", to, sensor, "-w", self.workspace]
        subprocess.run(command, env=self.environment, check=True, capture_output=True, timeout=60)

    def refuse_credentials(self, refuse: bool) -> None:
        """Have the cloud refuse every signed request with status 403, or accept all again."""
        url = f"http://127.0.0.1:{self.ports['cloud']}/moto-api/reset-auth"
        answer = httpx.post(url, content="0" if refuse else "inf")
        answer.raise_for_status()

    def lock_catalog(self) -> None:
        """Hold the catalog's lock, as a backup or a broken writer does."""
        self._lock = sqlite3.connect(self.settings.state_dir / "catalog.db", isolation_level=None, timeout=30)
        self._lock.execute("BEGIN IMMEDIATE")

    def unlock_catalog(self) -> None:
        """Give the catalog's lock back."""
        self._lock.close()

    def put(self, key: str, body: str) -> None:
        """Put a file into the bucket. Raises AssertionError if the bucket does not answer."""
        try:
            self.s3.put_object(Bucket=self.settings.landing_bucket, Key=key, Body=body.encode())
        except (BotoCoreError, ClientError) as error:
            raise AssertionError(error) from error

    def has_order(self, number: int) -> bool:
        """Return True if core.orders has a row of an order."""
        lake = open_lake(self.settings)
        return lake.table_exists("core.orders") and bool(
            lake.load_table("core.orders").scan(f"order_id = {number}").to_arrow().num_rows
        )

    def send_reading(self) -> str:
        """Send a reading to the queue and return its id."""
        sqs, device = self.aws("sqs"), f"fault-{time.time_ns()}"
        body = {"device_id": device, "store_id": 1, "temperature_c": 4.0, "read_at": datetime.now(UTC).isoformat()}
        url = sqs.get_queue_url(QueueName="cold-chain-readings")["QueueUrl"]
        sqs.send_message(QueueUrl=url, MessageBody=json.dumps(body))
        return device

    def has_reading(self, device: str) -> bool:
        """Return True if raw.readings has a row of a device."""
        table = open_lake(self.settings).load_table("raw.readings")
        return bool(table.scan(f"device_id = '{device}'").to_arrow().num_rows)

    def shifts(self) -> list[psutil.Process]:
        """Return the processes of running shifts."""
        with dg.DagsterInstance.from_config(str(self.home)) as instance:
            runs = instance.get_runs(dg.RunsFilter(statuses=[dg.DagsterRunStatus.STARTED]))
        return [process for run in runs if STREAM in run.tags and (process := process_of(run)) is not None]

    def status(self) -> Status:
        """Ask `tidemark status --json`."""
        begun = time.monotonic()
        done = subprocess.run(
            [_BIN / "tidemark", "status", "--json"],
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        seconds = time.monotonic() - begun
        rows = json.loads(done.stdout) if done.stdout.startswith("[") else []
        return Status(done.returncode, seconds, {row["asset"]: row for row in rows}, done.stderr)

    def instance(self) -> dg.DagsterInstance:
        """Return the instance. The caller closes it."""
        return dg.DagsterInstance.from_config(str(self.home))

    def aws(self, service: str) -> Any:
        """A plain AWS client."""
        keys = {"aws_access_key_id": LOCAL_KEY, "aws_secret_access_key": LOCAL_KEY}
        return boto3.client(service, **self.settings.aws_options(), **keys)

    @property
    def s3(self) -> Any:
        """A plain AWS client."""
        return self.aws("s3")


def _with_signals() -> None:
    # A shell that runs a test in the background has its children ignore SIGINT, and Dagster treats SIGTERM like it.
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def _family(pid: int) -> list[psutil.Process]:
    try:
        root = psutil.Process(pid)
        return [root, *root.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


@contextmanager
def bare_platform(
    folder: Path,
    jars: Path,
    slots: int = 8,
    module: str = "pipelines.definitions",
    contract_scale: float = 0.0001,
) -> Iterator[BarePlatform]:
    """A platform that runs a module's code location, and leaves no process."""
    platform = BarePlatform(folder, jars, slots, module, contract_scale)
    try:
        platform.open()
        yield platform
    finally:
        platform.close()
