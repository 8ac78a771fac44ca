"""A shift's post: the reasons to leave it, its takeover by another run, and the count of failed shifts."""

import json
import os
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
from dagster import DagsterInstance, DagsterRunStatus
from dagster._core.test_utils import create_run_for_test
from sqlalchemy.exc import OperationalError

from dagster_tidemark.dagster_internals import instance_store
from dagster_tidemark.event_log.beats import Beat, key_of
from dagster_tidemark.event_log.run_process import identity_of
from dagster_tidemark.sensors import streams as sensor
from dagster_tidemark.settings import Settings
from dagster_tidemark.streams.shift_lease import STOPPING, STUCK_SECONDS, Post
from dagster_tidemark.tags import CODE_OF_STREAMS, STREAM, WORKED, WORKER
from tests.tidemark.streams import toy

PINGS = toy.stream("pings")
SETTINGS = Settings()
CODE = CODE_OF_STREAMS + SETTINGS.code_location
KEY = key_of(SETTINGS, "pings", "0")


@pytest.fixture
def instance() -> Iterator[DagsterInstance]:
    with DagsterInstance.ephemeral() as made:
        yield made


def started(instance: DagsterInstance, status: DagsterRunStatus = DagsterRunStatus.STARTED) -> dg.DagsterRun:
    made: dg.DagsterRun = create_run_for_test(
        instance, job_name=PINGS.job, tags={STREAM: "pings", WORKER: "0"}, status=status
    )
    return made


class Shift:
    """A post whose looks are made by hand."""

    def __init__(self, instance: DagsterInstance, **more: Any) -> None:
        self.run, self.time = started(instance), 0.0
        self.post = Post(instance, SETTINGS, "pings", "0", self.run.run_id, clock=lambda: self.time, **more)
        self.post._beat()

    def ends(self, after: float = 20.0) -> str | None:
        self.time += after
        return self.post.ends()


@pytest.mark.parametrize("how", ["canceled", "failed", "canceling", "deleted"])
def test_shift_stops_when_its_run_is_ended_or_deleted(instance: DagsterInstance, how: str) -> None:
    shift = Shift(instance)
    assert shift.ends() is None
    if how == "canceled":
        instance.report_run_canceled(shift.run)
    elif how == "failed":
        instance.report_run_failed(shift.run)
    elif how == "canceling":
        instance.report_run_canceling(shift.run)
    else:
        instance.delete_run(shift.run.run_id)
    why = shift.ends()
    assert why is not None and ("deleted" in why if how == "deleted" else "ended by another process" in why)


def test_paused_shift_stops_when_another_run_has_replaced_it(
    instance: DagsterInstance,
) -> None:
    sleeper = Shift(instance)
    assert sleeper.ends() is None
    time.sleep(0.01)
    other = Shift(instance)
    assert other.ends() is None
    # The sleeper stopped between its look and its beat, and writes that first.
    sleeper.post._beat()
    assert other.ends() is None, "the older one does not drive out the newer"
    why = sleeper.ends()
    assert why is not None and other.run.run_id in why
    assert other.ends() is None


def test_unavailable_instance_storage_stops_no_shift(
    instance: DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    shift = Shift(instance)

    def refuses(*_: object) -> None:
        raise OperationalError("select", {}, Exception("the server closed the connection"))

    with monkeypatch.context() as away:
        away.setattr(instance_store, "saved_values", refuses)
        assert shift.ends() is None
    assert shift.ends() is None
    instance_store.save(instance, CODE, "the next")
    assert shift.ends() == "new code was loaded"


def test_only_shifts_of_a_stopping_code_server_stop(instance: DagsterInstance) -> None:
    instance_store.save(instance, CODE, "code")
    shift = Shift(instance)
    instance_store.save(instance, CODE, STOPPING + "another process")
    assert shift.ends() is None
    instance_store.save(instance, CODE, STOPPING + identity_of(psutil.Process(os.getppid())))
    assert shift.ends() == "its code server is stopping"


SERVER = """
import os, signal, time
import dagster as dg
from dagster_tidemark.dagster_internals import instance_store, code_server
from dagster_tidemark.sensors import streams
from dagster_tidemark.settings import Settings
from dagster_tidemark.tags import CODE_OF_STREAMS

key = CODE_OF_STREAMS + Settings().code_location
code_server.is_loaded_by_a_code_server = lambda: True
server = streams.CodeServer()
signal.signal(signal.SIGTERM, lambda *_: None)  # as Dagster does, after the definitions are loaded
with dg.DagsterInstance.get() as instance:
    assert not server.is_stopping(instance, Settings())
    os.kill(os.getpid(), signal.SIGTERM)
    deadline = time.monotonic() + 20
    while instance_store.saved(instance, key) is None and time.monotonic() < deadline:
        time.sleep(0.05)
    print(server.is_stopping(instance, Settings()), instance_store.saved(instance, key), os.getpid())
"""


def test_code_server_records_that_it_is_stopping_for_any_signal_handler(tmp_path: Path) -> None:
    (tmp_path / "dagster.yaml").write_text("telemetry: {enabled: false}\n")
    environment = os.environ | {"DAGSTER_HOME": str(tmp_path)}
    command = [sys.executable, "-c", SERVER]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=True)
    stopping, word, identity, *_, pid = done.stdout.split()
    assert (stopping, word) == ("True", STOPPING.strip()) and identity.startswith(f"{pid}@")


