"""A deployment on this machine, made of the files of deploy/ and of `tidemark` commands.

PostgreSQL, S3 and SQS (moto), a standalone Spark cluster with two workers, a Connect server, a code server and a
daemon, each a process of its own. Belongs here: the processes. Does not belong here: expectations (`test_deploy`).
"""

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import quote

import boto3
import dagster as dg
import psutil
import pytest
import sqlalchemy
import yaml

from dagster_tidemark.local.spark.server import spark_home
from dagster_tidemark.settings import LOCAL_KEY
from dagster_tidemark.sources.sqs import create_queue
from dagster_tidemark.streams.transport import queues_of
from pipelines.streams import STREAMS
from tests.checkout import CHECKOUT
from tests.conftest import free_ports, port_answers_within
from tests.tidemark.postgres import postgres_server

DEPLOY = CHECKOUT / "deploy"
BIN = Path(sys.executable).parent
PASSWORD = "p:w%&+?"


@dataclass
class Deployed:
    """The processes of a deployment, by name, and the environment that all of them have.

    Args:
        cluster: False for a Connect server that works alone.
    """

    folder: Path
    cluster: bool = True
    processes: dict[str, "subprocess.Popen[bytes]"] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)
    _stack: ExitStack = field(default_factory=ExitStack)
    with_ports: ClassVar[tuple[str, ...]] = ("cloud", "master", "spark", "code")
    cloud: ClassVar[str] = "dagster_tidemark.local.cloud.server"
    units: ClassVar[tuple[str, ...]] = ("code", "daemon")

    def open(self) -> None:
        """Start everything."""
        self.ports = dict(zip(self.with_ports, free_ports(len(self.with_ports)), strict=True))
        login = self._stack.enter_context(postgres_server(PASSWORD))
        self._create_databases(login["port"])
        self._write_environment(login["port"])
        self._write_home(login["port"])
        self.start("cloud", [sys.executable, "-m", self.cloud], TIDEMARK_ENVIRONMENT="local")
        for bucket in ("lake", "logs"):
            self.aws("s3").create_bucket(Bucket=bucket)
        self.create_queues()
        self._jars()
        self._start_spark()
        for name in self.units:
            self.start(name, self._unit(f"tidemark-{name}"))

    def create_queues(self) -> None:
        """Create the queues of the streams, as an operator does."""
        options = {"endpoint_url": self.environment["AWS_ENDPOINT_URL"], "region_name": "us-east-1"}
        for queue in queues_of(STREAMS):
            create_queue(queue, **options, aws_access_key_id=LOCAL_KEY, aws_secret_access_key=LOCAL_KEY)

    def close(self) -> None:
        """End every process."""
        for name in reversed(self.processes):
            self.kill(name)
        self._stack.close()

    def start(self, name: str, command: list[str], **more: str) -> None:
        """Start a process, and wait until its port answers if it has one."""
        log = self.folder / f"{name}.log"
        with log.open("ab") as output:
            self.processes[name] = subprocess.Popen(
                command,
                cwd=self.folder,
                env=self.environment | more,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        if name in self.ports:
            port_answers_within(self.processes[name], self.ports[name], log, seconds=240)

    def kill(self, name: str, number: signal.Signals = signal.SIGKILL) -> None:
        """Send a signal to a process and its children; wait for it unless it only stops or continues."""
        process = self.processes[name]
        with suppress(psutil.Error):
            root = psutil.Process(process.pid)
            for each in [root, *root.children(recursive=True)]:
                with suppress(psutil.Error):
                    if number is signal.SIGKILL:
                        each.send_signal(signal.SIGCONT)
                    each.send_signal(number)
        if number is signal.SIGKILL:
            process.wait()

    def doctor(self, seconds: int, **more: str) -> tuple[int, dict[str, dict[str, Any]], float]:
        """Return the exit code of `tidemark doctor`, its checks by name, and its longest check in seconds."""
        command = [BIN / "tidemark", "doctor", "--json", "--seconds", str(seconds)]
        done = subprocess.run(
            command, env=self.environment | more, capture_output=True, text=True, timeout=seconds + 120, check=False
        )
        found = {each["check"]: each for each in json.loads(done.stdout or "[]")}
        return done.returncode, found, max((each["seconds"] for each in found.values()), default=0.0)

    def tidemark(self, *arguments: str, **more: str) -> "subprocess.CompletedProcess[str]":
        """Run a command of an operator."""
        return subprocess.run(
            [BIN / "tidemark", *arguments],
            env=self.environment | more,
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )

    @contextmanager
    def instance(self) -> Iterator[dg.DagsterInstance]:
        """The Dagster instance, with the variables of the deployment."""
        with pytest.MonkeyPatch.context() as patch:
            for name, value in self.environment.items():
                patch.setenv(name, value)
            with dg.DagsterInstance.from_config(self.environment["DAGSTER_HOME"]) as found:
                yield found

    def aws(self, service: str) -> Any:
        """A plain AWS client."""
        keys = {"aws_access_key_id": LOCAL_KEY, "aws_secret_access_key": LOCAL_KEY}
        url = self.environment["AWS_ENDPOINT_URL"]
        return boto3.client(service, endpoint_url=url, region_name="us-east-1", **keys)

    def _create_databases(self, port: int) -> None:
        url = f"postgresql+psycopg2://tidemark:{quote(PASSWORD, safe='')}@127.0.0.1:{port}/postgres"
        engine = sqlalchemy.create_engine(url, isolation_level="AUTOCOMMIT")
        with engine.connect() as connection:
            for name in ("dagster", "lake"):
                connection.execute(sqlalchemy.text(f"CREATE DATABASE {name}"))
        engine.dispose()

    def _write_environment(self, port: int) -> None:
        """The variables of `deploy/compose/example.env`, with the addresses of this machine."""
        example = (DEPLOY / "compose" / "example.env").read_text()
        names = set(re.findall(r"^(\w+)=", example, re.M))
        values = {
            "TIDEMARK_ENVIRONMENT": "production",
            "TIDEMARK_LANDING_BUCKET": "landing",
            "TIDEMARK_EVENTS_QUEUE": "landing-events",
            "TIDEMARK_WAREHOUSE": "s3://lake/warehouse",
            "TIDEMARK_CATALOG_URI": (
                f"jdbc:postgresql://127.0.0.1:{port}/lake?user=tidemark&password={quote(PASSWORD, safe='')}"
            ),
            "SPARK_REMOTE": f"sc://127.0.0.1:{self.ports['spark']}",
            "AWS_REGION": "us-east-1",
            "DAGSTER_PG_HOST": "127.0.0.1",
            "DAGSTER_PG_USER": "tidemark",
            "DAGSTER_PG_PASSWORD": PASSWORD,
            "DAGSTER_PG_DB": "dagster",
            "DAGSTER_LOGS_BUCKET": "logs",
            "CODE_MODULE": "pipelines.definitions",
        }
        assert values.keys() <= names, "the example has every variable"
        inherited = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("TIDEMARK_", "AWS_", "SPARK_", "PYICEBERG_", "DAGSTER_", "PYTHONPATH"))
        }
        self.environment = inherited | values | {
            # What this machine has instead of AWS and TLS.
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{self.ports['cloud']}",
            "AWS_ACCESS_KEY_ID": LOCAL_KEY,
            "AWS_SECRET_ACCESS_KEY": LOCAL_KEY,
            "TIDEMARK_PORT_CLOUD": str(self.ports["cloud"]),
            "TIDEMARK_ALLOW_WITHOUT_TLS": "AWS_ENDPOINT_URL,TIDEMARK_CATALOG_URI,dagster.yaml",
            # What the units set.
            "DAGSTER_HOME": str(self.folder / "dagster"),
            "TIDEMARK_PROJECT": str(CHECKOUT),
            "TIDEMARK_STATE_DIR": str(self.folder / "state"),
            "CODE_SERVER_HOST": "127.0.0.1",
            "PATH": f"{BIN}:{os.environ['PATH']}",
        }  # fmt: skip

    def _write_home(self, port: int) -> None:
        """`deploy/dagster.yaml` and `workspace.yaml`, with the ports of this machine, and without TLS."""
        home = self.folder / "dagster"
        home.mkdir()
        instance = yaml.safe_load((DEPLOY / "dagster.yaml").read_text())
        instance["storage"]["postgres"]["postgres_db"] |= {"port": port, "params": {}}
        (home / "dagster.yaml").write_text(yaml.safe_dump(instance))
        workspace = yaml.safe_load((DEPLOY / "workspace.yaml").read_text())
        workspace["load_from"][0]["grpc_server"]["port"] = self.ports["code"]
        (home / "workspace.yaml").write_text(yaml.safe_dump(workspace))

    def _unit(self, name: str) -> list[str]:
        """The command of a unit of `deploy/systemd/`, with the paths and ports of this machine."""
        text = (DEPLOY / "systemd" / f"{name}.service").read_text()
        [command] = re.findall(r"^ExecStart=(.*)$", text, re.M)
        command = command.replace("/opt/tidemark/venv/bin", str(BIN)).replace("/etc/tidemark", str(self.folder))
        command = command.replace("${CODE_MODULE}", self.environment["CODE_MODULE"])
        return shlex.split(command.replace("4000", str(self.ports["code"])))

    def _jars(self) -> None:
        done = self.tidemark("jars", "--to", str(self.folder / "jars"))
        assert done.returncode == 0, done.stderr

    def _start_spark(self) -> None:
        """A standalone cluster with two workers, and the Connect server of `deploy/spark-connect.sh`."""
        java, at = str(spark_home() / "bin" / "spark-class"), f"spark://127.0.0.1:{self.ports['master']}"
        # Workers with SPARK_REMOTE would start executors with the jars of the Connect client.
        remote = self.environment.pop("SPARK_REMOTE")
        local = {"SPARK_LOCAL_IP": "127.0.0.1", "SPARK_HOME": str(spark_home()), "SPARK_DAEMON_MEMORY": "256m"}
        if not self.cluster:
            at = "local[2]"
        master = "org.apache.spark.deploy.master.Master --host 127.0.0.1 --webui-port 0 --port"
        if self.cluster:
            self.start("master", [java, *master.split(), str(self.ports["master"])], **local)
        for number in (1, 2) if self.cluster else ():
            room = self.folder / f"worker-{number}"
            worker = f"org.apache.spark.deploy.worker.Worker --host 127.0.0.1 --webui-port 0 -c 1 -m 1g -d {room} {at}"
            self.start(f"worker-{number}", [java, *worker.split()], **local)
        self.environment["SPARK_REMOTE"] = remote
        secrets = self.folder / "secrets"
        secrets.mkdir(mode=0o700)
        self.spark = local | {
            "SPARK_MASTER": at,
            "SPARK_DRIVER_HOST": "127.0.0.1",
            "SPARK_DRIVER_MEMORY": "1g",
            "SPARK_SECRETS_DIR": str(secrets),
            "SPARK_JARS_FOLDER": str(self.folder / "jars"),
            "PYSPARK_PYTHON": sys.executable,
        }
        self.start_connect()

    def start_connect(self) -> None:
        """Start the Connect server."""
        self.start("spark", [str(DEPLOY / "spark-connect.sh")], **self.spark)


@contextmanager
def deployed(folder: Path, *, cluster: bool = True) -> Iterator[Deployed]:
    """A deployment that leaves no process."""
    assert shutil.which("java"), "the proof needs Java"
    made = Deployed(folder, cluster)
    try:
        made.open()
        yield made
    finally:
        made.close()
