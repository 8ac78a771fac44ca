"""A code server under Dagster's own launcher that is told to end while shifts run: it and the shifts are gone soon."""

import signal
import time
from pathlib import Path

import psutil

from tests.live.waiting import eventually
from tests.proof.bare_platform import BarePlatform, bare_platform
from tests.proof.conftest import Report

SECONDS, TIMES = 10.0, 5


def test_a_code_server_with_shifts_ends_within_ten_seconds(tmp_path: Path, jars: Path, report: Report) -> None:
    found = []
    with bare_platform(tmp_path, jars) as platform:
        for _ in range(TIMES):
            eventually(lambda: _require_shifts(platform), seconds=240, every=2)
            server = platform.processes["code"]
            family = [psutil.Process(server.pid), *psutil.Process(server.pid).children(recursive=True)]
            begun = time.monotonic()
            server.send_signal(signal.SIGTERM)
            _, alive = psutil.wait_procs(family, timeout=60)
            assert not alive
            server.wait()
            found.append(round(time.monotonic() - begun, 1))
            platform.start("code")
    report("code-server-ends", {"what": "seconds from SIGTERM to the end of server and shifts", "seconds": found})
    assert max(found) <= SECONDS


def _require_shifts(platform: BarePlatform) -> None:
    assert len(platform.shifts()) >= 3
