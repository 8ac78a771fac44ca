"""Contract of the stored states of sensors."""

import dagster as dg
import pytest
from dagster._core.remote_origin import (
    RegisteredCodeLocationOrigin,
    RemoteInstigatorOrigin,
    RemoteRepositoryOrigin,
)
from dagster._core.scheduler.instigation import (
    InstigatorState,
    InstigatorStatus,
    InstigatorType,
    SensorInstigatorData,
    TickData,
    TickStatus,
)

from dagster_tidemark.dagster_internals import sensor_states
from dagster_tidemark.dagster_internals.sensor_states import SensorTick, TickTime, tick_times


def stored(
    instance: dg.DagsterInstance,
    sensor: str,
    status: InstigatorStatus,
    location: str = "here",
    data: SensorInstigatorData | None = None,
) -> None:
    code = RemoteRepositoryOrigin(RegisteredCodeLocationOrigin(location), "__repository__")
    origin, data = RemoteInstigatorOrigin(code, sensor), data or SensorInstigatorData()
    instance.add_instigator_state(InstigatorState(origin, InstigatorType.SENSOR, status, data))


def test_longest_tick_is_a_minute_unless_the_environment_says_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DAGSTER_SENSOR_GRPC_TIMEOUT_SECONDS", raising=False)
    monkeypatch.delenv("DAGSTER_GRPC_TIMEOUT_SECONDS", raising=False)
    assert sensor_states.longest_tick() == 60.0
    monkeypatch.setenv("DAGSTER_SENSOR_GRPC_TIMEOUT_SECONDS", "300")
    assert sensor_states.longest_tick() == 300.0


def test_stopped_sensors_are_found_by_code_location() -> None:
    with dg.instance_for_test() as instance:
        assert sensor_states.stopped_sensors(instance) == frozenset()
        stored(instance, "catch_up", InstigatorStatus.STOPPED)
        stored(instance, "landing", InstigatorStatus.RUNNING)
        stored(instance, "contracts", InstigatorStatus.DECLARED_IN_CODE)
        stored(instance, "automation", InstigatorStatus.STOPPED, "there")
        assert sensor_states.stopped_sensors(instance) == {"catch_up", "automation"}
        assert sensor_states.stopped_sensors(instance, location="here", repository="__repository__") == {"catch_up"}
        assert sensor_states.stopped_sensors(instance, location="nowhere") == frozenset()


def test_sensors_of_some_locations_are_stopped_and_restored() -> None:
    with dg.instance_for_test() as instance:
        stored(instance, "catch_up", InstigatorStatus.DECLARED_IN_CODE)
        stored(instance, "tidemark_catch_up", InstigatorStatus.RUNNING, "there")
        stored(instance, "catch_up", InstigatorStatus.STOPPED, "stopped")
        stored(instance, "catch_up", InstigatorStatus.RUNNING, "elsewhere")
        stored(instance, "landing", InstigatorStatus.RUNNING)
        records = sensor_states.running_sensors(instance, "catch_up", {"here", "there", "stopped"})
        assert len(sensor_states.running_sensors(instance, "catch_up", ())) == 3
        sensor_states.stop_sensors(instance, records)
        assert sensor_states.stopped_sensors(instance, location="here") == {"catch_up"}
        assert sensor_states.stopped_sensors(instance, location="elsewhere") == frozenset()
        assert sensor_states.running_sensors(instance, "catch_up", {"here", "there", "stopped"}) == []
        sensor_states.restore_sensors(instance, records)
        sensor_states.restore_sensors(instance, [])
        statuses = {
            (each.repository_selector.location_name, each.instigator_name): each.status
            for each in instance.all_instigator_state()
        }
        assert statuses == {
            ("here", "catch_up"): InstigatorStatus.DECLARED_IN_CODE,
            ("there", "tidemark_catch_up"): InstigatorStatus.RUNNING,
            ("stopped", "catch_up"): InstigatorStatus.STOPPED,
            ("elsewhere", "catch_up"): InstigatorStatus.RUNNING,
            ("here", "landing"): InstigatorStatus.RUNNING,
        }
        # A record of the former version has no status.
        sensor_states.stop_sensors(instance, records)
        sensor_states.restore_sensors(instance, [{k: v for k, v in records[0].items() if k != "status"}])
        assert sensor_states.running_sensors(instance, "catch_up", {"here"})[0]["status"] == "RUNNING"


