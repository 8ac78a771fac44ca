"""The event log as plain rows: every field as Dagster's own record has it, on a real instance."""

from collections.abc import Iterator

import dagster as dg
import pytest
from dagster import AssetRecordsFilter

from dagster_tidemark.dagster_internals import event_storage, event_time, instance_store
from dagster_tidemark.event_log import event_rows
from dagster_tidemark.event_log.event_rows import Event, EventKind
from dagster_tidemark.tags import CONTENT, DATA_VERSION
from tests.tidemark.events import events_after

HOURS = dg.HourlyPartitionsDefinition("2026-10-01-00:00", end_offset=1)
FIRST, SECOND = "2026-10-01-00:00", "2026-10-01-01:00"


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as ephemeral:
        yield ephemeral


@dg.asset(key=["core", "table"], partitions_def=HOURS, backfill_policy=dg.BackfillPolicy.single_run(), code_version="7")
def table(context: dg.AssetExecutionContext) -> None:
    for key in context.partition_keys:
        context.add_asset_metadata({"rows": 3, CONTENT: f"content of {key}"}, partition_key=key)


def test_run_events_are_read_with_the_fields_of_dagster(instance: dg.DagsterInstance) -> None:
    tags = {"dagster/asset_partition_range_start": FIRST, "dagster/asset_partition_range_end": SECOND}
    run_id = dg.materialize([table], instance=instance, tags=tags).run_id
    events = list(events_after(instance, 0))
    assert [(e.kind, e.partitions) for e in events] == [
        (EventKind.PLANNED, (FIRST,)),
        (EventKind.PLANNED, (SECOND,)),
        (EventKind.MATERIALIZED, (FIRST,)),
        (EventKind.MATERIALIZED, (SECOND,)),
    ]
    assert {e.run_id for e in events} == {run_id} and {e.asset for e in events} == {"core/table"}
    written = [e for e in events if e.kind is EventKind.MATERIALIZED]
    told = instance.fetch_materializations(AssetRecordsFilter(table.key), limit=9, ascending=True).records
    assert [(e.id, e.at) for e in written] == [(r.storage_id, r.timestamp) for r in told]
    assert [e.content for e in written] == [
        r.asset_materialization.metadata[CONTENT].value for r in told if r.asset_materialization
    ]
    assert [dict(e.tags) for e in written] == [
        dict(r.asset_materialization.tags or {}) for r in told if r.asset_materialization
    ]
    assert {e.code_version for e in written} == {"7"}


def test_observations_and_reported_materializations_have_no_run(instance: dg.DagsterInstance) -> None:
    instance.report_runless_asset_event(dg.AssetObservation("source", tags={DATA_VERSION: "1", "own": "2"}))
    instance.report_runless_asset_event(dg.AssetMaterialization(["core", "table"], partition=FIRST))
    observed, reported = events_after(instance, 0)
    assert (observed.kind, observed.asset, observed.partitions, observed.run_id) == (
        EventKind.OBSERVED,
        "source",
        (None,),
        None,
    )
    assert dict(observed.tags) == {DATA_VERSION: "1", "own": "2"}
    assert (reported.run_id, reported.content, reported.partitions) == (None, None, (FIRST,))


def test_events_are_read_in_pages_after_a_given_id(
    instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_rows, "_PAGE", 2)
    for n in range(5):
        instance.report_runless_asset_event(dg.AssetObservation("source", tags={DATA_VERSION: str(n)}))
    read: list[Event] = list(events_after(instance, 0))
    assert [e.tags[DATA_VERSION] for e in read] == ["0", "1", "2", "3", "4"]
    assert [e.id for e in events_after(instance, read[2].id)] == [read[3].id, read[4].id]


def test_asset_catalog_contains_the_time_of_a_wipe(instance: dg.DagsterInstance) -> None:
    instance.report_runless_asset_event(dg.AssetMaterialization(["core", "table"], partition=FIRST))
    assert event_storage.catalog(instance) == {"core/table": float("-inf")}
    instance.wipe_assets([table.key])
    assert abs(event_storage.catalog(instance)["core/table"] - event_time.now()) < 60


def evaluate(instance: dg.DagsterInstance, name: str, **told: object) -> None:
    instance.report_runless_asset_event(dg.AssetCheckEvaluation(table.key, name, metadata={}, **told))  # type: ignore


def test_only_evaluations_of_blocking_checks_are_read(instance: dg.DagsterInstance) -> None:
    evaluate(instance, "rows", passed=False)
    evaluate(instance, "contract", passed=False)
    evaluate(instance, "rows", passed=False, severity=dg.AssetCheckSeverity.WARN)
    evaluate(instance, "rows", passed=True, description='not "contract"')
    assert list(events_after(instance, 0)) == []
    found = list(events_after(instance, 0, {"rows"}))
    assert [(e.kind, e.asset, e.check, e.passed, e.run_id) for e in found] == [
        (EventKind.CHECKED, "core/table", "rows", passed, None) for passed in (False, True, True)
    ]


@pytest.mark.parametrize("passed", [False, True])
def test_failed_check_applies_to_the_last_run_but_passed_check_to_all(
    instance: dg.DagsterInstance, passed: bool
) -> None:
    @dg.asset_check(asset=table, blocking=True, name="rows")
    def check() -> dg.AssetCheckResult:
        return dg.AssetCheckResult(passed=passed)

    built = dg.materialize([table], instance=instance, partition_key=FIRST).run_id
    checked = dg.Definitions([table], asset_checks=[check]).resolve_implicit_global_asset_job_def()
    keys = {dg.AssetCheckKey(table.key, "rows")}
    run = checked.get_subset(asset_selection=set(), asset_check_selection=keys)
    again = run.execute_in_process(instance=instance, raise_on_error=False)
    (found,) = [e for e in events_after(instance, 0, {"rows"}) if e.kind is EventKind.CHECKED]
    assert (found.run_id, found.passed) == (None if passed else built, passed) and again.run_id != built


def test_last_event_id_and_saved_text_are_read_from_the_instance(instance: dg.DagsterInstance) -> None:
    assert event_storage.last_event_id(instance) == 0
    instance.report_runless_asset_event(dg.AssetMaterialization("whole"))
    assert event_storage.last_event_id(instance) >= 1
    assert instance_store.saved(instance, "tidemark/x") is None
    instance_store.save(instance, "tidemark/x", "kept")
    assert instance_store.saved(instance, "tidemark/x") == "kept"
    assert event_storage.commits_in_order(instance)
