"""Runs that write more or less than they were requested for, by people, by their own code, or in other code locations.

Expected: what was written counts once, what was not written is judged by what the run read, and nobody runs twice.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import dagster as dg
import pytest

from dagster_tidemark.dagster_internals import event_time
from dagster_tidemark.engine.engine import engine_for
from dagster_tidemark.sensors.catch_up import catch_up_sensor
from dagster_tidemark.sensors.scope import LocationScope
from tests.tidemark.planner.shapes.playing import asked, play
from tests.tidemark.ticks import Location
from tests.tidemark.toy_graph import DAYS, HOURS, asset, lag, small, source

D2, D3, D4 = "2026-10-02", "2026-10-03", "2026-10-04"
H7 = "2026-10-05-07:00"
Written = tuple[str, str | None]
SOON = {"tidemark/pace": "asap"}
START_TAG, END_TAG = "dagster/asset_partition_range_start", "dagster/asset_partition_range_end"


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as made:
        yield made


def run(
    location: dg.RepositoryDefinition, instance: dg.DagsterInstance, assets: Sequence[str], tags: Mapping[str, str]
) -> list[Written]:
    """Execute a run of some assets, as a person or a sensor requests it. Return what it materialized."""
    keys = {dg.AssetKey.from_user_string(name) for name in assets}
    job = location.get_implicit_global_asset_job_def().get_subset(asset_selection=keys)
    done = job.execute_in_process(instance=instance, tags=dict(tags), raise_on_error=False)
    events = [event.step_materialization_data.materialization for event in done.get_asset_materialization_events()]
    return [(event.asset_key.to_user_string(), event.partition) for event in events]


def settle(location: Location) -> list[Written]:
    """Execute what automation requests, until it requests nothing. Return what the runs materialized."""
    written: list[Written] = []
    for _ in range(6):
        with dg.build_sensor_context(location.instance, repository_def=location.repository) as context:
            late = catch_up_sensor(LocationScope()).evaluate_tick(context).run_requests or ()
        requests = [*location.tick().requests, *late]
        if not requests:
            return sorted(written, key=str)
        for request in requests:
            by_key = {"dagster/partition": request.partition_key} if request.partition_key else {}
            wanted = [key.to_user_string() for key in request.asset_selection or ()]
            written += run(location.repository, location.instance, wanted, {**request.tags, **by_key})
    pytest.fail(f"still requesting after six rounds: {written}")


def table(name: str, *reads: str, by: dg.PartitionsDefinition | None = DAYS) -> dg.AssetsDefinition:
    """A table that runs soon; its body does nothing."""

    @dg.asset(
        key=dg.AssetKey.from_user_string(name),
        deps=[dg.AssetKey.from_user_string(key) for key in reads],
        partitions_def=by,
        tags=SOON,
        backfill_policy=dg.BackfillPolicy.single_run() if by else None,
    )
    def body() -> None: ...

    return body


# More than requested


def test_person_who_runs_a_whole_job_beside_the_planner_causes_no_further_run() -> None:
    simulation = play(small())
    at = simulation.time(hours=7, minutes=5)
    simulation.arrive("raw/orders", H7, at=at)
    simulation.request(["core/orders", "marts/hourly"], [H7], at=at + 4)  # the planner's run is under way
    simulation.run(days=2)
    assert simulation.failed_ticks == []
    assert asked(simulation, "core/orders") == [H7, H7]
    assert asked(simulation, "marts/hourly") == [H7, H7]  # the planner's run has it too
    assert asked(simulation, "marts/daily") == ["2026-10-05"]
    assert all(simulation.tables.fresh(target) for target in simulation.tables.written)


def test_person_who_runs_a_whole_day_of_a_job_builds_no_hour_twice_and_breaches_nothing() -> None:
    simulation = play(small())
    hours = [f"2026-10-05-{hour:02}:00" for hour in range(24)]
    for hour in hours[:8]:
        simulation.arrive("raw/orders", hour, at=simulation.time(hours=1))
    simulation.request(["core/orders", "marts/hourly"], hours[:12], at=simulation.time(hours=12))
    simulation.run(hours=13)
    before = len(simulation.runs)
    simulation.run(hours=12)
    assert [run.partitions for run in simulation.runs[before:] if "marts/daily" not in run.assets] == []
    simulation.arrive("raw/orders", hours[9], at=simulation.time(hours=26))
    simulation.run(hours=12)
    assert {p for run in simulation.runs[before:] for p in run.of.get("core/orders", ())} == {hours[9]}
    assert {p for run in simulation.runs[before:] for p in run.of.get("marts/hourly", ())} == {hours[9]}
    assert {standing.verdict for standing in simulation.standings().values()} == {"met"}


def test_backfill_of_everything_while_data_arrives_leaves_nothing_undone_and_little_done_twice() -> None:
    simulation = play(small())
    hours = [f"2026-10-05-{hour:02}:00" for hour in range(12)]
    for number, hour in enumerate(hours):
        simulation.arrive("raw/orders", hour, at=simulation.time(hours=12, seconds=20 * number))
        simulation.request(
            ["core/orders", "marts/hourly"], [hour], at=simulation.time(hours=12, seconds=5 + 15 * number)
        )
    simulation.run(days=2)
    assert simulation.failed_ticks == []
    assert all(simulation.tables.fresh(("marts/hourly", hour)) for hour in hours)
    assert simulation.tables.fresh(("marts/daily", "2026-10-05"))
    assert len(asked(simulation, "core/orders")) <= 2 * len(hours) + 2
    assert len(asked(simulation, "marts/hourly")) <= 2 * len(hours)


def test_run_that_also_writes_another_partition_makes_that_partitions_reader_run(instance: dg.DagsterInstance) -> None:
    @dg.asset(key=["core", "days"], deps=[["raw", "days"]], partitions_def=DAYS, tags=SOON)
    def days(context: dg.AssetExecutionContext) -> None:
        if context.partition_key == D3:  # corrects the day before
            context.log_event(dg.AssetMaterialization(["core", "days"], partition=D2))

    location = Location(
        instance, [dg.AssetSpec(["raw", "days"], partitions_def=DAYS), days, table("marts/x", "core/days")]
    )
    location.observe("raw/days", D3)
    assert settle(location) == [("core/days", D2), ("core/days", D3), ("marts/x", D2), ("marts/x", D3)]


def test_run_that_writes_an_asset_of_another_location_makes_its_reader_run(instance: dg.DagsterInstance) -> None:
    @dg.asset(key=["core", "exports"], deps=[["raw", "in"]], tags=SOON)
    def exports(context: dg.AssetExecutionContext) -> None:
        context.log_event(dg.AssetMaterialization(["theirs", "mirror"]))

    outside = [dg.AssetSpec(["raw", "in"]), dg.AssetSpec(["theirs", "mirror"])]
    location = Location(instance, [*outside, exports, table("marts/x", "theirs/mirror", by=None)])
    location.observe("raw/in", None)
    assert settle(location) == [("core/exports", None), ("marts/x", None), ("theirs/mirror", None)]


# Less than requested


def test_range_of_which_a_run_writes_a_part_is_not_requested_again(instance: dg.DagsterInstance) -> None:
    @dg.asset(
        key=["core", "days"],
        deps=[["raw", "days"]],
        partitions_def=DAYS,
        backfill_policy=dg.BackfillPolicy.single_run(),
        output_required=False,
        tags=SOON,
    )
    def days(context: dg.AssetExecutionContext) -> Iterator[Any]:
        for day in context.partition_keys:
            if day != D3:  # this day has no rows
                context.log_event(dg.AssetMaterialization(["core", "days"], partition=day))
        yield from ()

    location = Location(
        instance, [dg.AssetSpec(["raw", "days"], partitions_def=DAYS), days, table("marts/x", "core/days")]
    )
    location.observe("raw/days", D2, D3, D4)
    assert settle(location) == [("core/days", D2), ("core/days", D4), ("marts/x", D2), ("marts/x", D4)]
    location.observe("raw/days", D3, version="2")
    assert settle(location) == []  # the run of the third day wrote nothing again


def test_step_that_fails_after_its_first_asset_has_built_it_and_is_tried_again_after_a_pause(
    instance: dg.DagsterInstance,
) -> None:
    specs = [dg.AssetSpec(["core", name], deps=[["raw", "in"]], tags=SOON) for name in ("a", "b")]

    @dg.multi_asset(specs=specs)
    def both() -> Iterator[dg.MaterializeResult[Any]]:
        yield dg.MaterializeResult(asset_key=["core", "a"])
        raise ValueError

    readers = [table("marts/a", "core/a", by=None), table("marts/b", "core/b", by=None)]
    location = Location(instance, [dg.AssetSpec(["raw", "in"]), both, *readers])
    location.observe("raw/in", None)
    assert settle(location) == [("core/a", None)]
    plan = engine_for(instance, location.repository.asset_graph).look(event_time.now(), instance)
    states = {asset: str(decision.state) for (asset, _), decision in plan.decisions.items()}
    assert states == {"core/b": "backing off", "marts/a": "backing off", "marts/b": "waiting for input"}


# Inputs of other code locations


class Elsewhere:
    """Another code location on the instance, with an asset that ours reads."""

    def __init__(self, instance: dg.DagsterInstance, theirs: dg.AssetsDefinition, key: str) -> None:
        self.instance, self.key = instance, key
        self.repository = dg.Definitions(assets=[theirs]).get_repository_def()
        by = theirs.partitions_def
        spec = dg.AssetSpec(dg.AssetKey.from_user_string(key), partitions_def=by)
        self.ours = Location(instance, [spec, table("marts/x", key, by=by)])

    def runs(self, **tags: str) -> list[Written]:
        assert run(self.repository, self.instance, [self.key], tags)
        return settle(self.ours)


def test_input_with_a_version_that_dagster_computes_is_new_after_each_run(instance: dg.DagsterInstance) -> None:
    @dg.asset(code_version="1")
    def rates() -> int:
        return 1  # fetched from outside: Dagster gives each fetch the same data version

    elsewhere = Elsewhere(instance, rates, "rates")
    assert [elsewhere.runs() for _ in range(3)] == [[("marts/x", None)]] * 3


def test_input_with_an_unchanged_version_of_its_own_is_new_once(instance: dg.DagsterInstance) -> None:
    version = ["1"]

    @dg.asset
    def rates() -> dg.MaterializeResult[Any]:
        return dg.MaterializeResult(data_version=dg.DataVersion(version[0]))

    elsewhere = Elsewhere(instance, rates, "rates")
    assert elsewhere.runs() == [("marts/x", None)]
    assert elsewhere.runs() == elsewhere.runs() == []
    version[0] = "2"
    assert elsewhere.runs() == [("marts/x", None)]


def test_range_that_another_location_writes_in_one_run_is_read_at_once(instance: dg.DagsterInstance) -> None:
    @dg.asset(partitions_def=DAYS, backfill_policy=dg.BackfillPolicy.single_run())
    def rates() -> None: ...

    elsewhere = Elsewhere(instance, rates, "rates")
    assert elsewhere.runs(**{START_TAG: D2, END_TAG: D4}) == [("marts/x", day) for day in (D2, D3, D4)]
    assert elsewhere.runs(**{"dagster/partition": D3}) == [("marts/x", D3)]


def test_event_of_another_location_without_a_partition_does_not_stop_the_reader(instance: dg.DagsterInstance) -> None:
    spec = dg.AssetSpec("rates", partitions_def=DAYS)
    location = Location(instance, [spec, table("marts/x", "rates")])
    instance.report_runless_asset_event(dg.AssetMaterialization("rates"))
    assert settle(location) == []
    instance.report_runless_asset_event(dg.AssetMaterialization("rates", partition=D2))
    assert settle(location) == [("marts/x", D2)]


def test_failed_run_of_another_location_starts_and_delays_no_reader(instance: dg.DagsterInstance) -> None:
    fails = [True]

    @dg.asset
    def rates() -> None:
        if fails[0]:
            raise ValueError

    elsewhere = Elsewhere(instance, rates, "rates")
    assert not run(elsewhere.repository, instance, ["rates"], {})
    assert settle(elsewhere.ours) == []
    fails[0] = False
    assert elsewhere.runs() == [("marts/x", None)]


def test_hours_of_another_location_reach_the_day_that_reads_them() -> None:
    hours = dg.AssetSpec(["theirs", "hours"], partitions_def=HOURS)
    mapped = dg.AssetDep(
        ["theirs", "hours"],
        partition_mapping=dg.TimeWindowPartitionMapping(allow_nonexistent_upstream_partitions=True),
    )
    simulation = play([hours, asset("marts/x", mapped, by=DAYS, freshness_policy=lag(hours=2)), source("other")])
    for hour in range(3):
        simulation.report("theirs/hours", f"2026-10-05-{hour:02}:00", at=simulation.time(hours=hour + 1))
    simulation.run(days=1, hours=4)
    assert simulation.failed_ticks == [] and set(asked(simulation, "marts/x")) == {"2026-10-05"}
    assert simulation.tables.fresh(("marts/x", "2026-10-05"))
