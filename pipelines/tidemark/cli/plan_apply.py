"""`pipelines plan --apply`: the running code location takes the code of this folder, and what follows is watched.

Deploying is all there is to launch: the sensors ask for what a plan lists. Does not belong here: the plan.
"""

import json
import time
import urllib.request

from dagster import DagsterInstance
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from pipelines.tidemark import location
from pipelines.tidemark.asset_graph.build import graph_of
from pipelines.tidemark.engine.code_plan import CodePlan, plan_of
from pipelines.tidemark.errors import Terminal, Transient
from pipelines.tidemark.event_log import deployed
from pipelines.tidemark.planner.code_changes import declared
from pipelines.tidemark.settings import Settings

_LOOK_SECONDS = 3.0
_DEPLOYED_WITHIN = 120.0
_RELOAD = "mutation { reloadWorkspace { __typename ... on PythonError { message } } }"


class NoWebserver(Transient):
    """The webserver of the platform does not answer, so it cannot be told to load the code anew."""


class OtherCode(Terminal):
    """The running code location was loaded anew and is not the code of this folder."""


def apply(settings: Settings, plan: CodePlan) -> None:
    """Have the code location loaded anew, and show how much of a plan is done, until all is that nothing holds.

    Raises:
        NoWebserver: nobody answers who could load it.
        OtherCode: the sensors run other code than this.
    """
    _reload(f"http://127.0.0.1:{settings.port_ui}/graphql")
    definitions = location.definitions(settings)
    targets = {r.target for asset in plan.assets for r in asset.rebuilds if not r.held}
    with DagsterInstance.get() as instance:
        _wait_for_code(instance, settings)
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


def _reload(url: str) -> None:
    request = urllib.request.Request(url, json.dumps({"query": _RELOAD}).encode(), {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=_DEPLOYED_WITHIN) as reply:
            said = json.load(reply)["data"]["reloadWorkspace"]
    except (OSError, LookupError, TypeError, ValueError) as error:
        raise NoWebserver(
            f"the webserver at {url} does not load the code anew: {error}; deploy it as you always do, and the sensors "
            "do the rest"
        ) from error
    if said["__typename"] == "PythonError":
        raise OtherCode(f"the code cannot be loaded: {said['message'].strip()}")


def _wait_for_code(instance: DagsterInstance, settings: Settings) -> None:
    graph = graph_of(location.asset_graph(settings), contract_scale=settings.contract_scale)
    until = time.monotonic() + _DEPLOYED_WITHIN
    while deployed.kept(instance, graph) != declared(graph):
        if time.monotonic() > until:
            raise OtherCode(
                "the code location was loaded anew, and its sensors see other assets than this folder has: is it "
                "deployed from elsewhere, or are its sensors off?"
            )
        time.sleep(1.0)
