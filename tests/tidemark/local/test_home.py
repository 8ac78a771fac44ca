"""The Dagster home: made once, and without runs that cannot end any more."""

from pathlib import Path

import dagster as dg
from dagster._core.remote_origin import InProcessCodeLocationOrigin, RemoteRepositoryOrigin
from dagster._core.types.loadable_target_origin import LoadableTargetOrigin
from dagster._core.utils import make_new_run_id

from dagster_tidemark.event_log.run_facts import run_facts
from dagster_tidemark.local.dagster.dev import loaded
from dagster_tidemark.local.dagster.home import end_unfinished_runs, opened_home
from dagster_tidemark.planner.event_records import Outcome
from tests.checkout import CHECKOUT
from tests.conftest import make_settings


def test_dagster_home_has_the_configuration_of_the_checkout(tmp_path: Path) -> None:
    settings = make_settings(tmp_path)
    with opened_home(settings) as instance:
        assert instance.root_directory == str(settings.dagster_home)
        queue = instance.get_concurrency_config().run_queue_config
        assert queue is not None and queue.max_concurrent_runs == 7
        assert instance.run_monitoring_enabled
        assert not instance.telemetry_enabled
        assert not instance.nux_enabled
    assert (tmp_path / "dagster" / "dagster.yaml").readlink() == CHECKOUT / "dagster.yaml"


def test_home_of_a_project_without_dagster_yaml_has_that_of_a_new_project(tmp_path: Path) -> None:
    settings = make_settings(tmp_path / "state").model_copy(update={"project": tmp_path})
    with opened_home(settings) as instance:
        queue = instance.get_concurrency_config().run_queue_config
        assert queue is not None and queue.max_concurrent_runs == 7
    linked = tmp_path / "state" / "dagster" / "dagster.yaml"
    assert linked.read_text() == (CHECKOUT / "dagster.yaml").read_text()
    (tmp_path / "dagster.yaml").write_text("telemetry: {enabled: false}\n")
    with opened_home(settings):
        assert linked.readlink() == tmp_path / "dagster.yaml"


def test_project_without_a_workspace_is_loaded_by_its_definitions(tmp_path: Path) -> None:
    settings = make_settings(tmp_path).model_copy(update={"project": tmp_path, "code_location": "acme"})
    assert loaded(settings) == ["-m", "acme.definitions", "-d", str(tmp_path)]
    (tmp_path / "workspace.yaml").touch()
    assert loaded(settings) == ["-w", str(tmp_path / "workspace.yaml")]


def test_dagster_home_of_another_dagster_version_is_migrated(tmp_path: Path) -> None:
    settings = make_settings(tmp_path)
    with opened_home(settings):
        pass
    stamp = tmp_path / "dagster" / ".version"
    stamp.write_text("1.0.0")
    with opened_home(settings) as instance:
        assert instance.get_runs_count() == 0
    assert stamp.read_text() == dg.__version__


def test_run_with_a_dead_process_is_canceled_and_a_queued_run_kept(tmp_path: Path) -> None:
    status = dg.DagsterRunStatus
    settings = make_settings(tmp_path)
    with opened_home(settings) as instance:
        states = (status.NOT_STARTED, status.QUEUED, status.STARTED, status.CANCELING, status.SUCCESS)
        ids = {state: instance.add_run(_run(state)).run_id for state in states}
        assert end_unfinished_runs(instance) == 3
        after = {before: instance.get_run_by_id(run_id) for before, run_id in ids.items()}
        assert {before: run.status for before, run in after.items() if run} == {
            status.NOT_STARTED: status.CANCELED,
            status.QUEUED: status.QUEUED,
            status.STARTED: status.CANCELED,
            status.CANCELING: status.CANCELED,
            status.SUCCESS: status.SUCCESS,
        }
        assert end_unfinished_runs(instance) == 0
        outcomes = {before: run_facts(instance, [run_id])[run_id].outcome for before, run_id in ids.items()}
        assert outcomes[status.NOT_STARTED] is outcomes[status.STARTED] is Outcome.LOST
        assert outcomes[status.CANCELING] is Outcome.CANCELED, "a person wanted that"


def _run(status: dg.DagsterRunStatus) -> dg.DagsterRun:
    code = InProcessCodeLocationOrigin(LoadableTargetOrigin(module_name="nowhere"))
    origin = RemoteRepositoryOrigin(code, "a_repository").get_job_origin("a_job")
    return dg.DagsterRun(job_name="a_job", run_id=make_new_run_id(), status=status, remote_job_origin=origin)
