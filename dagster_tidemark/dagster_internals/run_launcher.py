"""Base class of Tidemark's run launchers."""

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, Self

from dagster import DagsterInstance, DagsterRun, Field, serialize_value
from dagster._core.launcher.base import CheckRunHealthResult, LaunchRunContext, RunLauncher, WorkerStatus
from dagster._grpc.types import ExecuteRunArgs
from dagster._serdes import ConfigurableClass, ConfigurableClassData


class ProcessLauncher(RunLauncher, ConfigurableClass):
    """Base class of a launcher that starts each run as a process. dagster.yaml names it without config."""

    def __init__(self, inst_data: ConfigurableClassData | None = None) -> None:
        self._inst_data = inst_data
        super().__init__()  # type: ignore[no-untyped-call]

    @abstractmethod
    def start(self, run: DagsterRun, arguments: str) -> None:
        """Start a process that passes the arguments to `execute_run`, or to `dagster api execute_run`."""

    @abstractmethod
    def lost_process(self, run: DagsterRun) -> str:
        """Return a line about the process of a run if the process is gone; empty if it is alive."""

    @property
    def instance(self) -> DagsterInstance:
        """The instance whose runs are launched."""
        return self._instance

    @property
    def inst_data(self) -> ConfigurableClassData | None:
        return self._inst_data

    @classmethod
    def config_type(cls) -> Mapping[str, Field]:
        return {}

    @classmethod
    def from_config_value(cls, inst_data: ConfigurableClassData, config_value: Mapping[str, Any]) -> Self:
        return cls(inst_data)

    def launch_run(self, context: LaunchRunContext) -> None:
        run, origin = context.dagster_run, context.job_code_origin
        if origin is None:
            raise ValueError(f"run {run.run_id} does not say which code it belongs to; launch it from a code location")
        self.start(run, serialize_value(ExecuteRunArgs(origin, run.run_id, self.instance.get_ref())))

    @property
    def supports_check_run_worker_health(self) -> bool:
        return True

    def check_run_worker_health(self, run: DagsterRun) -> CheckRunHealthResult:
        lost = self.lost_process(run)
        return (
            CheckRunHealthResult(WorkerStatus.NOT_FOUND, lost) if lost else CheckRunHealthResult(WorkerStatus.RUNNING)
        )
