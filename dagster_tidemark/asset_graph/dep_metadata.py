"""What a dependency declares of itself, kept where Dagster does not compare it.

Dagster builds the job of a run from the assets in it and what these read. Of an asset that two of them name and that is
not in the job itself, all dependencies must have the same metadata: with `ripple_days: 1` here and `use_latest` there,
no such run can be made. So what the planner reads off a dependency moves to the asset that declares it.
"""

from collections.abc import Mapping
from typing import Any

import dagster as dg

from dagster_tidemark.asset_graph.declarations import OPTIONAL, RIPPLE_DAYS, USE_LATEST
from dagster_tidemark.tags import READS

_OURS = (RIPPLE_DAYS, USE_LATEST, OPTIONAL)


def with_dep_metadata_moved(spec: dg.AssetSpec) -> dg.AssetSpec:
    """Return the spec with `ripple_days`, `use_latest` and `optional` of its dependencies in its own metadata."""
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
    """What an asset declares of one that it reads, moved or not."""
    said = spec.metadata.get(READS, {})
    moved: Mapping[str, Any] = getattr(said, "value", said)  # Dagster may have wrapped it
    found = dict(moved.get(parent.to_user_string(), {}))
    for dep in spec.deps:
        if dep.asset_key == parent:
            found |= dep.metadata or {}
    return found


def _only(dep: dg.AssetDep, *, ours: bool) -> dict[str, Any]:
    return {name: value for name, value in (dep.metadata or {}).items() if (name in _OURS) is ours}
