"""Each part of Dagster that is not annotated as public, as the adapter relies on it."""

import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path

import dagster as dg
import pytest
from dagster._core.code_pointer import CodePointer
from dagster._core.definitions.definitions_load_context import DefinitionsLoadContext
from dagster._core.definitions.reconstruct import (
    initialize_repository_def_from_pointer,
    reconstruct_repository_def_from_pointer,
)
from dagster._core.events import DagsterEventType
from dagster._core.remote_origin import (
    RegisteredCodeLocationOrigin,
    RemoteInstigatorOrigin,
    RemoteJobOrigin,
    RemoteRepositoryOrigin,
)
from dagster._core.scheduler.instigation import (
    InstigatorState,
    InstigatorStatus,
    InstigatorType,
    SensorInstigatorData,
)

from dagster_tidemark.asset_graph.partition_context import as_of
from dagster_tidemark.asset_graph.planner_graph import graph_of
from dagster_tidemark.event_log import adapter, event_rows
from dagster_tidemark.event_log.event_rows import Kind
from dagster_tidemark.event_log.run_facts import run_facts
from dagster_tidemark.planner.contracts import Window
from dagster_tidemark.planner.graph import Moment
from dagster_tidemark.simulation.instance import simulated_instance
from dagster_tidemark.tags import CONTENT, DATA_VERSION
from tests.toys.definitions import defs

HOURS = dg.HourlyPartitionsDefinition("2026-10-01-00:00", end_offset=1)
FIRST, SECOND = "2026-10-01-00:00", "2026-10-01-01:00"


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as ephemeral:
        yield ephemeral


@dg.asset(partitions_def=HOURS, backfill_policy=dg.BackfillPolicy.single_run())
def table(context: dg.AssetExecutionContext) -> None:
    for key in context.partition_keys:
        context.add_asset_metadata({CONTENT: f"content of {key}"}, partition_key=key)


def run_range(instance: dg.DagsterInstance) -> str:
    tags = {"dagster/asset_partition_range_start": FIRST, "dagster/asset_partition_range_end": SECOND}
    return dg.materialize([table], instance=instance, tags=tags).run_id


def test_the_graph_has_inputs_mappings_and_who_can_share_a_run() -> None:
    graph = graph_of(defs.resolve_asset_graph())
    margin = graph.nodes["marts/margin_hourly"]
    orders, prices = margin.inputs
    assert (orders.key, orders.joinable, prices.key, prices.joinable) == ("core/orders", True, "core/prices", False)
    assert orders.upstream and prices.upstream and prices.downstream
    assert list(orders.upstream("2026-10-01-07:00")) == ["2026-10-01-07:00"]
    assert prices.upstream("2026-10-01-07:00") == ["2026-10-01"]
    assert len(prices.downstream("2026-10-01")) == 24
    assert margin.in_a_row("2026-10-01-06:00", "2026-10-01-07:00")
    assert not graph.nodes["raw/orders"].automated
    assert graph.nodes["core/orders"].automated


def test_mappings_are_complete_for_windows_that_do_not_exist_yet() -> None:
    graph = graph_of(defs.resolve_asset_graph())
    (orders,) = graph.nodes["marts/sales_daily"].inputs
    assert orders.upstream and orders.downstream
    assert len(orders.upstream("2036-10-01")) == 24
    assert orders.downstream("2036-10-01-07:00") == ["2036-10-01"]


def test_ripple_days_come_from_the_inputs_metadata() -> None:
    graph = graph_of(defs.resolve_asset_graph())
    days = {read.key: read.ripple_days for read in graph.nodes["marts/order_stats"].inputs}
    assert days == {"core/customers": 7, "core/orders": None}


def test_a_partition_exists_once_its_window_has_begun() -> None:
    node = graph_of(defs.resolve_asset_graph()).nodes["core/orders"]
    begins = datetime(2026, 10, 1, 7, tzinfo=UTC).timestamp()
    assert node.exists_from("2026-10-01-07:00") == begins
    assert node.window("2026-10-01-07:00") == Window(begins, begins + 3600)


@pytest.mark.parametrize(
    "strange", ["2026-09-01-07:00", "2026-10-01-07:30", "2026-10-01", "2026-13-01-07:00", "junk", None]
)
def test_a_key_that_is_no_window_of_the_asset_is_told_from_a_good_one(strange: str | None) -> None:
    node = graph_of(defs.resolve_asset_graph()).nodes["core/orders"]
    assert node.problem(strange)
    assert node.problem("2026-10-01-07:00") is None


