"""The post of a shift: one of the numbered workers of a stream.

A shift keeps its post by saving a heartbeat in the instance's storage every few seconds. Belongs here: the reasons to
end a shift, and the heartbeat. Does not belong here: the work (`streams.shift`), and the replacement of a shift
(`sensors.streams`).

A hanging shift is not killed: another run takes its post, and the shift ends when it resumes. Until then two shifts at
one post do no harm, because a commit fails if the table has changed since its writer read it.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

import psutil
from dagster import DagsterInstance, DagsterRunStatus

from dagster_tidemark.dagster_internals import instance_store
from dagster_tidemark.engine.override_store import OverridesUnreadable, parsed, pause_of_stream
from dagster_tidemark.event_log.beats import Beat, key_of
from dagster_tidemark.event_log.run_process import identity_of
from dagster_tidemark.settings import Settings
from dagster_tidemark.tags import CODE_OF_STREAMS, OVERRIDES, WORKED

STUCK_SECONDS = 600.0
"""A shift counts as hanging if one step of its loop takes longer than this, even if its process is alive."""
STOPPING = "stopping "
"""Prefix of the value that replaces the saved code version while a code server stops. The server's identity follows."""

_LOOK_SECONDS = 2.0
BEAT_SECONDS = 4.0
_STALE_SECONDS = 10.0  # a longer pause means that the whole process was suspended, including the thread
_WORKED_SECONDS = 30.0
_MOST_MINUTES = 60

logger = logging.getLogger(__name__)


@dataclass
class Post:
    """The post of one shift: a context manager that saves heartbeats while it is open.

    Args:
        stream: The stream's name.
        worker: The number of the stream's worker.
        run_id: The id of the shift's run.
        committed: Returns the number of the shift's commits.
        facts: Measurements of the stream, for `tidemark status`.
        code: Code of the code server that requested the run. A run that starts after a deploy may have older code than
            the deployed one. None if no sensor requested the run.
    """

    instance: DagsterInstance
    settings: Settings
    stream: str
    worker: str
    run_id: str
    committed: Callable[[], int] = lambda: 0
    facts: Callable[[], Mapping[str, Any]] = dict
    clock: Callable[[], float] = time.monotonic
    code: str | None = None
    _reason: str | None = None
    _worked: bool = False

    def __post_init__(self) -> None:
        self._code_key = CODE_OF_STREAMS + self.settings.code_location
        self._key = key_of(self.settings, self.stream, self.worker)
        self._began, self._began_at = self.clock(), time.time()
        self._began_with = self.code or instance_store.saved(self.instance, self._code_key)
        self._server = STOPPING + _parent()
        self._looked_at = self._passed_at = self.clock()
        self._beat_at = float("-inf")
        self._closed, self._lock = threading.Event(), threading.Lock()
        self._thread = threading.Thread(target=self._keep, name=f"post of {self.stream}", daemon=True)

    def __enter__(self) -> Self:
        self._beat()
        self._look()  # at once, because a code server that is stopping waits for this run
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._closed.set()
        self._thread.join(_STALE_SECONDS)

    def ends(self) -> str | None:
        """Return the reason to end, if there is one. The shift's loop calls this at each step."""
        self._passed_at = self.clock()
        if self._passed_at - self._began > _MOST_MINUTES * 60:
            return f"it has run for {_MOST_MINUTES} minutes"
        if self._passed_at - self._looked_at > _STALE_SECONDS or (not self._worked and self.committed()):
            self._look()
        return self._reason

    def _keep(self) -> None:
        while not self._closed.wait(_LOOK_SECONDS):
            self._look()

    def _look(self) -> None:
        """Check for a reason to end. Save a heartbeat if due. If the storage does not answer, the shift continues."""
        with self._lock:
            self._looked_at = self.clock()
            try:
                self._reason = self._reason or self._why()
                if self._reason is None:
                    self._note_work()
                    if self.clock() - self._beat_at >= BEAT_SECONDS:
                        self._beat()
            except Exception as error:  # a thread that ends would look like a run that hangs
                logger.warning("the shift of %s could not report: %s", self.stream, error)

    def _why(self) -> str | None:
        saved = instance_store.saved_values(self.instance, [self._code_key, self._key, OVERRIDES])
        code = saved.get(self._code_key)
        if code == self._server:
            return "its code server is stopping"
        if code is not None and code.startswith(STOPPING):
            code = self._began_with
        if self._began_with is not None and self._began_with.startswith(STOPPING):
            self._began_with = code
        if code != self._began_with:
            return "new code was loaded"
        beat = Beat.read(saved.get(self._key))
        if beat is not None and beat.run != self.run_id and beat.began > self._began_at:
            return f"run {beat.run} has replaced it"
        if why := self._paused(saved.get(OVERRIDES)):
            return why
        run = self.instance.get_run_by_id(self.run_id)
        if run is None:
            return "its run was deleted"
        if run.is_finished or run.status is DagsterRunStatus.CANCELING:
            return f"its run was ended by another process: {run.status.value.lower()}"
        return None

    def _paused(self, overrides: str | None) -> str:
        """Return why a person's command ends the shift; empty if none does."""
        try:
            pause = pause_of_stream(parsed(overrides), self.settings.code_location, self.stream, time.time())
        except OverridesUnreadable as error:
            return str(error)
        return "" if pause is None else f"{self.stream} is paused {pause.told()}"

    def _beat(self) -> None:
        stuck = self.clock() - self._passed_at
        beat = Beat(self.run_id, self._began_at, time.time(), round(stuck, 1), dict(self.facts()))
        instance_store.save(self.instance, self._key, str(beat))
        self._beat_at = self.clock()

    def _note_work(self) -> None:
        """Tag the run after it has worked. A failure of a tagged run does not suggest that the next run fails too."""
        if not self._worked and (self.committed() or self.clock() - self._began > _WORKED_SECONDS):
            self.instance.add_run_tags(self.run_id, {WORKED: "true"})
            self._worked = True


def _parent() -> str:
    try:
        return identity_of(psutil.Process(os.getppid()))
    except psutil.Error:
        return "no process"
