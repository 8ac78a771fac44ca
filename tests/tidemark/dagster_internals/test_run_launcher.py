"""Contract of run launchers and run queues, without a process."""

import dagster as dg
import pytest
from dagster._core.launcher.base import LaunchRunContext, WorkerStatus

from dagster_tidemark.dagster_internals import run_storage
from dagster_tidemark.dagster_internals.run_launcher import ProcessLauncher, RunQueueConfig

STARTED: list[tuple[str, str]] = []


class Recorded(ProcessLauncher):
    """Records the arguments; runs with a tag `lost` have no process."""

    def start(self, run: dg.DagsterRun, arguments: str) -> None:
        STARTED.append((run.run_id, arguments))

    def lost_process(self, run: dg.DagsterRun) -> str:
        return run.tags.get("lost", "")

    def terminate(self, run_id: str) -> bool:
        return False


def test_a_launcher_of_a_configuration_gets_the_run_and_its_arguments() -> None:
    settings = {"run_launcher": {"module": __name__, "class": "Recorded"}}
    with dg.instance_for_test(overrides=settings) as instance:
        launcher = instance.run_launcher
        assert isinstance(launcher, Recorded) and launcher.instance is instance
        job = dg.define_asset_job("job").resolve(asset_graph=dg.Definitions([]).resolve_asset_graph())
        run = instance.create_run_for_job(job)
        with pytest.raises(ValueError, match="does not say which code it belongs to"):
            launcher.launch_run(LaunchRunContext(dagster_run=run, workspace=None))
        assert STARTED == []


def test_a_launcher_reports_runs_whose_process_is_gone() -> None:
    with dg.instance_for_test(overrides={"run_launcher": {"module": __name__, "class": "Recorded"}}) as instance:
        lives, lost = dg.DagsterRun("job"), dg.DagsterRun("job", tags={"lost": "it is gone"})
        assert not run_storage.is_reported_gone(instance, lives)
        assert run_storage.is_reported_gone(instance, lost)
        health = instance.run_launcher.check_run_worker_health(lost)
        assert (health.status, health.msg) == (WorkerStatus.NOT_FOUND, "it is gone")


def test_a_run_queues_limits_are_read_from_its_configuration() -> None:
    config = dg.QueuedRunCoordinator(max_concurrent_runs=4).get_run_queue_config()
    assert isinstance(config, RunQueueConfig)
    assert config._replace(max_concurrent_runs=5).max_concurrent_runs == 5