def test_cursors_are_those_of_all_locations() -> None:
    with dg.instance_for_test() as instance:
        stored(instance, "landing", InstigatorStatus.RUNNING)
        stored(instance, "lineage", InstigatorStatus.STOPPED, "there", SensorInstigatorData(cursor="7"))
        assert sensor_states.sensor_cursors(instance) == [sensor_states.SensorCursor("there", "lineage", "7")]
    with dg.DagsterInstance.ephemeral() as ephemeral:
        assert sensor_states.sensor_cursors(ephemeral) == []


def test_instance_without_schedule_storage_has_no_stopped_sensors(instance: dg.DagsterInstance) -> None:
    assert instance.schedule_storage is None and sensor_states.stopped_sensors(instance) == frozenset()


def test_sensor_tick_is_the_end_of_the_last_successful_one() -> None:
    with dg.instance_for_test() as instance:
        stored(instance, "never", InstigatorStatus.RUNNING)
        data = SensorInstigatorData(
            last_tick_timestamp=9.0,
            last_tick_success_timestamp=8.0,
            min_interval=60,
            last_sensor_start_timestamp=7.0,
        )
        stored(instance, "landing", InstigatorStatus.STOPPED, data=data)
        assert sensor_states.sensor_ticks(instance) == [
            SensorTick("landing", 8.0, is_off=True, every=60.0, started=7.0)
        ]


def test_ticks_of_other_code_locations_are_left_out_unless_the_location_has_none() -> None:
    with dg.instance_for_test() as instance:
        for location, at in (("here", 8.0), ("there", 3.0)):
            data = SensorInstigatorData(last_tick_timestamp=at, last_tick_success_timestamp=at)
            stored(instance, "landing", InstigatorStatus.RUNNING, location, data)
            code = RemoteRepositoryOrigin(RegisteredCodeLocationOrigin(location), "__repository__")
            origin = RemoteInstigatorOrigin(code, "landing")
            owner = (origin.get_id(), "landing", InstigatorType.SENSOR, TickStatus.SUCCESS)
            selector = origin.get_selector().get_id()
            instance.create_tick(TickData(*owner, at - 1, [], [], end_timestamp=at, selector_id=selector))
        assert sensor_states.sensor_ticks(instance, "here") == [SensorTick("landing", 8.0)]
        assert sensor_states.sensor_ticks(instance, "there") == [SensorTick("landing", 3.0)]
        assert tick_times(instance, {"landing"}, "here") == {"landing": TickTime(8.0, 1.0)}
        assert tick_times(instance, {"landing"}, "there") == {"landing": TickTime(3.0, 1.0)}
        assert len(sensor_states.sensor_ticks(instance, "named otherwise in the workspace")) == 2


def test_tick_time_is_the_end_and_the_duration_of_the_last_complete_tick(instance: dg.DagsterInstance) -> None:
    assert tick_times(instance, {"landing"}) == {}, "an instance without schedule storage"
    code = RemoteRepositoryOrigin(RegisteredCodeLocationOrigin("here"), "__repository__")
    with dg.instance_for_test() as kept:
        for sensor in ("landing", "other"):
            stored(kept, sensor, InstigatorStatus.RUNNING)
            origin = RemoteInstigatorOrigin(code, sensor)
            owner = (origin.get_id(), sensor, InstigatorType.SENSOR)
            for status, began, ended in (
                (TickStatus.SUCCESS, 100.0, 101.0),
                (TickStatus.SKIPPED, 110.0, 112.5),
                (TickStatus.STARTED, 130.0, None),
            ):
                selector = origin.get_selector().get_id()
                tick = TickData(*owner, status, began, [], [], end_timestamp=ended, selector_id=selector)
                kept.create_tick(tick)
        assert tick_times(kept, {"landing", "contracts"}) == {"landing": TickTime(112.5, 2.5)}


@pytest.mark.parametrize("in_code_server", [True, False])
def test_automation_sensor_evaluation_is_found_in_daemon_or_code_server(in_code_server: bool) -> None:
    every = dg.AssetSelection.all()
    sensor = dg.AutomationConditionSensorDefinition("one", target=every, use_user_code_server=in_code_server)
    assert sensor_states.evaluates_in_code_server(sensor) is in_code_server


def test_copied_sensor_has_the_new_asset_selection() -> None:
    @dg.sensor(asset_selection=dg.AssetSelection.all())
    def looks() -> None: ...

    one = dg.AssetSelection.assets("table")
    copied = sensor_states.with_selection(looks, one)
    assert (copied.asset_selection, copied.name) == (one, "looks")
    assert looks.asset_selection == dg.AssetSelection.all()
