"""More assets and checks than Dagster lets one sensor have."""

from collections.abc import Iterator
from typing import Any

import dagster as dg
import pytest

from dagster_tidemark.asset_graph.planner_graph import graph_of
from dagster_tidemark.engine.condition import derived, with_automation
from dagster_tidemark.engine.saved_overview import CHECK
from dagster_tidemark.planner.history import History
from dagster_tidemark.planner.planner import Planner
from dagster_tidemark.sensors.automation import automation_sensors
from dagster_tidemark.sensors.contract_sensor import contract_checks
from tests.tidemark.ticks import Location
from tests.tidemark.toy_graph import HOURS, START, asset, lag, source

ASAP = {"tidemark/pace": "asap"}


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as ephemeral:
        yield ephemeral


def wide(count: int, **more: Any) -> list[Any]:
    """So many assets that read one source, each with a contract and its check."""
    assets = [
        asset(f"marts/table_{n:04}", "raw/orders", freshness_policy=lag(minutes=5), tags=ASAP, **more)
        for n in range(count)
    ]
    return [source("orders"), *assets, *contract_checks(assets)]


@pytest.mark.parametrize(("count", "sensors"), [(251, 1), pytest.param(1001, 3, marks=pytest.mark.proof)])
def test_assets_with_contracts_beyond_the_sensor_limit_are_all_requested(
    instance: dg.DagsterInstance, count: int, sensors: int
) -> None:
    location = Location(instance, wide(count))
    assert [s.name for s in location.sensors] == ["automation", "automation_2", "automation_3"][:sensors]
    assert all(s.default_status is dg.DefaultSensorStatus.RUNNING for s in location.sensors)
    location.observe("raw/orders", None)
    ticked = location.tick()
    assert len(ticked.asked) == count
    assert all(not request.asset_check_keys for request in ticked.requests), "no run executes a contract's check"
    assert location.tick().asked == set(), "each sensor has taken its own share, once"


def test_dagster_adds_no_sensor_of_its_own(instance: dg.DagsterInstance) -> None:
    location = Location(instance, wide(3))
    assert [sensor.name for sensor in location.repository.sensor_defs] == ["automation"]


def test_checks_with_conditions_beyond_the_limit_get_a_separate_sensor(
    instance: dg.DagsterInstance,
) -> None:
    definitions = wide(60)
    key = dg.AssetKey(["marts", "table_0000"])
    specs = [
        dg.AssetCheckSpec(f"check_{n}", asset=key, automation_condition=dg.AutomationCondition.missing())
        for n in range(450)
    ]

    @dg.multi_asset_check(specs=specs, can_subset=True)
    def many():  # type: ignore[no-untyped-def]
        raise NotImplementedError

    location = Location(instance, [*definitions, many])
    assert [s.name for s in location.sensors] == ["automation", "automation_checks"]
    ticked = location.tick()
    asked = [key.name for request in ticked.requests for key in request.asset_check_keys or ()]
    assert sorted(asked) == sorted(spec.name for spec in specs), "each is evaluated, once"


def test_checks_without_a_condition_run_with_their_asset(instance: dg.DagsterInstance) -> None:
    @dg.asset_check(asset=dg.AssetKey(["marts", "table_0000"]))
    def filled() -> dg.AssetCheckResult:
        raise NotImplementedError

    location = Location(instance, [*wide(1), filled])
    location.observe("raw/orders", None)
    (request,) = location.tick().requests
    assert [check.name for check in request.asset_check_keys or ()] == ["filled"]


def test_all_outputs_of_an_unsplittable_multi_asset_are_in_one_sensor() -> None:
    @dg.multi_asset(specs=[dg.AssetSpec("left"), dg.AssetSpec("right")])
    def both() -> tuple[None, None]:
        raise NotImplementedError

    found = with_automation([both])
    (sensor,) = automation_sensors(found)
    graph = dg.Definitions(found).resolve_asset_graph()
    assert sensor.asset_selection is not None
    assert sensor.asset_selection.resolve(graph) == {dg.AssetKey("left"), dg.AssetKey("right")}
    assert all(isinstance(spec.automation_condition, type(derived())) for spec in found[0].specs)
    assert CHECK == "contract"


def test_planning_many_runs_can_continue_in_the_next_tick() -> None:
    """A plan proceeds in short steps: asset by asset, and within the assets that are connected with one."""
    hours = [f"2026-10-05-{hour:02}:00" for hour in range(12)]
    families = [
        node
        for number in range(40)
        for node in (
            source(f"s{number}", HOURS),
            asset(f"core/c{number}", f"raw/s{number}", by=HOURS),
            asset(f"marts/m{number}", f"core/c{number}", by=HOURS, freshness_policy=lag(hours=1)),
        )
    ]
    graph = graph_of(dg.Definitions(families).resolve_asset_graph())
    assert graph.parts["core/c7"] == graph.parts["marts/m7"] == ["core/c7", "marts/m7"]
    history = History(graph)
    graph.moment.moves_to(START.timestamp() + 86_400)
    for number in range(40):
        for n, hour in enumerate(hours):
            history.observed((f"raw/s{number}", hour), id=100 * number + n, version="1", arrived_at=1.0, listed_at=None)
    planner, looks = Planner(graph, history), 0
    while (plan := planner.plan(graph.moment.now, stop=lambda: True)).catching_up:
        looks += 1
    assert looks >= 40, "it stops at least once for each asset with runs to put together"
    assert {request.assets for request in plan.requests} == {(f"core/c{n}", f"marts/m{n}") for n in range(40)}
