"""Jobs, schedules and sensors of an existing code location, changed so that they do not select added assets.

`AssetSelection.all()`, a group or everything downstream of an asset would otherwise include the assets of `extend`. An
asset job would run them too, or could not be resolved because their partitions differ. Two automation sensors would
select the same asset, which Dagster refuses. A selection that lists asset keys is not changed.
"""

from collections.abc import Collection
from typing import Any, TypeVar

import dagster as dg

from dagster_tidemark.dagster_internals.asset_graph import is_list_of_keys, without_assets
from dagster_tidemark.dagster_internals.record_copies import changed
from dagster_tidemark.dagster_internals.sensor_states import evaluates_in_code_server, with_selection
from dagster_tidemark.table_partitions import DeclarationRefused

_AssetJob = type(dg.define_asset_job("any"))
_Given = TypeVar("_Given")


def selecting_as_before(defs: dg.Definitions, added: Collection[dg.AssetKey]) -> dg.Definitions:
    """Return definitions whose jobs, schedules and sensors select an added asset only by its key.

    Raises:
        DeclarationRefused: an automation sensor of a user-defined class, or the job of a sensor or schedule of such a
            class, has a selection that may grow.
    """
    return _Narrowed(added).definitions(defs)


class _Narrowed:
    """Copies of definitions without some assets in their selections.

    Args:
        added: The assets to leave out.
    """

    def __init__(self, added: Collection[dg.AssetKey]) -> None:
        self._added = dg.AssetSelection.assets(*sorted(added))
        self._jobs: dict[int, Any] = {}

    def definitions(self, defs: dg.Definitions) -> dg.Definitions:
        return changed(
            defs,
            jobs=[self._job(each) for each in defs.jobs or ()],
            schedules=[self._schedule(each) for each in defs.schedules or ()],
            sensors=[self._sensor(each) for each in defs.sensors or ()],
        )

    def _job(self, job: Any) -> Any:
        if not isinstance(job, _AssetJob) or is_list_of_keys(job.selection):
            return job
        # A job and its schedule must share one copy, because Dagster refuses two jobs with the same name.
        if id(job) not in self._jobs:
            self._jobs[id(job)] = changed(job, selection=without_assets(job.selection, self._added))
        return self._jobs[id(job)]

    def _schedule(self, schedule: Any) -> Any:
        if not isinstance(schedule, dg.ScheduleDefinition):  # its partitioned job is not resolved yet
            return changed(schedule, job=self._job(schedule.job))
        if not schedule.has_job or self._job(schedule.job) is schedule.job:
            return schedule
        return _of_same_class(schedule, schedule.with_updated_job(self._job(schedule.job)))

    def _sensor(self, sensor: dg.SensorDefinition) -> dg.SensorDefinition:
        if sensor.has_jobs and any(self._job(job) is not job for job in sensor.jobs):
            return _of_same_class(sensor, sensor.with_updated_jobs([self._job(job) for job in sensor.jobs]))
        if sensor.asset_selection is None or is_list_of_keys(sensor.asset_selection):
            return sensor
        selection = without_assets(sensor.asset_selection, self._added)
        if type(sensor) is dg.AutomationConditionSensorDefinition:
            return _automation_sensor(sensor, selection)
        if isinstance(sensor, dg.AutomationConditionSensorDefinition):
            raise DeclarationRefused(
                f"sensor {sensor.name} of class {type(sensor).__name__} may select assets of Tidemark, which "
                "can be excluded only from Dagster's AutomationConditionSensorDefinition: list its assets by their keys"
            )
        return with_selection(sensor, selection)


def _of_same_class(given: _Given, updated: _Given) -> _Given:
    """Return an updated sensor or schedule. Raise if Dagster has replaced its user-defined class."""
    if type(updated) is type(given):
        return updated
    raise DeclarationRefused(
        f"{'sensor' if isinstance(given, dg.SensorDefinition) else 'schedule'} {getattr(given, 'name', '')} of class "
        f"{type(given).__name__} has a job that may select assets of Tidemark, which can be excluded only from jobs of "
        "Dagster's own classes: list the job's assets by their keys"
    )


def _automation_sensor(
    sensor: dg.AutomationConditionSensorDefinition, selection: dg.AssetSelection
) -> dg.AutomationConditionSensorDefinition:
    """Return the same sensor with another selection. A copied object would still evaluate the former one."""
    return dg.AutomationConditionSensorDefinition(
        sensor.name,
        target=selection,
        tags=sensor.tags,
        run_tags=sensor.run_tags,
        default_status=sensor.default_status,
        minimum_interval_seconds=sensor.minimum_interval_seconds,
        description=sensor.description,
        metadata=sensor.metadata,
        emit_backfills=sensor.emit_backfills,
        use_user_code_server=evaluates_in_code_server(sensor),
        default_condition=sensor.default_condition,
    )
