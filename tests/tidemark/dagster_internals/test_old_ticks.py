"""Contract of the rows of old ticks and evaluations."""

import time
from collections.abc import Iterator

import dagster as dg
import pytest
from dagster._core.definitions.run_request import InstigatorType
from dagster._core.remote_origin import RegisteredCodeLocationOrigin, RemoteInstigatorOrigin, RemoteRepositoryOrigin
from dagster._core.scheduler.instigation import (
    InstigatorState,
    InstigatorStatus,
    SensorInstigatorData,
    TickData,
    TickStatus,
)
from dagster_shared.error import SerializableErrorInfo

from dagster_tidemark.dagster_internals import old_ticks
from dagster_tidemark.dagster_internals.old_ticks import OldEvaluation, OldTicks

HOUR = 3600.0


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.instance_for_test() as made:
        yield made


def ticked(
    instance: dg.DagsterInstance,
    name: str,
    ages: list[float],
    location: str = "here",
    failed: tuple[float, ...] = (),
) -> RemoteInstigatorOrigin:
    """A sensor with a tick of each age in hours."""
    origin = RemoteInstigatorOrigin(
        RemoteRepositoryOrigin(RegisteredCodeLocationOrigin(location), "__repository__"), name
    )
    state = InstigatorState(origin, InstigatorType.SENSOR, InstigatorStatus.RUNNING, SensorInstigatorData())
    instance.add_instigator_state(state)
    for age in ages:
        data = TickData(
            instigator_origin_id=origin.get_id(),
            selector_id=origin.get_selector().get_id(),
            instigator_name=name,
            instigator_type=InstigatorType.SENSOR,
            status=TickStatus.FAILURE if age in failed else TickStatus.SKIPPED,
            error=SerializableErrorInfo("it failed", [], "Error") if age in failed else None,
            timestamp=time.time() - age * HOUR,
        )
        instance.create_tick(data)
    return origin


def test_old_ticks_are_deleted_but_never_the_newest(instance: dg.DagsterInstance) -> None:
    origin = ticked(instance, "landing", [40, 30, 20, 10])
    ticked(instance, "monthly", [90, 80])
    ticked(instance, "theirs", [40, 30])
    ticked(instance, "landing", [40, 30], location="elsewhere")
    found = old_ticks.old_ticks(instance, time.time() - 15 * HOUR, ["here"], lambda name: name != "theirs")
    assert sorted((each.name, each.count) for each in found) == [("landing", 3), ("monthly", 1)]
    assert all(isinstance(each, OldTicks) and each.size > 0 for each in found)
    for each in found:
        old_ticks.delete_ticks(instance, each)
    left = instance.get_ticks(origin.get_id(), origin.get_selector().get_id())
    assert len(left) == 1
    assert old_ticks.old_ticks(instance, time.time() - 15 * HOUR, ["here"], lambda name: name != "theirs") == []


def test_newest_tick_that_did_not_fail_stays(instance: dg.DagsterInstance) -> None:
    origin = ticked(instance, "landing", [50, 40, 30, 20, 10], failed=(30, 20, 10))
    [found] = old_ticks.old_ticks(instance, time.time() - 15 * HOUR, ["here"], lambda _: True)
    assert found.count == 3
    old_ticks.delete_ticks(instance, found)
    left = instance.get_ticks(origin.get_id(), origin.get_selector().get_id())
    assert [tick.status for tick in left] == [TickStatus.FAILURE, TickStatus.SKIPPED]


def test_old_evaluations_are_deleted_but_never_the_newest_of_an_asset(instance: dg.DagsterInstance) -> None:
    @dg.asset(automation_condition=dg.AutomationCondition.eager())
    def mine() -> None: ...

    @dg.asset(automation_condition=dg.AutomationCondition.eager())
    def theirs() -> None: ...

    defs, cursor = dg.Definitions([mine, theirs]), None
    for number in (1, 2, 3):
        result = dg.evaluate_automation_conditions(defs, instance, cursor=cursor)
        cursor = result.cursor
        evaluations = [each.serializable_evaluation.with_run_ids(set()) for each in result.results]
        assert instance.schedule_storage is not None
        instance.schedule_storage.add_auto_materialize_asset_evaluations(number, evaluations)
    later = time.time() + HOUR
    assert old_ticks.old_evaluations(instance, time.time() - HOUR, {"mine"}) == []
    found = old_ticks.old_evaluations(instance, later, {"mine"})
    assert len(found) == 2 and all(isinstance(each, OldEvaluation) and each.size > 0 for each in found)
    old_ticks.delete_evaluations(instance, found)
    assert old_ticks.old_evaluations(instance, later, {"mine"}) == []
    assert len(old_ticks.old_evaluations(instance, later, {"theirs"})) == 2
