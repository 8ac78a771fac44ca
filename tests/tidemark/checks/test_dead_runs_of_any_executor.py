"""Runs of added assets in an existing location: a dead one is ended whatever executor the location has."""

import os
import signal
from collections.abc import Iterator
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

import dagster as dg
import psutil
import pytest
from dagster import AssetKey, DagsterInstance, DagsterRunStatus
from dagster._core.test_utils import create_run_for_test

from dagster_tidemark.dagster_internals import code_server as reason_for_loading
from dagster_tidemark.dagster_internals import run_worker
from dagster_tidemark.event_log.run_facts import run_facts
from dagster_tidemark.event_log.run_process import identity_of, process_of, record_while_loading
from dagster_tidemark.planner.event_records import Outcome
from dagster_tidemark.sensors.dead_runs import end_dead_runs
from dagster_tidemark.sensors.scope import LocationScope
from dagster_tidemark.tags import PROCESS
from tests.live.waiting import eventually
from tests.tidemark.launched_runs import code_server, found, launched
from tests.tidemark.processes import ended_process

LOCATION = """
import pathlib
import time

import dagster as dg
from dagster._core.executor.in_process import InProcessExecutor
from dagster._core.execution.retries import RetryMode
from dagster_tidemark import extend, load_settings

HERE = pathlib.Path(__file__).parent


def working(name):
    @dg.asset(name=name)
    def asset():
        (HERE / f"{name} works").touch()
        until = time.monotonic() + 240
        while not (HERE / f"{name} may end").exists() and time.monotonic() < until:
            time.sleep(0.1)

    return asset


class Custom(dg.Executor):
    retries = RetryMode.DISABLED

    def execute(self, plan_context, execution_plan):
        yield from InProcessExecutor(self.retries).execute(plan_context, execution_plan)


@dg.executor(name="custom")
def custom(_):
    return Custom()


OURS = ("default", "in_process", "custom")
defs = extend(
    dg.Definitions(
        assets=[working("theirs")],
        jobs=[
            dg.define_asset_job("in_process_job", [dg.AssetKey("in_process")], executor_def=dg.in_process_executor),
            dg.define_asset_job("custom_job", [dg.AssetKey("custom")], executor_def=custom),
        ],
    ),
    load_settings(),
    assets=[working(name) for name in OURS],
)
"""
OURS = ("default", "in_process", "custom")
SCOPE = LocationScope("tidemark_", frozenset(AssetKey(name) for name in OURS))
WHOLE_JOB = "__ASSET_JOB"


