"""The sensor `dead_runs`: a run whose process is gone is ended, with any launcher; no other run is."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import dagster as dg
import psutil
import pytest
from dagster import DagsterEventType, DagsterInstance, DagsterRunStatus
from dagster._core.events import DagsterEvent, EngineEventData
from dagster._core.storage.tags import GRPC_INFO_TAG
from dagster._core.test_utils import create_run_for_test
from dagster._core.types.loadable_target_origin import LoadableTargetOrigin
from dagster._grpc.server import GrpcServerProcess

from dagster_tidemark.dagster_internals import instance_store, run_storage
from dagster_tidemark.dagster_internals.code_server import is_held_by_its_server
from dagster_tidemark.event_log import run_process
from dagster_tidemark.event_log.run_facts import run_facts
from dagster_tidemark.event_log.run_process import (
    ProcessHost,
    ProcessState,
    container_in,
    fate_of,
    fate_while_starting,
    identity_of,
    this_place,
)
from dagster_tidemark.planner.event_records import Outcome
from dagster_tidemark.sensors.dead_runs import end_dead_runs
from dagster_tidemark.tags import CODE_SERVERS, PROCESS
from tests.tidemark.launched_runs import launched
from tests.tidemark.processes import ended_process


@pytest.fixture
def instance() -> Iterator[DagsterInstance]:
    with DagsterInstance.ephemeral() as made:
        yield made


def started(
    instance: DagsterInstance, process: str, status: DagsterRunStatus = DagsterRunStatus.STARTED
) -> dg.DagsterRun:
    made: dg.DagsterRun = create_run_for_test(instance, job_name="job", tags={PROCESS: process}, status=status)
    return made


def elsewhere(identity: str, **changes: str) -> str:
    return f"{identity.partition(' ')[0]} {replace(this_place(), **changes)}"


def test_run_with_a_dead_process_ends_as_lost_or_as_canceled(instance: DagsterInstance) -> None:
    gone = ended_process()
    runs = {
        status: started(instance, gone, status).run_id
        for status in (DagsterRunStatus.STARTING, DagsterRunStatus.STARTED, DagsterRunStatus.CANCELING)
    }
    assert {run.run_id for run in end_dead_runs(instance)} == set(runs.values())
    outcomes = {status: run_facts(instance, [run])[run].outcome for status, run in runs.items()}
    assert outcomes == {
        DagsterRunStatus.STARTING: Outcome.LOST,
        DagsterRunStatus.STARTED: Outcome.LOST,
        DagsterRunStatus.CANCELING: Outcome.CANCELED,
    }
    assert end_dead_runs(instance) == []


def test_run_with_a_stopped_remote_or_unknown_process_is_not_ended(instance: DagsterInstance) -> None:
    stopped = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(120)"])
    gone = ended_process()
    try:
        os.kill(stopped.pid, signal.SIGSTOP)
        left = [
            started(instance, identity_of(psutil.Process(stopped.pid))),
            started(instance, elsewhere(gone, boot="another boot", host="another")),
            started(instance, elsewhere(gone, namespace="pid:[1]")),
            started(instance, "4711@12.25"),
            create_run_for_test(instance, job_name="foreign", status=DagsterRunStatus.STARTED),
        ]
        assert end_dead_runs(instance) == []
        assert all(run.status is DagsterRunStatus.STARTED for run in instance.get_runs())
        assert len(left) == len(instance.get_runs())
    finally:
        os.kill(stopped.pid, signal.SIGKILL)
        stopped.wait()
    assert [run.run_id for run in end_dead_runs(instance)] == [left[0].run_id]


def test_dead_run_keeps_a_status_reported_before_it_is_ended(
    instance: DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = started(instance, ended_process())
    before = instance.get_runs()
    instance.report_run_canceled(run)
    monkeypatch.setattr(instance, "get_runs", lambda *_, **__: before)
    assert end_dead_runs(instance) == []


def test_process_that_a_retry_copies_from_its_failed_run_is_not_its_own(instance: DagsterInstance) -> None:
    gone = ended_process()
    failed = started(instance, gone, DagsterRunStatus.FAILURE)
    tags, parents = {PROCESS: gone}, {"parent_run_id": failed.run_id, "root_run_id": failed.run_id}
    retry = create_run_for_test(instance, "job", tags=tags, status=DagsterRunStatus.STARTING, **parents)
    assert end_dead_runs(instance) == []
    later = ended_process()
    assert later != gone
    instance.add_run_tags(retry.run_id, {PROCESS: later})
    assert [run.run_id for run in end_dead_runs(instance)] == [retry.run_id]


def test_process_identity_does_not_change_when_the_clock_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    identity = identity_of(psutil.Process())
    monkeypatch.setattr(psutil.Process, "create_time", lambda _: time.time() + 3600)
    assert run_process.fate_of_identity(identity) is ProcessState.ALIVE


HOST = ProcessHost("boot 1", run_process._INITIAL_NAMESPACE, "", "machine", "host")
INSIDE = ProcessHost("boot 1", "pid:[402]", "a" * 64, "machine", "host")


@pytest.mark.parametrize(
    ("now", "then", "fate"),
    [
        (replace(HOST, boot="boot 2"), HOST, ProcessState.GONE),
        (replace(HOST, boot="boot 2", host="clone"), HOST, ProcessState.UNKNOWN),
        (replace(HOST, boot="boot 2", machine=""), replace(HOST, machine=""), ProcessState.UNKNOWN),
        (replace(INSIDE, namespace="pid:[403]"), INSIDE, ProcessState.GONE),
        (replace(INSIDE, namespace="pid:[403]", container="b" * 64), INSIDE, ProcessState.UNKNOWN),
        (HOST, INSIDE, ProcessState.UNKNOWN),
        (INSIDE, HOST, ProcessState.UNKNOWN),
        (replace(INSIDE, namespace=""), replace(INSIDE, namespace=""), ProcessState.UNKNOWN),
    ],
)
def test_process_from_another_host_is_gone_only_if_the_host_has_ended(
    monkeypatch: pytest.MonkeyPatch, now: ProcessHost, then: ProcessHost, fate: ProcessState
) -> None:
    monkeypatch.setattr(run_process, "this_place", lambda: now)
    assert run_process.fate_of_identity(f"4711@12.25 {then}") is fate


def test_container_id_is_read_from_the_container_mounts() -> None:
    docker = f"593 571 254:1 /var/lib/docker/containers/{'c' * 64}/hosts /etc/hosts rw - ext4 /dev/vda1 rw"
    uid = "01234567-89ab-cdef-0123-456789abcdef"
    pod = f"12 11 8:1 /var/lib/kubelet/pods/{uid}/containers/run/1f2e /dev/termination-log rw"
    host = f"99 27 0:50 / /var/lib/docker/containers/{'d' * 64}/mounts/shm rw - tmpfs shm rw"
    assert container_in(docker) == "c" * 64
    assert container_in(pod) == f"{uid}/containers/run"
    assert container_in(host) == ""


JOB = """
import dagster as dg, pathlib, time
from dagster_tidemark.event_log.executor import recorded_in_process

