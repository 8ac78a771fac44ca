"""Stored states of sensors: stopped sensors, and the ends and errors of ticks."""

import copy
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass

import dagster as dg
from dagster._core.definitions.sensor_definition import SensorType
from dagster._core.errors import (
    DagsterCodeLocationLoadError,
    DagsterUserCodeUnreachableError,
    SensorExecutionError,
)
from dagster._core.scheduler.instigation import (
    InstigatorState,
    InstigatorStatus,
    InstigatorType,
    SensorInstigatorData,
    TickStatus,
)
from dagster._grpc.utils import default_sensor_grpc_timeout
from dagster_shared.error import SerializableErrorInfo

from dagster_tidemark.tags import PREFIX


def longest_tick() -> float:
    """Return the seconds after which Dagster gives up on a tick: `DAGSTER_SENSOR_GRPC_TIMEOUT_SECONDS`, or 60."""
    return float(default_sensor_grpc_timeout())


def stopped_sensors(
    instance: dg.DagsterInstance, *, location: str | None = None, repository: str | None = None
) -> frozenset[str]:
    """Return the names of stopped sensors, without Tidemark's prefix. Sensors without a stored state are left out.

    Args:
        location: Only sensors of this code location; None: of any location.
        repository: Only sensors of this repository; None: of any repository.
    """
    if instance.schedule_storage is None:
        return frozenset()
    states = instance.all_instigator_state(
        instigator_type=InstigatorType.SENSOR, instigator_statuses={InstigatorStatus.STOPPED}
    )
    found = [(state.repository_selector, state.instigator_name) for state in states]
    return frozenset(
        name.removeprefix(PREFIX)
        for owner, name in found
        if location in (None, owner.location_name) and repository in (None, owner.repository_name)
    )


def running_sensors(instance: dg.DagsterInstance, name: str, locations: Collection[str]) -> list[dict[str, str]]:
    """Return one record per sensor with this name, without stopped ones, for `stop_sensors` and `restore_sensors`.

    Args:
        name: Name of the sensor without Tidemark's prefix. Sensors with and without the prefix are returned.
        locations: Names of the code locations; empty for all.
    """
    return [
        _record(state) | {"status": state.status.value}
        for state in _sensors(instance)
        if state.instigator_name.removeprefix(PREFIX) == name
        and (not locations or state.repository_selector.location_name in locations)
        and state.status is not InstigatorStatus.STOPPED
    ]


def stop_sensors(instance: dg.DagsterInstance, records: Collection[Mapping[str, str]]) -> None:
    """Stop sensors. A tick that has begun is not interrupted."""
    for state, _ in _recorded(instance, records):
        instance.update_instigator_state(state.with_status(InstigatorStatus.STOPPED))


def restore_sensors(instance: dg.DagsterInstance, records: Collection[Mapping[str, str]]) -> None:
    """Give stopped sensors the status that they had when they were recorded."""
    for state, record in _recorded(instance, records):
        if state.status is InstigatorStatus.STOPPED:  # a sensor that was started since stays on
            status = InstigatorStatus(record.get("status", InstigatorStatus.RUNNING.value))
            instance.update_instigator_state(state.with_status(status))


def _recorded(
    instance: dg.DagsterInstance, records: Collection[Mapping[str, str]]
) -> list[tuple[InstigatorState, Mapping[str, str]]]:
    pairs = [(state, record) for state in _sensors(instance) for record in records]
    return [(state, record) for state, record in pairs if _record(state).items() <= record.items()]


def _record(state: InstigatorState) -> dict[str, str]:
    """Return the names of a sensor. Their keys are those of a GraphQL selector, as in records of earlier releases."""
    owner = state.repository_selector
    return {
        "repositoryName": owner.repository_name,
        "repositoryLocationName": owner.location_name,
        "sensorName": state.instigator_name,
    }


@dataclass(frozen=True)
class SensorTick:
    """A sensor, and the end of its last complete tick (Unix seconds).

    Args:
        is_off: True if the sensor was stopped.
        error: First line of the newest tick's error; empty if that tick did not fail.
        unreachable: True if that tick failed because Dagster's daemon cannot reach or load the code location. `error`
            is then the reason why loading fails, or empty if the code server does not answer.
        every: The sensor's minimum interval in seconds.
        started: Time when the sensor was last switched on; 0 if unknown.
    """

    sensor: str
    at: float
    is_off: bool = False
    error: str = ""
    unreachable: bool = False
    every: float = 0.0
    started: float = 0.0


def sensor_ticks(instance: dg.DagsterInstance, location: str = "") -> list[SensorTick]:
    """Return the last complete tick of each sensor that has ticked.

    Args:
        location: Only sensors of this code location. If no sensor of the instance belongs to it, Dagster has loaded
            the code under another name; then sensors of all locations are returned.
    """
    return [tick for state in _states(instance, location) if (tick := _sensor_tick(instance, state)) is not None]


