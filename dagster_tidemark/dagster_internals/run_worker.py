"""The run of this process, if a launcher started the process. It is known before the run executes.

Dagster's launchers start a run's process in two ways. A code server starts a subprocess and passes the run as the
subprocess's argument. Other launchers start the command `dagster api execute_run`, or `resume_run` after the first
process was lost. Code servers, and the processes of single steps, are started in neither way.
"""

import base64
import multiprocessing
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import click
import dagster as dg
from dagster import DagsterInstance

_TARGET = ("dagster._grpc.impl", "start_run_in_subprocess")  # by name: the import takes a tenth of a second
_EXECUTE, _RESUME = "execute_run", "resume_run"


@dataclass(frozen=True)
class LaunchedRun:
    """The run of this process, as its launcher passed it.

    Args:
        is_resumed: True if an earlier process has executed a part of the run.
    """

    instance: DagsterInstance
    run: dg.DagsterRun
    is_resumed: bool


@contextmanager
def launched_run() -> Iterator[LaunchedRun | None]:
    """Open the instance and return the run of this process; None if no launcher started the process for a run.

    Raises:
        Exception: the instance's storage does not answer.
    """
    arguments = _of_code_server() or _of_command(_EXECUTE)
    resumed = None if arguments else _of_command(_RESUME)
    if not (given := arguments or resumed):
        yield None
        return
    started: Any = dg.deserialize_value(given)
    reference, run_id = started.instance_ref, started.run_id
    with DagsterInstance.from_ref(reference) if reference else DagsterInstance.get() as instance:
        run = instance.get_run_by_id(run_id)
        yield None if run is None else LaunchedRun(instance, run, is_resumed=bool(resumed))


def _of_code_server() -> str:
    """Return the serialized run that a code server passed to this subprocess; empty for other processes."""
    process = multiprocessing.current_process()
    target = getattr(process, "_target", None)
    if (getattr(target, "__module__", ""), getattr(target, "__name__", "")) != _TARGET:
        return ""
    given = getattr(process, "_args", ())
    return str(given[0]) if given else ""


def _of_command(name: str) -> str:
    """Return the serialized run that a command got; empty in other processes."""
    # The process of a step inherits `sys.argv` from the run's process, but not the context of the command.
    command = click.get_current_context(silent=True)
    if command is None or command.command.name != name:
        return ""
    if compressed := command.params.get("compressed_input_json"):
        return zlib.decompress(base64.b64decode(compressed)).decode()
    return str(command.params.get("input_json") or "")
