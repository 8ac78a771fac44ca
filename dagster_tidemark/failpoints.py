"""Points where a test can kill a process, to prove that no data is lost wherever a process dies.

With `TIDEMARK_KILL_AT=<boundary>:<n>` the process that reaches a boundary for the n-th time kills its whole process
group with SIGKILL: nothing is flushed, closed or caught. With `TIDEMARK_STOP_AT` it stops itself (SIGSTOP), and a test
can continue it long after others have taken it for dead. Only a local platform reads these variables.
"""

import os
import signal
import sys
import threading
from functools import cache

from dagster_tidemark.settings import Boundary, MaintenanceBoundary, PreviewBoundary, StreamBoundary, load_settings

_lock = threading.Lock()
_counts: dict[str, int] = {}


def reached(boundary: Boundary | PreviewBoundary | StreamBoundary | MaintenanceBoundary) -> None:
    """Kill or stop the process if the settings name this boundary and count. Otherwise return."""
    appointments = _appointments()
    if boundary not in {wanted for wanted, _ in appointments.values()}:
        return
    with _lock:
        count = _counts[boundary] = _counts.get(boundary, 0) + 1
        due = [number for number, appointment in appointments.items() if appointment == (boundary, count)]
    for number in due:
        what = "killed" if number is signal.SIGKILL else "stopped"
        said = f"{what} at {boundary}:{count}, process {os.getpid()} of group {os.getpgid(0)}"
        print(said, file=sys.stderr, flush=True)
        if number is signal.SIGKILL:
            os.killpg(os.getpgid(0), number)
        else:
            os.kill(os.getpid(), number)


@cache  # read at every boundary; reading all settings takes a millisecond
def _appointments() -> dict[signal.Signals, tuple[str, int]]:
    settings = load_settings()
    if settings.environment != "local":
        return {}
    told = {signal.SIGKILL: settings.kill_at, signal.SIGSTOP: settings.stop_at}
    return {number: _appointment(value) for number, value in told.items() if value is not None}


def _appointment(value: str) -> tuple[str, int]:
    boundary, _, count = value.partition(":")
    return boundary, int(count)
