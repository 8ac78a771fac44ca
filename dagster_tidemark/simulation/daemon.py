"""Dagster's daemon in a simulation: it evaluates the sensors, and makes runs of their requests.

It fails like the real one (dagster/_daemon/sensor.py):
- A tick that raises requests nothing, and the sensor's cursor stays. The other sensors continue.
- A run request that cannot be built ends its tick; earlier requests have become runs. The sensor's next tick submits
  the remaining requests and evaluates nothing; a second failure drops them.
- A request whose execution plan raises (no config, no environment variable) cannot be built.
- A range with an end that does not exist cannot be built, but leaves a run without planned events. The next tick
  launches that run, and its body raises. A single partition that does not exist becomes a run; its body raises.

Belongs here: ticks and submission. Does not belong here: the times of ticks (`simulation.platform`).
"""

import logging
import random
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import dagster as dg
from dagster import DagsterInstance, DagsterRunStatus, RunRequest, RunsFilter
from dagster._core.definitions.partitions.context import partition_loading_context
from dagster._core.definitions.run_request import InstigatorType
from dagster._core.definitions.sensor_definition import SensorType
from dagster._core.errors import DagsterInvalidSubsetError
from dagster._core.events import RunFailureReason
from dagster._core.remote_origin import RemoteInstigatorOrigin
from dagster._core.scheduler.instigation import InstigatorState, InstigatorStatus, SensorInstigatorData

from dagster_tidemark.dagster_internals.asset_graph import plan_run
from dagster_tidemark.sensors.automation import automation_sensor
from dagster_tidemark.sensors.catch_up import catch_up_sensor, due_now
from dagster_tidemark.sensors.scope import LocationScope
from dagster_tidemark.settings import Settings
from dagster_tidemark.simulation.log import REPOSITORY, SimulatedLog
from dagster_tidemark.simulation.partitions import partition_tags
from dagster_tidemark.sources.feed import Partition

_LANDING = "landing"

Create = Callable[[Collection[str], Mapping[str, str], Collection[dg.AssetCheckKey] | None], object]
"""Creates the run of a request."""


@dataclass(frozen=True)
class FailedTick:
    """A tick of a sensor that raised. `at` in Unix seconds, by the true time."""

    at: float
    sensor: str
    error: str


