"""Tests that are killed leave no server behind."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

_TESTS = """
import signal, sys
from pathlib import Path
from tests.conftest import make_settings, start_service
folder = Path(sys.argv[1])
signal.signal(signal.SIGTERM, signal.Handlers(int(sys.argv[2])))
settings = make_settings(folder)
process = start_service("dagster_tidemark.local.cloud.server", settings, settings.port_cloud, folder / "cloud.log")
print(process.pid, flush=True)
sys.stdin.read()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no such signal")
@pytest.mark.parametrize("of_the_tests", [signal.SIG_DFL, signal.SIG_IGN])
def test_test_server_ends_with_the_killed_test_process(tmp_path: Path, of_the_tests: signal.Handlers) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", _TESTS, str(tmp_path), str(int(of_the_tests))],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as tests:
        assert tests.stdout is not None
        server = psutil.Process(int(tests.stdout.readline()))
        tests.send_signal(signal.SIGKILL)
    deadline = time.monotonic() + 20
    while server.is_running() and server.status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < deadline, "it is still there"
        time.sleep(0.1)
