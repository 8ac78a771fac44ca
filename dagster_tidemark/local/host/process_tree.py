"""Ending the processes that the platform started, and no others.

Belongs here: finding and ending processes by the mark that a supervisor's children inherit, or by a child's group.
Does not belong here: the list of services (`dagster_tidemark.local.platform.services`).
"""

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable

import psutil

MARK = "TIDEMARK_STARTED_BY"
"""A variable in the environment of every process below a supervisor: its value is the state folder."""


def marked(mark: str) -> list[psutil.Process]:
    """Return the processes that a supervisor and its services started, including orphans."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.status() != psutil.STATUS_ZOMBIE and process.environ().get(MARK) == mark:
                found.append(process)
        except (psutil.Error, OSError):
            continue  # ended, or another user's
    return found


def orphans(mark: str) -> list[psutil.Process]:
    """Return the processes that survived their service: the leader of their process group is gone."""
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
    """End the processes that `find` returns until there are none. Return their number.

    Processes are terminated first, and killed after `seconds`.
    """
    ended: set[psutil.Process] = set()
    start = time.monotonic()
    while time.monotonic() - start < 2 * seconds:
        found = find()
        if not found:
            break
        for process in found:
            patient = time.monotonic() - start < seconds
            if patient and process in ended:
                continue  # was terminated, and still has time
            ended.add(process)
            try:
                process.terminate() if patient else process.kill()
            except psutil.Error:
                continue
        psutil.wait_procs(found, timeout=0.1)
    return len(ended)


def end_group(process: "subprocess.Popen[bytes]", *, seconds: float = 5) -> None:
    """End a child process that leads its own process group, and the whole group."""
    group = process.pid
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(group, number)
        except (ProcessLookupError, PermissionError):  # macOS raises the latter for a group of zombies
            break
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(seconds)
    process.poll()
    # A killed process runs until the kernel ends it, which takes a moment on a busy machine.
    give_up = time.monotonic() + seconds
    while _alive_in(group) and time.monotonic() < give_up:
        time.sleep(0.01)


def _alive_in(group: int) -> bool:
    """Return True if a process of the group still runs. Zombies do not count."""
    for process in psutil.process_iter():
        try:
            if os.getpgid(process.pid) == group and process.status() != psutil.STATUS_ZOMBIE:
                return True
        except (psutil.Error, OSError):
            continue  # ended, or another user's
    return False
