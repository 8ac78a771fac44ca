"""Ending processes we started, and only those.

Belongs here: process groups and sessions, and what is left of them. Does not belong here: which services
there are (`pipelines.local.services`).
"""

import os
import signal
import subprocess


def end_group(process: "subprocess.Popen[bytes]", *, seconds: float = 5) -> None:
    """End a child that leads a process group of its own, with all that belongs to the group."""
    for number, patience in ((signal.SIGTERM, seconds), (signal.SIGKILL, seconds)):
        try:
            os.killpg(process.pid, number)
        except ProcessLookupError:
            break
        try:
            process.wait(patience)
        except subprocess.TimeoutExpired:
            continue
    process.poll()