def wanted(instance: DagsterInstance, beats: sensor.Beats, now: float | None = None) -> int:
    return len(sensor._wanted(instance, [PINGS], SETTINGS, time.time() if now is None else now, beats=beats)[0])


def test_shift_without_heartbeats_is_replaced_whatever_its_clock_shows(
    instance: DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, beats = [1000.0], sensor.Beats()
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    run = started(instance)
    for at in (5.0, 9e9, 7.0):  # a clock that is wrong, but a beat that changes
        instance_store.save(instance, KEY, str(Beat(run.run_id, 0.0, at)))
        assert wanted(instance, beats) == 0
        clock[0] += 30
    assert wanted(instance, beats) == 0
    clock[0] += 30
    assert wanted(instance, beats) == 1
    assert instance.get_run_by_id(run.run_id).status is DagsterRunStatus.STARTED, "nobody ends it"  # type: ignore[union-attr]


def test_hanging_or_never_reporting_shift_is_replaced(instance: DagsterInstance) -> None:
    run, beats = started(instance), sensor.Beats()
    assert wanted(instance, beats) == 0
    assert wanted(instance, beats, time.time() + 100) == 1
    instance_store.save(instance, KEY, str(Beat(run.run_id, 0.0, time.time(), STUCK_SECONDS - 1)))
    assert wanted(instance, beats, time.time() + 100) == 0
    instance_store.save(instance, KEY, str(Beat(run.run_id, 0.0, time.time(), STUCK_SECONDS + 1)))
    assert wanted(instance, beats, time.time() + 100) == 1


def test_killed_shifts_that_had_worked_are_replaced_without_delay(instance: DagsterInstance) -> None:
    for _ in range(6):
        shift = Shift(instance, committed=lambda: 1)
        shift.ends()
        assert instance.get_run_by_id(shift.run.run_id).tags[WORKED] == "true"  # type: ignore[union-attr]
        instance.report_run_failed(shift.run)
    assert wanted(instance, sensor.Beats()) == 1
    for _ in range(9):
        instance.report_run_failed(started(instance))
    assert wanted(instance, sensor.Beats()) == 0
    assert wanted(instance, sensor.Beats(), time.time() + 21) == 1, "never longer than the next alert may take"


def test_idle_shift_counts_as_working_after_half_a_minute(instance: DagsterInstance) -> None:
    shift = Shift(instance)
    shift.ends(25)
    assert WORKED not in instance.get_run_by_id(shift.run.run_id).tags  # type: ignore[union-attr]
    shift.ends(25)
    assert WORKED in instance.get_run_by_id(shift.run.run_id).tags  # type: ignore[union-attr]


def test_heartbeat_of_an_unknown_format_is_ignored() -> None:
    assert Beat.read(None) is Beat.read("") is Beat.read("[]") is Beat.read('{"run": "a", "of": "tomorrow"}') is None
    beat = Beat("a", 1.0, 2.0, 3.0, {"lag": 4})
    assert Beat.read(str(beat)) == beat == replace(beat)
    assert Beat.read(json.dumps({**vars(beat), "new": 7})) == beat, "a newer release may write more"
    for other in ({"at": "now"}, {"facts": 7}, {"began": None}):
        assert Beat.read(json.dumps({**vars(beat), **other})) is None
