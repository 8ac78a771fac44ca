"""A shift that is killed, and one that hangs: another run takes its place, and no message is lost or doubled."""

import json
import os
import signal
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

from dagster import DagsterInstance

from dagster_tidemark.tags import PROCESS, STREAM
from tests.live.platform import Platform
from tests.live.ui import UNFINISHED
from tests.live.waiting import eventually

NAME = "readings"


def shift(platform: Platform, *others: str) -> tuple[str, int]:
    """Run id and pid of the stream's shift, once there is one besides the other runs."""

    def found() -> tuple[str, int]:
        runs = [run for run in platform.ui.shifts() if run.tags[STREAM] == NAME and run.id not in others]
        runs = [run for run in runs if run.status == "STARTED"]
        assert len(runs) == 1, runs
        with DagsterInstance.from_config(platform.environment["DAGSTER_HOME"]) as instance:
            run = instance.get_run_by_id(runs[0].id)
        assert run is not None and PROCESS in run.tags
        return run.run_id, int(run.tags[PROCESS].partition("@")[0])

    return eventually(found, seconds=150)


def send(platform: Platform, device: str) -> None:
    said = {"device_id": device, "store_id": 1, "read_at": datetime.now(UTC).isoformat(), "temperature_c": 3.0}
    url = platform.sqs.get_queue_url(QueueName="cold-chain-readings")["QueueUrl"]
    platform.sqs.send_message(QueueUrl=url, MessageBody=json.dumps(said))


def kept(platform: Platform, device: str) -> None:
    """Wait for the row of a device's reading."""

    def there() -> None:
        assert platform.table("raw.readings")["device_id"].to_pylist().count(device) == 1

    eventually(there, seconds=150)


def stop(pid: int, state: Path) -> None:
    """Stop a process at a moment at which it is not writing to SQLite.

    A process that is stopped within a write keeps everybody from writing for as long as it is stopped.
    """

    def stopped() -> None:
        os.kill(pid, signal.SIGSTOP)
        locked = [file.name for file in state.rglob("*.db") if is_locked(file)]
        if locked:
            os.kill(pid, signal.SIGCONT)
        assert not locked

    eventually(stopped, seconds=60)


def is_locked(file: Path) -> bool:
    """Return True if a SQLite file cannot be written for longer than any write takes."""
    with closing(sqlite3.connect(file, timeout=5, isolation_level=None)) as connection:
        try:
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("ROLLBACK")
        except sqlite3.OperationalError:
            return True
    return False


def test_killed_and_hanging_shifts_are_replaced_without_losing_messages(
    platform: Platform, note: Callable[[str], None]
) -> None:
    first, pid = shift(platform)
    send(platform, "before")
    kept(platform, "before")
    os.kill(pid, signal.SIGKILL)
    killed_at = time.time()
    send(platform, "killed")
    kept(platform, "killed")
    note(f"from the kill of a shift to the next row: {time.time() - killed_at:.0f} s")

    second, pid = shift(platform, first)
    stop(pid, platform.state)
    try:
        stopped_at = time.time()
        send(platform, "stopped")
        kept(platform, "stopped")
        note(f"from the stop of a shift to the next row: {time.time() - stopped_at:.0f} s")
    finally:
        os.kill(pid, signal.SIGCONT)
    third, _ = shift(platform, first, second)

    def left() -> None:
        statuses = {run.id: run.status for run in platform.ui.shifts()}
        assert statuses[second] not in UNFINISHED, "it noticed that another run has its place"
        assert statuses[third] == "STARTED"

    eventually(left, seconds=60)
    send(platform, "after")
    kept(platform, "after")
