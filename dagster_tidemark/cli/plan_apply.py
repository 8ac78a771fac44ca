"""`tidemark plan --apply`: reload the running code location with this folder's code, and show the progress of the plan.

The platform's webserver reloads the code. This module launches no runs: after the reload the sensors request the runs
of the plan. Does not belong here: making the plan (`cli.plan_view`).
"""

import json
import time
import urllib.request
from typing import Any

import typer
from dagster import DagsterInstance
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from dagster_tidemark import location
from dagster_tidemark.asset_graph.planner_graph import graph_of
from dagster_tidemark.cli.storage import opened_instance
from dagster_tidemark.engine.code_plan import CodePlan, plan_of
from dagster_tidemark.errors import Terminal, Transient
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
    typer.echo("reloading the code location, then waiting until its sensors see this code", err=True)
    reload_code(settings)
    definitions = location.definitions(settings)
    targets = {r.target for asset in plan.assets for r in asset.rebuilds if not r.held}
    with opened_instance() as instance:
        wait_for_code(instance, planned_graph(settings), settings)
        typer.echo("loaded" if targets else "loaded; nothing has to be rebuilt", err=True)
        if not targets:
            return
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


_WITHIN = 120.0
_RELOAD = "mutation { reloadWorkspace { __typename ... on PythonError { message } } }"


class NoWebserver(Transient):
    """The platform's webserver does not answer, or answers with an error."""


class OtherCode(Terminal):
    """After a reload the running code location still does not have this folder's code."""


def reload_code(settings: Settings) -> None:
    """Reload the code locations of the platform on this host.

    Raises:
        NoWebserver: the webserver does not answer.
        OtherCode: the code cannot be loaded.
    """
    url = f"http://127.0.0.1:{settings.port_ui}/graphql"
    request = urllib.request.Request(url, json.dumps({"query": _RELOAD}).encode(), {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=_WITHIN) as reply:
            answer: dict[str, Any] = json.load(reply)["data"]["reloadWorkspace"]
    except (OSError, LookupError, TypeError, ValueError) as error:
        raise NoWebserver(
            f"the webserver at {url} does not answer: {error}; the code was not reloaded: deploy it in your usual way, "
            "and the sensors request the runs"
        ) from error
    if answer["__typename"] == "PythonError":
        raise OtherCode(f"the code cannot be loaded: {answer['message'].strip()}")
