"""Status of each service of the running platform, for `tidemark status --services`."""

import time
from dataclasses import asdict, dataclass
from typing import Any

import psutil

from dagster_tidemark.local.platform.instance_lock import running_environment
from dagster_tidemark.local.platform.services import Service, all_services
from dagster_tidemark.local.platform.supervision import ServiceState, Supervisor
from dagster_tidemark.settings import Settings


@dataclass(frozen=True)
class ServiceStatus:
    """Status of a service. Memory shared by its processes counts once; `pid` and `port` are None if there is none."""

    service: str
    title: str
    state: str
    pid: int | None
    port: int | None
    memory_mb: int
    restarts: int
    up_seconds: int | None

    def as_dict(self) -> dict[str, Any]:
        """Return the status for JSON."""
        return asdict(self)


def services(settings: Settings) -> list[ServiceStatus]:
    """Return the services of the running platform, in the order of their start.

    Raises:
        NothingRuns: no platform runs.
        SupervisorDied: its supervisor was killed.
    """
    running_environment(settings)
    settings = settings.for_platform()
    supervisor = Supervisor(settings, all_services(settings))
    found = []
    for state in supervisor.states():
        service = supervisor.services[state.name]
        found.append(
            ServiceStatus(
                service=state.name,
                title=service.title,
                state=_state(service, state),
                pid=state.pid or None,
                port=service.port,
                memory_mb=memory_mb(state.pid),
                restarts=supervisor.restarts(state.name),
                up_seconds=int(time.time()) - state.started_at if state.pid else None,
            )
        )
    return found


def _state(service: Service, state: ServiceState) -> str:
    if not state.pid or not service.is_ready():
        return state.state.lower()
    return service.lacks(state.pid) or "ready"


def memory_mb(pid: int) -> int:
    """Return the memory of a process and its descendants in megabytes. Processes that have ended count as 0."""
    if not pid:
        return 0
    try:
        root = psutil.Process(pid)
        family = [root, *root.children(recursive=True)]
    except psutil.NoSuchProcess:
        return 0
    held = 0
    for process in family:
        try:
            memory = process.memory_full_info()
        except psutil.Error:
            continue
        held += getattr(memory, "pss", memory.rss)  # only Linux reports proportional shares
    return held // 2**20
