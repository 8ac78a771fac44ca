"""The supervisor with services that do nothing: what is restarted, and what is left."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from dagster_tidemark.local.host import process_tree
from dagster_tidemark.local.platform.services import Service, lost_code_server
from dagster_tidemark.local.platform.supervision import ServiceFailed, Supervisor, SupervisorDied, _state
from tests.conftest import make_settings

SLEEPER = "import time; time.sleep(300)"
# A child in a session of its own, out of reach of any signal to a group.
PARENT = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {SLEEPER!r}], start_new_session=True)"
DEAF = f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); {SLEEPER}"


def _service(name: str, code: str, *, ready: bool = True) -> Service:
    return Service(name=name, title=name, arguments=("-c", code), is_ready=lambda: ready, seconds_to_stop=1)


@pytest.fixture
def supervisor(tmp_path: Path) -> Iterator[Supervisor]:
    services = [_service("parent", PARENT), _service("deaf", DEAF), _service("broken", "1/0", ready=False)]
    made = Supervisor(make_settings(tmp_path), {service.name: service for service in services})
    made.start(os.environ)
    yield made
    made.stop()


def _mark(supervisor: Supervisor) -> str:
    return supervisor._mark


def _pid(supervisor: Supervisor, name: str) -> int:
    return next(state.pid for state in supervisor.states() if state.name == name)


def _eventually(condition: Callable[[], bool], *, seconds: float = 15) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not become true in time"
        time.sleep(0.05)


def _children_run(supervisor: Supervisor, count: int) -> bool:
    return len(process_tree.marked(_mark(supervisor))) == count


def test_supervisor_restarts_a_service_that_dies(supervisor: Supervisor) -> None:
    supervisor.start_service("deaf")
    _eventually(lambda: _pid(supervisor, "deaf") != 0)
    first = _pid(supervisor, "deaf")
    os.kill(first, signal.SIGKILL)
    _eventually(lambda: _pid(supervisor, "deaf") not in (0, first))


def test_supervisor_reports_why_a_service_cannot_start(supervisor: Supervisor) -> None:
    supervisor.start_service("broken")
    with pytest.raises(ServiceFailed, match="ZeroDivisionError"):
        supervisor.wait_ready("broken", 30)


def test_stopped_supervisor_leaves_no_process(supervisor: Supervisor) -> None:
    for name in ("parent", "deaf"):
        supervisor.start_service(name)
    _eventually(lambda: _children_run(supervisor, 4))
    supervisor.stop()
    assert process_tree.marked(_mark(supervisor)) == []
    assert not supervisor.is_alive()


def test_processes_of_a_killed_supervisor_are_ended_at_the_next_start(supervisor: Supervisor, tmp_path: Path) -> None:
    stranger = subprocess.Popen([sys.executable, "-c", SLEEPER])
    supervisor.start_service("parent")
    _eventually(lambda: _children_run(supervisor, 3))
    (daemon,) = [p for p in process_tree.marked(_mark(supervisor)) if "supervisor.supervisord" in p.cmdline()]
    daemon.kill()
    _eventually(lambda: not supervisor.is_alive())
    assert len(process_tree.marked(_mark(supervisor))) == 2
    successor = Supervisor(make_settings(tmp_path), {})
    assert successor.end_leftovers() == 2
    assert process_tree.marked(_mark(supervisor)) == []
    assert successor.end_leftovers() == 0
    assert stranger.poll() is None, "it ended a process that was not its own"
    stranger.kill()
    stranger.wait()


def test_orphan_processes_are_those_whose_service_died(supervisor: Supervisor) -> None:
    code = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {SLEEPER!r}])"
    environment = {**os.environ, process_tree.MARK: "test-of-orphans"}
    leader = subprocess.Popen([sys.executable, "-c", code], env=environment, start_new_session=True)
    _eventually(lambda: len(process_tree.marked("test-of-orphans")) == 2)
    assert process_tree.orphans("test-of-orphans") == []
    (child,) = psutil.Process(leader.pid).children()
    leader.kill()
    leader.wait()
    assert process_tree.orphans("test-of-orphans") == [child]
    assert process_tree.end(lambda: process_tree.orphans("test-of-orphans")) == 1
    assert process_tree.marked("test-of-orphans") == []


def test_end_group_waits_until_every_process_has_ended() -> None:
    code = f"import subprocess, sys; [subprocess.Popen([sys.executable, '-c', {DEAF!r}]) for _ in range(8)]"
    leader = subprocess.Popen([sys.executable, "-c", f"{code}; import time; time.sleep(60)"], start_new_session=True)
    _eventually(lambda: len(psutil.Process(leader.pid).children()) == 8)
    children = psutil.Process(leader.pid).children()
    process_tree.end_group(leader)
    assert not [child for child in children if child.is_running() and child.status() != psutil.STATUS_ZOMBIE]


def test_state_folder_may_have_any_name(tmp_path: Path) -> None:
    settings = make_settings(tmp_path / "50 % off; #1" / ("long" * 20))
    made = Supervisor(settings, {"deaf": _service("deaf", f"print('50 %'); {DEAF}")})
    made.start(os.environ)
    try:
        made.start_service("deaf")
        _eventually(lambda: _pid(made, "deaf") != 0)
    finally:
        made.stop()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_supervisor_ended_by_another_process_is_reported(supervisor: Supervisor, number: signal.Signals) -> None:
    supervisor.start_service("deaf")  # which takes a second to stop, in which supervisord still answers
    _eventually(lambda: _pid(supervisor, "deaf") != 0)
    assert supervisor._process is not None
    os.kill(supervisor._process.pid, number)
    deadline = time.monotonic() + 15
    with pytest.raises(SupervisorDied, match="ended by another process"):
        while time.monotonic() < deadline:
            supervisor.states()


def test_supervisor_counts_restarts_of_a_service(supervisor: Supervisor) -> None:
    supervisor.start_service("deaf")
    _eventually(lambda: _pid(supervisor, "deaf") != 0)
    first = _pid(supervisor, "deaf")
    assert supervisor.restarts("deaf") == 0

    os.kill(first, signal.SIGKILL)
    _eventually(lambda: _pid(supervisor, "deaf") not in (0, first))

    assert supervisor.restarts("deaf") == 1


# As `dagster dev` names its processes: a proxy, and below it the server with the code.
SERVER = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'import time; time.sleep(300)', 'api', 'grpc'])"
PROXY = f"{SERVER}; import time; time.sleep(300)"
DEV = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {PROXY!r}, 'code-server', 'start'])"


def test_dagster_service_without_its_code_server_is_reported_and_restarted(tmp_path: Path) -> None:
    dev = Service("dagster", "dagster dev", ("-c", DEV), lambda: True, seconds_to_stop=1, lacks=lost_code_server)
    made = Supervisor(make_settings(tmp_path), {"dagster": dev})
    made.start(os.environ)
    try:
        made.start_service("dagster")
        _eventually(lambda: _children_run(made, 4))
        first = _pid(made, "dagster")
        assert lost_code_server(first) == "" and made.restart_lacking(0.0) == []
        (server,) = [p for p in psutil.Process(first).children(recursive=True) if p.cmdline()[-1] == "grpc"]
        server.kill()
        _eventually(lambda: lost_code_server(first) == "lost its code server")
        (state,) = made.states()
        assert _state(dev, state) == "lost its code server"
        assert made.restart_lacking(1.0) == [], "a reload replaces it, too"
        assert made.restart_lacking(20.0) == ["dagster dev lost its code server"]
        _eventually(lambda: _pid(made, "dagster") not in (0, first) and _children_run(made, 4))
        assert made.restart_lacking(21.0) == []
    finally:
        made.stop()
