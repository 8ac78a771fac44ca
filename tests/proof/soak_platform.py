"""The deployment of `tests.proof.deployed` with everything around it: Kafka, the webserver, `tidemark metrics`.

Belongs here: parts that can be killed and started again, what each uses of the machine, and calls of `tidemark
status`. Does not belong here: what is sent (`soak_feed`), faults and expectations (`test_soak`).
"""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any
from urllib.parse import quote

import httpx
import psutil
import sqlalchemy
from confluent_kafka.admin import AdminClient, NewTopic

from dagster_tidemark.lakehouse.append import open_lake
from dagster_tidemark.settings import LOCAL_KEY, Settings
from pipelines.streams.readings import READINGS
from tests.conftest import JARS
from tests.proof.bare_platform import Status, _family
from tests.proof.deployed import BIN, PASSWORD, Deployed
from tests.proof.faulty_cloud import MODES, Mode
from tests.proof.rest_catalog.server import rest_command
from tests.tidemark.postgres import start_server

SAMPLED_EVERY = 10.0
LONGEST_STATUS = 60.0
_MB = 1e6


@dataclass
class SoakPlatform(Deployed):
    """The processes of the whole arrangement. Each can be killed, stopped and started again."""

    contract_scale: float = 1.0
    catalog: str = "jdbc"
    _how: dict[str, tuple[list[str], dict[str, str]]] = field(default_factory=dict)
    with_ports = (*Deployed.with_ports, "catalog", "kafka", "webserver", "metrics")
    cloud = "tests.proof.faulty_cloud"
    units = ("code", "daemon", "webserver", "metrics")

    def open(self) -> None:
        """Start everything."""
        super().open()
        self.lake = open_lake(self.settings())

    def start(self, name: str, command: list[str], **more: str) -> None:
        """Start a process, and keep how for `again`."""
        self._how[name] = command, self.environment | more
        super().start(name, command, **more)

    def again(self, name: str) -> None:
        """Start a part again, as it was started first."""
        if name == "postgres":
            self.processes[name] = start_server(self._data, self._postgres_port)
            return
        command, environment = self._how[name]
        usual, self.environment = self.environment, environment
        try:
            self.start(name, command)
        finally:
            self.environment = usual
        if name == "cloud":  # it keeps no queues
            self.create_queues()

    def redeploy(self, **variables: str) -> None:
        """Start the code server and the daemon again, with other variables."""
        self.environment |= variables
        for name in ("daemon", "code"):
            self.kill(name)
        for name in ("code", "daemon"):
            self.start(name, self._unit(f"tidemark-{name}"))

    def kill(self, name: str, number: signal.Signals = signal.SIGKILL) -> None:
        """Send a signal to a part and its children, and wait for the end of killed ones."""
        if name == "postgres" and name not in self.processes:
            signaled = _family(self._postgres().pid)
            for each in signaled:
                with suppress(psutil.Error):
                    each.send_signal(number)
            if number is signal.SIGKILL:
                psutil.wait_procs(signaled, timeout=20)
            return
        family = _family(self.processes[name].pid)
        super().kill(name, number)
        if number is signal.SIGKILL:
            psutil.wait_procs(family, timeout=20)

    def cloud_mode(self, mode: Mode) -> None:
        """Have the cloud misbehave; an empty mode ends it."""
        httpx.put(f"http://127.0.0.1:{self.ports['cloud']}{MODES}", content=mode, timeout=30).raise_for_status()

    def lock_catalog(self) -> None:
        """Hold a lock on the catalog's table, as a migration that hangs does."""
        url = f"postgresql+psycopg2://tidemark:{quote(PASSWORD, safe='')}@127.0.0.1:{self._postgres_port}/lake"
        self._engine = sqlalchemy.create_engine(url)
        self._lock = self._engine.connect()
        self._lock.execute(sqlalchemy.text("LOCK TABLE iceberg_tables IN ACCESS EXCLUSIVE MODE"))

    def unlock_catalog(self) -> None:
        """Give the lock back."""
        self._lock.close()
        self._engine.dispose()

    def status(self) -> Status:
        """Ask `tidemark status --json`. An answer that does not come is an error of its own."""
        begun, command = time.monotonic(), [BIN / "tidemark", "status", "--json"]
        try:
            done = subprocess.run(
                command,
                env=self.environment,
                capture_output=True,
                text=True,
                timeout=LONGEST_STATUS,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return Status(-1, time.monotonic() - begun, {}, f"status did not answer within {LONGEST_STATUS} s")
        rows = json.loads(done.stdout) if done.stdout.startswith("[") else []
        return Status(
            done.returncode, time.monotonic() - begun, {row["asset"]: row for row in rows}, done.stderr[-2000:]
        )

    def settings(self) -> Settings:
        """The settings of the deployment, for reading its tables."""
        env = self.environment
        return Settings(
            environment="production",
            catalog_uri=env["TIDEMARK_CATALOG_URI"],
            catalog={"type": self.catalog},
            warehouse=env["TIDEMARK_WAREHOUSE"],
            aws_endpoint_url=env["AWS_ENDPOINT_URL"].rstrip("/"),
            port_cloud=int(env["TIDEMARK_PORT_CLOUD"]),
            spark_remote=env["SPARK_REMOTE"],
        )

    @property
    def kafka_servers(self) -> str:
        """The address of the broker."""
        return self.environment["TIDEMARK_KAFKA_BOOTSTRAP_SERVERS"]

    def _write_environment(self, port: int) -> None:
        super()._write_environment(port)
        self._postgres_port = port
        self._data = Path(self._postgres().cmdline()[self._postgres().cmdline().index("-D") + 1])
        self.environment |= {
            "TIDEMARK_KAFKA_BOOTSTRAP_SERVERS": f"localhost:{self.ports['kafka']}",
            "TIDEMARK_PORT_KAFKA": str(self.ports["kafka"]),
            "TIDEMARK_CONTRACT_SCALE": str(self.contract_scale),
            # By its slash this is another cloud than the laptop's own, where lost queues would be created again.
            "AWS_ENDPOINT_URL": self.environment["AWS_ENDPOINT_URL"] + "/",
        }

    def _start_spark(self) -> None:
        if self.catalog == "rest":
            self._start_catalog()
        broker = [sys.executable, "-m", "dagster_tidemark.local.kafka_server"]
        self.start("kafka", broker, TIDEMARK_ENVIRONMENT="local", TIDEMARK_JARS_DIR=str(JARS))
        assert READINGS.topic is not None
        admin = AdminClient({"bootstrap.servers": self.kafka_servers, "log_level": 2})
        admin.create_topics([NewTopic(READINGS.topic, 2, 1)])[READINGS.topic].result(30)
        super()._start_spark()

    def _start_catalog(self) -> None:
        """Start Iceberg's reference server of a REST catalog, which keeps its records in PostgreSQL."""
        self.environment["TIDEMARK_CATALOG"] = json.dumps({"type": "rest"})
        self.environment["TIDEMARK_CATALOG_URI"] = f"http://127.0.0.1:{self.ports['catalog']}"
        options = {
            "uri": f"jdbc:postgresql://127.0.0.1:{self._postgres_port}/lake",
            "jdbc.user": "tidemark",
            "jdbc.password": PASSWORD,
            "warehouse": self.environment["TIDEMARK_WAREHOUSE"],
            "io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
            "s3.endpoint": self.environment["AWS_ENDPOINT_URL"],
            "s3.path-style-access": "true",
            "s3.access-key-id": LOCAL_KEY,
            "s3.secret-access-key": LOCAL_KEY,
            "client.region": self.environment["AWS_REGION"],
        }
        [driver] = (self.folder / "jars").glob("org.postgresql_*.jar")
        self.start("catalog", rest_command(self.ports["catalog"], self.folder, options, str(driver)))

    def _unit(self, name: str) -> list[str]:
        command = super()._unit(name)
        if name == "tidemark-metrics":
            return [*command, "--port", str(self.ports["metrics"])]
        return [str(self.ports["webserver"]) if part == "3000" else part for part in command]

    def _postgres(self) -> psutil.Process:
        below = psutil.Process().children()
        return next(p for p in below if p.name() == "postgres" and "-D" in p.cmdline() and p.status() != "zombie")


@dataclass
class Usage:
    """What each process uses of the machine, every ten seconds, from a thread of its own."""

    platform: SoakPlatform
    file: Path
    samples: list[dict[str, Any]] = field(default_factory=list)
    _over: threading.Event = field(default_factory=threading.Event)

    @contextmanager
    def sampled(self) -> Iterator[None]:
        """Sample until the block ends."""
        thread = threading.Thread(target=self._work, daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._over.set()
            thread.join(30)

    def _work(self) -> None:
        while not self._over.wait(SAMPLED_EVERY):
            sample = {"at": time.time(), "load": os.getloadavg()[0], "disk": self._disk(), "parts": self._parts()}
            self.samples.append(sample)
            with self.file.open("a") as file:
                file.write(json.dumps(sample) + "\n")

    def _parts(self) -> dict[str, dict[str, float]]:
        pids = {name: process.pid for name, process in [*self.platform.processes.items()]}
        with suppress(StopIteration, psutil.Error):
            pids["postgres"] = self.platform._postgres().pid
        below = _children()
        return {name: used for name, pid in pids.items() if (used := _used(pid, below))}

    def _disk(self) -> dict[str, float]:
        """Return the megabytes of each folder that grows."""
        folder = self.platform.folder
        state = folder / "state"
        places = {
            "objects of S3": state / "objects",
            "Kafka": state / "kafka" / "data",
            "PostgreSQL": self.platform._data,
            "Spark's workers": folder / "worker-1",
            "DAGSTER_HOME": folder / "dagster",
        }
        found = {name: _size(place) for name, place in places.items()}
        inside = found["objects of S3"] + found["Kafka"]
        return found | {"state without these": round(_size(state) - inside, 1)}

    def figures(self) -> dict[str, Any]:
        """Return for each part and measure the median of the first and the last third, and the largest."""
        series: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
        for sample in self.samples:
            for name, used in sample["parts"].items():
                for what, value in used.items():
                    series[name][what].append(value)
            for name, size in sample["disk"].items():
                series["disk in MB"][name].append(size)
        return {
            name: {
                what: [_third(values, 0), _third(values, 2), max(values)]
                for what, values in measures.items()
                if what != "pid"
            }
            for name, measures in series.items()
        }

    def growth(self) -> dict[str, dict[str, float]]:
        """Return MB per hour of the longest life of each part, without its first two minutes."""
        lives: dict[tuple[str, int], list[tuple[float, float]]] = defaultdict(list)
        for sample in self.samples:
            for name, used in sample["parts"].items():
                lives[name, int(used["pid"])].append((sample["at"], used["MB"]))
        longest: dict[str, list[tuple[float, float]]] = {}
        for (name, _), life in lives.items():
            settled = [(at, mb) for at, mb in life if at > life[0][0] + 120]
            if len(settled) > len(longest.get(name, [])):
                longest[name] = settled
        return {
            name: {"minutes": round((life[-1][0] - life[0][0]) / 60, 1), "MB an hour": round(_slope(life), 1)}
            for name, life in longest.items()
            if len(life) > 2
        }


def _children() -> dict[int, list[psutil.Process]]:
    """Return the children of each process, from one look at all."""
    found: dict[int, list[psutil.Process]] = defaultdict(list)
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            found[process.ppid()].append(process)
    return found


def _used(pid: int, below: dict[int, list[psutil.Process]]) -> dict[str, float]:
    """Return the memory, handles and threads of a process, and the number and memory of what it started."""
    with suppress(psutil.Error):
        process = psutil.Process(pid)
        with process.oneshot():
            own = {
                "pid": pid,
                "MB": round(process.memory_info().rss / _MB, 1),
                "handles": process.num_fds(),
                "threads": process.num_threads(),
            }
        started, mb = [*below.get(pid, ())], 0.0
        for child in started:  # grows
            started += below.get(child.pid, ())
            with suppress(psutil.Error):
                mb += child.memory_info().rss / _MB
        return own | ({"children": len(started), "MB of children": round(mb, 1)} if started else {})
    return {}


def _size(folder: Path) -> float:
    total = 0
    for place, _, names in os.walk(folder):
        for name in names:
            with suppress(OSError):
                total += (Path(place) / name).lstat().st_size
    return round(total / _MB, 1)


def _third(values: list[float], number: int) -> float:
    size = max(1, len(values) // 3)
    return round(median(values[:size] if number == 0 else values[-size:]), 1)


def _slope(life: list[tuple[float, float]]) -> float:
    """Return the slope of a least-squares line, per hour."""
    mean_at, mean_mb = (sum(each[n] for each in life) / len(life) for n in (0, 1))
    over = sum((at - mean_at) * (mb - mean_mb) for at, mb in life)
    return 3600 * over / (sum((at - mean_at) ** 2 for at, _ in life) or 1.0)


@contextmanager
def soak_platform(folder: Path, contract_scale: float, catalog: str) -> Iterator[SoakPlatform]:
    """The whole arrangement, which leaves no process."""
    made = SoakPlatform(folder, contract_scale=contract_scale, catalog=catalog)
    try:
        made.open()
        yield made
    finally:
        made.close()
