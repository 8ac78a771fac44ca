"""The supervisor: supervisord in its own session, and its client.

Belongs here: its lifecycle, from ending the processes of a killed predecessor to the end of the last process, and the
status of each service. Does not belong here: the list of services (`dagster_tidemark.local.platform.services`).
"""

import subprocess
import sys
import time
import xmlrpc.client
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
from supervisor.xmlrpc import Faults, SupervisorTransport

from dagster_tidemark.errors import Transient
from dagster_tidemark.local.host import process_tree
from dagster_tidemark.local.host.sockets import socket_path
from dagster_tidemark.local.platform.instance_lock import running_environment
from dagster_tidemark.local.platform.services import Service, all_services, log_file, supervisor_config
from dagster_tidemark.settings import Settings

_SECONDS_TO_ANSWER = 15
_SECONDS_TO_STOP = 40
_SECONDS_TO_LACK = 8.0  # a reload replaces the code server within seconds
_LAST_LINES = 15  # of a log, in an error
_BEGUN = "supervisord started with pid"
_FAILED = {"BACKOFF", "FATAL", "EXITED", "UNKNOWN"}


class ServiceFailed(Transient):
    """A service ended before it was ready. The message holds the end of its log."""

    def __init__(self, service: Service, log: Path) -> None:
        super().__init__(f"{service.title} did not start; the end of {log}:\n{last_lines(log)}")


class SupervisorDied(Transient):
    """supervisord itself is gone, so no service would be restarted."""

    def __init__(self) -> None:
        super().__init__("supervisord was ended by another process; all services were stopped too")


@dataclass(frozen=True)
class ServiceState:
    """State of a service in supervisord. `pid` is 0 while it has no process; `started_at` is in Unix seconds."""

    name: str
    state: str
    pid: int
    started_at: int


class Supervisor:
    """supervisord for one state folder. Only the process that holds the folder's lock may start one."""

    def __init__(self, settings: Settings, services: dict[str, Service]) -> None:
        self._settings = settings
        self._run = settings.state_dir / "run"
        self._socket = socket_path(self._run, "supervisor")
        self._process: subprocess.Popen[bytes] | None = None
        self._mark = str(settings.state_dir)
        self._lacks_since: dict[str, float] = {}
        self.services = services

    def end_leftovers(self) -> int:
        """End the processes that a killed `up` left running. Return their number."""
        return process_tree.end(lambda: process_tree.marked(self._mark), seconds=10)

    def start(self, environment: Mapping[str, str]) -> None:
        """Start supervisord, with no service yet."""
        self._run.mkdir(parents=True, exist_ok=True)
        log = log_file(self._settings, "supervisor")
        log.parent.mkdir(parents=True, exist_ok=True)
        config = self._run / "supervisor.conf"
        config.write_text(supervisor_config(self.services, self._socket))
        self._socket.unlink(missing_ok=True)
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "supervisor.supervisord", "-n", "-c", "run/supervisor.conf"],
                cwd=self._settings.state_dir,
                env={**environment, process_tree.MARK: self._mark},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,  # Ctrl-C reaches only `up`, which then stops everything in order
            )
        deadline = time.monotonic() + _SECONDS_TO_ANSWER
        while not self._answers():
            if not self.is_alive() or time.monotonic() > deadline:
                raise RuntimeError(f"supervisord did not start; the end of {log}:\n{last_lines(log)}")
            time.sleep(0.05)

    def is_alive(self) -> bool:
        """Return True if supervisord itself runs."""
        return self._process is not None and self._process.poll() is None

    def start_service(self, name: str) -> None:
        """Start a service without waiting for it; see `wait_ready`."""
        self._call("startProcess", name, False)

    def restart_service(self, name: str) -> None:
        """Stop a service and start it again."""
        self._call("stopProcess", name, True)
        self._call("startProcess", name, False)

    def restart_lacking(self, now: float) -> list[str]:
        """Restart each service that has reported a fault (`lacks`) for several seconds. Return the faults in words.

        Args:
            now: A monotonic time.
        """
        restarted = []
        for state in self.states():
            service = self.services[state.name]
            lack = service.lacks(state.pid) if state.pid else ""
            since = self._lacks_since.setdefault(state.name, now) if lack else self._lacks_since.pop(state.name, now)
            if lack and now - since >= _SECONDS_TO_LACK:
                del self._lacks_since[state.name]
                self.restart_service(state.name)
                restarted.append(f"{service.title} {lack}")
        return restarted

    def wait_ready(self, name: str, seconds: float) -> None:
        """Wait until a service is ready.

        Raises:
            ServiceFailed: it died, or was not ready in time.
        """
        service = self.services[name]
        deadline = time.monotonic() + seconds
        while not service.is_ready():
            state = next(state for state in self.states() if state.name == name)
            if state.state in _FAILED or time.monotonic() > deadline:
                raise ServiceFailed(service, log_file(self._settings, name))
            time.sleep(0.1)

    def states(self) -> list[ServiceState]:
        """Return the state of every service.

        Raises:
            SupervisorDied: supervisord is gone, or shutting down.
        """
        try:
            answer: Any = self._call("getAllProcessInfo")
        except OSError:
            with suppress(subprocess.TimeoutExpired):  # the socket disappears shortly before the process ends
                if self._process is not None:
                    self._process.wait(1)
            if self.is_alive():
                raise
            raise SupervisorDied from None
        except xmlrpc.client.Fault as fault:
            if fault.faultCode == Faults.SHUTDOWN_STATE:
                raise SupervisorDied from None
            raise
        return [ServiceState(info["name"], info["statename"], info["pid"], info["start"]) for info in answer]

    def restarts(self, name: str) -> int:
        """Return the number of restarts of a service since supervisord began, as far back as its log goes."""
        lines = log_file(self._settings, "supervisor").read_text(errors="replace").splitlines()
        begun = max((number for number, line in enumerate(lines) if _BEGUN in line), default=0)
        spawned = sum(f"spawned: '{name}' with pid" in line for line in lines[begun:])
        return max(spawned - 1, 0)

    def stop(self) -> int:
        """Stop every service and supervisord, and wait until none of their processes is left.

        Return the number of processes that had to be ended individually.
        """
        if self._process is None:
            return 0
        if self.is_alive():
            self._process.terminate()
            try:
                self._process.wait(_SECONDS_TO_STOP)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        count = process_tree.end(lambda: process_tree.marked(self._mark))
        self._socket.unlink(missing_ok=True)
        return count

    def _answers(self) -> bool:
        try:
            self._call("getState")
        except (OSError, xmlrpc.client.Error):
            return False
        return True

    def _call(self, method: str, *arguments: object) -> object:
        transport = SupervisorTransport(None, None, serverurl=f"unix://{self._socket}")
        with xmlrpc.client.ServerProxy("http://127.0.0.1", transport=transport) as server:
            return getattr(server.supervisor, method)(*arguments)