@pytest.fixture
def location(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TIDEMARK_STATE_DIR", str(tmp_path / "state"))
    (tmp_path / "dagster.yaml").write_text("telemetry: {enabled: false}\n")
    (tmp_path / "location.py").write_text(LOCATION)
    return tmp_path / "location.py"


def works(location: Path, name: str) -> None:
    assert (location.parent / f"{name} works").exists(), f"{name} does not work yet"


@pytest.mark.timeout(600)  # four runs at once, each with a process that imports the location
def test_dead_run_of_an_added_asset_is_ended_with_any_executor(location: Path) -> None:
    with (
        DagsterInstance.from_config(str(location.parent)) as instance,
        code_server(instance, location, by_port=True) as server,  # a port does not name a host, a socket does
    ):
        jobs = {name: WHOLE_JOB if name in ("default", "theirs") else f"{name}_job" for name in (*OURS, "theirs")}
        runs = {name: launched(instance, server, job, [AssetKey(name)]) for name, job in jobs.items()}
        for name in runs:
            eventually(lambda name=name: works(location, name), seconds=400)
        runs = {name: found(instance, run.run_id) for name, run in runs.items()}
        assert PROCESS not in runs["theirs"].tags
        workers = {name: worker for name in OURS if (worker := process_of(runs[name])) is not None}
        assert list(workers) == list(OURS)
        for worker in workers.values():
            worker.suspend()
        assert end_dead_runs(instance, SCOPE) == []
        # Dagster ends neither the other runs nor the processes of steps with the killed ones.
        family = psutil.Process(server.pid).children(recursive=True)
        os.kill(server.pid, signal.SIGKILL)
        for worker in workers.values():
            worker.kill()
        psutil.wait_procs(list(workers.values()), timeout=10)
        try:
            ended = {run.run_id for run in end_dead_runs(instance, SCOPE)}
        finally:
            for each in family:
                with suppress(psutil.NoSuchProcess):
                    each.kill()
        assert ended == {runs[name].run_id for name in OURS}
        assert {fact.outcome for fact in run_facts(instance, ended).values()} == {Outcome.LOST}
        assert found(instance, runs["theirs"].run_id).status is DagsterRunStatus.STARTED


def test_run_whose_step_alone_is_killed_fails_by_its_executor(location: Path) -> None:
    with (
        DagsterInstance.from_config(str(location.parent)) as instance,
        code_server(instance, location) as server,
    ):
        run = launched(instance, server, WHOLE_JOB, [AssetKey("default")])
        eventually(lambda: works(location, "default"), seconds=400)
        worker = process_of(found(instance, run.run_id))
        assert worker is not None
        steps = [each for each in worker.children() if "spawn_main" in " ".join(each.cmdline())]
        assert len(steps) == 1
        steps[0].kill()

        def has_failed() -> None:
            assert end_dead_runs(instance, SCOPE) == []
            assert found(instance, run.run_id).status is DagsterRunStatus.FAILURE

        eventually(has_failed, seconds=30)


class Loading:
    """This process as the process of a run, while it loads the definitions."""

    def __init__(self, instance: DagsterInstance, monkeypatch: pytest.MonkeyPatch) -> None:
        self.instance, self._patch = instance, monkeypatch
        monkeypatch.setattr(reason_for_loading, "is_loaded_for_a_run", lambda: True)

    def records(self, run: dg.DagsterRun, *, is_resumed: bool = False) -> bool:
        """Return True if this process records itself for a run of the asset `ours`."""
        launched = run_worker.LaunchedRun(self.instance, run, is_resumed)
        self._patch.setattr(run_worker, "launched_run", lambda: nullcontext(launched))
        record_while_loading({AssetKey("ours")})
        me = identity_of(psutil.Process())
        return found(self.instance, run.run_id).tags.get(PROCESS) == me


@pytest.fixture
def loading(monkeypatch: pytest.MonkeyPatch) -> Iterator[Loading]:
    with DagsterInstance.ephemeral() as instance:
        yield Loading(instance, monkeypatch)


def run_of(
    loading: Loading, *assets: str, status: DagsterRunStatus = DagsterRunStatus.STARTING, **more: Any
) -> dg.DagsterRun:
    keys = frozenset(AssetKey(asset) for asset in assets)
    made: dg.DagsterRun = create_run_for_test(loading.instance, "job", asset_selection=keys, status=status, **more)
    return made


def test_process_is_recorded_only_for_a_run_with_an_added_asset(loading: Loading) -> None:
    assert loading.records(run_of(loading, "ours"))
    assert loading.records(run_of(loading, "ours", "theirs"))
    assert not loading.records(run_of(loading, "theirs"))


def test_second_process_of_a_run_is_not_recorded(loading: Loading) -> None:
    """Dagster ignores a second process, which ends at once; the run goes on in the first."""
    started, finished = DagsterRunStatus.STARTED, DagsterRunStatus.FAILURE
    assert not loading.records(run_of(loading, "ours", status=started))
    assert loading.records(run_of(loading, "ours", status=started), is_resumed=True)
    assert not loading.records(run_of(loading, "ours", status=finished), is_resumed=True)
    elsewhere = {PROCESS: "4711@12.25 boot|pid:[1]|container|machine|another host"}
    assert not loading.records(run_of(loading, "ours", tags=elsewhere))
    assert loading.records(run_of(loading, "ours", tags={PROCESS: ended_process()}))
    failed = run_of(loading, "ours", tags=elsewhere, status=finished)
    parents: dict[str, Any] = {"parent_run_id": failed.run_id, "root_run_id": failed.run_id}
    assert loading.records(run_of(loading, "ours", tags=elsewhere, **parents))


def test_run_starts_although_its_process_cannot_be_recorded(
    loading: Loading, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: object) -> None:
        raise OSError("the storage does not answer")

    monkeypatch.setattr(loading.instance, "add_run_tags", broken)
    assert not loading.records(run_of(loading, "ours"))
    assert "dead_runs will not end it" in caplog.text
