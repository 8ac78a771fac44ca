"""An ephemeral Dagster instance for a hundred thousand events: each of its storages keeps one connection.

Dagster's own in-memory storages open a connection for every statement, which was half the time of a simulated day.
The instance works in one thread only.
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
from dagster._core.storage.schedules.schema import ScheduleStorageSqlMetadata
from dagster._core.storage.schedules.sql_schedule_storage import SqlScheduleStorage
from sqlalchemy import create_engine
from sqlalchemy.engine import Connection


def simulated_instance(at_once: int | None = None) -> DagsterInstance:
    """Return a new, empty instance.

    Args:
        at_once: Number of runs that may run at the same time; None for no limit.
    """
    return DagsterInstance(
        instance_type=InstanceType.EPHEMERAL,
        local_artifact_storage=TemporaryLocalArtifactStorage(),  # type: ignore[no-untyped-call]
        run_storage=_Runs(),
        event_storage=_Events(),
        schedule_storage=_Schedules(),
        compute_log_manager=NoOpComputeLogManager(),
        run_coordinator=QueuedRunCoordinator(at_once) if at_once else DefaultRunCoordinator(),
        run_launcher=SyncInMemoryRunLauncher(),
    )


class _Events(InMemoryEventLogStorage):
    @contextmanager
    def _connect(self) -> Iterator[Connection]:
        with _transaction(self._held_conn) as connection:
            yield connection

    # The tables are new and complete. Dagster would check for columns and tables at every event.

    def has_table(self, table_name: str) -> bool:
        return True

    def has_asset_key_index_cols(self) -> bool:
        return True

    def _has_asset_key_col_on_connection(self, conn: Connection, column_name: str) -> bool:
        return True

    def _has_asset_key_index_cols_on_connection(self, conn: Connection) -> bool:
        return True


class _Runs(InMemoryRunStorage):
    @contextmanager
    def connect(self) -> Iterator[Connection]:
        with _transaction(self._held_conn) as connection:
            yield connection

    def has_run_stats_index_cols(self) -> bool:
        return True

    def has_backfill_id_column(self) -> bool:
        return True


class _Schedules(SqlScheduleStorage):
    """In-memory storage for the states of sensors. Dagster has none."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._held_conn = create_engine("sqlite://").connect()
        with self._held_conn.begin():
            ScheduleStorageSqlMetadata.create_all(self._held_conn)

    @contextmanager
    def connect(self) -> Iterator[Connection]:
        with _transaction(self._held_conn) as connection:
            yield connection

    def has_secondary_index(self, name: str) -> bool:
        return True

    def has_instigators_table(self) -> bool:
        return True

    def has_built_index(self, migration_name: str) -> bool:
        return True

    def upgrade(self) -> None:
        """Do nothing: a new storage has no older schema."""

    def dispose(self) -> None:
        self._held_conn.close()


@contextmanager
def _transaction(held: Connection) -> Iterator[Connection]:
    if held.in_transaction():
        yield held
        return
    with held.begin():
        yield held
