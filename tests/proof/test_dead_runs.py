"""Dead runs in an existing location with an executor of its own: the sensor `tidemark_dead_runs` ends them.

Dagster's default launcher, queue and daemon, real processes that are killed or stopped. Belongs here: which process
ends, and what has to hold afterwards. Does not belong here: the location (`tests.proof.dead_runs_location`).
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import dagster as dg
import psutil
import pytest
import yaml

from dagster_tidemark.event_log.run_process import process_of
from dagster_tidemark.tags import PROCESS
from tests.checkout import CHECKOUT
from tests.live.waiting import eventually, holds_for
from tests.proof.conftest import Report

_LOCATION = CHECKOUT / "tests" / "proof" / "dead_runs_location.py"
_LIVE = [dg.DagsterRunStatus.STARTING, dg.DagsterRunStatus.STARTED]
OURS, THEIRS = dg.AssetKey("ours"), dg.AssetKey("theirs")
PROMISED = 30.0
"""Seconds from the first moment at which a sensor can tick until the run is ended."""


class Daemon:
    """A daemon on the location. Its code server and runs are its children."""

    def __init__(self, home: Path, executor: str) -> None:
        self.home, self._executor = home, executor
        self.instance = dg.DagsterInstance.from_config(str(home))

    def start(self) -> None:
        """Start the daemon, and wait until the sensor has ticked."""
        before = self._last_tick()
        variables = {
            "DAGSTER_HOME": str(self.home),
            "THEIR_EXECUTOR": self._executor,
            "TIDEMARK_STATE_DIR": str(self.home / "state"),
        }
        command = [sys.executable, "-W", "ignore", "-m", "dagster._daemon", "run", "-f", str(_LOCATION)]
        with (self.home / "daemon.log").open("ab") as log:
            self._process = subprocess.Popen(
                command, cwd=CHECKOUT, env=os.environ | variables, stdout=log, stderr=log, start_new_session=True
            )

        def has_ticked() -> None:
            assert self._last_tick() > before, (self.home / "daemon.log").read_text()[-2000:]

        eventually(has_ticked, seconds=240, every=0.1)

    def kill(self) -> None:
        """Kill the daemon with its code server and every run, as the end of a host or container does."""
        with suppress(psutil.NoSuchProcess):
            family = [psutil.Process(self._process.pid), *psutil.Process(self._process.pid).children(recursive=True)]
            for each in family:
                with suppress(psutil.NoSuchProcess):
                    each.kill()
            psutil.wait_procs(family, timeout=20)
        self._process.wait()

    def _last_tick(self) -> float:
        states = {state.name: state.instigator_data for state in self.instance.all_instigator_state()}
        return float(getattr(states.get("tidemark_dead_runs"), "last_tick_timestamp", None) or 0)

    def update_root(self) -> None:
        """Report new data of the root, which both assets read."""
        for name in ("ours", "theirs"):
            for what in ("works", "may end"):
                (self.home / f"{name} {what}").unlink(missing_ok=True)
        self.instance.report_runless_asset_event(dg.AssetMaterialization("root"))

    def runs(self, key: dg.AssetKey) -> list[dg.DagsterRun]:
        """Return the runs of an asset, newest first."""
        return [run for run in self.instance.get_runs() if key in (run.asset_selection or ())]

    def working(self, name: str, beside: str = "") -> dg.DagsterRun:
        """Wait until an asset works, and return its run.

        Args:
            beside: The id of an earlier run of the asset.
        """

        def works() -> dg.DagsterRun:
            run = next((run for run in self.runs(dg.AssetKey(name)) if run.status in _LIVE), None)
            assert run is not None and run.run_id != beside and (self.home / f"{name} works").exists()
            return run

        return eventually(works, seconds=240)

    def allow(self, name: str) -> None:
        """Let an asset end."""
        (self.home / f"{name} may end").touch()

    def ended(self, run_id: str, status: dg.DagsterRunStatus, seconds: float) -> float:
        """Wait until a run has ended, and return the seconds."""
        begun = time.monotonic()

        def has_ended() -> float:
            run = self.instance.get_run_by_id(run_id)
            assert run is not None and run.status is status, run
            return time.monotonic() - begun

        return round(eventually(has_ended, seconds=seconds, every=0.1), 1)


@contextmanager
def started(home: Path, executor: str) -> Iterator[Daemon]:
    """Run a daemon until the block ends."""
    configuration = {"telemetry": {"enabled": False}, "concurrency": {"runs": {"max_concurrent_runs": 4}}}
    (home / "dagster.yaml").write_text(yaml.safe_dump(configuration))
    daemon = Daemon(home, executor)
    try:
        daemon.start()
        yield daemon
    finally:
        daemon.kill()
        daemon.instance.dispose()


def _killed_while_working(daemon: Daemon) -> dict[str, Any]:
    """The host ends while both assets work. The foreign run is left as Dagster leaves it."""
    daemon.update_root()
    ours, theirs = daemon.working("ours"), daemon.working("theirs")
    assert PROCESS in ours.tags and PROCESS not in theirs.tags
    daemon.kill()
    (daemon.home / "ours works").unlink()
    daemon.start()
    seconds = daemon.ended(ours.run_id, dg.DagsterRunStatus.FAILURE, PROMISED)
    again = daemon.working("ours", beside=ours.run_id)
    daemon.allow("ours")
    daemon.ended(again.run_id, dg.DagsterRunStatus.SUCCESS, 60)
    left = daemon.instance.get_run_by_id(theirs.run_id)
    assert left is not None and left.status is dg.DagsterRunStatus.STARTED
    daemon.instance.report_run_failed(left)
    return {"ended after the first tick (s)": seconds}


def _killed_while_importing(daemon: Daemon) -> dict[str, Any]:
    """The host ends before the process of the run has loaded the definitions."""
    (daemon.home / "slowly").touch()
    daemon.update_root()

    def imports() -> dg.DagsterRun:
        (run, *_) = [run for run in daemon.runs(OURS) if run.status in _LIVE] or [None]
        assert run is not None and (daemon.home / "importing").exists()
        return run

    ours = eventually(imports, seconds=240)
    assert PROCESS not in ours.tags
    time.sleep(5)  # the process that is killed may be that of the other run, which started first
    daemon.kill()
    for name in ("slowly", "importing"):
        (daemon.home / name).unlink()
    daemon.start()
    seconds = daemon.ended(ours.run_id, dg.DagsterRunStatus.FAILURE, PROMISED)
    again = daemon.working("ours", beside=ours.run_id)
    daemon.allow("ours")
    daemon.ended(again.run_id, dg.DagsterRunStatus.SUCCESS, 60)
    for run in daemon.runs(THEIRS):
        if not run.is_finished:
            daemon.instance.report_run_failed(run)
    return {"ended after the first tick (s)": seconds}


def _worker_killed(daemon: Daemon) -> dict[str, Any]:
    """Only the run's process is killed. A step's process that outlives it ends by itself."""
    daemon.update_root()
    ours = daemon.working("ours")
    worker = process_of(ours)
    assert worker is not None
    (daemon.home / "ours works").unlink()
    worker.kill()
    seconds = daemon.ended(ours.run_id, dg.DagsterRunStatus.FAILURE, PROMISED)
    again = daemon.working("ours", beside=ours.run_id)
    for name in ("ours", "theirs"):
        daemon.allow(name)
    daemon.ended(again.run_id, dg.DagsterRunStatus.SUCCESS, 60)
    return {"ended (s)": seconds}


def _step_killed(daemon: Daemon) -> dict[str, Any]:
    """Only the step's process is killed, which is the run's process with executors of one process."""
    daemon.update_root()
    ours = daemon.working("ours")
    step = (daemon.home / "ours works").read_text()
    (daemon.home / "ours works").unlink()
    os.kill(int(step), signal.SIGKILL)
    seconds = daemon.ended(ours.run_id, dg.DagsterRunStatus.FAILURE, PROMISED)
    for name in ("ours", "theirs"):
        daemon.allow(name)

    def has_data() -> None:
        assert daemon.runs(OURS)[0].status is dg.DagsterRunStatus.SUCCESS

    eventually(has_data, seconds=240)
    return {"ended (s)": seconds}


def _stopped(daemon: Daemon) -> dict[str, Any]:
    """The run's process is stopped for 90 s and continues: it is not ended, and no other run is requested."""
    daemon.update_root()
    ours, before = daemon.working("ours"), len(daemon.runs(OURS))
    worker = process_of(ours)
    assert worker is not None
    family = [worker, *worker.children(recursive=True)]
    for each in family:
        each.suspend()

    def is_left_alone() -> None:
        run = daemon.instance.get_run_by_id(ours.run_id)
        assert run is not None and run.status is dg.DagsterRunStatus.STARTED
        assert len(daemon.runs(OURS)) == before

    holds_for(is_left_alone, seconds=90)
    for each in family:
        each.resume()
    for name in ("ours", "theirs"):
        daemon.allow(name)
    daemon.ended(ours.run_id, dg.DagsterRunStatus.SUCCESS, 60)
    return {"stopped (s)": 90}


FAULTS: dict[str, Callable[[Daemon], dict[str, Any]]] = {
    "host killed while the step works": _killed_while_working,
    "host killed while the run's process imports": _killed_while_importing,
    "the run's process killed": _worker_killed,
    "the step's process killed": _step_killed,
    "the run's process stopped": _stopped,
}


@pytest.mark.parametrize("executor", ["none", "in_process", "custom"])
def test_dead_runs_of_added_assets_are_ended_with_any_executor(tmp_path: Path, report: Report, executor: str) -> None:
    figures = {}
    with started(tmp_path, executor) as daemon:
        for name, fault in FAULTS.items():
            figures[name] = fault(daemon)
    said = {"none": "Dagster's default, a process for each step"}.get(executor, executor)
    report(f"dead-runs-{executor}", {"executor": said, **figures})
