"""Contract of Dagster's runs and its run queue."""

import time

import dagster as dg
import pytest
from dagster import DagsterEventType, DagsterRunStatus
from dagster._core.events import DagsterEvent, EngineEventData
from dagster._core.remote_origin import (
    RegisteredCodeLocationOrigin,
    RemoteJobOrigin,
    RemoteRepositoryOrigin,
)

from dagster_tidemark.dagster_internals import run_storage
from dagster_tidemark.simulation.instance import simulated_instance
from dagster_tidemark.tags import STREAM

ORIGIN = RemoteJobOrigin(RemoteRepositoryOrigin(RegisteredCodeLocationOrigin("theirs"), "__repository__"), "job")


@dg.asset
def table() -> None: ...


def run(instance: dg.DagsterInstance, number: int, status: DagsterRunStatus, **tags: str) -> dg.DagsterRun:
    made = dg.DagsterRun("job", run_id=f"{number:032x}", status=status, tags=tags, remote_job_origin=ORIGIN)
    return instance.add_run(made)


def test_run_slots_equal_the_concurrency_of_the_run_queue(instance: dg.DagsterInstance) -> None:
    assert run_storage.run_slots(instance) is None
    assert run_storage.run_slots(simulated_instance(at_once=3)) == 3


def test_run_queue_limit_is_the_configured_maximum(instance: dg.DagsterInstance) -> None:
    assert run_storage.queue_limit(instance) is None
    assert run_storage.queue_limit(simulated_instance(at_once=3)) == 3


def test_code_location_of_a_run_is_read_from_its_job_origin(instance: dg.DagsterInstance) -> None:
    without = dg.materialize([table], instance=instance).run_id
    instance.add_run(dg.DagsterRun("job", run_id="f" * 32, remote_job_origin=ORIGIN))
    assert run_storage.locations_of_runs(instance, [without, "f" * 32, "unknown"]) == {"f" * 32: "theirs"}
    found = instance.get_run_by_id("f" * 32)
    assert found is not None and run_storage.location_of(found) == "theirs"


def test_unfinished_runs_are_found_by_status_and_tags(instance: dg.DagsterInstance) -> None:
    run(instance, 1, DagsterRunStatus.SUCCESS, kind="a")
    started = run(instance, 2, DagsterRunStatus.STARTED, kind="a", **{STREAM: "readings"})
    queued = run(instance, 3, DagsterRunStatus.QUEUED)
    unfinished = {record.dagster_run.run_id for record in run_storage.unfinished_runs(instance)}
    assert unfinished == {started.run_id, queued.run_id}
    assert [record.dagster_run.run_id for record in run_storage.unfinished_shifts(instance)] == [started.run_id]
    assert run_storage.has_unfinished_run(instance, {"kind": "a"}) and not run_storage.has_unfinished_run(
        instance, {"kind": "b"}
    )
    assert len(run_storage.starts_of_running(instance)) == 1
    (waiting,) = run_storage.queued_runs(instance)
    (record,) = instance.get_run_records(dg.RunsFilter(run_ids=[queued.run_id]))
    assert waiting == run_storage.QueuedRun(record.create_timestamp.timestamp(), ())


def test_planned_assets_of_a_run_are_its_selection_or_those_of_its_job(instance: dg.DagsterInstance) -> None:
    chosen = dg.DagsterRun(
        "job",
        asset_selection=frozenset([dg.AssetKey("chosen")]),
        asset_check_selection=frozenset([dg.AssetCheckKey(dg.AssetKey("checked"), "check")]),
    )
    assert run_storage.planned_assets(instance, chosen) == {dg.AssetKey("chosen"), dg.AssetKey("checked")}
    job = dg.Definitions([table], jobs=[dg.define_asset_job("all_of_it")]).resolve_job_def("all_of_it")
    ran = instance.get_run_by_id(job.execute_in_process(instance=instance).run_id)
    assert ran is not None and not ran.asset_selection
    assert run_storage.planned_assets(instance, ran) == {table.key}
    assert (len(run_storage.selected_assets(chosen)), run_storage.selected_assets(ran)) == (2, frozenset())
    assert run_storage.planned_assets(instance, run(instance, 1, DagsterRunStatus.STARTED)) == frozenset()


