"""A Connect server that is away, hangs, or comes back: how long a run waits for it. A gRPC server stands for it."""

import socket
import time
from concurrent.futures import ThreadPoolExecutor
from threading import Timer

import grpc
import pytest

from dagster_tidemark.lakehouse import session
from dagster_tidemark.lakehouse.session import SparkUnreachable, connect_fault, new_session
from dagster_tidemark.settings import Settings
from tests.conftest import free_port


def started(port: int) -> grpc.Server:
    """Start a server. Its port accepts connections from the first of these lines on."""
    made = grpc.server(ThreadPoolExecutor(1))
    made.add_insecure_port(f"127.0.0.1:{port}")
    made.start()
    return made


def test_run_connects_within_seconds_after_the_server_is_back(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session.logger, "disabled", False)  # as a run of another test may have left it
    port, back = free_port(), list[grpc.Server]()
    timer = Timer(3.0, lambda: back.append(started(port)))
    timer.start()
    begun = time.monotonic()
    try:
        session._await_server(f"sc://127.0.0.1:{port}", 30.0)
        assert 3.0 <= time.monotonic() - begun < 8.0
    finally:
        timer.join()
        back[0].stop(None)
    (line,) = [record.getMessage() for record in caplog.records if record.name == session.__name__]
    assert f"127.0.0.1:{port}" in line and line.endswith("waiting for 30 s")


def test_server_that_stays_away_is_named_after_the_wait() -> None:
    remote, begun = f"sc://127.0.0.1:{free_port()}/;token=s3cret", time.monotonic()
    with pytest.raises(SparkUnreachable, match=r"is it running\? See SPARK_REMOTE") as raised:
        session._await_server(remote, 2.0)
    assert 2.0 <= time.monotonic() - begun < 5.0 and "s3cret" not in str(raised.value)
    begun = time.monotonic()
    with pytest.raises(SparkUnreachable):
        new_session(Settings(spark_remote=remote))
    assert time.monotonic() - begun < 2.0, "commands do not wait"


def test_server_that_accepts_connections_and_does_not_answer_counts_as_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "_PROBE_SECONDS", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as hanging:
        remote = f"sc://127.0.0.1:{hanging.getsockname()[1]}"
        assert connect_fault(remote, 0.5).startswith("unreachable at 127.0.0.1:")
        with pytest.raises(SparkUnreachable):
            new_session(Settings(spark_remote=remote))
