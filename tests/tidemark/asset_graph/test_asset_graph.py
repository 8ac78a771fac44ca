"""The planner's graph, as Dagster's own definitions make it."""

from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import pairwise

import dagster as dg
import pytest

from dagster_tidemark.asset_graph.planner_graph import graph_of
from dagster_tidemark.event_log.event_rows import EventKind
from dagster_tidemark.event_log.run_facts import run_facts
from dagster_tidemark.planner.contracts import Window
from dagster_tidemark.tags import CONTENT
from tests.tidemark.events import events_after
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


def test_asset_graph_has_inputs_mappings_and_joinable_reads() -> None:
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


def test_mappings_are_complete_for_time_partitions_that_do_not_exist_yet() -> None:
    graph = graph_of(defs.resolve_asset_graph())
    (orders,) = graph.nodes["marts/sales_daily"].inputs
    assert orders.upstream and orders.downstream
    assert len(orders.upstream("2036-10-01")) == 24
    assert orders.downstream("2036-10-01-07:00") == ["2036-10-01"]


def test_ripple_days_are_read_from_the_input_metadata() -> None:
    graph = graph_of(defs.resolve_asset_graph())
    days = {read.key: read.ripple_days for read in graph.nodes["marts/order_stats"].inputs}
    assert days == {"core/customers": 7, "core/orders": None}


def test_partition_exists_once_its_time_window_begins() -> None:
    node = graph_of(defs.resolve_asset_graph()).nodes["core/orders"]
    begins = datetime(2026, 10, 1, 7, tzinfo=UTC).timestamp()
    assert node.exists_from("2026-10-01-07:00") == begins
    assert node.window("2026-10-01-07:00") == Window(begins, begins + 3600)


@pytest.mark.parametrize(
    "strange", ["2026-09-01-07:00", "2026-10-01-07:30", "2026-10-01", "2026-13-01-07:00", "junk", None]
)
def test_invalid_time_partition_key_of_an_asset_is_detected(strange: str | None) -> None:
    node = graph_of(defs.resolve_asset_graph()).nodes["core/orders"]
    assert node.problem(strange)
    assert node.problem("2026-10-01-07:00") is None


def test_days_with_daylight_saving_have_correct_windows_and_order() -> None:
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


def test_static_partitions_have_an_order_and_no_time_window() -> None:
    @dg.asset(partitions_def=dg.StaticPartitionsDefinition(["north", "south"]))
    def regions() -> None: ...

    node = graph_of(dg.Definitions([regions]).resolve_asset_graph()).nodes["regions"]
    assert (node.order("north"), node.order("south"), node.window("north")) == (0, 1, None)
    assert node.problem("north") is None and node.problem("west")


def test_ended_and_deleted_runs_are_distinguished_from_open_runs(instance: dg.DagsterInstance) -> None:
    done = run_range(instance)
    open_run = instance.create_run_for_job(
        dg.define_asset_job("j", [table]).resolve(asset_graph=dg.Definitions([table]).resolve_asset_graph())
    )
    facts = run_facts(instance, [done, open_run.run_id, "deleted"])
    assert {run_id for run_id, run in facts.items() if run.ended_at} == {done, "deleted"}
    assert facts[done].seconds and not facts["deleted"].seconds


def test_check_evaluation_event_contains_whether_its_check_is_blocking(instance: dg.DagsterInstance) -> None:
    @dg.asset_check(asset=table, blocking=True)
    def strict() -> dg.AssetCheckResult:
        return dg.AssetCheckResult(passed=True)

    @dg.asset_check(asset=table)
    def lenient() -> dg.AssetCheckResult:
        return dg.AssetCheckResult(passed=True)

    dg.materialize([table, strict, lenient], instance=instance, partition_key=FIRST)
    events = [e for e in events_after(instance, 0, ["lenient"]) if e.kind is EventKind.CHECKED]
    assert sorted((e.check, e.blocking) for e in events) == [("lenient", False), ("strict", True)]
    unnamed = [event.check for event in events_after(instance, 0) if event.kind is EventKind.CHECKED]
    assert unnamed == ["strict"]