def test_lost_run_fails_with_a_platform_failure_reason(instance: dg.DagsterInstance) -> None:
    lost = run(instance, 1, DagsterRunStatus.STARTED)
    run_storage.end_lost_run(instance, lost, "its process is gone")
    canceling = run(instance, 2, DagsterRunStatus.CANCELING)
    run_storage.end_lost_run(instance, canceling, "its process is gone")
    run_storage.mark_as_lost(instance, canceling.run_id)
    after = {each.run_id: each for each in instance.get_runs()}
    assert after[lost.run_id].status is DagsterRunStatus.FAILURE
    assert after[canceling.run_id].status is DagsterRunStatus.CANCELED
    reasons = {run_storage.failure_reason(each) for each in after.values()}
    assert len(reasons) == 1 and reasons <= run_storage.ENDED_BY_THE_PLATFORM


def test_error_classes_of_a_failed_step_include_its_causes(instance: dg.DagsterInstance) -> None:
    @dg.asset
    def broken() -> None:
        try:
            raise KeyError("lost")
        except KeyError as error:
            raise ValueError("no value") from error

    failed = dg.materialize([broken], instance=instance, raise_on_error=False)
    (event,) = instance.all_logs(failed.run_id, of_type=DagsterEventType.STEP_FAILURE)
    names = run_storage.errors_of(event)
    assert names is not None and names[-2:] == ["ValueError", "KeyError"]
    (started,) = instance.all_logs(failed.run_id, of_type=DagsterEventType.RUN_START)
    assert run_storage.errors_of(started) is None
    reason = run_storage.failure_reason(instance.get_runs()[0])
    assert reason not in run_storage.ENDED_BY_THE_PLATFORM


@pytest.mark.parametrize(
    ("info", "server"),
    [
        ('{"host": "localhost", "socket": "/tmp/a"}', "/tmp/a"),
        ('{"host": "localhost", "port": 4000}', "127.0.0.1:4000"),
        ('{"host": "127.0.0.1", "port": 4000, "use_ssl": true}', "127.0.0.1:4000"),
        ('{"host": "code", "port": 4000}', None),
        ('{"port": 1}', None),
        ("[]", None),
        ("", None),
    ],
)
def test_launching_server_of_a_run_is_read_from_its_tags(info: str, server: str | None) -> None:
    tags = {".dagster/grpc_info": info} if info else {}
    assert run_storage.launching_server(dg.DagsterRun("job", tags=tags)) == server


def test_launch_of_a_run_is_the_last_time_a_server_was_asked(instance: dg.DagsterInstance) -> None:
    started = run(instance, 1, DagsterRunStatus.STARTING)
    assert run_storage.launch_of(instance, started.run_id)[0] is None
    before = time.time()
    event = DagsterEvent(DagsterEventType.RUN_STARTING.value, "job")
    instance.report_dagster_event(event, run_id=started.run_id)
    found, _ = run_storage.launch_of(instance, started.run_id)
    assert found is not None and before <= found <= time.time()


def test_process_of_a_run_is_the_last_one_started(instance: dg.DagsterInstance) -> None:
    started = run(instance, 1, DagsterRunStatus.STARTED)
    assert run_storage.launch_of(instance, started.run_id) == (None, None)
    for pid in (11, 12):
        data = EngineEventData({"pid": dg.MetadataValue.text(str(pid))})
        instance.report_engine_event("Started process for run (pid: 1).", started, data)
    assert run_storage.launch_of(instance, started.run_id) == (None, 12)


def test_launcher_without_health_checks_reports_no_run_as_gone(instance: dg.DagsterInstance) -> None:
    assert not run_storage.is_reported_gone(instance, run(instance, 1, DagsterRunStatus.STARTED))
