"""`tidemark status --services`: each process of the platform, its port, its memory and how often it was restarted."""

import contextlib
import json
import os
import signal
import time
from collections.abc import Callable

import psutil
from dagster import DagsterInstance
from dagster._core.scheduler.instigation import SensorInstigatorData

from tests.live.platform import Platform
from tests.live.waiting import eventually


def test_status_shows_every_service_with_port_process_and_memory(platform: Platform) -> None:
    shown = json.loads(platform.pipelines("status", "--services", "--json").stdout)

    by_name = {service["service"]: service for service in shown}
    assert set(by_name) == {"cloud", "spark", "kafka", "feed", "runs", "dagster"}
    for name, setting in {"cloud": "CLOUD", "spark": "SPARK", "dagster": "UI"}.items():
        assert by_name[name]["port"] == int(platform.environment[f"TIDEMARK_PORT_{setting}"])
    for name in ("cloud", "spark", "runs", "dagster"):
        service = by_name[name]
        assert service["state"] == "ready"
        assert service["pid"] in {process.pid for process in platform.processes()}
        assert service["memory_mb"] > 10
    assert by_name["feed"]["pid"] is by_name["kafka"]["pid"] is None  # started without them


def code_servers(platform: Platform) -> list[psutil.Process]:
    found = []
    for process in platform.processes():
        with contextlib.suppress(psutil.Error):
            if {"api", "grpc"} <= set(process.cmdline()):
                found.append(process)
    return found


def dagster_state(platform: Platform) -> str:
    shown = json.loads(platform.pipelines("status", "--services", "--json").stdout)
    return str({service["service"]: service for service in shown}["dagster"]["state"])


def test_killed_code_server_is_reported_and_replaced(platform: Platform, note: Callable[[str], None]) -> None:
    (killed,) = code_servers(platform)
    os.kill(killed.pid, signal.SIGKILL)
    at = time.time()
    states = [dagster_state(platform)]

    def works_again() -> None:
        states.append(dagster_state(platform))
        assert states[-1] == "ready"
        with DagsterInstance.from_config(platform.environment["DAGSTER_HOME"]) as instance:
            sensors = [state.instigator_data for state in instance.all_instigator_state() if state.name == "streams"]
        ticked = [each.last_tick_success_timestamp for each in sensors if isinstance(each, SensorInstigatorData)]
        assert max(filter(None, ticked), default=0.0) > at, f"no sensor has ticked since: {states}"

    eventually(works_again, seconds=120, every=1)
    note(f"a killed code server is replaced, and a sensor ticks, after {time.time() - at:.0f} s")
    assert states[0] != "ready", "the location is broken, although the UI answers"
    assert killed.pid not in [process.pid for process in code_servers(platform)]