@dg.op(config_schema=str)
def slow(context):
    pathlib.Path(context.op_config).touch()
    time.sleep(120)

@dg.job(executor_def=recorded_in_process)
def slow_job():
    slow()
"""


def test_killed_run_of_dagster_job_execute_is_detected_and_ends_as_lost(tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text(JOB)
    (tmp_path / "dagster.yaml").write_text("telemetry: {enabled: false}\n")
    (tmp_path / "config.yaml").write_text(f"ops: {{slow: {{config: {tmp_path / 'begun'}}}}}\n")
    command = [sys.executable, "-m", "dagster", "job", "execute", "-f", "slow.py", "-c", "config.yaml"]
    environment = os.environ | {"DAGSTER_HOME": str(tmp_path)}
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=log, stderr=log)
    try:
        deadline = time.monotonic() + 60
        while not (tmp_path / "begun").exists():
            assert time.monotonic() < deadline and process.poll() is None, (tmp_path / "log").read_text()
            time.sleep(0.1)
        with DagsterInstance.from_config(str(tmp_path)) as instance:
            (run,) = instance.get_runs()
            assert fate_of(run) is ProcessState.ALIVE and end_dead_runs(instance) == []
            process.kill()
            process.wait()
            assert [ended.run_id for ended in end_dead_runs(instance)] == [run.run_id]
            assert run_facts(instance, [run.run_id])[run.run_id].outcome is Outcome.LOST
    finally:
        process.kill()
        process.wait()


SLOW_IMPORT = """
import dagster as dg, pathlib, time
here = pathlib.Path(__file__).parent
if (here / "slowly").exists():
    (here / "importing").touch()
    time.sleep(120)

