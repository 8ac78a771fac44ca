"""What the launcher knows of a run whose process is gone or another's; `tests.live.test_warm_runs` has real runs."""

from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import psutil
import pytest
from dagster._core.launcher import WorkerStatus
from dagster._core.utils import make_new_run_id

from dagster_tidemark.event_log.run_process import identity_of, process_of
from dagster_tidemark.local.dagster.home import opened_home
from dagster_tidemark.tags import PROCESS
from tests.conftest import make_settings
from tests.tidemark.processes import ended_process


@pytest.fixture
def instance(tmp_path: Path) -> Iterator[dg.DagsterInstance]:
    with opened_home(make_settings(tmp_path)) as made:
        yield made


def _started(instance: dg.DagsterInstance, process: str) -> dg.DagsterRun:
    status = dg.DagsterRunStatus.STARTED
    tags = {PROCESS: process}
    return instance.add_run(dg.DagsterRun(job_name="a_job", run_id=make_new_run_id(), status=status, tags=tags))


def test_warm_run_without_a_process_is_unhealthy_and_canceled_at_once(instance: dg.DagsterInstance) -> None:
    run = _started(instance, ended_process())

    assert instance.run_launcher.check_run_worker_health(run).status is WorkerStatus.NOT_FOUND
    assert instance.run_launcher.terminate(run.run_id)

    after = instance.get_run_by_id(run.run_id)
    assert after is not None and after.status is dg.DagsterRunStatus.CANCELED


def test_process_with_a_reused_pid_is_not_taken_for_the_run(instance: dg.DagsterInstance) -> None:
    this = psutil.Process()
    mine = _started(instance, identity_of(this))
    older = _started(instance, f"{this.pid}@{this.create_time() - 60:.2f}")

    assert process_of(mine) == this
    assert process_of(older) is None