def test_days_of_a_zone_with_daylight_saving_have_their_windows_and_follow_each_other() -> None:
    days = dg.DailyPartitionsDefinition("2026-10-20", timezone="Europe/Berlin", end_offset=1)
    hours = dg.HourlyPartitionsDefinition("2026-10-20-00:00", timezone="Europe/Berlin", end_offset=1)
    within = dg.TimeWindowPartitionMapping(allow_nonexistent_upstream_partitions=True)

    @dg.asset(partitions_def=hours)
    def hourly() -> None: ...

    @dg.asset(partitions_def=days, deps=[dg.AssetDep(hourly, partition_mapping=within)])
    def daily() -> None: ...

    graph = graph_of(dg.Definitions([hourly, daily]).resolve_asset_graph())
    node, (read,) = graph.nodes["daily"], graph.nodes["daily"].inputs
    window = node.window("2026-10-25")
    assert window is not None and window.end - window.start == 25 * 3600
    assert node.in_a_row("2026-10-24", "2026-10-25") and node.in_a_row("2026-10-25", "2026-10-26")
    assert read.upstream is not None and len(read.upstream("2026-10-25")) == 25
    hours_read = read.upstream("2026-10-25")
    in_a_row = [graph.nodes["hourly"].in_a_row(*two) for two in pairwise(hours_read)]
    assert all(in_a_row) and len(in_a_row) == 24, "both hours from two to three have their place"


def test_dagster_remembers_windows_by_key_alone_and_forgets_them_when_it_is_told() -> None:
    days = dg.DailyPartitionsDefinition("2026-10-01")
    before, after = datetime(2026, 10, 2, tzinfo=UTC), datetime(2026, 10, 3, tzinfo=UTC)
    with dg.partition_loading_context(before):
        assert days.subset_with_partition_keys(["2026-10-02"]).is_empty
    with dg.partition_loading_context(after):
        assert days.subset_with_partition_keys(["2026-10-02"]).is_empty, "why partition_context makes it forget"
    with as_of(Moment(after.timestamp())):
        assert not days.subset_with_partition_keys(["2026-10-02"]).is_empty


def test_static_partitions_have_places_and_no_windows() -> None:
    @dg.asset(partitions_def=dg.StaticPartitionsDefinition(["north", "south"]))
    def regions() -> None: ...

    node = graph_of(dg.Definitions([regions]).resolve_asset_graph()).nodes["regions"]
    assert (node.order("north"), node.order("south"), node.window("north")) == (0, 1, None)
    assert node.problem("north") is None and node.problem("west")


def test_a_range_run_plans_once_and_writes_content_per_partition(instance: dg.DagsterInstance) -> None:
    run_id = run_range(instance)
    planned = list(adapter.events_after(adapter.fetch_planned(instance), "table", 0))
    written = list(adapter.events_after(instance.fetch_materializations, "table", 0))
    assert [p for record in planned for p in adapter.planned_partitions(record)] == [FIRST, SECOND]
    assert {record.run_id for record in [*planned, *written]} == {run_id}
    assert {r.partition_key: adapter.content_version(r) for r in written} == {
        FIRST: f"content of {FIRST}",
        SECOND: f"content of {SECOND}",
    }
    assert max(r.storage_id for r in planned) < min(r.storage_id for r in written)


