"""Ending processes we started, and only those.

Belongs here: finding and ending processes by the mark our supervisor's children inherit, or as a child's
group. Does not belong here: which services there are (`dagster_tidemark.local.platform.services`).
"""

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable

import psutil

MARK = "TIDEMARK_STARTED_BY"
"""A variable in the environment of every process below a supervisor: its value is that supervisor's own id."""


def marked(mark: str) -> list[psutil.Process]:
    """The processes that one supervisor and its services started, orphans included."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.status() != psutil.STATUS_ZOMBIE and process.environ().get(MARK) == mark:
                found.append(process)
        except (psutil.Error, OSError):
            continue  # gone meanwhile, or somebody else's
    return found


def orphans(mark: str) -> list[psutil.Process]:
    """Those whose service died without them. Every service leads a process group: its leader is gone."""
    found = []
    for process in marked(mark):
        try:
            group = os.getpgid(process.pid)
        except ProcessLookupError:
            continue
        if group != process.pid and not psutil.pid_exists(group):
            found.append(process)
    return found


def end(find: Callable[[], list[psutil.Process]], *, seconds: float = 5) -> int:
    """End what `find` finds until it finds nothing: asked first, killed after `seconds`. Returns how many."""
    ended: set[psutil.Process] = set()
    start = time.monotonic()
    while time.monotonic() - start < 2 * seconds:
        found = find()
        if not found:
            break
        for process in found:
            patient = time.monotonic() - start < seconds
            if patient and process in ended:
                continue  # was asked, and still has time
            ended.add(process)
            try:
                process.terminate() if patient else process.kill()
            except psutil.Error:
                continue
        psutil.wait_procs(found, timeout=0.1)
    return len(ended)


def end_group(process: "subprocess.Popen[bytes]", *, seconds: float = 5) -> None:
    """End a child that leads a process group of its own, with all that belongs to the group."""
    group = process.pid
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(group, number)
        except (ProcessLookupError, PermissionError):  # macOS says the latter of a group of zombies
            break
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(seconds)
    process.poll()
    # A killed process runs on until the kernel comes to it, which takes a moment on a busy machine.
    give_up = time.monotonic() + seconds
    while _alive_in(group) and time.monotonic() < give_up:
        time.sleep(0.01)


def _alive_in(group: int) -> bool:
    """Whether a process of the group still runs; one that has ended and that nobody has reaped does not."""
    for process in psutil.process_iter():
        try:
            if os.getpgid(process.pid) == group and process.status() != psutil.STATUS_ZOMBIE:
                return True
        except (psutil.Error, OSError):
            continue  # gone meanwhile, or somebody else's
    return False
