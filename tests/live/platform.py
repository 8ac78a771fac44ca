"""`tidemark up` as a user gets it: a process of its own, on free ports and a temporary state folder.

Belongs here: its start, its stop and what is read of it from outside. Does not belong here: what a person clicks
(`tests.live.ui`), and any look into `pipelines`: all that is known of the platform is what `tidemark env` prints.
"""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import boto3
import psutil
import pyarrow as pa
from pyiceberg.catalog import Catalog, load_catalog

from tests.conftest import free_ports
from tests.live.ui import Ui
from tests.live.waiting import eventually, holds_for
from tests.warm_python import run_script

_BIN = Path(sys.executable).parent
_OURS = re.compile("TIDEMARK_|AWS_|SPARK_|DAGSTER_|PYICEBERG_|FEED$|KAFKA$")
_SECONDS_TO_START = 480  # of which the jars, the first time on a machine, take most; another process tests beside
_SECONDS_TO_STOP = 40


@dataclass(frozen=True)
class Stopped:
    """How a stop went: how long it took, how it ended, and what it left."""

    seconds: float
    exit_code: int
    left: list[str]


class Platform:
    """One platform; it can be stopped and started again on its state.

    Args:
        project: A folder whose `make dev` starts it; by default it is `tidemark up` of this checkout.
    """

    def __init__(self, state: Path, jars: Path, log: Path, *, project: Path | None = None) -> None:
        self.state = state
        self._project = project
        self._tidemark = (project / ".venv" / "bin" if project else _BIN) / "tidemark"
        ports = dict(zip(("UI", "CLOUD", "SPARK", "KAFKA"), free_ports(4), strict=True))
        # Every contract is the shortest there is, a minute, and due at once: these tests are about what runs do.
        settings = {"TIDEMARK_STATE_DIR": state, "TIDEMARK_JARS_DIR": jars, "TIDEMARK_CONTRACT_SCALE": 0.0001}
        settings |= {f"TIDEMARK_PORT_{name}": port for name, port in ports.items()}
        inherited = {name: value for name, value in os.environ.items() if not _OURS.match(name)}
        self.asked = {**inherited, **{name: str(value) for name, value in settings.items()}}
        self.ui = Ui(ports["UI"])
        self.environment: dict[str, str] = {}
        self._log = log
        self._up: subprocess.Popen[bytes] | None = None

    def start(self, feed: str = "none", *, seconds: float = _SECONDS_TO_START) -> float:
        """Start it and wait for its greeting; how many seconds that took.

        Args:
            feed: `sample` for the sample files.
        """
        begun = time.monotonic()
        said_before = self.said().count("ready after")
        with self._log.open("ab") as log:
            self._up = subprocess.Popen(
                ["make", "dev"] if self._project else [self._tidemark, "up"],
                cwd=self._project,
                env={**self.asked, "FEED": feed},
                stdout=log,
                stderr=log,
                start_new_session=True,  # a process group of its own, as a shell gives it: Ctrl-C is sent to all of it
            )

        def greeted() -> None:
            assert self._up is not None and self._up.poll() is None, f"it ended:\n{self.said()}"
            assert self.said().count("ready after") > said_before, f"it is not ready:\n{self.said()}"

        eventually(greeted, seconds=seconds, every=0.1)
        took = time.monotonic() - begun
        self.environment = json.loads(self.pipelines("env", "--json").stdout)
        return took

    def stop(self, number: signal.Signals) -> Stopped:
        """Send a signal to the process group, as a terminal does, and wait for the end."""
        assert self._up is not None
        begun = time.monotonic()
        started = self.processes()
        os.killpg(self._up.pid, number)
        try:
            exit_code = self._up.wait(_SECONDS_TO_STOP)
        finally:
            seconds, self._up = time.monotonic() - begun, None
        left = [_title(process) for process in {*started, *self.marked()} if _runs(process)]
        return Stopped(seconds, exit_code, left)

    def end(self) -> None:
        """Whatever happened: leave no process of it behind."""
        if self._up is not None and self._up.poll() is None:
            self.stop(signal.SIGTERM)
        for process in self.marked():
            with contextlib.suppress(psutil.Error):
                process.kill()

    @property
    def is_up(self) -> bool:
        """Whether `tidemark up` runs."""
        return self._up is not None and self._up.poll() is None

    def processes(self) -> list[psutil.Process]:
        """`tidemark up` and all its descendants."""
        assert self._up is not None
        up = psutil.Process(self._up.pid)
        return [up, *up.children(recursive=True)]

    def spark_server(self) -> psutil.Process:
        """The Spark Connect server; fails while there is none that listens."""
        port = int(self.environment["TIDEMARK_PORT_SPARK"])
        found = [process for process in self.processes() if _runs(process) and _listens(process, port)]
        assert len(found) == 1, f"{len(found)} processes listen on {port}"
        return found[0]

    def spark_clients(self) -> int:
        """How many connections the Spark server has now."""
        port = int(self.environment["TIDEMARK_PORT_SPARK"])
        connections = self.spark_server().net_connections("tcp")
        return sum(c.status == psutil.CONN_ESTABLISHED and c.laddr.port == port for c in connections)

    def pipelines(
        self, *arguments: str, code: int = 0, seconds: float = 120, shell: Mapping[str, str] | None = None
    ) -> "subprocess.CompletedProcess[str]":
        """One of the project's commands, in a shell that knows no more than which platform is meant, or in this one."""
        environment = self.asked if shell is None else shell
        if self._project:
            command = [self._tidemark, *arguments]
            done = subprocess.run(
                command,
                cwd=self._project,
                env=environment,
                capture_output=True,
                text=True,
                timeout=seconds,
                check=False,
            )
        else:
            done = run_script("tidemark", arguments, env=environment, timeout=seconds)
        assert done.returncode == code, f"{arguments}: {done.returncode}\n{done.stdout}{done.stderr}"
        return done

    def said(self) -> str:
        """What `tidemark up` has printed so far."""
        return self._log.read_text() if self._log.exists() else ""

    @property
    def s3(self) -> Any:
        """A plain AWS client."""
        return self._aws("s3")

    @property
    def sqs(self) -> Any:
        """A plain AWS client."""
        return self._aws("sqs")

    def observed(self, *, seconds: float = 120) -> None:
        """Wait until every file's event was taken from the queue, which is done after it has been observed."""
        sqs = self.sqs
        url = sqs.get_queue_url(QueueName="landing-events")["QueueUrl"]
        names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]

        def empty() -> None:
            held = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=names)["Attributes"]
            assert not any(int(number) for number in held.values()), held

        eventually(empty, seconds=seconds)

    def _aws(self, service: str) -> Any:
        e = self.environment
        return boto3.client(
            service,
            endpoint_url=e["AWS_ENDPOINT_URL"],
            region_name=e["AWS_REGION"],
            aws_access_key_id=e["AWS_ACCESS_KEY_ID"],
            aws_secret_access_key=e["AWS_SECRET_ACCESS_KEY"],
        )

    def put(self, key: str, body: str) -> None:
        """Put a file on the landing bucket."""
        self.s3.put_object(Bucket="landing", Key=key, Body=body.encode())

    def get(self, key: str) -> str:
        """Read a file of the landing bucket."""
        body: bytes = self.s3.get_object(Bucket="landing", Key=key)["Body"].read()
        return body.decode()

    @cached_property
    def catalog(self) -> Catalog:
        """The lake, without a JVM."""
        prefix = "PYICEBERG_CATALOG__LAKE__"
        found = {name: value for name, value in self.environment.items() if name.startswith(prefix)}
        return load_catalog("lake", **{name.removeprefix(prefix).lower(): value for name, value in found.items()})

    def table(self, name: str) -> pa.Table:
        """All rows of a table of the lake."""
        assert self.catalog.table_exists(name), f"{name} does not exist yet"
        return self.catalog.load_table(name).scan().to_arrow()

    def snapshots(self, name: str) -> int:
        """How often a table was committed to."""
        return len(self.catalog.load_table(name).snapshots())

    def marked(self) -> list[psutil.Process]:
        """Every process anywhere that was started for this state folder."""
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error, OSError):
                if process.environ().get("TIDEMARK_STATE_DIR") == str(self.state) and _runs(process):
                    found.append(process)
        return found

    def quiet(self, *, seconds: float = 300, calm: float = 6) -> None:
        """Wait until no run is under way and none follows."""

        def no_run() -> None:
            runs = self.ui.unfinished()
            assert not runs, f"still running: {runs}"

        def calm_now() -> None:
            no_run()
            holds_for(no_run, seconds=calm)

        eventually(calm_now, seconds=seconds)


@contextlib.contextmanager
def running(folder: Path, jars: Path, **settings: str) -> Iterator[Platform]:
    """A platform of these settings in a folder, without a sample feed; nothing of it is left."""
    made = Platform(folder / "state", jars, folder / "up.log")
    made.asked |= settings
    try:
        made.start()
        yield made
    finally:
        made.end()


def statuses(runs: Iterable[Any]) -> set[str]:
    """The statuses of some runs."""
    return {run.status for run in runs}


def _runs(process: psutil.Process) -> bool:
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.Error:
        return False


def _listens(process: psutil.Process, port: int) -> bool:
    with contextlib.suppress(psutil.Error):
        return any(c.status == psutil.CONN_LISTEN and c.laddr.port == port for c in process.net_connections("tcp"))
    return False


def _title(process: psutil.Process) -> str:
    with contextlib.suppress(psutil.Error):
        return f"{process.pid} {' '.join(process.cmdline())}"
    return str(process.pid)
