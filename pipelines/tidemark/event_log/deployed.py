"""What the assets of the deployed code declare, kept in the instance's own storage for `pipelines plan`."""

import json
from collections.abc import Mapping

from dagster import DagsterInstance

from pipelines.tidemark.event_log import adapter
from pipelines.tidemark.planner.code_changes import Declared, declared
from pipelines.tidemark.planner.graph import Graph
from pipelines.tidemark.tags import DEPLOYED


def keep(instance: DagsterInstance, home: tuple[str | None, str | None], graph: Graph) -> None:
    """From now on this is the deployed code of a code location.

    Args:
        home: Its name, and that of its repository.
    """
    adapter.save(instance, DEPLOYED + "/".join(str(part) for part in home), json.dumps(declared(graph)))


def kept(instance: DagsterInstance, graph: Graph) -> Mapping[str, Declared]:
    """By asset what the deployed code declares that shares most assets with a graph; empty where none shares any."""
    found: Mapping[str, Declared] = {}
    for text in adapter.saved_under(instance, DEPLOYED).values():
        said = json.loads(text)
        if len(said.keys() & graph.nodes) > len(found.keys() & graph.nodes):
            found = said
    return found
