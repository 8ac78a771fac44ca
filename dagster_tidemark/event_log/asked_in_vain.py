"""Failed requests of code servers, kept in the instance's own storage for other processes.

Only the process of the sensors knows that Dagster could not make a run, or that a condition raised an error. Without
this record, `tidemark status`, a separate process, would show such targets as requested although they are set aside.
"""

import json
from collections.abc import Collection, Mapping
from typing import Any

from dagster import DagsterInstance

from dagster_tidemark.dagster_internals import instance_store
from dagster_tidemark.planner.graph import Graph, Target
from dagster_tidemark.tags import ASKED_IN_VAIN


def keep(
    instance: DagsterInstance,
    home: tuple[str | None, str | None],
    aside: Mapping[Target, str],
    unplannable: Mapping[str, str],
    ours: Collection[str],
) -> None:
    """Replace the record of a code location, and remove its assets from the records of its former names.

    Args:
        home: The names of the code location and its repository.
        aside: Reason why requests fail, by target; (asset, None) means the whole asset.
        unplannable: Reason why an asset's runs cannot be planned, by asset.
        ours: The assets that this location builds. No other location on the instance builds them.
    """
    name = ASKED_IN_VAIN + "/".join(str(part) for part in home)
    said = {"aside": [[*target, why] for target, why in aside.items()], "unplannable": dict(unplannable)}
    instance_store.save(instance, name, json.dumps(said))
    for other, text in instance_store.saved_under(instance, ASKED_IN_VAIN).items():
        before = _read(text)
        left = {
            "aside": [row for row in before["aside"] if row[0] not in ours],
            "unplannable": {asset: why for asset, why in before["unplannable"].items() if asset not in ours},
        }
        if other != name and left != before:
            instance_store.save(instance, other, json.dumps(left))


def kept(instance: DagsterInstance, graph: Graph) -> tuple[dict[Target, str], dict[str, str]]:
    """Return the `aside` and `unplannable` values of all code locations, limited to the graph's assets."""
    said = [_read(text) for text in instance_store.saved_under(instance, ASKED_IN_VAIN).values()]
    aside = {(asset, partition): why for each in said for asset, partition, why in each["aside"]}
    unplannable = {asset: why for each in said for asset, why in each["unplannable"].items()}
    return (
        {target: why for target, why in aside.items() if target[0] in graph.nodes},
        {asset: why for asset, why in unplannable.items() if asset in graph.nodes},
    )


def _read(text: str) -> dict[str, Any]:
    """Read a record. A record of another release is empty."""
    try:
        found = json.loads(text)
        aside = [[asset, partition, str(why)] for asset, partition, why in found["aside"]]
        return {"aside": aside, "unplannable": dict(found["unplannable"])}
    except instance_store.UNREADABLE:
        return {"aside": [], "unplannable": {}}
