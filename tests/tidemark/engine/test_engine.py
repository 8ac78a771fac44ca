"""What the planner's state survives: restarts, long logs, wipes; and what an asset's own condition may add to it."""

import re
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime

import dagster as dg
import pytest
from dagster._core.definitions.run_request import InstigatorType
from dagster._core.remote_origin import RegisteredCodeLocationOrigin, RemoteInstigatorOrigin, RemoteRepositoryOrigin
from dagster._core.scheduler.instigation import InstigatorState, InstigatorStatus, SensorInstigatorData

from dagster_tidemark.asset_graph.planner_graph import graph_of
from dagster_tidemark.dagster_internals import event_time
from dagster_tidemark.engine import engine
from dagster_tidemark.engine.condition import derived
from dagster_tidemark.event_log import checkpoint, consumer
from dagster_tidemark.event_log.consumer import LogConsumer
from dagster_tidemark.planner.planner import Planner
from dagster_tidemark.sensors.catch_up import due_now
from dagster_tidemark.tags import DATA_VERSION
from tests.tidemark.ticks import Location
from tests.tidemark.toy_graph import ASAP, HOURS, asset, lag, small, source

CORE = dg.AssetKey(["core", "orders"])
H7, H8 = "2026-10-05-07:00", "2026-10-05-08:00"
ASSETS = small()
GRAPH = dg.Definitions(ASSETS).resolve_asset_graph()


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as ephemeral:
        yield ephemeral


def observe(instance: dg.DagsterInstance, *hours: str, version: str = "1") -> None:
    for hour in hours:
        tags = {DATA_VERSION: version}
        instance.report_runless_asset_event(
            dg.AssetObservation(dg.AssetKey(["raw", "orders"]), partition=hour, tags=tags)
        )


def test_restart_continues_from_the_checkpoint_with_the_same_plan(instance: dg.DagsterInstance) -> None:
    observe(instance, H7, H8, "junk")
    instance.report_runless_asset_event(dg.AssetMaterialization(CORE, partition=H7))
    graph = graph_of(GRAPH)
    before = LogConsumer.started(instance, graph)
    assert before.read(instance, lambda: False) == ""
    before.save(instance)
    after = LogConsumer.started(instance, graph_of(GRAPH))
    assert after.cursor == before.cursor > 0
    now = event_time.now()
    plans = [Planner(f.history.graph, f.history).plan(now) for f in (before, after)]
    assert plans[0].decisions == plans[1].decisions != {}
    assert plans[0].set_aside == plans[1].set_aside and ("raw/orders", "junk") in plans[0].set_aside


@pytest.mark.parametrize("text", ["", "junk", "eNo="])
def test_invalid_checkpoint_text_is_not_used(text: str) -> None:
    assert checkpoint.load([text], graph_of(GRAPH)) is None


def test_no_run_is_requested_until_the_event_log_has_been_read(
    instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consumer, "_BETWEEN_LOOKS_AT_THE_CLOCK", 1)
    monkeypatch.setattr(engine, "after", lambda _: lambda: True)
    observe(instance, H7, H8)
    planner = engine.engine_for(instance, GRAPH)
    requests, plan = planner.request(instance, event_time.now(), ranges=False)
    assert requests == [] and "read the event log up to" in plan.catching_up
    monkeypatch.setattr(engine, "after", lambda _: lambda: False)
    _, plan = planner.request(instance, event_time.now(), ranges=True)
    assert plan.catching_up == "" and plan.requests


def test_wipe_of_an_asset_removes_its_partitions_from_the_history(instance: dg.DagsterInstance) -> None:
    observe(instance, H7)
    planner = engine.engine_for(instance, GRAPH)
    instance.report_runless_asset_event(dg.AssetMaterialization(CORE, partition=H7))
    planner.look(event_time.now(), instance)
    assert H7 in planner.follower.history.facts.with_content("core/orders")
    instance.wipe_assets([CORE])
    planner.look(event_time.now(), instance)
    assert H7 not in planner.follower.history.facts.with_content("core/orders")


def combined(condition: dg.AutomationCondition[dg.AssetKey]) -> dg.Definitions:
    table = asset("core/orders", "raw/orders", by=HOURS, automation_condition=condition, **ASAP)
    return dg.Definitions([source("orders", HOURS), table])


def asked(defs: dg.Definitions, instance: dg.DagsterInstance) -> int:
    return dg.evaluate_automation_conditions(defs=defs, instance=instance).total_requested


