"""Processes that tests start and end."""

import subprocess
import sys

import psutil

from dagster_tidemark.event_log.run_process import identity_of


def ended_process() -> str:
    """Return the identity of a process that has ended."""
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    identity = identity_of(psutil.Process(process.pid))
    process.communicate(b"\n")
    return identity
