"""Which automation sensor looks after which asset: Dagster's looks after 500 at most.

Belongs here: how the assets are divided. Does not belong here: the sensors (`automation.catch_up`).
"""

from collections.abc import Iterable, Mapping, Sequence

from pipelines.automation.graph import Node

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
            names[key] = FIRST if number == 1 else f"{FIRST}_{number}"
            room -= 1
    return names


def _groups(nodes: Sequence[Node]) -> list[list[str]]:
    """Assets that a chain of runs could join, each group in topological order, the groups by the first name in each."""
    above = {node.key: node.key for node in nodes}

    def _root(key: str) -> str:
        while above[key] != key:
            above[key] = key = above[above[key]]
        return key

    for node in nodes:
        joined = [read.key for read in node.inputs if read.joinable] + sorted(node.together)
        for other in joined:
            if other in above:
                above[_root(other)] = _root(node.key)
    groups: dict[str, list[str]] = {}
    for node in nodes:
        groups.setdefault(_root(node.key), []).append(node.key)
    return sorted(groups.values(), key=min)
