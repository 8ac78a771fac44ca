"""The service that forks the processes of runs, from a process that has the libraries loaded.

Belongs here: the loaded libraries, and how a child becomes a run, like the process of `dagster api execute_run`. Does
not belong here: the client (`dagster_tidemark.local.dagster.run_launcher`).

Method: a fork server, as in Python's multiprocessing. It has one thread and no open connections, so a child inherits
nothing half-finished.
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

from dagster_tidemark.dagster_internals.run_execution import LOADED_BY_RUNS, execute_run
from dagster_tidemark.event_log.run_process import identity_of
from dagster_tidemark.local.dagster.run_launcher import GO, SECONDS_TO_FORK, server_socket
from dagster_tidemark.settings import load_settings

LIBRARIES = (
    "boto3.s3.transfer",
    "cronsim",
    *LOADED_BY_RUNS,
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
"""Libraries that a run of a Spark pipeline loads before its own code. Never the code location."""


def serve(path: Path) -> NoReturn:
    """Load the libraries, then fork a process for each requested run."""
    for name in LIBRARIES:
        import_module(name)
    gc.collect()
    gc.freeze()  # the children share these pages while no collection touches them
    path.unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        path.chmod(0o600)
        listener.listen()
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel reaps the runs
        while True:
            connection, _ = listener.accept()
            with connection:
                if os.fork() == 0:
                    listener.close()
                    _become_run(connection, path.with_name("bytecode"))


def _become_run(connection: socket.socket, bytecode: Path) -> None:
    """Turn a child process into a run. Never returns."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    code = 1
    try:
        connection.settimeout(SECONDS_TO_FORK)
        with connection, connection.makefile("rwb") as stream:
            arguments = stream.readline().decode()
            if not arguments:
                return  # the client only tested that the server answers
            stream.write(identity_of(psutil.Process()).encode() + b"\n")
            stream.flush()
            wanted = stream.readline() == GO  # if it is absent, the launcher died before it recorded this process
        if sys.dont_write_bytecode:
            # Bytecode must stay out of the checkout. Without bytecode each run would compile the code location again.
            sys.pycache_prefix, sys.dont_write_bytecode = str(bytecode), False
        if wanted:
            execute_run(arguments)
        code = 0
    except BaseException:  # whatever ends a run, this process must not return into the server's loop
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)  # without the exit handlers, which belong to the server


def main() -> None:
    """Serve the platform's Dagster home."""
    serve(server_socket(load_settings().platform_home))


if __name__ == "__main__":
    main()
