"""Warm runs under the real daemon and UI: all that Dagster's own launcher does, and the process is the right one."""

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import psutil
import pytest

from dagster_tidemark.local.dagster.run_launcher import server_answers
from dagster_tidemark.local.host import process_tree
from dagster_tidemark.tags import PROCESS
from tests.checkout import CHECKOUT
from tests.conftest import free_port
from tests.live.ui import Ui
from tests.live.waiting import eventually

LOCATION = '''
import os, pathlib, time
import dagster as dg

ROOM = pathlib.Path(os.environ["ROOM"])

@dg.asset
def waiter() -> None:
    """Waits while the door is closed, and says which code it was and who its parent is."""
    (ROOM / "inside").write_text(f"{os.getpid()}")
    until = time.monotonic() + 90
    while (ROOM / "closed").exists() and time.monotonic() < until:
        time.sleep(0.05)
    (ROOM / "made").write_text(f"first {os.getppid()}")

defs = dg.Definitions(assets=[waiter], executor=dg.in_process_executor)
'''


class Host:
    """A Dagster home under `dagster dev`, with a fork server beside it."""

    def __init__(self, room: Path) -> None:
        self.room = room
        self.home = room / "dagster"
        self.home.mkdir()
        configuration = (CHECKOUT / "dagster.yaml").read_text()
        quick = configuration.replace("poll_interval_seconds: 15", "poll_interval_seconds: 2")
        assert quick != configuration
        (self.home / "dagster.yaml").write_text(quick)
        (room / "location.py").write_text(LOCATION)
        with dg.DagsterInstance.from_config(str(self.home)):
            pass  # made alone: two processes that first touch a home break it
        self.port = free_port()
        self.ui = Ui(self.port)
        self._environment = os.environ | {
            "DAGSTER_HOME": str(self.home),
            "TIDEMARK_STATE_DIR": str(room),
            "ROOM": str(room),
            process_tree.MARK: str(room),
        }
        self.server: subprocess.Popen[bytes] | None = None
        self.dagster: subprocess.Popen[bytes] | None = None

    def start_server(self) -> None:
        self.server = self._started("-m", "dagster_tidemark.local.dagster.fork_server")
        eventually(lambda: self._require(server_answers(self.home)), seconds=60)

    def start_dagster(self) -> None:
        location = str(self.room / "location.py")
        self.dagster = self._started("-m", "dagster", "dev", "-f", location, "-h", "127.0.0.1", "-p", str(self.port))

        def answers() -> None:
            with contextlib.suppress(OSError):
                self.ui.runs()
                return
            raise AssertionError("the UI does not answer")

        eventually(answers, seconds=60)

    def kill_server(self) -> None:
        assert self.server is not None
        self.server.kill()
        self.server.wait()

    def kill_dagster(self) -> None:
        """Daemon, webserver and code server at once."""
        assert self.dagster is not None
        for process in [*psutil.Process(self.dagster.pid).children(recursive=True), self.dagster]:
            with contextlib.suppress(psutil.Error):
                process.kill()
        self.dagster.wait()

    def close(self) -> None:
        (self.room / "closed").touch()

    def open(self) -> None:
        (self.room / "closed").unlink(missing_ok=True)

    def begun(self) -> tuple[str, psutil.Process]:
        """A run that is inside its asset; its id and process."""
        (self.room / "inside").unlink(missing_ok=True)
        self.close()
        run_id = self.ui.materialize("waiter")
        eventually(lambda: self._require((self.room / "inside").exists()), seconds=60)
        return run_id, psutil.Process(int((self.room / "inside").read_text()))

    def made(self) -> list[str]:
        return (self.room / "made").read_text().split()

    def end(self) -> None:
        process_tree.end(lambda: process_tree.marked(str(self.room)))
        for process in (self.server, self.dagster):
            if process is not None:
                process.wait()

    def _started(self, *arguments: str) -> subprocess.Popen[bytes]:
        with (self.room / "log").open("ab") as log:
            return subprocess.Popen(
                [sys.executable, *arguments], cwd=self.room, env=self._environment, stdout=log, stderr=log
            )

    def _require(self, condition: bool) -> None:
        assert condition, (self.room / "log").read_text()[-4000:]


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    made = Host(tmp_path_factory.mktemp("host"))
    try:
        made.start_server()
        made.start_dagster()
        yield made
    finally:
        made.end()


@pytest.fixture(autouse=True)
def open_door(host: Host) -> Iterator[None]:
    yield
    host.open()


def test_warm_run_is_forked_from_the_server_and_runs_current_code(host: Host) -> None:
    assert host.server is not None
    host.ui.succeeded(host.ui.materialize("waiter"))
    assert host.made() == ["first", str(host.server.pid)]

    location = host.room / "location.py"
    location.write_text(LOCATION.replace("first", "second"))
    host.ui.reload()
    host.ui.succeeded(host.ui.materialize("waiter"))
    assert host.made() == ["second", str(host.server.pid)]


def test_warm_run_is_terminated_from_the_ui(host: Host) -> None:
    run_id, process = host.begun()

    host.ui.terminate(run_id)

    assert host.ui.ended(run_id).status == "CANCELED"
    process.wait(10)


def test_warm_run_with_a_killed_process_fails_and_logs_its_pid(host: Host) -> None:
    run_id, process = host.begun()
    killed = time.monotonic()
    process.kill()

    run = host.ui.ended(run_id)

    assert run.status == "FAILURE"
    assert f"pid {process.pid}" in host.ui.log(run_id)
    assert time.monotonic() - killed < 30


@pytest.mark.proof
def test_warm_run_succeeds_while_all_dagster_processes_are_killed(host: Host) -> None:
    run_id, process = host.begun()
    host.kill_dagster()
    host.start_dagster()
    assert process.is_running()

    host.open()

    host.ui.succeeded(run_id)
    with dg.DagsterInstance.from_config(str(host.home)) as instance:
        assert instance.get_runs()[0].tags[PROCESS].startswith(f"{process.pid}@")


@pytest.mark.proof
def test_run_of_a_killed_server_succeeds_and_the_next_starts_cold(host: Host) -> None:
    assert host.server is not None
    run_id, process = host.begun()
    host.kill_server()
    assert process.is_running()
    host.open()
    host.ui.succeeded(run_id)

    cold_id, cold = host.begun()
    assert cold.ppid() != host.server.pid
    host.ui.terminate(cold_id)
    assert host.ui.ended(cold_id).status == "CANCELED"

    host.start_server()
    host.open()
    host.ui.succeeded(host.ui.materialize("waiter"))
    assert host.made()[1] == str(host.server.pid)
