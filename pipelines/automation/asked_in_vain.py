"""What a code server asked for in vain, kept in the instance's own storage: other processes ask for nothing themselves.

A run that Dagster could not make, and a condition that raised, are known where the sensors tick. `pipelines status` is
another process, which would go on to show as requested what is set aside.
"""

import json
from collections.abc import Mapping

from dagster import DagsterInstance

from pipelines.automation import adapter
from pipelines.automation.graph import Graph, Target

_PREFIX = "tidemark/asked_in_vain/"


def keep(instance: DagsterInstance, home: tuple[str | None, str | None], aside: Mapping[Target, str]) -> None:
    """Replace what was kept of a code location.

    Args:
        home: Its name, and that of its repository.
    """
    name = "/".join(str(part) for part in home)
    adapter.save(instance, _PREFIX + name, json.dumps([[*target, why] for target, why in aside.items()]))


def kept(instance: DagsterInstance, graph: Graph) -> dict[Target, str]:
    """From a target of the graph to why asking for it is in vain; (asset, None) stands for all of an asset."""
    told = [row for text in adapter.saved_under(instance, _PREFIX).values() for row in json.loads(text)]
    return {(asset, partition): why for asset, partition, why in told if asset in graph.nodes}
