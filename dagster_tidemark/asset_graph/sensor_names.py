"""Assigns assets to automation sensors, because Dagster allows at most 500 assets per sensor.

Belongs here: distributing the assets. Does not belong here: the sensors (`sensors.automation`).
"""

from collections.abc import Iterable, Mapping, Sequence

from dagster_tidemark.planner.connected_components import connected
from dagster_tidemark.planner.graph import Node

FIRST = "automation"
MOST = 400
"""Maximum number of assets in one sensor. Dagster refuses more than 500 assets and checks with a condition."""


def sensor_names(nodes: Iterable[Node], most: int = MOST) -> Mapping[str, str]:
    """Return the sensor of each asset that is built here: `automation`, then `automation_2` and so on.

    Assets that can share a run get the same sensor if they fit into one. If an asset is added, only assets with later
    names may change their sensor.

    Args:
        nodes: The graph's nodes in topological order.
    """
    names: dict[str, str] = {}
    number, room = 1, most
    for group in _groups([node for node in nodes if not node.source]):
        if len(group) > room and room < most:
            number, room = number + 1, most
        for key in group:
            if room == 0:
                number, room = number + 1, most
            names[key] = numbered(FIRST, number)
            room -= 1
    return names


def numbered(name: str, number: int) -> str:
    """Return the name of the sensor with a number, which counts from 1: `name`, then `name_2` and so on."""
    return name if number == 1 else f"{name}_{number}"


def _groups(nodes: Sequence[Node]) -> list[list[str]]:
    """Return groups of assets that could share runs, each in topological order, sorted by the smallest name in each."""
    by_key = {node.key: node for node in nodes}

    def _near(key: str) -> list[str]:
        return [*(read.key for read in by_key[key].inputs if read.joinable), *by_key[key].together]

    return sorted(connected(by_key, _near), key=min)
