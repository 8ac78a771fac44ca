"""Dagster's graph of a code location's assets, its plans of runs, and changed selections of assets."""

from collections.abc import Iterable, Set
from typing import Any

import dagster as dg
from dagster._core.definitions.assets.definition.asset_spec import SYSTEM_METADATA_KEY_AUTO_CREATED_STUB_ASSET as _STUB
from dagster._core.definitions.assets.graph.asset_graph import AssetGraph
from dagster._core.definitions.assets.graph.base_asset_graph import BaseAssetGraph
from dagster._core.definitions.assets.job.asset_job import IMPLICIT_ASSET_JOB_NAME
from dagster._core.execution.api import create_execution_plan

from dagster_tidemark.dagster_internals.record_copies import changed

AnyGraph = BaseAssetGraph[Any]
"""Graph of assets and checks, of a code location or of a whole workspace."""


def graph_of_definitions(definitions: Iterable[Any]) -> AnyGraph:
    """Return the graph of a code location's assets and checks that Dagster will make after loading.

    `Definitions` is not used, because it would require all resources.
    """
    every = [dg.AssetsDefinition(specs=[each]) if isinstance(each, dg.AssetSpec) else each for each in definitions]
    return AssetGraph.from_assets(AssetGraph.normalize_assets(every))


def undeclared(graph: AnyGraph) -> set[str]:
    """Return the assets that only dependencies name. Dagster adds an external asset for each."""
    return {key.to_user_string() for key in graph.get_all_asset_keys() if _STUB in graph.get(key).metadata}


def plan_run(
    repository: dg.RepositoryDefinition, assets: Set[dg.AssetKey], checks: Set[dg.AssetCheckKey] | None
) -> None:
    """Plan a run without config, as a code server does when the daemon asks for it (dagster/_grpc/impl.py).

    Args:
        checks: The checks to run; None means all checks of the assets.

    Raises:
        Exception: the run cannot be planned. The type is open, because resources, loggers and executors are user code.
    """
    job = repository.get_maybe_subset_job_def(
        IMPLICIT_ASSET_JOB_NAME, asset_selection=assets, asset_check_selection=checks
    )
    create_execution_plan(job, run_config={})


_KEYS = type(dg.AssetSelection.assets("any"))


def is_list_of_keys(selection: dg.AssetSelection) -> bool:
    """Return True if a selection lists its assets by their keys."""
    return isinstance(selection, _KEYS)


def without_assets(selection: dg.AssetSelection, added: dg.AssetSelection) -> dg.AssetSelection:
    """Return a selection that selects what it would select if the added assets did not exist.

    Lists of keys inside it stay. The added assets are left out before `sinks` and `roots` look at the graph: an asset
    that only an added asset reads is still a sink.

    Args:
        added: The assets by their keys.
    """
    if is_list_of_keys(selection):
        return selection
    parts = {name: getattr(selection, name) for name in ("left", "right") if hasattr(selection, name)}
    inner: dict[str, object] = {name: without_assets(part, added) for name, part in parts.items()}
    if hasattr(selection, "operands"):
        inner["operands"] = [without_assets(each, added) for each in selection.operands]
    if inner:
        return changed(selection, **inner)
    if hasattr(selection, "child"):
        selection = changed(selection, child=without_assets(selection.child, added))
    return selection - added
