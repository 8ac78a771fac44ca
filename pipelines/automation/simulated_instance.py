"""An ephemeral Dagster instance fit for a hundred thousand events: its storages keep one connection each.

Dagster's own in-memory storages open a connection for every statement, which was half the time of a simulated day.
For one thread.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from dagster import DagsterInstance
from dagster._core.instance.types import InstanceType
from dagster._core.launcher.sync_in_memory_run_launcher import SyncInMemoryRunLauncher
from dagster._core.run_coordinator import DefaultRunCoordinator, QueuedRunCoordinator
from dagster._core.storage.event_log import InMemoryEventLogStorage
from dagster._core.storage.noop_compute_log_manager import NoOpComputeLogManager
from dagster._core.storage.root import TemporaryLocalArtifactStorage
from dagster._core.storage.runs import InMemoryRunStorage
from sqlalchemy.engine import Connection


def simulated_instance(at_once: int | None = None) -> DagsterInstance:
    """A new, empty instance.

    Args:
        at_once: How many runs it lets run at once. None: it says nothing of a limit.
    """
    return DagsterInstance(
        instance_type=InstanceType.EPHEMERAL,
        local_artifact_storage=TemporaryLocalArtifactStorage(),  # type: ignore[no-untyped-call]
        run_storage=_Runs(),
        event_storage=_Events(),
        compute_log_manager=NoOpComputeLogManager(),
        run_coordinator=QueuedRunCoordinator(at_once) if at_once else DefaultRunCoordinator(),
        run_launcher=SyncInMemoryRunLauncher(),
    )


class _Events(InMemoryEventLogStorage):
    @contextmanager
    def _connect(self) -> Iterator[Connection]:
        with _transaction(self._held_conn) as connection:
            yield connection


class _Runs(InMemoryRunStorage):
    @contextmanager
    def connect(self) -> Iterator[Connection]:
        with _transaction(self._held_conn) as connection:
            yield connection


@contextmanager
def _transaction(held: Connection) -> Iterator[Connection]:
    if held.in_transaction():
        yield held
        return
    with held.begin():
        yield held