def test_events_are_read_from_after_an_id_on_and_over_pages(
    instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(adapter, "_PAGE", 2)
    for n in range(5):
        instance.report_runless_asset_event(dg.AssetObservation("source", tags={DATA_VERSION: str(n)}))
    read = list(adapter.events_after(instance.fetch_observations, "source", 0))
    assert [adapter.observation_tags(r)[DATA_VERSION] for r in read] == ["0", "1", "2", "3", "4"]
    rest = list(adapter.events_after(instance.fetch_observations, "source", read[2].storage_id))
    assert [r.storage_id for r in rest] == [r.storage_id for r in read[3:]]


def test_the_latest_observation_of_each_partition_is_found(instance: dg.DagsterInstance) -> None:
    key = dg.AssetKey("source")
    for partition, version in ((FIRST, "1"), (SECOND, "2"), (FIRST, "3")):
        tags = {DATA_VERSION: version}
        instance.report_runless_asset_event(dg.AssetObservation(key, partition=partition, tags=tags))
    versions = {p: t[DATA_VERSION] for p, t in adapter.latest_observations(instance, key).items()}
    assert versions == {FIRST: "3", SECOND: "2"}
    assert set(adapter.latest_observations(instance, key, {SECOND})) == {SECOND}
    assert adapter.latest_observations(instance, key, {"2026-10-01-02:00"}) == {}


def test_the_latest_observation_of_an_unpartitioned_source_is_found(instance: dg.DagsterInstance) -> None:
    key = dg.AssetKey("source")
    for version in ("1", "2"):
        instance.report_runless_asset_event(dg.AssetObservation(key, tags={DATA_VERSION: version}))
    assert adapter.latest_observations(instance, key)[None][DATA_VERSION] == "2"


def test_ended_and_deleted_runs_are_told_from_open_ones(instance: dg.DagsterInstance) -> None:
    done = run_range(instance)
    open_run = instance.create_run_for_job(
        dg.define_asset_job("j", [table]).resolve(asset_graph=dg.Definitions([table]).resolve_asset_graph())
    )
    facts = run_facts(instance, [done, open_run.run_id, "deleted"])
    assert {run_id for run_id, run in facts.items() if run.ended_at} == {done, "deleted"}
    assert facts[done].seconds and not facts["deleted"].seconds


def test_the_results_of_a_check_are_read_back_to_a_time_over_pages(
    instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(adapter, "_PAGE", 10)
    for number in range(25):
        evaluation = dg.AssetCheckEvaluation(table.key, "contract", passed=number != 3, metadata={})
        instance.report_runless_asset_event(evaluation)
    found = adapter.check_results(instance, "table", "contract", since=0.0)
    assert [passed for _, passed in found] == [number != 3 for number in reversed(range(25))]
    assert len(adapter.check_results(instance, "table", "contract", since=found[0][0] + 1)) == 10


def test_an_instance_keeps_its_identity_and_another_has_its_own(instance: dg.DagsterInstance) -> None:
    assert adapter.identity_of(instance) == adapter.identity_of(instance)
    with dg.DagsterInstance.ephemeral() as other:
        assert adapter.identity_of(other) != adapter.identity_of(instance)


def test_a_queue_says_how_many_runs_it_lets_run_at_once(instance: dg.DagsterInstance) -> None:
    assert adapter.run_slots(instance) is None
    assert adapter.run_slots(simulated_instance(at_once=3)) == 3


def test_the_keys_of_dynamic_partitions_are_as_dagster_orders_them(instance: dg.DagsterInstance) -> None:
    instance.add_dynamic_partitions("shops", ["west", "east"])
    instance.add_dynamic_partitions("shops", ["north"])
    assert adapter.dynamic_partitions(instance, ["shops", "none"]) == {"shops": ["west", "east", "north"], "none": []}
    instance.delete_dynamic_partition("shops", "west")
    assert adapter.dynamic_partitions(instance, ["shops"]) == {"shops": ["east", "north"]}


def stored(instance: dg.DagsterInstance, sensor: str, status: InstigatorStatus, location: str = "here") -> None:
    code = RemoteRepositoryOrigin(RegisteredCodeLocationOrigin(location), "__repository__")
    origin = RemoteInstigatorOrigin(code, sensor)
    data = SensorInstigatorData(min_interval=1)
    instance.add_instigator_state(InstigatorState(origin, InstigatorType.SENSOR, status, data))


def test_sensors_that_somebody_stopped_are_known_by_their_code_location() -> None:
    with dg.instance_for_test() as instance:
        assert adapter.stopped_sensors(instance) == frozenset()
        stored(instance, "catch_up", InstigatorStatus.STOPPED)
        stored(instance, "landing", InstigatorStatus.RUNNING)
        stored(instance, "contracts", InstigatorStatus.DECLARED_IN_CODE)
        stored(instance, "automation", InstigatorStatus.STOPPED, "there")
        assert adapter.stopped_sensors(instance) == {"catch_up", "automation"}
        assert adapter.stopped_sensors(instance, location="here", repository="__repository__") == {"catch_up"}
        assert adapter.stopped_sensors(instance, location="nowhere") == frozenset()


def test_an_instance_without_schedules_has_no_stopped_sensors(instance: dg.DagsterInstance) -> None:
    assert instance.schedule_storage is None and adapter.stopped_sensors(instance) == frozenset()


def test_what_was_saved_is_found_by_the_beginning_of_its_key(instance: dg.DagsterInstance) -> None:
    for key in ("tidemark/history/a_b", "tidemark/history/axb", "other/x"):
        adapter.save(instance, key, f"text of {key}")
    assert set(adapter.saved_under(instance, "tidemark/history/")) == {"tidemark/history/a_b", "tidemark/history/axb"}
    assert adapter.saved_under(instance, "tidemark/history/a_") == {
        "tidemark/history/a_b": "text of tidemark/history/a_b"
    }


def test_what_a_check_said_last_is_known_while_it_is_evaluated_again(instance: dg.DagsterInstance) -> None:
    key = dg.AssetCheckKey(dg.AssetKey("counted"), "count")
    said: list[dict[str, object] | None] = []

    @dg.asset(check_specs=[dg.AssetCheckSpec(key.name, asset=key.asset_key)])
    def counted(context: dg.AssetExecutionContext) -> dg.MaterializeResult:  # type: ignore[type-arg]
        said.append(adapter.latest_check_metadata(context.instance, key))
        return dg.MaterializeResult(check_results=[dg.AssetCheckResult(passed=True, metadata={"count": len(said)})])

    for _ in range(2):
        dg.materialize([counted], instance=instance)
    assert said == [None, {"count": 1}]


def test_a_run_is_told_apart_from_a_code_server_while_the_definitions_load(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "import dagster as dg\nfrom dagster_tidemark.event_log import adapter\n"
    text += "AS_A_RUN = adapter.is_loaded_for_a_run()\ndefs = dg.Definitions()\n"
    loads = {"loaded_by_a_run": reconstruct_repository_def_from_pointer}
    loads |= {"loaded_by_a_server": initialize_repository_def_from_pointer}
    try:
        for name, load in loads.items():
            (tmp_path / f"{name}.py").write_text(text)
            monkeypatch.setattr(DefinitionsLoadContext, "_instance", None)
            load(CodePointer.from_module(name, "defs", str(tmp_path)))
        as_a_run = {name: sys.modules[name].AS_A_RUN for name in loads}
    finally:
        for name in loads:
            sys.modules.pop(name, None)
    assert as_a_run == {"loaded_by_a_run": True, "loaded_by_a_server": False}


def test_dagsters_freshness_state_is_what_is_reported_and_each_change_once(instance: dg.DagsterInstance) -> None:
    key = dg.AssetKey("table")

    def changes() -> list[tuple[str, str]]:
        events = instance.event_log_storage.get_event_records(
            dg.EventRecordsFilter(DagsterEventType.FRESHNESS_STATE_CHANGE)
        )
        found = [r.event_log_entry.dagster_event.asset_freshness_state_change_data for r in events]  # type: ignore[union-attr]
        return [(c.previous_state.value, c.new_state.value) for c in reversed(found)]

    for state in ("PASS", "PASS", "FAIL", "FAIL", "PASS"):
        adapter.report_freshness(instance, {"table": state}, 1.0)  # type: ignore[dict-item]
    assert changes() == [("UNKNOWN", "PASS"), ("PASS", "FAIL"), ("FAIL", "PASS")]
    assert instance.get_freshness_state_records([key])[key].freshness_state.value == "PASS"


def test_a_run_names_the_code_location_of_its_job(instance: dg.DagsterInstance) -> None:
    job = RemoteJobOrigin(RemoteRepositoryOrigin(RegisteredCodeLocationOrigin("theirs"), "__repository__"), "job")
    without = run_range(instance)
    instance.add_run(dg.DagsterRun("job", run_id="f" * 32, remote_job_origin=job))
    assert adapter.locations_of_runs(instance, [without, "f" * 32, "unknown"]) == {"f" * 32: "theirs"}


def test_an_evaluation_says_that_its_check_is_blocking(instance: dg.DagsterInstance) -> None:
    @dg.asset_check(asset=table, blocking=True)
    def strict() -> dg.AssetCheckResult:
        return dg.AssetCheckResult(passed=True)

    @dg.asset_check(asset=table)
    def lenient() -> dg.AssetCheckResult:
        return dg.AssetCheckResult(passed=True)

    dg.materialize([table, strict, lenient], instance=instance, partition_key=FIRST)
    events = [e for e in event_rows.events_after(instance, 0, ["lenient"]) if e.kind is Kind.CHECKED]
    assert sorted((e.check, e.blocking) for e in events) == [("lenient", False), ("strict", True)]
    unnamed = [event.check for event in event_rows.events_after(instance, 0) if event.kind is Kind.CHECKED]
    assert unnamed == ["strict"]
