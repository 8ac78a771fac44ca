"""The Spark server dies: a run that used it says so, the supervisor starts another, and the next run works."""

from collections.abc import Callable
from datetime import date

import psutil
import pytest

from tests.live.conftest import Judge, Loaded
from tests.live.platform import Platform
from tests.live.test_arrivals import order_file
from tests.live.ui import Run
from tests.live.waiting import eventually


@pytest.mark.proof
def test_idle_spark_server_that_is_killed_is_restarted(
    loaded: Loaded, judge: Judge, note: Callable[[str], None]
) -> None:
    platform, hour = loaded.platform, loaded.hours[-1]
    platform.quiet()
    dead = kill_spark(platform)
    run = platform.ui.ended(platform.ui.materialize("marts/sales_hourly", hour))
    if run.status == "FAILURE":  # it was faster than the server
        (error, *_) = platform.ui.failures(run.id)
        assert "no Spark Connect server answers at sc://127.0.0.1" in error
    back(platform, dead)
    platform.ui.succeeded(platform.ui.materialize("marts/sales_hourly", hour))
    judge()
    assert "Spark Connect server was restarted" in platform.said()


@pytest.mark.proof  # two minutes; the server comes back cold
def test_run_fails_and_is_retried_when_its_spark_server_is_killed(
    loaded: Loaded, judge: Judge, note: Callable[[str], None]
) -> None:
    platform, day = loaded.platform, loaded.days[1]
    platform.quiet()
    before = {run.id for run in platform.ui.runs()}
    put_order(platform, day, 990_000_101)
    eventually(lambda: uses_spark(platform), seconds=30, every=0.05)
    dead = kill_spark(platform)

    def failed() -> Run:
        runs = [run for run in platform.ui.runs() if run.id not in before and run.status == "FAILURE"]
        assert runs, "no run has failed"
        return runs[-1]

    run = eventually(failed, seconds=120)
    note(f"Spark killed under a run: it failed after {run.seconds:.1f} s")
    errors = platform.ui.failures(run.id)
    assert any(f"Spark Connect server at {platform.environment['SPARK_REMOTE']}" in error for error in errors), errors
    back(platform, dead)
    # A new file ends the backoff of the hour.
    put_order(platform, day, 990_000_102)
    judge(seconds=180)


def put_order(platform: Platform, day: date, order_id: int) -> None:
    """One more file in the same hour."""
    platform.put(f"orders/dt={day}/hour=09/{order_id}.csv", order_file(day, 9, order_id=order_id))


def kill_spark(platform: Platform) -> psutil.Process:
    """Kill the server as the kernel does when memory is short."""
    server = platform.spark_server()
    server.kill()
    return server


def back(platform: Platform, dead: psutil.Process) -> None:
    """Wait until another server listens."""

    def check() -> None:
        assert platform.spark_server() != dead

    eventually(check, seconds=60)


def uses_spark(platform: Platform) -> None:
    """Fails while no run has a connection to the server."""
    assert platform.spark_clients()
