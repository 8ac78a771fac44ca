"""Contract of the rows of old events, runs and checks, on SQLite files and in memory."""

import os
import time
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest

from dagster_tidemark.dagster_internals import old_records
from dagster_tidemark.dagster_internals.old_records import LoggedCheck, LoggedEvent


@pytest.fixture(params=["memory", "sqlite"])
def instance(request: pytest.FixtureRequest) -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral() if request.param == "memory" else dg.instance_for_test() as made:
        yield made


@dg.asset
def table() -> None: ...


@dg.asset_check(asset=table)
def good() -> dg.AssetCheckResult:
    return dg.AssetCheckResult(passed=True)


def built(instance: dg.DagsterInstance) -> str:
    return dg.materialize([table, good], instance=instance).run_id


def evaluated(instance: dg.DagsterInstance, *, passed: bool) -> None:
    key = dg.AssetKey("table")
    evaluation = dg.AssetCheckEvaluation(asset_key=key, check_name="good", passed=passed, metadata={})
    instance.report_runless_asset_event(evaluation)


def test_asset_events_have_the_fields_of_dagsters_records(instance: dg.DagsterInstance) -> None:
    run_id = built(instance)
    instance.report_runless_asset_event(dg.AssetObservation(["raw", "x"], partition="p"))
    events = list(old_records.asset_events(instance))
    assert [(e.kind, e.asset, e.partition, e.run_id) for e in events] == [
        ("ASSET_MATERIALIZATION_PLANNED", "table", None, run_id),
        ("ASSET_MATERIALIZATION", "table", None, run_id),
        ("ASSET_OBSERVATION", "raw/x", "p", ""),
    ]
    record = instance.fetch_observations(dg.AssetKey(["raw", "x"]), limit=1).records[0]
    assert isinstance(events[-1], LoggedEvent) and events[-1].id == record.storage_id
    assert events[-1].at == pytest.approx(record.timestamp) and events[-1].size > 100


def test_checks_are_read_with_the_materialization_they_are_about(instance: dg.DagsterInstance) -> None:
    run_id = built(instance)
    evaluated(instance, passed=False)
    materialized = instance.fetch_materializations(dg.AssetKey("table"), limit=1).records[0].storage_id
    first, second = old_records.checks(instance)
    assert isinstance(first, LoggedCheck)
    assert (first.asset, first.check, first.run_id, first.status) == ("table", "good", run_id, "SUCCEEDED")
    assert first.about == materialized
    assert (second.run_id, second.status) == ("", "FAILED") and second.at == pytest.approx(time.time(), abs=60)
    assert second.event_id in old_records.last_ids(instance, 1)


def test_run_is_deleted_with_its_events_checks_logs_and_file(instance: dg.DagsterInstance) -> None:
    runs = [built(instance), built(instance)]
    sizes = old_records.sizes_of_runs(instance, runs)
    assert all(size > 1000 for size in sizes.values())
    old_records.delete_run(instance, runs[0])
    assert [run.run_id for run in instance.get_runs()] == [runs[1]]
    assert {e.run_id for e in old_records.asset_events(instance)} == {runs[1]}
    assert {c.run_id for c in old_records.checks(instance)} == {runs[1]}
    assert instance.all_logs(runs[1])
    files = {path.stem for path in Path(instance.root_directory).rglob("*.db")}
    assert runs[0] not in files
    assert not (Path(instance.storage_directory()) / runs[0]).exists()
    old_records.delete_run(instance, runs[0])  # a repetition finds nothing to do


def test_run_is_deleted_without_opening_its_file(monkeypatch: pytest.MonkeyPatch) -> None:
    with dg.instance_for_test() as instance:
        run_id = built(instance)

        def opened(run_id: str | None = None) -> None:
            raise AssertionError(f"the file of {run_id} was opened, which takes longer than all else")

        monkeypatch.setattr(instance.event_log_storage, "run_connection", opened)
        old_records.delete_run(instance, run_id)
        assert not instance.has_run(run_id) and not list(old_records.asset_events(instance))


def test_events_and_checks_without_a_run_are_deleted_from_each_copy(instance: dg.DagsterInstance) -> None:
    for version in range(4):
        instance.report_runless_asset_event(dg.AssetObservation("x", tags={"n": str(version)}))
        evaluated(instance, passed=version % 2 == 0)
    run_id = built(instance)
    ids = [e.id for e in old_records.asset_events(instance) if not e.run_id][:3]
    planned = next(e.id for e in old_records.asset_events(instance) if e.run_id)
    old_records.delete_events(instance, [*ids, planned])
    left = instance.fetch_observations(dg.AssetKey("x"), limit=9).records
    assert [r.asset_observation.tags["n"] for r in left if r.asset_observation] == ["3"]
    assert any(e.run_id == run_id and e.id == planned for e in old_records.asset_events(instance)), "it is of a run"
    checks = [c for c in old_records.checks(instance) if not c.run_id]
    old_records.delete_checks(instance, checks[:3])
    assert [c.id for c in old_records.checks(instance) if not c.run_id] == [checks[3].id]
    logged = [log for log in instance.all_logs("") if log.dagster_event]
    assert len(logged) == 2, "one observation and one evaluation are left in the copy too"


def test_unfinished_work_names_the_runs_that_it_repeats(instance: dg.DagsterInstance) -> None:
    @dg.op
    def work() -> None: ...

    @dg.job
    def again() -> None:
        work()

    first = instance.create_run_for_job(again, status=dg.DagsterRunStatus.SUCCESS)
    instance.create_run_for_job(
        again, status=dg.DagsterRunStatus.STARTED, parent_run_id=first.run_id, root_run_id=first.run_id
    )
    assert old_records.needed_by_unfinished(instance) == ({first.run_id}, frozenset())
    assert old_records.backfill_of(first) is None


def test_run_of_a_backfill_names_it(instance: dg.DagsterInstance) -> None:
    run = dg.DagsterRun("job", tags={"dagster/backfill": "b"})
    assert old_records.backfill_of(run) == "b"


def test_only_old_files_of_deleted_runs_are_found() -> None:
    with dg.instance_for_test() as instance:
        deleted, kept = built(instance), built(instance)
        instance.delete_run(deleted)
        file = Path(instance.root_directory) / "history" / "runs" / f"{deleted}.db"
        now = time.time()
        assert old_records.files_without_run(instance, now - 60) == []
        os.utime(file, (now - 600, now - 600))
        assert [run_id for run_id, _ in old_records.files_without_run(instance, now - 60)] == [deleted]
        old_records.delete_file(instance, deleted)
        assert not file.exists() and instance.all_logs(kept)


def test_sql_storages_are_recognized(instance: dg.DagsterInstance) -> None:
    assert old_records.is_sql(instance) is (instance.schedule_storage is not None)


def test_run_key_is_the_tag_by_which_dagster_finds_the_run_again(instance: dg.DagsterInstance) -> None:
    @dg.job
    def nothing() -> None: ...

    for key, tags in (("file-1", {"dagster/run_key": "file-1"}), (None, {})):
        run = instance.create_run_for_job(nothing, tags=tags)
        found = instance.get_runs(dg.RunsFilter(tags={"dagster/run_key": "file-1"}))
        assert (run.run_id in {each.run_id for each in found}) is old_records.has_run_key(run) is (key is not None)