@dataclass
class Daemon:
    """The sensors of a code location, and their requests.

    Args:
        create: Makes a run of a request; raises if Dagster cannot build it.
        settings: Settings of the code location. Without them, contracts are not scaled.
        for_nothing: Requests for partitions that did not exist at the time, each with time, asset and partition.
    """

    instance: DagsterInstance
    create: Create
    settings: Settings | None = None
    repository: dg.RepositoryDefinition = field(init=False)
    log: SimulatedLog = field(init=False)
    failed_ticks: list[FailedTick] = field(default_factory=list)
    for_nothing: list[tuple[float, str, Partition]] = field(default_factory=list)
    off: set[str] = field(default_factory=set)
    _sensors: Sequence[dg.SensorDefinition] = ()
    _cursors: dict[str, str | None] = field(default_factory=dict)
    _unsubmitted: dict[str, list[RunRequest]] = field(default_factory=dict)
    _plannable: set[tuple[Any, Any]] = field(default_factory=set)

    def load(self, repository: dg.RepositoryDefinition, log: SimulatedLog) -> None:
        """Load another version of the code location."""
        self.repository, self.log = repository, log
        self._plannable.clear()
        self._sensors = [automation_sensor(self.settings), catch_up_sensor(LocationScope(settings=self.settings))]

    def tick(self, order: random.Random) -> bool:
        """Evaluate all running sensors, in random order. Return True if none raised."""
        failed = len(self.failed_ticks)
        sensors = list(self._sensors)
        if order.random() >= 0.5:
            sensors.reverse()
        for sensor in sensors:
            if sensor.name not in self.off:
                self._tick_of(sensor)
        return len(self.failed_ticks) == failed

    def ask_for_news(self) -> None:
        """Request runs of the due partitions, as the landing sensor does after it found files."""
        if _LANDING in self.off:
            return
        try:
            requests = due_now(self._context(_LANDING), self.settings)
            for request in requests:
                for key in request.asset_selection or []:
                    self.log.existing.refuse_key(key.to_user_string(), request.partition_key)
        except Exception as error:  # as Dagster's daemon: a tick fails, and the next one comes
            self._failed(_LANDING, error)
        else:
            self._submit(_LANDING, requests)

    def switch(self, sensor: str, *, on: bool) -> None:
        """Start or stop a sensor, as a person does in the UI."""
        (self.off.discard if on else self.off.add)(sensor)
        status = InstigatorStatus.RUNNING if on else InstigatorStatus.STOPPED
        automation = sensor.startswith("automation")
        kind = SensorType.AUTOMATION if automation else SensorType.STANDARD
        origin = RemoteInstigatorOrigin(REPOSITORY, sensor)
        state = InstigatorState(origin, InstigatorType.SENSOR, status, SensorInstigatorData(sensor_type=kind))
        known = self.instance.get_instigator_state(origin.get_id(), state.selector_id)
        (self.instance.update_instigator_state if known else self.instance.add_instigator_state)(state)

    def _tick_of(self, sensor: dg.SensorDefinition) -> None:
        left = self._unsubmitted.pop(sensor.name, None)
        if left is not None:
            for run in self.instance.get_runs(RunsFilter(statuses=[DagsterRunStatus.NOT_STARTED])):
                self.log.failed(run.run_id, RunFailureReason.STEP_FAILURE)
            self._submit(sensor.name, left, again=True)
            return
        try:
            # Sensors find dynamic keys through a reference to the instance. An instance in memory has no reference.
            keys = partition_loading_context(dynamic_partitions_store=self.instance)
            with self._context(sensor.name) as context, keys:
                result = sensor.evaluate_tick(context)
        except Exception as error:  # as Dagster's daemon: a tick fails, and the next one comes
            self._failed(sensor.name, error)
        else:
            self._cursors[sensor.name] = result.cursor
            self._submit(sensor.name, result.run_requests or [])

    def _context(self, sensor: str) -> dg.SensorEvaluationContext:
        cursor = self._cursors.get(sensor)
        context = dg.build_sensor_context(self.instance, cursor, repository_def=self.repository, sensor_name=sensor)
        context.log.setLevel(logging.WARNING)  # Dagster logs five lines for each tick
        return context

    def _submit(self, sensor: str, requests: Sequence[RunRequest], *, again: bool = False) -> None:
        for number, request in enumerate(requests):
            assets = [key.to_user_string() for key in request.asset_selection or []]
            own = {} if request.partition_key is None else partition_tags([request.partition_key])
            named = {request.partition_key, *_ends(request)} - {None}
            at = self.log.clock.now
            self.for_nothing += [
                (at, asset, p) for asset in assets for p in named if not self._may_be(asset, p) and not again
            ]
            try:
                self._plan(request)
                self.create(assets, {**request.tags, **own}, request.asset_check_keys)
            except Exception as error:  # as Dagster's daemon: a tick fails, and the next one comes
                self._failed(sensor, error)
                if not again:
                    there_is_no_run = isinstance(error, DagsterInvalidSubsetError)
                    self._unsubmitted[sensor] = list(requests[number + (not there_is_no_run) :])
                return

    def _plan(self, request: RunRequest) -> None:
        assets = frozenset(request.asset_selection or ())
        checks = None if request.asset_check_keys is None else frozenset(request.asset_check_keys)
        if (assets, checks) not in self._plannable:
            plan_run(self.repository, assets, checks)
            self._plannable.add((assets, checks))

    def _may_be(self, asset: str, partition: Partition) -> bool:
        unpartitioned = self.repository.asset_graph.get(dg.AssetKey.from_user_string(asset)).partitions_def is None
        return unpartitioned or self.log.existing.exists(asset, partition)

    def _failed(self, sensor: str, error: Exception) -> None:
        self.failed_ticks.append(FailedTick(self.log.clock.now, sensor, f"{type(error).__name__}: {error}"))


def _ends(request: RunRequest) -> set[str]:
    over = request.partition_key_range
    return {over.start, over.end} if over else set()
