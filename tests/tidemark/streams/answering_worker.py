"""A shift in a process of its own, without Dagster: `python -m tests.tidemark.streams.answering_worker WHAT SECONDS`.

`WHAT` is a stream of the toy domain of questions, by its name, or `module:NAME` of any. It works until nothing has come
for so many seconds. Its settings are the environment's.
"""

import logging
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path

import psutil

from dagster_tidemark.lakehouse.append import open_lake
from dagster_tidemark.settings import Settings, load_settings
from dagster_tidemark.streams.reports import Reports
from dagster_tidemark.streams.shift import Shift
from dagster_tidemark.streams.stream_declaration import Stream, StreamContext
from tests.tidemark.streams import questions, toy
from tests.tidemark.streams.questions import Desk

_IDLE_SECONDS = 3.0
_READY = "ready"


@contextmanager
def working(desk: Desk, folder: Path, **variables: str) -> "Iterator[subprocess.Popen[bytes]]":
    """A shift at a desk that is ready; what it says is in `log`."""
    with started(desk.stream.name, desk.settings, folder, _IDLE_SECONDS, **variables) as process:
        yield process


@contextmanager
def started(
    what: str, settings: Settings, folder: Path, seconds: float, **variables: str
) -> "Iterator[subprocess.Popen[bytes]]":
    """A shift that has begun to begin."""
    command = [sys.executable, "-m", __name__, what, str(seconds)]
    with (folder / "log").open("ab") as log:
        process = subprocess.Popen(
            command, env=os.environ | settings.exports() | variables, stdout=log, stderr=log, start_new_session=True
        )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
            process.wait(10)


def are_ready(folder: Path, count: int) -> None:
    """So many have begun."""
    assert (folder / "log").read_text().count(_READY) >= count


def has_stopped(process: "subprocess.Popen[bytes]") -> None:
    """It was told to stop at a boundary, and is there."""
    assert psutil.Process(process.pid).status() == psutil.STATUS_STOPPED


def main(what: str, seconds: float) -> None:
    logging.basicConfig(level=logging.WARNING)
    settings = load_settings()
    stream = _stream(what)
    last = [time.monotonic(), -1]

    def ends() -> str | None:
        if last[1] < 0:
            print(_READY, flush=True)
        if shift.counts.received != last[1]:
            last[:] = [time.monotonic(), shift.counts.received]
        return "nothing has come" if time.monotonic() - last[0] > seconds else None

    inlet = toy.shortly_held(stream.queue or "", settings)
    place = StreamContext(settings, open_lake(settings), stream)
    shift = Shift(place, [inlet], Reports(stream, toy.Heard()), "code-1", ends)
    shift.work()
    print(shift.counts, flush=True)


def _stream(what: str) -> Stream:
    module, _, name = what.rpartition(":")
    found = getattr(import_module(module), name) if module else questions.stream(what)
    assert isinstance(found, Stream)
    return found


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]))
