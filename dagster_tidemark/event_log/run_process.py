"""Identity and state of the process that executes a run.

Each run's process writes its identity into the run's tags: process id, start, and the place where the id is valid
(boot, process namespace, container, host). It does this while it loads the definitions, with any executor. Belongs
here: the identity, and the state that a process at the same place can see. Does not belong here: ending a run whose
process is gone (`sensors.dead_runs`).

A process counts as gone only if that is certain. A stopped or slow process counts as alive, and the state of a process
at another place is unknown.

A run that still imports the code has recorded no identity. Dagster's own launcher names the address of the run's code
server in a tag, and the run's process logs its pid before it imports the code. A pid means something only at one place.
Code servers therefore record the place of their address (`note_code_server`). The path of a socket is random, so it
identifies one server. A port counts only if the daemon reaches the server on its own host, and if the address has been
at the same place since before the run's launch.
"""

import json
import logging
import os
import platform
import re
import time
from collections.abc import Collection, Iterator
from dataclasses import asdict, dataclass
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Any

import psutil
from dagster import AssetKey, DagsterInstance, DagsterRun, DagsterRunStatus

from dagster_tidemark.dagster_internals import code_server, instance_store, run_storage, run_worker
from dagster_tidemark.tags import CODE_SERVERS, PROCESS

_logger = logging.getLogger(__name__)

_SAME_SECONDS = 2.0  # outside Linux a start is a clock time, which may be corrected
_INITIAL_NAMESPACE = "pid:[4026531836]"  # the kernel's constant for processes outside any container
_FROM_OUTSIDE = ("/etc/hostname", "/etc/hosts", "/etc/resolv.conf", "/dev/termination-log")
_CONTAINERS = re.compile(r"/(?:containers|pods)/([0-9a-f-]{36,64}(?:/containers/[^/ ]+)?)")
_KEPT_SECONDS = 7 * 86_400.0
_NOTED_EVERY = 3_600.0
_LOGS_WITHIN = 15.0
"""Seconds after a run's launch, and after the start of the next server, within which the run's process logs its pid."""
_BEFORE_START = (DagsterRunStatus.NOT_STARTED, DagsterRunStatus.STARTING)


class ProcessState(StrEnum):
    """State of a run's process, as far as it is known."""

    ALIVE = "alive"
    GONE = "gone"
    UNKNOWN = "unknown"
    """The process is at another place, or never wrote its identity."""


@dataclass(frozen=True)
class ProcessHost:
    """The place where a process id is valid.

    Args:
        boot: The id of the kernel's boot.
        namespace: The namespace of process ids.
        container: The id of the container, with the container's name in a pod. Empty outside a container.
        machine: The id of the machine's installation.
        host: The host's name.
    """

    boot: str
    namespace: str
    container: str
    machine: str
    host: str

    def __str__(self) -> str:
        return "|".join(value.replace("|", " ") for value in asdict(self).values())

    @classmethod
    def read(cls, text: str) -> "ProcessHost | None":
        """Read a place from the text that `str` returns; None for other text."""
        parts = text.split("|")
        return cls(*parts) if len(parts) == 5 else None

    def is_same(self, other: "ProcessHost") -> bool:
        """Return True if both places see the same processes."""
        if self.boot:
            return bool(self.namespace) and (self.boot, self.namespace) == (other.boot, other.namespace)
        return not other.boot and (self.machine, self.host) == (other.machine, other.host)  # not Linux

    def replaced(self, other: "ProcessHost") -> bool:
        """Return True if this place proves that the other one ended: a restarted container, or a rebooted host."""
        if self.container or other.container:
            return self.container == other.container and self.namespace != other.namespace
        outside = self.namespace == other.namespace == _INITIAL_NAMESPACE
        same_host = bool(self.machine) and (self.machine, self.host) == (other.machine, other.host)
        return outside and same_host and self.boot != other.boot


@cache
def this_place() -> ProcessHost:
    """Return the place of this process."""
    return ProcessHost(
        boot=_read("/proc/sys/kernel/random/boot_id"),
        namespace=_namespace(),
        container=container_in(_read("/proc/self/mountinfo")),
        machine=_read("/etc/machine-id"),
        host=platform.node(),
    )


