"""Services that accept connections and never answer: each is named in time, and every other line is printed."""

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
import yaml

from tests.checkout import CHECKOUT

_SECONDS = 20
_POSTGRES = {"hostname": "127.0.0.1", "username": "dagster", "password": "hunter2hunter2", "db_name": "dagster"}


@pytest.fixture
def silent() -> Iterator[int]:
    """The port of a server whose connections are accepted by the kernel, and never answered."""
    with closing(socket.create_server(("127.0.0.1", 0), backlog=128)) as server:
        yield server.getsockname()[1]


def test_each_hanging_part_is_named_and_the_process_ends(silent: int, tmp_path: Path) -> None:
    instance = {"storage": {"postgres": {"postgres_db": _POSTGRES | {"port": silent}}}}
    (tmp_path / "dagster.yaml").write_text(yaml.safe_dump(instance | {"telemetry": {"enabled": False}}))
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("TIDEMARK_", "AWS_"))}
    environment |= {
        "TIDEMARK_PROJECT": str(CHECKOUT),
        "TIDEMARK_STATE_DIR": str(tmp_path),
        "DAGSTER_HOME": str(tmp_path),
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{silent}",
        "AWS_ACCESS_KEY_ID": "a",
        "AWS_SECRET_ACCESS_KEY": "b",
        "SPARK_REMOTE": f"sc://127.0.0.1:{silent}/;token=hunter2hunter2;use_ssl=true",
        "TIDEMARK_CATALOG__TYPE": "rest",
        "TIDEMARK_CATALOG_URI": f"http://127.0.0.1:{silent}",
        "TIDEMARK_CATALOG__TOKEN": "hunter2hunter2",
        "TIDEMARK_WAREHOUSE": "s3://lake/warehouse",
        "TIDEMARK_KAFKA_BOOTSTRAP_SERVERS": f"127.0.0.1:{silent}",
    }
    command = [sys.executable, "-m", "dagster_tidemark.cli.app", "doctor", "--json", "--seconds", str(_SECONDS)]
    begun = time.monotonic()
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    taken = time.monotonic() - begun
    found = {each["check"]: each for each in json.loads(done.stdout)}
    ok = {name for name, each in found.items() if each["verdict"] == "ok"}
    assert ok == {"settings", "packages"} and done.returncode == 1, found
    assert {"dagster", "catalog", "spark", "spark job", "spark workers", "landing bucket"} < found.keys()
    assert {"queue landing-events", "topic cold-chain-readings"} < found.keys()
    assert all(each["remedy"] for name, each in found.items() if name not in ok)
    assert "hunter2" not in done.stdout + done.stderr
    assert taken < _SECONDS + 60, "reading the code location takes its time on a busy machine, no part does"
