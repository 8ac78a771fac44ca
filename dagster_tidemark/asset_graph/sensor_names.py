"""Which automation sensor looks after which asset: Dagster's looks after 500 at most.

Belongs here: how the assets are divided. Does not belong here: the sensors (`sensors.automation`).
"""

from collections.abc import Iterable, Mapping, Sequence

from dagster_tidemark.planner.connected_components import connected
from dagster_tidemark.planner.graph import Node

FIRST = "automation"
MOST = 400
"""Assets in one sensor. Dagster refuses above 500 assets and checks that have a condition."""


def sensor_names(nodes: Iterable[Node], most: int = MOST) -> Mapping[str, str]:
    """From each asset that is built here to its sensor: `automation`, then `automation_2` and so on.

    Assets that can be built in one run stay together if they fit into one sensor. An asset more moves those that come
    after it by name, and none before.

    Args:
        nodes: In topological order.
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
    """The name of the first, second ... sensor of a kind."""
    return name if number == 1 else f"{name}_{number}"


def _groups(nodes: Sequence[Node]) -> list[list[str]]:
    """Assets that a chain of runs could join, each group in topological order, the groups by the first name in each."""
    by_key = {node.key: node for node in nodes}

    def _near(key: str) -> list[str]:
        return [*(read.key for read in by_key[key].inputs if read.joinable), *by_key[key].together]

    return sorted(connected(by_key, _near), key=min)
