"""Run launcher that forks runs from a preloaded server (one host).

Each run keeps Dagster's isolation: its own process loads the code location, so that a reload is enough after a code
change. Forking saves the one or two seconds of loading Dagster, Spark's client and boto3. If the server does not run, a
run starts cold, as with Dagster's own launcher. In production the cluster's launcher takes its place.

Belongs here: the launcher. Does not belong here: the server (`dagster_tidemark.local.dagster.fork_server`), and the
identification of a run's process (`event_log.run_process`).
"""

import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
from dagster import DagsterRun

from dagster_tidemark.dagster_internals.run_launcher import ProcessLauncher
from dagster_tidemark.event_log.run_process import identity_of, process_of
from dagster_tidemark.local.host.sockets import socket_path
from dagster_tidemark.tags import PROCESS

GO = b"go\n"
SECONDS_TO_FORK = 5.0


class WarmRunLauncher(ProcessLauncher):
    """Launcher of runs on this host, which forks them if the fork server runs. Configured in dagster.yaml."""

    def __init__(self, *config: Any) -> None:
        super().__init__(*config)
        self._cold: list[subprocess.Popen[bytes]] = []

    def start(self, run: DagsterRun, arguments: str) -> None:
        try:
            self._launch_warm(run, arguments)
        except OSError:
            self._launch_cold(run, arguments)

    def _launch_warm(self, run: DagsterRun, arguments: str) -> None:
        with _connected(server_socket(Path(self.instance.root_directory))) as server, server.makefile("rwb") as stream:
            stream.write(arguments.encode() + b"\n")
            stream.flush()
            identity = stream.readline().decode().strip()
            if not identity:
                raise ConnectionResetError("the fork server ended before it started the run")
            # Before the run writes its own state: Dagster reads and writes a run's row as a whole.
            self.instance.add_run_tags(run.run_id, {PROCESS: identity})
            stream.write(GO)

    def _launch_cold(self, run: DagsterRun, arguments: str) -> None:
        self._cold = [process for process in self._cold if process.poll() is None]
        # `sys.executable` does not depend on PATH. The new session keeps the run alive if the daemon dies.
        command = [sys.executable, "-m", "dagster", "api", "execute_run", arguments]
        process = subprocess.Popen(command, start_new_session=True, stdin=subprocess.DEVNULL)
        self._cold.append(process)
        self.instance.add_run_tags(run.run_id, {PROCESS: identity_of(psutil.Process(process.pid))})

    def terminate(self, run_id: str) -> bool:
        """Interrupt a run, from any process of this host. A run whose process is gone is canceled at once."""
        run = self.instance.get_run_by_id(run_id)
        if run is None or run.is_finished:
            return False
        self.instance.report_run_canceling(run)
        process = process_of(run)
        if process is None:
            self.instance.report_run_canceled(run, "The process of this run had already ended.")
            return True
        process.send_signal(signal.SIGINT)
        return True

    def lost_process(self, run: DagsterRun) -> str:
        if process_of(run) is not None:
            return ""
        name = run.tags.get(PROCESS, "unknown").partition("@")[0]
        return f"the run's process (pid {name}) exited without reporting a status"


def server_socket(home: Path) -> Path:
    """Return the socket of a Dagster home's fork server."""
    return socket_path(home, "warm-runs")


def server_answers(home: Path) -> bool:
    """Return True if the fork server of a home accepts connections. A killed server leaves its socket behind."""
    try:
        _connected(server_socket(home)).close()
    except OSError:
        return False
    return True


def _connected(path: Path) -> socket.socket:
    made = socket.socket(socket.AF_UNIX)
    made.settimeout(SECONDS_TO_FORK)
    try:
        made.connect(str(path))
    except OSError:
        made.close()
        raise
    return made