def test_custom_condition_can_hold_back_a_due_partition(instance: dg.DagsterInstance) -> None:
    closed = combined(derived() & dg.AutomationCondition.code_version_changed())
    observe(instance, H7)
    assert asked(closed, instance) == 0
    with dg.build_sensor_context(instance, repository_def=closed.get_repository_def()) as context:
        assert due_now(context) == [], "nobody goes round the condition"
    assert asked(combined(derived()), instance) == 1, "and nothing was kept for what was held back"


def test_custom_condition_can_request_a_partition_for_another_reason(instance: dg.DagsterInstance) -> None:
    eager = combined(derived() | dg.AutomationCondition.missing().newly_true())
    dg.evaluate_automation_conditions(defs=eager, instance=instance)
    observe(instance, H7)
    assert asked(eager, instance) >= 1


def test_evaluation_label_states_why_a_partition_waits_and_stays_the_same(instance: dg.DagsterInstance) -> None:
    waiting = dg.Definitions(
        [source("orders", HOURS), asset("core/orders", "raw/orders", by=HOURS, freshness_policy=lag(hours=9))]
    )
    hour = f"{datetime.fromtimestamp(event_time.now(), UTC):%Y-%m-%d-%H:00}"
    observe(instance, hour)
    labels = []
    for _ in range(2):
        result = dg.evaluate_automation_conditions(defs=waiting, instance=instance)
        (evaluated,) = [r for r in result.results if r.key == CORE]
        (child,) = evaluated.child_results
        assert child.true_subset.expensively_compute_partition_keys() == {hour}
        assert child.condition.get_label() == child.condition.description
        labels.append((child.condition.get_label(), evaluated.value_hash))
    assert labels[0] == labels[1], "the same text, and so the same record"
    # The day of the start is left out where it is the deadline's, the day of the data where it is the start's.
    day = r"([A-Z][a-z]{2} \d\d [A-Z][a-z]{2} )?"
    form = rf"due [A-Z][a-z]{{2}} \d\d [A-Z][a-z]{{2}} \d\d:\d\d; starts {day}\d\d:\d\d: first data of {day}\d\d:\d\d"
    assert re.fullmatch(form, str(labels[0][0]))


def test_sensor_stopped_in_another_code_location_is_not_treated_as_stopped() -> None:
    with dg.instance_for_test() as instance:
        stopped(instance, "catch_up", "here")
        stopped(instance, "automation", "there")
        repository = dg.Definitions(ASSETS).get_repository_def()
        for location, off in ((None, {"catch_up", "automation"}), ("here", {"catch_up"}), ("there", {"automation"})):
            origin = RegisteredCodeLocationOrigin(location) if location else None
            with dg.SensorEvaluationContext(
                instance_ref=instance.get_ref(),
                last_tick_completion_time=None,
                last_run_key=None,
                cursor=None,
                repository_name="__repository__",
                repository_def=repository,
                code_location_origin=origin,
            ) as context:
                found = engine.engine_of(context, repository.asset_graph)
                found.look(event_time.now(), instance)
                assert found.off == off


def stopped(instance: dg.DagsterInstance, sensor: str, location: str) -> None:
    """Somebody stops a sensor in the UI."""
    origin = RemoteInstigatorOrigin(
        RemoteRepositoryOrigin(RegisteredCodeLocationOrigin(location), "__repository__"), sensor
    )
    state = InstigatorState(origin, InstigatorType.SENSOR, InstigatorStatus.STOPPED, SensorInstigatorData())
    instance.add_instigator_state(state)


def test_concurrent_sensors_do_not_all_wait_for_the_event_log_read(
    instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "SLICE_SECONDS", 0.2)
    found = engine.engine_for(instance, dg.Definitions(small()).resolve_asset_graph())

    def _reads_for_long(_: object, stop: Callable[[], bool]) -> str:
        while not stop():
            time.sleep(0.005)
        return "read the event log up to 1 of 1000000"

    monkeypatch.setattr(found.follower, "read", _reads_for_long)

    def _tick(_: int) -> tuple[float, str]:
        begun = time.monotonic()
        said = found.look(event_time.now(), instance).catching_up
        return time.monotonic() - begun, said

    with ThreadPoolExecutor(12) as sensors:
        ticks = list(sensors.map(_tick, range(12)))
    assert max(seconds for seconds, _ in ticks) < 4 * 0.2, "its own slice, and at most one of another"
    assert {said for _, said in ticks} > {"another sensor is reading the event log"}


def test_two_repositories_in_one_process_start_one_log_consumer_each(
    instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[object] = []
    start = LogConsumer.started
    monkeypatch.setattr(LogConsumer, "started", lambda *args: (started.append(args), start(*args))[1])
    locations = [Location(instance, [source(name), asset(f"core/{name}", f"raw/{name}", **ASAP)]) for name in "xy"]
    for _ in range(3):
        for location in locations:
            location.tick()
    assert len(started) == 2
