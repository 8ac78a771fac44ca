"""Contract of run launchers, without a process."""

import dagster as dg
import pytest
from dagster._core.code_pointer import ModuleCodePointer
from dagster._core.launcher.base import LaunchRunContext, WorkerStatus
from dagster._core.origin import JobPythonOrigin, RepositoryPythonOrigin
from dagster._grpc.types import ExecuteRunArgs

from dagster_tidemark.dagster_internals import run_storage
from dagster_tidemark.dagster_internals.run_launcher import ProcessLauncher

STARTED: list[tuple[str, str]] = []
CODE = JobPythonOrigin("job", RepositoryPythonOrigin("python", ModuleCodePointer("shop", "defs")))


class Recorded(ProcessLauncher):
    """Records the arguments; runs with a tag `lost` have no process."""

    def start(self, run: dg.DagsterRun, arguments: str) -> None:
        STARTED.append((run.run_id, arguments))

    def lost_process(self, run: dg.DagsterRun) -> str:
        return run.tags.get("lost", "")

    def terminate(self, run_id: str) -> bool:
        return False


def test_custom_launcher_starts_runs_of_known_code_and_reports_dead_processes() -> None:
    with dg.instance_for_test(overrides={"run_launcher": {"module": __name__, "class": "Recorded"}}) as instance:
        launcher, lost = instance.run_launcher, dg.DagsterRun("job", tags={"lost": "it is gone"})
        assert isinstance(launcher, Recorded) and launcher.instance is instance
        with pytest.raises(ValueError, match="does not say which code it belongs to"):
            launcher.launch_run(LaunchRunContext(dagster_run=dg.DagsterRun("job"), workspace=None))
        assert STARTED == []
        launcher.launch_run(LaunchRunContext(dagster_run=dg.DagsterRun("job", job_code_origin=CODE), workspace=None))
        ((_, arguments),) = STARTED
        assert dg.deserialize_value(arguments, ExecuteRunArgs).job_origin == CODE
        assert not run_storage.is_reported_gone(instance, dg.DagsterRun("job"))
        assert run_storage.is_reported_gone(instance, lost)
        health = launcher.check_run_worker_health(lost)
        assert (health.status, health.msg) == (WorkerStatus.NOT_FOUND, "it is gone")
