"""`tidemark plan --apply`: reload the running code location with this folder's code, and show the progress of the plan.

This module launches no runs: after the reload the sensors request the runs of the plan. Does not belong here: making
the plan (`cli.plan_view`).
"""

import time

from dagster import DagsterInstance
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from dagster_tidemark import location
from dagster_tidemark.asset_graph.planner_graph import graph_of
from dagster_tidemark.cli.storage import opened_instance
from dagster_tidemark.cli.webserver import OtherCode, reload_code
from dagster_tidemark.engine.code_plan import CodePlan, plan_of
from dagster_tidemark.event_log import deployed
from dagster_tidemark.planner.code_changes import declared
from dagster_tidemark.planner.graph import Graph
from dagster_tidemark.settings import Settings

_LOOK_SECONDS = 3.0
_LOOK_FOR_CODE_SECONDS = 0.2
_DEPLOYED_WITHIN = 120.0
_OTHER_ASSETS = (
    "the code location was reloaded, but its sensors see other assets than this folder declares: check that it is "
    "deployed from this folder, and that its sensors are on"
)
# `dagster api grpc` imports the code once: a reload only reads its definitions again.
_KEEPS_ITS_CODE = (
    "expected the sensors to run this folder's code, but the code server keeps its code until it is replaced: deploy "
    "this folder's code as usual, then repeat this command"
)


def apply(settings: Settings, plan: CodePlan) -> None:
    """Reload the code location, and show the progress until all partitions of the plan are rebuilt or held back.

    Raises:
        NoWebserver: no webserver answers, so this code cannot be loaded.
        OtherCode: the sensors do not run the code of this folder.
    """
    reload_code(settings)
    definitions = location.definitions(settings)
    targets = {r.target for asset in plan.assets for r in asset.rebuilds if not r.held}
    with opened_instance() as instance:
        wait_for_code(instance, planned_graph(settings), settings)
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        with Progress(*columns) as progress:
            task = progress.add_task("partitions", total=len(targets))
            while True:
                now = plan_of(definitions, instance, contract_scale=settings.contract_scale)
                left = {r.target for asset in now.assets for r in asset.rebuilds} | now.under_way
                progress.update(task, completed=len(targets - left))
                if not targets & left:
                    return
                time.sleep(_LOOK_SECONDS)


def planned_graph(settings: Settings) -> Graph:
    """Return the planner's graph of this folder's code."""
    return graph_of(location.asset_graph(settings), contract_scale=settings.contract_scale)


def wait_for_code(instance: DagsterInstance, graph: Graph, settings: Settings) -> None:
    """Wait until the sensors see the code of this folder.

    Raises:
        OtherCode: the sensors still see other code after two minutes.
    """
    until = time.monotonic() + _DEPLOYED_WITHIN
    while deployed.kept(instance, graph) != declared(graph):
        if time.monotonic() > until:
            raise OtherCode(_KEEPS_ITS_CODE if settings.environment == "production" else _OTHER_ASSETS)
        time.sleep(_LOOK_FOR_CODE_SECONDS)
