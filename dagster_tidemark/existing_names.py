"""Names and assets that an existing code location and Tidemark's additions both have.

Belongs here: the checks of `extend` before and after Tidemark's definitions are made, and the assets that the location
hands over. Does not belong here: selections of the location's jobs and sensors (`existing_location`).
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import dagster as dg

from dagster_tidemark.dagster_internals.record_copies import changed
from dagster_tidemark.table_partitions import DeclarationRefused, keys_of
from dagster_tidemark.tags import IO_MANAGER, PREFIX

_REMEDY = "rename it (docs/existing-location.md lists what Tidemark adds)"


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
