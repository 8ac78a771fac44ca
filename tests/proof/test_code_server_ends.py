"""A code server under Dagster's own launcher that gets SIGTERM while shifts work, or while they start: all end soon."""

import signal
import time
from pathlib import Path

import psutil

from tests.live.waiting import eventually
from tests.proof.bare_platform import BarePlatform, bare_platform
from tests.proof.conftest import Report

SECONDS, TIMES = 10.0, 5
SECONDS_OF_A_START = 15.0
"""A run process imports Dagster and the location before it can look for a reason to end: some seconds of two cores."""


def test_code_server_with_shifts_ends_within_the_time_limit(tmp_path: Path, jars: Path, report: Report) -> None:
    at_work, starting = [], []
    with bare_platform(tmp_path, jars) as platform:
        for _ in range(TIMES):
            eventually(lambda: _require_shifts(platform, aged=20), seconds=300, every=2)
            at_work.append(_seconds_to_end(platform))
            platform.start("code")
            eventually(lambda: _require_shifts(platform), seconds=240, every=0.5)
            starting.append(_seconds_to_end(platform))
            platform.start("code")
    what = "seconds from SIGTERM to the end of server and shifts"
    report("code-server-ends", {"what": what, "shifts work": at_work, "shifts start": starting})
    assert max(at_work) <= SECONDS
    assert max(starting) <= SECONDS_OF_A_START


def _seconds_to_end(platform: BarePlatform) -> float:
    server = platform.processes["code"]
    family = [psutil.Process(server.pid), *psutil.Process(server.pid).children(recursive=True)]
    begun = time.monotonic()
    server.send_signal(signal.SIGTERM)
    _, alive = psutil.wait_procs(family, timeout=60)
    assert not alive
    server.wait()
    return round(time.monotonic() - begun, 1)


def _require_shifts(platform: BarePlatform, aged: float = 0.0) -> None:
    """Check that at least three shifts have run for this number of seconds."""
    assert sum(time.time() - process.create_time() >= aged for process in platform.shifts()) >= 3
