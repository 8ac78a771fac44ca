"""What a simulated run leaves in an instance, beside what a real one leaves."""

from collections.abc import Iterator
from datetime import UTC, datetime

import dagster as dg
import pytest
from dagster import DagsterEventType

from dagster_tidemark.dagster_internals import event_storage
from dagster_tidemark.simulation.instance import simulated_instance
from dagster_tidemark.simulation.log import Clock, SimulatedLog
from dagster_tidemark.simulation.partitions import partition_tags
from dagster_tidemark.tags import ARRIVED_AT, CONTENT, DATA_VERSION, LISTED_AT

HOURS = dg.HourlyPartitionsDefinition("2026-10-01-00:00", end_offset=1)
BOTH = ["2026-10-01-00:00", "2026-10-01-01:00"]
NOW = datetime(2026, 10, 1, 7, tzinfo=UTC).timestamp()


@dg.asset(partitions_def=HOURS, backfill_policy=dg.BackfillPolicy.single_run(), code_version="3")
def table(context: dg.AssetExecutionContext) -> None:
    for key in context.partition_keys:
        context.add_asset_metadata({CONTENT: f"content of {key}"}, partition_key=key)


@dg.asset(partitions_def=HOURS, deps=[table], backfill_policy=dg.BackfillPolicy.single_run())
def mart(context: dg.AssetExecutionContext) -> None:
    for key in context.partition_keys:
        context.add_asset_metadata({CONTENT: f"mart of {key}"}, partition_key=key)


GRAPH = dg.Definitions([table, mart]).resolve_asset_graph()
CONTENTS = {"table": {p: f"content of {p}" for p in BOTH}, "mart": {p: f"mart of {p}" for p in BOTH}}


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with simulated_instance() as made:
        yield made


def simulate(instance: dg.DagsterInstance, partitions: list[str], clock: Clock | None = None) -> str:
    clock = clock or Clock(NOW)
    log = SimulatedLog(instance, clock, GRAPH)
    with clock.frozen():
        log.created("r", ["table", "mart"], partition_tags(partitions))
        log.state("r", DagsterEventType.RUN_STARTING)
        clock.now += 2
        log.state("r", DagsterEventType.RUN_START)
        for asset in ("table", "mart"):
            clock.now += 10
            log.materialized("r", asset, {p: CONTENTS[asset][p] for p in partitions}, log.code_versions()[asset])
        log.state("r", DagsterEventType.RUN_SUCCESS)
    return "r"


def planned_partitions(event: dg.DagsterEvent) -> list[str | None]:
    planned = event.asset_materialization_planned_data
    return list(planned.partitions_subset.get_partition_keys()) if planned.partitions_subset else [planned.partition]


def content_of(record: dg.EventLogRecord) -> object:
    assert record.asset_materialization is not None
    value = record.asset_materialization.metadata.get(CONTENT)
    return None if value is None else value.value


def asset_events(instance: dg.DagsterInstance, run_id: str) -> list[tuple[object, ...]]:
    """What a planner may read of a run, in order."""
    told = []
    for record in instance.get_records_for_run(run_id).records:
        event = record.event_log_entry.get_dagster_event()
        if event.event_type == DagsterEventType.ASSET_MATERIALIZATION_PLANNED:
            told.append(("planned", event.asset_key, *planned_partitions(event), event.step_key))
        if event.event_type == DagsterEventType.ASSET_MATERIALIZATION:
            code = record.asset_materialization.tags.get("dagster/code_version")  # type: ignore[union-attr]
            told.append(("written", event.asset_key, event.partition, content_of(record), code))
    return told


@pytest.mark.parametrize("partitions", [BOTH, BOTH[:1]])
def test_simulated_run_writes_the_same_events_as_a_real_run(
    instance: dg.DagsterInstance, partitions: list[str]
) -> None:
    simulate(instance, partitions)
    with dg.DagsterInstance.ephemeral() as real:
        run_id = dg.materialize([table, mart], instance=real, tags=partition_tags(partitions)).run_id
        expected = [
            (*told[:4], "0" if told[:2] == ("written", dg.AssetKey("mart")) and told[4] is None else told[4])
            if told[0] == "written"
            else told
            for told in asset_events(real, run_id)
        ]
        simulated = asset_events(instance, "r")
        # An asset without a code version gets its run's: only that there is none of ours matters.
        without_code = [told[:4] if told[1] == dg.AssetKey("mart") else told for told in simulated]
        assert without_code == [told[:4] if told[1] == dg.AssetKey("mart") else told for told in expected]


def test_simulated_run_record_has_the_times_of_the_clock(instance: dg.DagsterInstance) -> None:
    simulate(instance, BOTH)
    (record,) = instance.get_run_records()
    assert (record.create_timestamp.timestamp(), record.start_time, record.end_time) == (NOW, NOW + 2, NOW + 22)
    assert record.update_timestamp.timestamp() == NOW + 22
    assert record.dagster_run.status == dg.DagsterRunStatus.SUCCESS


def test_simulated_clock_sets_event_times_and_partitions(instance: dg.DagsterInstance) -> None:
    clock = Clock(NOW)
    with clock.frozen():
        assert HOURS.get_last_partition_key() == "2026-10-01-07:00"
        SimulatedLog(instance, clock, GRAPH).reported("table", BOTH[0], "by hand")
    (record,) = instance.fetch_materializations(dg.AssetKey("table"), limit=9).records
    assert (record.timestamp, record.run_id, content_of(record)) == (NOW, "", "by hand")


def test_simulated_observation_has_the_tags_of_the_landing_sensor(instance: dg.DagsterInstance) -> None:
    clock = Clock(NOW)
    with clock.frozen():
        SimulatedLog(instance, clock, GRAPH).observed("source", BOTH[0], "v1", listed_at=NOW, arrived_at=NOW - 3)
    tags = event_storage.latest_observations(instance, dg.AssetKey("source"))[BOTH[0]]
    assert tags[DATA_VERSION] == "v1"
    assert (float(tags[LISTED_AT]), float(tags[ARRIVED_AT])) == (NOW, NOW - 3)
