"""The bare platform with several code servers behind one address, as during a rolling deploy or by mistake.

Belongs here: the address (which takes turns between the servers, as a service of Kubernetes does), and servers with
edited copies of the grocer's location. Does not belong here: expectations (`test_redeploys`, `test_doubles`).
"""

import shutil
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from tests.checkout import CHECKOUT
from tests.conftest import free_port, port_answers_within
from tests.proof.bare_platform import BarePlatform, _family

_EDITED = "pipelines/assets/marts/sales.py"


class Turns:
    """A TCP address whose connections go to several servers in turn."""

    def __init__(self, port: int) -> None:
        self.servers: list[int] = []
        self._number = 0
        self._listener = socket.create_server(("127.0.0.1", port), backlog=128)
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """Stop listening."""
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=[client], daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        for _ in range(len(self.servers)):
            self._number += 1
            try:
                server = socket.create_connection(("127.0.0.1", self.servers[self._number % len(self.servers)]), 5)
            except (OSError, ZeroDivisionError, IndexError):
                continue
            server.settimeout(None)
            threading.Thread(target=_pump, args=[client, server], daemon=True).start()
            _pump(server, client)
            return
        client.close()


def _pump(source: socket.socket, sink: socket.socket) -> None:
    with suppress(OSError):
        while received := source.recv(65536):
            sink.sendall(received)
    for each in (source, sink):
        with suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)
        each.close()


@dataclass
class RollingPlatform(BarePlatform):
    """A bare platform whose code servers are `code-1`, `code-2`, ..., each with its version of the code."""

    turns: Turns | None = None
    ports_of: dict[str, int] = field(default_factory=dict)

    def start(self, name: str, **environment: str) -> None:
        """Start a part again. The first start of `code` opens the address and starts version 1."""
        if name != "code":
            super().start(name, **environment)
            return
        self.turns = Turns(self.ports["code"])
        self.deploy("code-1", 1)

    def deploy(self, name: str, version: int) -> None:
        """Start a code server with a version of the code, and let it answer once it has loaded the code."""
        assert self.turns is not None
        folder = self.folder / f"version-{version}"
        if not folder.exists():
            shutil.copytree(CHECKOUT / "pipelines", folder / "pipelines", ignore=shutil.ignore_patterns("__pycache__"))
            for file in ("pyproject.toml", "code-versions.lock"):
                shutil.copy(CHECKOUT / file, folder)
            edited = folder / _EDITED
            edited.write_text(edited.read_text().replace('code_version="1"', f'code_version="{version}"'))
        port = free_port()
        arguments = ["-m", "dagster", "api", "grpc", "-m", "pipelines.definitions", "-h", "127.0.0.1", "-p", str(port)]
        self.run(name, arguments, cwd=folder, TIDEMARK_PROJECT=str(folder), PYTHONPATH=str(folder))
        port_answers_within(self.processes[name], port, self.folder / f"{name}.log", seconds=180)
        self.ports_of[name] = port
        self.turns.servers = [*self.turns.servers, port]

    def retire(self, name: str) -> None:
        """Take a code server from the address and end it, as systemd and Kubernetes do: SIGKILL after 30 seconds."""
        assert self.turns is not None
        self.turns.servers = [port for port in self.turns.servers if port != self.ports_of[name]]
        process = self.processes[name]
        family = _family(process.pid)
        process.send_signal(signal.SIGTERM)
        _, alive = psutil.wait_procs(family, timeout=30)
        for each in alive:
            with suppress(psutil.Error):
                each.kill()
        process.wait()

    def start_daemon(self, name: str) -> None:
        """Start one more daemon."""
        self.run(name, ["-m", "dagster._daemon", "run", "-w", str(self.workspace)], PYTHONUNBUFFERED="1")

    def start_webserver(self, name: str, port: int) -> None:
        """Start a webserver."""
        command = ["-m", "dagster_webserver", "-w", str(self.workspace), "-h", "127.0.0.1", "-p", str(port)]
        self.run(name, command, PYTHONUNBUFFERED="1")

    def close(self) -> None:
        """End every process."""
        if self.turns is not None:
            self.turns.close()
        super().close()


@contextmanager
def rolling_platform(folder: Path, jars: Path) -> Iterator[RollingPlatform]:
    """A platform with one code server behind its address, that leaves no process."""
    platform = RollingPlatform(folder, jars)
    try:
        platform.open()
        yield platform
    finally:
        platform.close()
