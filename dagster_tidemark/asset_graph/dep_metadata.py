"""Metadata of dependencies, stored where Dagster does not compare it.

Dagster builds the job of a run from its assets and their inputs. If two assets read an input that the run does not
build, Dagster requires both dependencies to have the same metadata. With `ripple_days: 1` on one and `use_latest` on
the other, Dagster cannot make the run. The planner's metadata therefore moves from a dependency to its asset.
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
    """Return an asset's metadata of a dependency, moved or not."""
    said = spec.metadata.get(READS, {})
    moved: Mapping[str, Any] = getattr(said, "value", said)  # Dagster may have wrapped it
    found = dict(moved.get(parent.to_user_string(), {}))
    for dep in spec.deps:
        if dep.asset_key == parent:
            found |= dep.metadata or {}
    return found


def _only(dep: dg.AssetDep, *, ours: bool) -> dict[str, Any]:
    return {name: value for name, value in (dep.metadata or {}).items() if (name in _OURS) is ours}
