"""What stands in the way of a start is one line that names the setting, and nothing is started or left."""

import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from dagster_tidemark.local.platform.instance_lock import running
from tests.conftest import make_settings
from tests.warm_python import run_python

CAN_MOUNT = (
    shutil.which("unshare") is not None
    and subprocess.run(["unshare", "-rm", "mount", "-t", "tmpfs", "x", "/mnt"], capture_output=True).returncode == 0
)
needs_mounts = pytest.mark.skipif(not CAN_MOUNT, reason="needs a user namespace in which it may mount")


def _up(state: Path, *before: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    settings = make_settings(state)
    command = ["-m", "dagster_tidemark.cli.app", "up"]
    environment = os.environ | settings.exports() | {"FEED": "none"} | environment
    if not before:
        return run_python(command, env=environment, timeout=60)
    command = [*before, sys.executable, *command]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)


def _refused(done: "subprocess.CompletedProcess[str]") -> str:
    assert done.returncode == 1, done.stdout + done.stderr
    assert done.stderr.count("\n") == 1, done.stderr
    return done.stderr


@needs_mounts
def test_start_with_a_read_only_state_folder_is_refused(tmp_path: Path) -> None:
    mounted = ["unshare", "-rm", "sh", "-c", f'mount -t tmpfs -o ro x {tmp_path} && exec "$@"', "sh"]

    told = _refused(_up(tmp_path / "state", *mounted))

    assert f"TIDEMARK_STATE_DIR={tmp_path}/state cannot be written (it is read-only)" in told


@needs_mounts
def test_start_on_a_full_disk_is_refused(tmp_path: Path) -> None:
    filled = f"mount -t tmpfs -o size=64k x {tmp_path} && head -c 1M /dev/zero > {tmp_path}/full 2>/dev/null"
    mounted = ["unshare", "-rm", "sh", "-c", f'{filled}; exec "$@"', "sh"]

    told = _refused(_up(tmp_path, *mounted))

    assert f"TIDEMARK_STATE_DIR={tmp_path} cannot be written (the disk is full)" in told


@needs_mounts
def test_start_with_too_little_disk_space_is_refused(tmp_path: Path) -> None:
    mounted = ["unshare", "-rm", "sh", "-c", f'mount -t tmpfs -o size=100m x {tmp_path} && exec "$@"', "sh"]

    told = _refused(_up(tmp_path, *mounted))

    assert "MB of free disk space, found" in told


def test_start_with_a_file_as_state_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("not a folder")

    assert f"TIDEMARK_STATE_DIR={tmp_path}/state cannot be written" in _refused(_up(tmp_path / "state"))


@pytest.mark.parametrize("name", ["UI", "CLOUD", "SPARK"])
def test_start_on_a_used_port_is_refused(tmp_path: Path, name: str) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        environment = {f"TIDEMARK_PORT_{name}": port}
        if name == "CLOUD":
            environment["AWS_ENDPOINT_URL"] = f"http://127.0.0.1:{port}"
        if name == "SPARK":
            environment["SPARK_REMOTE"] = f"sc://127.0.0.1:{port}"

        assert f"TIDEMARK_PORT_{name}={port}: another program uses this port" in _refused(_up(tmp_path, **environment))


def test_second_platform_start_in_the_same_folder_is_refused(tmp_path: Path) -> None:
    with running(make_settings(tmp_path)):
        assert f"the platform already runs on {tmp_path}" in _refused(_up(tmp_path))
