"""What a code server asked for in vain, kept in the instance's own storage: other processes ask for nothing themselves.

A run that Dagster could not make, and a condition that raised, are known where the sensors tick. `tidemark status` is
another process, which would go on to show as requested what is set aside.
"""

import json
from collections.abc import Collection, Mapping

from dagster import DagsterInstance

from dagster_tidemark.event_log import adapter
from dagster_tidemark.planner.graph import Graph, Target
from dagster_tidemark.tags import ASKED_IN_VAIN


def keep(
    instance: DagsterInstance,
    home: tuple[str | None, str | None],
    aside: Mapping[Target, str],
    unplannable: Mapping[str, str],
    ours: Collection[str],
) -> None:
    """Replace what was kept of a code location, and of its assets under whatever name it had before.

    Args:
        home: Its name, and that of its repository.
        aside: From a target to why asking for it is in vain; (asset, None) stands for all of an asset.
        unplannable: From an asset to why no run of it can be planned.
        ours: The assets that are built here: two locations on one instance build none both.
    """
    name = ASKED_IN_VAIN + "/".join(str(part) for part in home)
    said = {"aside": [[*target, why] for target, why in aside.items()], "unplannable": dict(unplannable)}
    adapter.save(instance, name, json.dumps(said))
    for other, text in adapter.saved_under(instance, ASKED_IN_VAIN).items():
        before = json.loads(text)
        left = {
            "aside": [row for row in before["aside"] if row[0] not in ours],
            "unplannable": {asset: why for asset, why in before["unplannable"].items() if asset not in ours},
        }
        if other != name and left != before:
            adapter.save(instance, other, json.dumps(left))


def kept(instance: DagsterInstance, graph: Graph) -> tuple[dict[Target, str], dict[str, str]]:
    """`aside` and `unplannable` of `keep`, of all code locations, as far as it is about assets of the graph."""
    said = [json.loads(text) for text in adapter.saved_under(instance, ASKED_IN_VAIN).values()]
    aside = {(asset, partition): why for each in said for asset, partition, why in each["aside"]}
    unplannable = {asset: why for each in said for asset, why in each["unplannable"].items()}
    return (
        {target: why for target, why in aside.items() if target[0] in graph.nodes},
        {asset: why for asset, why in unplannable.items() if asset in graph.nodes},
    )
