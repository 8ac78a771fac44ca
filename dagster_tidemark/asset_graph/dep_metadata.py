"""Stores metadata of dependencies where Dagster does not compare it.

Dagster builds the job of a run from the assets of the run and their inputs. If two of these assets read the same input
and the run does not build it, Dagster requires both dependencies to have equal metadata. Dagster cannot create the run
if one dependency has `ripple_days: 1` and the other has `use_latest`. The planner's metadata is therefore moved from
the dependency to the asset that reads the input.
"""

from collections.abc import Mapping
from typing import Any

import dagster as dg

from dagster_tidemark.asset_graph.declarations import ON_MISSING, OPTIONAL, RIPPLE_DAYS, USE_LATEST
from dagster_tidemark.tags import READS

_OURS = (RIPPLE_DAYS, USE_LATEST, OPTIONAL, ON_MISSING)


def with_dep_metadata_moved(spec: dg.AssetSpec) -> dg.AssetSpec:
    """Return the spec after moving the planner's metadata from its dependencies to the asset."""
    ours = {dep.asset_key.to_user_string(): _only(dep, ours=True) for dep in spec.deps}
    declared = {read: said for read, said in ours.items() if said}
    if not declared:
        return spec
    deps = [
        dg.AssetDep(dep.asset_key, partition_mapping=dep.partition_mapping, metadata=_only(dep, ours=False))
        for dep in spec.deps
    ]
    return spec.replace_attributes(deps=deps, metadata={**spec.metadata, READS: declared})


def dep_metadata(spec: dg.AssetSpec, parent: dg.AssetKey) -> dict[str, Any]:
    """Return the metadata of a dependency, from the dependency itself and from the asset."""
    said = spec.metadata.get(READS, {})
    moved: Mapping[str, Any] = getattr(said, "value", said)  # Dagster may have wrapped it
    found = dict(moved.get(parent.to_user_string(), {}))
    for dep in spec.deps:
        if dep.asset_key == parent:
            found |= dep.metadata or {}
    return found


def _only(dep: dg.AssetDep, *, ours: bool) -> dict[str, Any]:
    return {name: value for name, value in (dep.metadata or {}).items() if (name in _OURS) is ours}
