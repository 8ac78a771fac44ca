"""Where a process can be told to die, so that a test can show that it may die anywhere.

`TIDEMARK_KILL_AT=<boundary>:<n>` makes the process that comes to a boundary for the n-th time kill its whole process
group with SIGKILL: nothing is flushed, closed or caught. Only a local platform listens to it.
"""

import os
import signal
import sys
import threading
from functools import cache

from pipelines.tidemark.settings import Boundary, PreviewBoundary, load_settings

_lock = threading.Lock()
_counts: dict[str, int] = {}


def reached(boundary: Boundary | PreviewBoundary) -> None:
    """The process has come to this boundary; it returns, unless it was told to die here."""
    wanted, count = _appointment()
    if wanted != boundary:
        return
    with _lock:
        _counts[boundary] = _counts.get(boundary, 0) + 1
        if _counts[boundary] != count:
            return
    print(f"killed at {boundary}:{count}, process {os.getpid()} of group {os.getpgid(0)}", file=sys.stderr, flush=True)
    os.killpg(os.getpgid(0), signal.SIGKILL)


@cache  # asked for at every boundary; reading all settings takes a millisecond
def _appointment() -> tuple[str | None, int]:
    settings = load_settings()
    if settings.kill_at is None or settings.environment != "local":
        return None, 0
    boundary, _, count = settings.kill_at.partition(":")
    return boundary, int(count)
