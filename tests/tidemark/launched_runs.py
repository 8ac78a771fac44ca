"""Runs that Dagster's own launcher starts through a code server.

Belongs here: a code server on a file, and the launch of a run through it. Does not belong here: the file's definitions.
"""

import os
import signal
import sys
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import dagster as dg
import psutil
from dagster._core.launcher import DefaultRunLauncher
from dagster._core.remote_origin import GrpcServerCodeLocationOrigin, RemoteRepositoryOrigin
from dagster._core.test_utils import create_run_for_test
from dagster._core.types.loadable_target_origin import LoadableTargetOrigin
from dagster._grpc.server import GrpcServerProcess


@contextmanager
def code_server(instance: dg.DagsterInstance, file: Path, *, by_port: bool = False) -> Iterator[GrpcServerProcess]:
    """Start a code server. At the end of the block it is killed with its children.

    Args:
        by_port: True for a port, False for a socket.
    """
    target = LoadableTargetOrigin(executable_path=sys.executable, python_file=str(file))
    server = GrpcServerProcess(
        instance_ref=instance.get_ref(), loadable_target_origin=target, wait_on_exit=True, force_port=by_port
    )
    try:
        yield server
    finally:
        with suppress(psutil.NoSuchProcess):
            for child in psutil.Process(server.pid).children(recursive=True):
                child.kill()
        with suppress(ProcessLookupError):
            os.kill(server.pid, signal.SIGKILL)
        server.wait()
        server.shutdown_server()  # of a dead process this only notes that nobody has to end it


def launched(
    instance: dg.DagsterInstance,
    server: GrpcServerProcess,
    job: str = "some_job",
    assets: Collection[dg.AssetKey] = (),
) -> dg.DagsterRun:
    """Start a run with Dagster's own launcher, and return it."""
    at = GrpcServerCodeLocationOrigin(
        host="localhost", port=server.port, socket=server.socket, location_name="the location"
    )
    run = create_run_for_test(
        instance,
        job_name=job,
        remote_job_origin=RemoteRepositoryOrigin(at, "__repository__").get_job_origin(job),
        asset_selection=frozenset(assets) or None,
        status=dg.DagsterRunStatus.STARTING,
    )
    DefaultRunLauncher.launch_run_from_grpc_client(instance, run, server.create_client())
    return found(instance, run.run_id)


def found(instance: dg.DagsterInstance, run_id: str) -> dg.DagsterRun:
    """Return a run as it is stored now."""
    run = instance.get_run_by_id(run_id)
    assert run is not None
    return run
