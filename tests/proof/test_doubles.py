"""A second daemon, a second code server and a second webserver by mistake: no row is doubled, each mistake is named."""

import os
import time
from pathlib import Path
from typing import Any

import httpx

from dagster_tidemark.event_log.standby import DEPLOY_SECONDS
from tests.conftest import free_ports
from tests.live.waiting import eventually
from tests.proof.conftest import Report
from tests.proof.rolling_platform import rolling_platform
from tests.proof.test_redeploys import _all_there, _load, _materializations, _require, _twice

SECONDS = float(os.environ.get("DOUBLES_SECONDS", DEPLOY_SECONDS + 120))


def test_doubled_processes_double_no_row_and_are_named(tmp_path: Path, jars: Path, report: Report) -> None:
    figures: dict[str, Any] = {"what": "two daemons, code servers and webservers on one instance", "seconds": SECONDS}
    with rolling_platform(tmp_path, jars) as platform:
        eventually(lambda: _require(platform.status().code == 0, "not met at first"), seconds=420, every=3)
        platform.deploy("code-again", 1)
        platform.start_daemon("daemon-again")
        ports = free_ports(2)
        for number, port in enumerate(ports, start=1):
            platform.start_webserver(f"ui-{number}", port)
        begun, named, states = time.monotonic(), dict[str, float](), set[int]()
        with _load(platform) as sent:
            while time.monotonic() - begun < SECONDS:
                status = platform.status()
                states.add(status.code)
                for what in ("2 daemons run", "2 code servers tick"):
                    if what in status.error:
                        named.setdefault(what, round(time.monotonic() - begun, 1))
                time.sleep(5)
        figures |= {"named after": named, "exit codes of status": sorted(states)}
        for port in ports:
            assert httpx.get(f"http://127.0.0.1:{port}/server_info", timeout=30).status_code == 200
        orders, readings = sent
        eventually(lambda: _all_there(platform, orders, readings), seconds=300, every=2)
        figures |= {"orders": len(orders), "readings": len(readings), "rows twice": _twice(platform)}
        figures["runs of marts"] = len(_materializations(platform))
        figures["daemon's log"] = "Another SENSOR daemon" in platform.log("daemon") + platform.log("daemon-again")
        report("doubles", figures)
    assert figures["rows twice"] == 0 and figures["daemon's log"]
    assert set(named) == {"2 daemons run", "2 code servers tick"}
