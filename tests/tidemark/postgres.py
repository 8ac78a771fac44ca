"""A real PostgreSQL server in a private folder, for as long as a test needs one.

Debian's package `postgresql` brings what it runs; nothing is installed or started by it.
"""

import contextlib
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg

from tests.conftest import free_port


def has_postgres() -> bool:
    """Whether the programs are on this machine."""
    return bool(_program("initdb"))


@contextlib.contextmanager
def postgres_server(password: str | None = None, certificate: Path | None = None) -> Iterator[dict[str, Any]]:
    """A running, empty server, which asks for a password if it has one; how Dagster's storage connects to it.

    With a certificate (a PEM file with its key) it takes connections with TLS alone.
    """
    folder = Path(tempfile.mkdtemp(prefix="tidemark-postgres-"))
    data, port = folder / "data", free_port()
    user = _user()
    if user:
        shutil.chown(folder, user)
    (folder / "password").write_text(password or "tidemark")
    login = {"username": "tidemark", "password": password or "tidemark", "hostname": "127.0.0.1", "db_name": "postgres"}
    try:
        subprocess.run(
            [
                *(_program("initdb"), "-D", data, "-U", login["username"], "--no-sync"),
                *(f"--auth={'scram-sha-256' if password else 'trust'}", f"--pwfile={folder / 'password'}"),
            ],
            user=user,
            cwd=folder,
            check=True,
            capture_output=True,
        )
        server = start_server(data, port, *(_with_tls(data, certificate, user) if certificate else ()))
        try:
            _wait_until_ready(port, login["username"], server, folder / "log")
            yield login | {"port": port}
        finally:
            server.send_signal(2)  # fast shutdown: clients are disconnected
            server.wait(20)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _with_tls(data: Path, certificate: Path, user: str | None) -> list[str]:
    """Accept only connections with TLS. Return the server's options."""
    own = data / "server.pem"
    own.touch(mode=0o600)
    own.write_bytes(certificate.read_bytes())
    if user:
        shutil.chown(own, user)
    (data / "pg_hba.conf").write_text("hostssl all all 127.0.0.1/32 scram-sha-256\n")
    return ["-c", "ssl=on", "-c", f"ssl_cert_file={own}", "-c", f"ssl_key_file={own}"]


def start_server(data: Path, port: int, *options: str) -> "subprocess.Popen[bytes]":
    """Start a server on a folder of data. It reads it like any other after a crash."""
    with (data.parent / "log").open("ab") as log:
        return subprocess.Popen(
            [_program("postgres"), "-D", data, "-p", str(port), "-k", data.parent, "-h", "127.0.0.1", "-F", *options],
            user=_user(),
            cwd=data.parent,
            stdout=log,
            stderr=log,
        )


def _user() -> str | None:
    # The server refuses to run as root; its folder is then somebody else's.
    return "nobody" if os.geteuid() == 0 else None


@contextlib.contextmanager
def postgres_instance() -> Iterator[dg.DagsterInstance]:
    """A Dagster instance on a server of its own."""
    with (
        postgres_server() as login,
        dg.instance_for_test(overrides={"storage": {"postgres": {"postgres_db": login}}}) as instance,
    ):
        yield instance


def _program(name: str) -> str:
    # Debian keeps them off the PATH.
    return shutil.which(name) or next((str(p) for p in sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"))), "")


def _wait_until_ready(port: int, user: str, server: "subprocess.Popen[bytes]", log: Path) -> None:
    deadline = time.monotonic() + 30
    ask = [_program("pg_isready"), "-h", "127.0.0.1", "-p", str(port), "-U", user, "-q"]
    while subprocess.run(ask, check=False).returncode != 0:
        if server.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"PostgreSQL did not start:\n{log.read_text()[-2000:]}")
        time.sleep(0.05)
