"""Checks and changes by `extend` of the definitions of an existing code location.

They are checked before and after Tidemark's definitions are made, hand over the assets that Tidemark automates, and
keep what their jobs, schedules and sensors select. `AssetSelection.all()`, a group or everything downstream of an asset
would otherwise include the assets of `extend`. An asset job would run them too, or could not be resolved because their
partitions differ. Two automation sensors would select the same asset, which Dagster refuses. A selection that lists
asset keys is not changed.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import dagster as dg

from dagster_tidemark.dagster_internals.asset_graph import is_list_of_keys, without_assets
from dagster_tidemark.dagster_internals.record_copies import changed
from dagster_tidemark.dagster_internals.sensor_states import evaluates_in_code_server, with_selection
from dagster_tidemark.table_partitions import DeclarationRefused, keys_of
from dagster_tidemark.tags import IO_MANAGER, PREFIX

_REMEDY = "rename it (docs/existing-location.md lists what Tidemark adds)"
_AssetJob = type(dg.define_asset_job("any"))
_Given = TypeVar("_Given")


def require_plain(defs: Any) -> None:
    """Raise if `extend` cannot take these definitions.

    Raises:
        DeclarationRefused: they are no `Definitions`, or Tidemark's definitions are already among them.
    """
    if isinstance(defs, dg.RepositoryDefinition):
        raise DeclarationRefused(
            f"extend: expected Definitions, found the repository {defs.name}: pass a dg.Definitions with the assets, "
            "jobs, schedules, sensors and resources that it returns, in place of the repository"
        )
    if not isinstance(defs, dg.Definitions):
        inside = "; if a function gives them, call extend in it: `return extend(..., load_settings())`"
        raise DeclarationRefused(f"extend: expected Definitions, found {type(defs).__name__}{inside}")
    if IO_MANAGER in (defs.resources or {}) and f"{PREFIX}lakehouse" in (defs.resources or {}):
        raise DeclarationRefused(
            "extend: these definitions already contain Tidemark's, from extend or build_definitions: call it once, "
            "with all assets, tables, feeds and streams that you add"
        )


def handed_over(defs: dg.Definitions, assets: Sequence[Any]) -> tuple[dg.Definitions, list[Any]]:
    """Return definitions without the given assets, and these assets as the location has them.

    `load_assets_from_package_module` also finds the assets that a module adds. Its copies may have more attributes.
    """
    found, left = list(assets), []
    for theirs in defs.assets or ():
        number = next((n for n, each in enumerate(assets) if _is_same(each, theirs)), None)
        if number is None:
            left.append(theirs)
        else:
            found[number] = theirs
    return (defs, found) if len(left) == len(list(defs.assets or ())) else (changed(defs, assets=left), found)


def _is_same(one: Any, other: Any) -> bool:
    """Return True if two assets are the same declaration, perhaps with other attributes."""
    if isinstance(one, dg.AssetsDefinition) and isinstance(other, dg.AssetsDefinition):
        is_same_code = one is other or (one.is_executable and other.is_executable and one.node_def is other.node_def)
        return is_same_code and set(one.keys) == set(other.keys)
    if isinstance(one, dg.SourceAsset) and isinstance(other, dg.SourceAsset):
        return one is other or (
            one.key == other.key and one.observe_fn is not None and one.observe_fn is other.observe_fn
        )
    return one is other or (isinstance(one, dg.AssetSpec) and isinstance(other, dg.AssetSpec) and one == other)


def require_free_names(theirs: dg.Definitions, ours: dg.Definitions, resources: Mapping[str, Any]) -> None:
    """Raise if the location uses a name of Tidemark's definitions.

    Dagster would refuse the location too, but often without naming the two places.

    Raises:
        DeclarationRefused: it does. The message has a line for each name.
    """
    lines = [
        f"{what} of this code location has a name that Tidemark adds; {_REMEDY}"
        for what in _names(theirs, theirs.resources or {}) & _names(ours, resources)
    ]
    nodes = {} if lines else _nodes(theirs)  # the op of an asset with the same key would only repeat the line
    for name, (node, place) in (_nodes(ours) if nodes else {}).items():
        if name in nodes and nodes[name][0] is not node:
            lines.append(
                f"op {name} of {nodes[name][1]} has the name of an op that Tidemark adds for {place}; rename one"
            )
    if lines:
        raise DeclarationRefused("\n".join(sorted(lines)))


def _names(defs: dg.Definitions, resources: Iterable[str]) -> set[str]:
    """Return the kinds and names of definitions. Sensors and schedules share their names."""
    every = [*(defs.assets or ()), *(defs.asset_checks or ())]
    checks = [key for each in every if isinstance(each, dg.AssetsDefinition) for key in each.check_keys]
    return {
        *(f"resource {name}" for name in resources),
        *(f"sensor or schedule {each.name}" for each in (*(defs.sensors or ()), *(defs.schedules or ()))),
        *(f"job {job.name}" for job in _jobs(defs)),
        *(f"asset {key.to_user_string()}" for key in keys_of(every)),
        *(f"check {key.name} of asset {key.asset_key.to_user_string()}" for key in checks),
    }


def _jobs(defs: dg.Definitions) -> Iterator[Any]:
    """Yield the jobs of definitions, including jobs that are declared only in a schedule or a sensor."""
    yield from defs.jobs or ()
    for schedule in defs.schedules or ():
        if not isinstance(schedule, dg.ScheduleDefinition) or schedule.has_job:
            yield schedule.job
    for sensor in defs.sensors or ():
        if sensor.has_jobs:
            yield from sensor.jobs


def _nodes(defs: dg.Definitions) -> dict[str, tuple[Any, str]]:
    """Return each op and graph by name, with the asset, check or job that it belongs to."""
    found: dict[str, tuple[Any, str]] = {}
    for asset in (*(defs.assets or ()), *(defs.asset_checks or ())):
        if isinstance(asset, dg.AssetsDefinition) and asset.is_executable:
            keys: list[dg.AssetKey | dg.AssetCheckKey] = [*asset.keys, *asset.check_keys]
            found |= {node.name: (node, f"asset {keys[0].to_user_string()}") for node in _within(asset.node_def)}
    for job in _jobs(defs):
        if isinstance(job, dg.JobDefinition | dg.GraphDefinition):
            graph = job.graph if isinstance(job, dg.JobDefinition) else job
            found |= {node.name: (node, f"job {job.name}") for node in _within(graph)}
    return found


def _within(node: Any) -> Iterator[Any]:
    """Yield a node, and all nodes in it if it is a graph."""
    yield node
    if isinstance(node, dg.GraphDefinition):
        for each in node.node_defs:
            yield from _within(each)


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
