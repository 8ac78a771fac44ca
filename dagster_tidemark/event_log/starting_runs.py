"""State of the processes of runs that have not recorded their identity yet, because they still import the code.

Dagster's own launcher names the socket of the run's code server in a tag, and the run's process logs its pid before it
imports the code. A pid means something only at one place. Code servers therefore record the place of their socket
(`note_code_server`). The path of a socket is random, so it identifies one server; a port does not.

Belongs here: conclusions from sockets and pids. Does not belong here: processes that have recorded their identity
(`run_process`).
"""

import json
import time
from collections.abc import Iterator
from functools import cache
from typing import Any

import psutil
from dagster import DagsterInstance, DagsterRun

from dagster_tidemark.dagster_internals import instance_store, run_storage
from dagster_tidemark.event_log.run_process import ProcessHost, ProcessState, this_place
from dagster_tidemark.tags import CODE_SERVERS, PROCESS

_KEPT_SECONDS = 7 * 86_400.0
_NOTED_EVERY = 3_600.0


def note_code_server(instance: DagsterInstance) -> None:
    """Record the place of this code server for each of its sockets."""
    now, servers = time.time(), _servers(instance)
    mine = [at for at in _own_sockets() if now - _time_of(servers.get(at)) > _NOTED_EVERY]
    if mine:
        kept = {at: value for at, value in servers.items() if now - _time_of(value) < _KEPT_SECONDS}
        noted = kept | {at: [str(this_place()), now] for at in mine}
        instance_store.save(instance, CODE_SERVERS, json.dumps(noted))


def fate_while_starting(instance: DagsterInstance, run: DagsterRun) -> ProcessState:
    """Return the state of a run's process before it has recorded its identity.

    The state is unknown if another launcher started the run, if the code server has a port or is at another place, or
    if the process has not logged its pid.
    """
    socket = run_storage.launching_socket(run)
    if PROCESS in run.tags or socket is None:
        return ProcessState.UNKNOWN
    noted = _servers(instance).get(socket)
    place = ProcessHost.read(str(noted[0])) if noted is not None and _time_of(noted) else None
    if place is None:
        return ProcessState.UNKNOWN
    if not this_place().is_same(place):
        return ProcessState.GONE if this_place().replaced(place) else ProcessState.UNKNOWN
    pid = run_storage.started_process(instance, run.run_id)
    if pid is None:
        return ProcessState.UNKNOWN
    # Start times are not compared: after a clock change, a live process would seem to be a later one with the same pid.
    return ProcessState.ALIVE if _exists(pid) else ProcessState.GONE


def _exists(pid: int) -> bool:
    try:
        return bool(psutil.pid_exists(pid)) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _servers(instance: DagsterInstance) -> dict[str, Any]:
    try:
        found = json.loads(instance_store.saved(instance, CODE_SERVERS) or "{}")
    except ValueError:  # written by a different release
        return {}
    return found if isinstance(found, dict) else {}


def _time_of(noted: Any) -> float:
    return float(noted[1]) if isinstance(noted, list) and len(noted) == 2 else 0.0


@cache
def _own_sockets() -> tuple[str, ...]:
    """Return the sockets of this code server and its proxies, from their command lines."""
    process = psutil.Process()
    try:
        lines = [each.cmdline() for each in (process, *process.parents())]
    except psutil.Error:
        lines = [process.cmdline()]
    return tuple(socket for line in lines for socket in _sockets_in(line))


def _sockets_in(command: list[str]) -> Iterator[str]:
    for option, value in zip(command, [*command[1:], ""], strict=True):
        if option in ("--socket", "-s") and value.startswith("/"):
            yield value
        elif option.startswith("--socket=/"):
            yield option.partition("=")[2]