def last_lines(log: Path) -> str:
    """Return the last lines of a log."""
    try:
        with log.open(errors="replace") as lines:
            return "".join(deque(lines, maxlen=_LAST_LINES)).rstrip()
    except FileNotFoundError:
        return "(no such file)"


@dataclass(frozen=True)
class ServiceStatus:
    """Status of a service. Memory shared by its processes counts once; `pid` and `port` are None if there is none."""

    service: str
    title: str
    state: str
    pid: int | None
    port: int | None
    memory_mb: int
    restarts: int
    up_seconds: int | None


def services(settings: Settings) -> list[ServiceStatus]:
    """Return the services of the running platform, in the order of their start.

    Raises:
        NothingRuns: no platform runs.
        SupervisorDied: its supervisor was killed.
    """
    running_environment(settings)
    settings = settings.for_platform()
    supervisor = Supervisor(settings, all_services(settings))
    found = []
    for state in supervisor.states():
        service = supervisor.services[state.name]
        found.append(
            ServiceStatus(
                service=state.name,
                title=service.title,
                state=_state(service, state),
                pid=state.pid or None,
                port=service.port,
                memory_mb=memory_mb(state.pid),
                restarts=supervisor.restarts(state.name),
                up_seconds=int(time.time()) - state.started_at if state.pid else None,
            )
        )
    return found


def _state(service: Service, state: ServiceState) -> str:
    if not state.pid or not service.is_ready():
        return state.state.lower()
    return service.lacks(state.pid) or "ready"


def memory_mb(pid: int) -> int:
    """Return the memory of a process and its descendants in megabytes. Processes that have ended count as 0."""
    if not pid:
        return 0
    try:
        root = psutil.Process(pid)
        family = [root, *root.children(recursive=True)]
    except psutil.NoSuchProcess:
        return 0
    held = 0
    for process in family:
        try:
            memory = process.memory_full_info()
        except psutil.Error:
            continue
        held += getattr(memory, "pss", memory.rss)  # only Linux reports proportional shares
    return held // 2**20
