"""The code server: whether this process is one, and the processes of runs that it starts for the default launcher."""

import json
import logging
import sys
from functools import wraps
from typing import Any

from dagster import DagsterRun, deserialize_value
from dagster._core.definitions.definitions_load_context import DefinitionsLoadContext, DefinitionsLoadType
from dagster._core.errors import DagsterUserCodeUnreachableError
from dagster._core.storage.tags import GRPC_INFO_TAG
from dagster._grpc.client import DagsterGrpcClient
from dagster._grpc.types import CanCancelExecutionRequest, CanCancelExecutionResult

_logger = logging.getLogger(__name__)
_SERVER = "dagster._grpc.server"


def is_held_by_its_server(run: DagsterRun, seconds: int = 5) -> bool | None:
    """Return whether the code server that was asked to start a run has a process for it.

    A server forgets a run if its process ends before the run has started. None if the server does not answer in time.
    """
    address = json.loads(run.tags[GRPC_INFO_TAG])
    client = DagsterGrpcClient(
        **{name: address[name] for name in ("host", "port", "socket", "use_ssl") if name in address}
    )
    try:
        answer = client.can_cancel_execution(CanCancelExecutionRequest(run_id=run.run_id), timeout=seconds)
    except DagsterUserCodeUnreachableError:
        return None
    return bool(deserialize_value(answer, CanCancelExecutionResult).can_cancel)


def keep_watching_runs() -> None:
    """Keep this code server's thread that notices ended run processes.

    Dagster ends the thread at the first error, such as a storage that is unreachable for a moment. From then on the
    server reports no ended run, and holds some file handles of every run until it has none left. With this change the
    thread logs the error and tries again half a second later. Processes without a code server are not changed.
    """
    if (module := sys.modules.get(_SERVER)) is None:
        return
    server: Any = module.DagsterApiServer
    check = server._check_for_orphaned_runs
    if getattr(check, "_keeps_watching", False):
        return
    failing = set[int]()

    @wraps(check)
    def checked(self: Any) -> None:
        try:
            check(self)
            failing.discard(id(self))
        except Exception as error:  # whatever it is, the next try may succeed
            if id(self) not in failing:
                _logger.warning("ended run processes cannot be reported now, the server tries again: %s", error)
            failing.add(id(self))

    checked._keeps_watching = True  # type: ignore[attr-defined]
    server._check_for_orphaned_runs = checked


def is_loaded_for_a_run() -> bool:
    """Return True if this process loads the definitions only to execute a run. Such a process evaluates no sensors."""
    return (
        DefinitionsLoadContext.is_set() and DefinitionsLoadContext.get().load_type is DefinitionsLoadType.RECONSTRUCTION
    )


def is_loaded_by_a_code_server() -> bool:
    """Return True if this process is a code server, or a command that checks the definitions."""
    return DefinitionsLoadContext.is_set() and not is_loaded_for_a_run()