@dg.op
def nothing(): ...

@dg.job
def some_job():
    nothing()

defs = dg.Definitions(jobs=[some_job])
"""


def test_run_killed_while_importing_code_ends_as_lost_without_its_code_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "slow.py").write_text(SLOW_IMPORT)
    (tmp_path / "dagster.yaml").write_text("telemetry: {enabled: false}\n")
    target = LoadableTargetOrigin(executable_path=sys.executable, python_file=str(tmp_path / "slow.py"))
    pids: list[int] = []
    with DagsterInstance.from_config(str(tmp_path)) as instance:
        server = GrpcServerProcess(instance_ref=instance.get_ref(), loadable_target_origin=target, wait_on_exit=True)
        try:
            pids.append(server.pid)
            command_of_server = psutil.Process(server.pid).cmdline()
            (tmp_path / "slowly").touch()
            run = launched(instance, server)
            deadline = time.monotonic() + 60
            while not (tmp_path / "importing").exists():
                assert time.monotonic() < deadline
                time.sleep(0.1)
            _, pid = run_storage.launch_of(instance, run.run_id)
            assert pid is not None
            pids.append(pid)
            assert is_held_by_its_server(run)
            assert is_held_by_its_server(create_run_for_test(instance, job_name="job", tags=run.tags)) is False
            os.kill(server.pid, signal.SIGKILL)
            assert is_held_by_its_server(run) is None
            assert PROCESS not in run.tags and fate_while_starting(instance, run) is ProcessState.UNKNOWN
            addresses = tuple(run_process._addresses_in(command_of_server))
            assert addresses == (server.socket,)
            monkeypatch.setattr(run_process, "_own_addresses", lambda: dict.fromkeys(addresses, 0.0))
            run_process.note_code_server(instance)
            os.kill(pid, signal.SIGSTOP)
            assert fate_while_starting(instance, run) is ProcessState.ALIVE and end_dead_runs(instance) == []
            os.kill(pid, signal.SIGKILL)
            deadline = time.monotonic() + 20
            while not (ended := end_dead_runs(instance)):
                assert time.monotonic() < deadline
                time.sleep(0.2)
            assert [each.run_id for each in ended] == [run.run_id]
            assert run_facts(instance, [run.run_id])[run.run_id].outcome is Outcome.LOST
        finally:
            for left in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(left, signal.SIGKILL)
            server.wait()
            server.shutdown_server()  # of a dead process this only notes that nobody has to end it


@pytest.mark.parametrize("case", ["elsewhere", "another server", "a port of another host", "no pid", "restarted"])
def test_starting_run_is_ended_only_if_its_process_ran_on_this_host(
    instance: DagsterInstance, monkeypatch: pytest.MonkeyPatch, case: str
) -> None:
    address = (
        {"host": "code", "port": 4000}
        if case == "a port of another host"
        else {"host": "localhost", "socket": "/tmp/x/1"}
    )
    run = create_run_for_test(
        instance, job_name="job", tags={GRPC_INFO_TAG: json.dumps(address)}, status=DagsterRunStatus.STARTING
    )
    there = replace(this_place(), boot="another boot", host="another") if case == "elsewhere" else this_place()
    if case == "restarted":
        there = replace(INSIDE, namespace="pid:[402]")
        monkeypatch.setattr(run_process, "this_place", lambda: replace(INSIDE, namespace="pid:[403]"))
    socket = "/tmp/x/2" if case == "another server" else "/tmp/x/1"
    instance_store.save(instance, CODE_SERVERS, json.dumps({socket: [str(there), time.time()]}))
    if case != "no pid":
        gone = int(ended_process().partition("@")[0])
        message = f"Started process for run (pid: {gone})."
        instance.report_engine_event(message, run, EngineEventData.in_process(gone))
    ended = end_dead_runs(instance)
    assert [each.run_id for each in ended] == ([run.run_id] if case == "restarted" else [])


@pytest.mark.parametrize(
    ("case", "is_ended"),
    [
        ("its process is gone", True),
        ("its process lives", False),
        ("the port was that of another host at its launch", False),
        ("the port is that of another host", False),
        ("its server was replaced before it started a process", True),
        ("its server was replaced a moment ago", False),
        ("its server may still start a process", False),
        ("its server has no process for it", True),
        ("its server does not answer", False),
        ("its server has no process for it yet", False),
    ],
)
def test_starting_run_of_a_server_with_a_port_is_ended_if_its_process_is_certainly_gone(
    instance: DagsterInstance, monkeypatch: pytest.MonkeyPatch, case: str, is_ended: bool
) -> None:
    address = {GRPC_INFO_TAG: json.dumps({"host": "127.0.0.1", "port": 4000})}
    run = create_run_for_test(instance, job_name="job", tags=address, status=DagsterRunStatus.STARTING)
    instance.report_dagster_event(DagsterEvent(DagsterEventType.RUN_STARTING.value, "job"), run_id=run.run_id)
    now = time.time()
    replaced_at = {"before it": now + 1, "a moment": now + 90}
    began = next((at for words, at in replaced_at.items() if words in case), now - 500)
    monkeypatch.setattr(run_process, "_own_addresses", lambda: {"127.0.0.1:4000": began})
    monkeypatch.setattr(run_process.time, "time", lambda: now + (10 if case.endswith("yet") else 100))
    answer = None if case.endswith("answer") else "no process" not in case
    monkeypatch.setattr(run_process.code_server, "is_held_by_its_server", lambda _: answer)
    there = replace(this_place(), boot="b", host="h") if case == "the port is that of another host" else this_place()
    since = now + 1 if case == "the port was that of another host at its launch" else now - 3600
    noted = {"127.0.0.1:4000": [str(there), now - 10, since]}
    instance_store.save(instance, CODE_SERVERS, json.dumps(noted))
    if "server" not in case:
        pid = os.getpid() if case == "its process lives" else int(ended_process().partition("@")[0])
        instance.report_engine_event(f"Started process for run (pid: {pid}).", run, EngineEventData.in_process(pid))
    assert [each.run_id for each in end_dead_runs(instance)] == ([run.run_id] if is_ended else [])


def test_address_of_a_code_server_is_noted_since_it_is_at_its_place(
    instance: DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = ["python", "-m", "dagster", "api", "grpc", "--host", "127.0.0.1", "--port", "4000", "--socket=/tmp/a"]
    assert [*run_process._addresses_in(command)] == ["127.0.0.1:4000", "/tmp/a"]
    monkeypatch.setattr(run_process, "_own_addresses", lambda: {"127.0.0.1:4000": 1.0})

    def noted() -> list[Any]:
        run_process.note_code_server(instance)
        found: list[Any] = json.loads(instance_store.saved(instance, CODE_SERVERS) or "{}")["127.0.0.1:4000"]
        return found

    here, first, since = noted()
    assert here == str(this_place()) and first == since
    instance_store.save(instance, CODE_SERVERS, json.dumps({"127.0.0.1:4000": [here, first - 7200, since - 7200]}))
    _, again, still = noted()
    assert again >= first and still == since - 7200
    there = replace(this_place(), boot="another boot", host="another")
    monkeypatch.setattr(run_process, "this_place", lambda: there)
    moved, _, later = noted()
    assert moved == str(there) and later >= since
