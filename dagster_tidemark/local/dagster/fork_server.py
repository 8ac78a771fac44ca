"""The service that forks the processes of runs, from a process that has the libraries loaded.

Belongs here: what is loaded, and how a child becomes a run: what `dagster api execute_run` executes. Does not
belong here: who asks for it (`dagster_tidemark.local.dagster.run_launcher`).

Method: a fork server, as in Python's multiprocessing. One thread and no connection of its own: nothing a child
could inherit half-way.
"""

import gc
import os
import signal
import socket
import sys
import traceback
from importlib import import_module
from pathlib import Path
from typing import NoReturn

import psutil
from dagster._cli.api import execute_run_command

from dagster_tidemark.event_log.run_process import identity_of
from dagster_tidemark.local.dagster.run_launcher import GO, SECONDS_TO_FORK, server_socket
from dagster_tidemark.settings import load_settings

_LIBRARIES = (
    "boto3.s3.transfer",
    "cronsim",
    "dagster._core.execution.plan.active",
    "dagster._core.executor.in_process",
    "dagster._core.instance.factory",
    "dagster._core.storage.event_log.sqlite.sqlite_event_log",
    "dagster._core.storage.schedules.sqlite",
    "dagster._core.workspace.autodiscovery",
    "dagster_aws.s3",
    "dagster_pyspark",
    "grpc._channel",
    "pandas",
    "pyarrow.parquet",
    "pydantic_settings",
    "pyiceberg.catalog.sql",
    "pyiceberg.io.pyarrow",
    "pyspark.sql.connect.session",
    "tenacity",
    "upath.implementations.local",
)
"""What a run of a Spark pipeline loads before it comes to its own code. Never the code location."""


def serve(path: Path) -> NoReturn:
    """Load the libraries, then fork a process for each run that is asked for."""
    for name in _LIBRARIES:
        import_module(name)
    gc.collect()
    gc.freeze()  # the children share these pages as long as no collection touches them
    path.unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        path.chmod(0o600)
        listener.listen()
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel buries the runs
        while True:
            connection, _ = listener.accept()
            with connection:
                if os.fork() == 0:
                    listener.close()
                    _become_run(connection, path.with_name("bytecode"))


def _become_run(connection: socket.socket, bytecode: Path) -> None:
    """What a child does; it never returns."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    code = 1
    try:
        connection.settimeout(SECONDS_TO_FORK)
        with connection, connection.makefile("rwb") as stream:
            arguments = stream.readline().decode()
            if not arguments:
                return  # somebody only looked whether we are here
            stream.write(identity_of(psutil.Process()).encode() + b"\n")
            stream.flush()
            wanted = stream.readline() == GO  # else the launcher is gone, and nobody would know of this process
        if sys.dont_write_bytecode:
            # The checkout is to stay clean of it; without any, each run would compile the code location anew.
            sys.pycache_prefix, sys.dont_write_bytecode = str(bytecode), False
        if wanted:
            execute_run_command.main([arguments], standalone_mode=False)
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)  # not through the interpreter's exit, which is the server's


def main() -> None:
    """The service: serve the platform's Dagster home."""
    serve(server_socket(load_settings().platform_home))


if __name__ == "__main__":
    main()