def container_in(mounts: str) -> str:
    """Return the container's id from a mount table: Docker and Kubernetes mount files from folders named by this id."""
    lines = (line.split() for line in mounts.splitlines())
    sources = [fields[3] for fields in lines if len(fields) > 4 and fields[4] in _FROM_OUTSIDE]
    found = [name for source in sources for name in _CONTAINERS.findall(source)]
    return max(found, key=lambda name: ("/" in name, len(name)), default="")


def identity_of(process: psutil.Process) -> str:
    """Return the identity of a process at this place, as in a run's tag: `4711@8512.25 <place>`."""
    return f"{process.pid}@{_start_of(process):.2f} {this_place()}"


def record(instance: DagsterInstance, run: DagsterRun) -> None:
    """Write into a run's tags that this process executes it."""
    identity = identity_of(psutil.Process())
    if run.tags.get(PROCESS) != identity:
        instance.add_run_tags(run.run_id, {PROCESS: identity})


def record_while_loading(assets: Collection[AssetKey] | None) -> None:
    """Record this process, if it loads the definitions to execute a run of these assets.

    Only the process that a launcher starts for a run records itself: the one that runs the executor, whatever the
    executor is. If it ends, the run never ends by itself. A step's process does not: the executor reports its end.

    Args:
        assets: The assets whose runs are recorded; None for all runs. Other runs are not changed.
    """
    if not code_server.is_loaded_for_a_run():
        return
    try:
        with run_worker.launched_run() as launched:
            if launched is None or not _is_executed_here(launched):
                return
            if assets is None or not run_storage.planned_assets(launched.instance, launched.run).isdisjoint(assets):
                record(launched.instance, launched.run)
    except Exception:  # the run may be a run of other assets, which must start in any case
        _logger.warning("the process of this run is not recorded, so dead_runs will not end it", exc_info=True)


def _is_executed_here(launched: run_worker.LaunchedRun) -> bool:
    """Return True if Dagster will execute the run in this process. It ignores a second process of a run."""
    run = launched.run
    if launched.is_resumed:
        return not run.is_finished
    if run.status not in _BEFORE_START:
        return False
    return PROCESS not in run.tags or is_inherited(launched.instance, run) or fate_of(run) is ProcessState.GONE


def is_inherited(instance: DagsterInstance, run: DagsterRun) -> bool:
    """Return True if the recorded process is that of an earlier run: Dagster's retries copy the failed run's tags."""
    if run.parent_run_id is None:
        return False
    parent = instance.get_run_by_id(run.parent_run_id)
    return parent is None or parent.tags.get(PROCESS) == run.tags.get(PROCESS)


def fate_of(run: DagsterRun) -> ProcessState:
    """Return the state of a run's process, as far as this process can see it."""
    return fate_of_identity(run.tags.get(PROCESS, ""))


def fate_of_identity(identity: str) -> ProcessState:
    """Return the state of a process by its identity, as far as this process can see it."""
    place = ProcessHost.read(identity.partition(" ")[2])
    if place is None:
        return ProcessState.UNKNOWN
    if not this_place().is_same(place):
        return ProcessState.GONE if this_place().replaced(place) else ProcessState.UNKNOWN
    return ProcessState.ALIVE if _living(identity) else ProcessState.GONE


def process_of(run: DagsterRun) -> psutil.Process | None:
    """Return the living process of a run at this place, or None."""
    identity = run.tags.get(PROCESS, "")
    return _living(identity) if fate_of_identity(identity) is ProcessState.ALIVE else None


def _living(identity: str) -> psutil.Process | None:
    number, _, began = identity.partition(" ")[0].partition("@")
    try:
        process = psutil.Process(int(number))
        same = abs(_start_of(process) - float(began)) < _SAME_SECONDS
        return process if same and process.status() != psutil.STATUS_ZOMBIE else None
    except (psutil.NoSuchProcess, ValueError):
        return None