def _sensors(instance: dg.DagsterInstance) -> list[InstigatorState]:
    """Return the stored states of all sensors; none if the instance has no schedule storage."""
    if instance.schedule_storage is None:
        return []
    return list(instance.all_instigator_state(instigator_type=InstigatorType.SENSOR))


def _states(instance: dg.DagsterInstance, location: str) -> list[InstigatorState]:
    states = _sensors(instance)
    return [each for each in states if each.repository_selector.location_name == location] or states


@dataclass(frozen=True)
class TickTime:
    """End of a sensor's last complete tick (Unix seconds), and its duration in seconds."""

    at: float
    seconds: float


def tick_times(instance: dg.DagsterInstance, sensors: Collection[str], location: str = "") -> dict[str, TickTime]:
    """Return the last complete tick of some sensors, by name. Sensors without a complete tick are left out.

    Args:
        location: The code location, as for `sensor_ticks`.
    """
    found = {}
    for state in _states(instance, location):
        if state.instigator_name not in sensors:
            continue
        complete = [TickStatus.SUCCESS, TickStatus.SKIPPED]
        for tick in instance.get_ticks(state.instigator_origin_id, state.selector_id, limit=1, statuses=complete):
            end = tick.end_timestamp or tick.timestamp
            found[state.instigator_name] = TickTime(end, max(0.0, end - tick.timestamp))
    return found


@dataclass(frozen=True)
class SensorCursor:
    """The stored cursor of a sensor of a code location. The code may no longer declare the sensor."""

    location: str
    sensor: str
    cursor: str


def sensor_cursors(instance: dg.DagsterInstance) -> list[SensorCursor]:
    """Return the cursor of each sensor that has one."""
    found = []
    for state in _sensors(instance):
        data = state.instigator_data
        if isinstance(data, SensorInstigatorData) and data.cursor:
            found.append(SensorCursor(state.repository_selector.location_name, state.instigator_name, data.cursor))
    return found


def _sensor_tick(instance: dg.DagsterInstance, state: InstigatorState) -> SensorTick | None:
    data, is_off, name = state.instigator_data, state.status is InstigatorStatus.STOPPED, state.instigator_name
    if not isinstance(data, SensorInstigatorData) or not (data.last_tick_timestamp or data.last_tick_start_timestamp):
        return None
    every, started = float(data.min_interval or 0), data.last_sensor_start_timestamp or 0.0
    if data.last_tick_success_timestamp is not None:
        return SensorTick(name, data.last_tick_success_timestamp, is_off, every=every, started=started)
    # The newest tick has not ended, or it failed.
    origin, selector = state.instigator_origin_id, state.selector_id
    complete = instance.get_ticks(origin, selector, limit=1, statuses=[TickStatus.SUCCESS, TickStatus.SKIPPED])
    newest = instance.get_ticks(origin, selector, limit=1)
    error = newest[0].error if newest and newest[0].status is TickStatus.FAILURE else None
    at = max((tick.end_timestamp or tick.timestamp for tick in complete), default=0.0)
    if error is not None and error.cls_name == DagsterUserCodeUnreachableError.__name__:
        refused = error.cause if error.cause and error.cause.cls_name == DagsterCodeLocationLoadError.__name__ else None
        why = _first_line(refused)
        # After half a minute Dagster reports an unreachable code server as a load error.
        is_away = DagsterUserCodeUnreachableError.__name__ in why
        return SensorTick(name, at, is_off, "" if is_away else why, unreachable=True, every=every, started=started)
    return SensorTick(name, at, is_off, _first_line(error), every=every, started=started)


def _first_line(error: SerializableErrorInfo | None) -> str:
    """Return the first line of an error, without the modules of the named classes; empty if there is no error.

    Dagster wraps errors of a sensor's code in an error that only names the sensor. The wrapped error is used.
    """
    while error is not None and error.cls_name == SensorExecutionError.__name__ and error.cause is not None:
        error = error.cause
    lines = (error.message if error is not None else "").splitlines()
    line = next((line.strip() for line in lines if line.strip()), "")
    line = line.removeprefix(f"{DagsterCodeLocationLoadError.__module__}.{DagsterCodeLocationLoadError.__name__}: ")
    return re.sub(r"(^|: )(?:\w+\.)+(?=[A-Z]\w+(?::|$))", r"\1", line)


def evaluates_in_code_server(sensor: dg.AutomationConditionSensorDefinition) -> bool:
    """Return True if the code server evaluates an automation sensor, and False if Dagster's daemon does."""
    return sensor.sensor_type == SensorType.AUTOMATION


def with_selection(sensor: dg.SensorDefinition, selection: dg.AssetSelection) -> dg.SensorDefinition:
    """Return a copy of a sensor, of the same class, with another selection of assets.

    Do not use it for automation sensors, because a copy would still evaluate the former selection.
    """
    narrowed = copy.copy(sensor)
    narrowed._asset_selection = selection
    return narrowed
