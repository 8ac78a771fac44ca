"""Dagster's graph of a code location's assets, and its plans of runs."""

from collections.abc import Iterable, Set
from typing import Any

import dagster as dg
from dagster._core.definitions.assets.graph.asset_graph import AssetGraph
from dagster._core.definitions.assets.graph.base_asset_graph import BaseAssetGraph
from dagster._core.definitions.assets.job.asset_job import IMPLICIT_ASSET_JOB_NAME
from dagster._core.execution.api import create_execution_plan

AnyGraph = BaseAssetGraph[Any]
"""Graph of assets and checks, of a code location or of a whole workspace."""


def graph_of_definitions(definitions: Iterable[Any]) -> AnyGraph:
    """Return the graph of a code location's assets and checks that Dagster will make after loading.

    `Definitions` is not used, because it would require all resources.
    """
    every = [dg.AssetsDefinition(specs=[each]) if isinstance(each, dg.AssetSpec) else each for each in definitions]
    return AssetGraph.from_assets(AssetGraph.normalize_assets(every))


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