def _start_of(process: psutil.Process) -> float:
    """Return the start of a process. On Linux these are seconds since the boot, which clock changes do not affect."""
    try:
        fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
        return int(fields[19]) / os.sysconf("SC_CLK_TCK")
    except FileNotFoundError:
        return float(process.create_time())
    except ProcessLookupError:
        raise psutil.NoSuchProcess(process.pid) from None


def _read(path: str) -> str:
    try:
        return Path(path).read_text(errors="replace").strip()
    except OSError:
        return ""


def _namespace() -> str:
    try:
        return str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        return ""


def note_code_server(instance: DagsterInstance) -> None:
    """Record the place of this code server for each of its addresses."""
    now, servers = time.time(), _servers(instance)
    here, noted = str(this_place()), dict[str, Any]()
    for address in _own_addresses():
        before = servers.get(address)
        since = _since(before) if before and _time_of(before) and before[0] == here else now
        if since == now or now - _time_of(before) > _NOTED_EVERY:
            noted[address] = [here, now, since]
    if noted:
        kept = {at: value for at, value in servers.items() if now - _time_of(value) < _KEPT_SECONDS}
        instance_store.save(instance, CODE_SERVERS, json.dumps(kept | noted))


def fate_while_starting(instance: DagsterInstance, run: DagsterRun) -> ProcessState:
    """Return the state of a run's process before it has recorded its identity.

    A run without a logged pid is gone if the server that was asked to start it has ended, or is this server and has no
    process for it: Dagster's storage was unreachable when the launch failed. The state is unknown if another launcher
    started the run, or if the code server is on another host.
    """
    address = run_storage.launching_server(run)
    if PROCESS in run.tags or address is None:
        return ProcessState.UNKNOWN
    noted = _servers(instance).get(address)
    place = ProcessHost.read(str(noted[0])) if noted is not None and _time_of(noted) else None
    if noted is None or place is None:
        return ProcessState.UNKNOWN
    if not this_place().is_same(place):
        return ProcessState.GONE if this_place().replaced(place) else ProcessState.UNKNOWN
    asked, pid = run_storage.launch_of(instance, run.run_id)
    launched, is_socket = asked or 0.0, address.startswith("/")
    if not is_socket and launched < _since(noted):
        return ProcessState.UNKNOWN  # the port may have been that of another host
    if pid is None:
        began = _own_addresses().get(address)
        if began is None or time.time() - max(launched, began) < _LOGS_WITHIN:
            return ProcessState.UNKNOWN
        is_replaced = not is_socket and launched < began
        return ProcessState.GONE if is_replaced or _is_forgotten(run) else ProcessState.UNKNOWN
    # Start times are not compared: after a clock change, a live process would seem to be a later one with the same pid.
    return ProcessState.ALIVE if _exists(pid) else ProcessState.GONE


def _is_forgotten(run: DagsterRun) -> bool:
    return run.status in _BEFORE_START and code_server.is_held_by_its_server(run) is False


def _exists(pid: int) -> bool:
    try:
        return bool(psutil.pid_exists(pid)) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _servers(instance: DagsterInstance) -> dict[str, Any]:
    return instance_store.members_of(instance_store.saved(instance, CODE_SERVERS))


def _time_of(noted: Any) -> float:
    return float(noted[1]) if isinstance(noted, list) and len(noted) in (2, 3) else 0.0


def _since(noted: list[Any]) -> float:
    """Return since when the address has been at its place. Records of earlier releases have only their own time."""
    return float(noted[-1])


@cache
def _own_addresses() -> dict[str, float]:
    """Return the addresses of this code server and its proxies, from their command lines, and when each began."""
    process, found = psutil.Process(), dict[str, float]()
    for each in (process, *process.parents()):
        try:
            line, began = each.cmdline(), float(each.create_time())
        except psutil.Error:
            continue
        found |= dict.fromkeys(_addresses_in(line), began)
    return found


def _addresses_in(command: list[str]) -> Iterator[str]:
    for option, value in zip(command, [*command[1:], ""], strict=True):
        name, _, given = option.partition("=")
        value = given or value
        if name in ("--socket", "-s") and value.startswith("/"):
            yield value
        elif name in ("--port", "-p") and value.isdigit():
            yield f"127.0.0.1:{value}"
