"""Stopping of shifts with their code server: on SIGTERM or SIGINT, the server asks its child shifts to end.

Dagster's code server waits for the runs that it started, and a shift works for up to an hour. Does not belong here: the
other reasons to end a shift (`streams.shift_lease`).
"""

import signal
import socket
import threading
from typing import Any

import psutil
from dagster import DagsterInstance

from dagster_tidemark.dagster_internals import code_loading, instance_store
from dagster_tidemark.event_log.executor import end_without_collection
from dagster_tidemark.event_log.run_process import identity_of
from dagster_tidemark.settings import Settings
from dagster_tidemark.streams.shift_lease import STOPPING
from dagster_tidemark.tags import CODE_OF_STREAMS

_ASKED = {signal.SIGTERM, signal.SIGINT}


class CodeServer:
    """The process with the definitions. Create it while they load, because only the main thread can receive signals.

    It reads signals from a file descriptor, because Dagster replaces the handlers whenever it runs a location's code.
    """

    def __init__(self) -> None:
        self._asked = threading.Event()
        self._ticked: tuple[Any, str] | None = None
        if threading.current_thread() is threading.main_thread() and code_loading.is_loaded_by_a_code_server():
            end_without_collection()
            self._listen()

    def is_stopping(self, instance: DagsterInstance, settings: Settings) -> bool:
        """Return True if this process was asked to end. Called at a sensor's tick."""
        if instance.is_persistent:
            self._ticked = (instance.get_ref(), CODE_OF_STREAMS + settings.code_location)
        return self._asked.is_set()

    def _listen(self) -> None:
        reader, writer = socket.socketpair()
        writer.setblocking(False)
        before = signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
        if before != -1:  # other code of this process already uses it
            signal.set_wakeup_fd(before)
            return
        self._writer = writer  # kept open until the process ends
        threading.Thread(target=self._wait, args=[reader], name="waits for signals", daemon=True).start()

    def _wait(self, reader: socket.socket) -> None:
        while not self._asked.is_set():
            if not _ASKED.isdisjoint(reader.recv(16)):
                self._asked.set()
                self._dismiss()

    def _dismiss(self) -> None:
        if self._ticked is not None:
            reference, key = self._ticked
            with DagsterInstance.from_ref(reference) as instance:
                instance_store.save(instance, key, STOPPING + identity_of(psutil.Process()))
