"""The contracts of a code location that cannot be kept, looked for now and then, and each logged once after a load.

Does not belong here: the comparison (`planner.feasibility`).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from dagster_tidemark.dagster_internals.asset_graph import AnyGraph
from dagster_tidemark.engine.overview import windows_of
from dagster_tidemark.planner.feasibility import Obstacle, in_words, infeasible
from dagster_tidemark.planner.graph import Graph
from dagster_tidemark.planner.run_durations import RunDurations

_EVERY = 60.0
"""Seconds between two comparisons, which list the windows of eight days."""


@dataclass
class UnkeptContracts:
    """Contracts that cannot be kept, as last compared in this process."""

    _found: Mapping[str, Mapping[Obstacle, str]] = field(default_factory=dict)
    _of: Graph | None = None
    _until: float = float("-inf")
    _told: set[tuple[str, Obstacle]] = field(default_factory=set)

    def look(
        self, assets: AnyGraph, graph: Graph, durations: RunDurations, slots: int | None, now: float
    ) -> dict[str, str]:
        """Return why contracts cannot be kept even if nothing fails, by asset.

        They are compared again after a minute, and with new code.
        """
        # The time is more than a minute away only if the clock was set back.
        if graph is not self._of or not now < self._until <= now + _EVERY:
            self._found = infeasible(graph, durations, slots, windows_of(assets), now)
            self._of, self._until = graph, now + _EVERY
        return {asset: in_words(obstacles) for asset, obstacles in self._found.items()}

    def news(self) -> list[str]:
        """Return a line for each contract and kind of reason that was not returned before: each is logged once."""
        new = [
            (asset, kind, why)
            for asset, obstacles in self._found.items()
            for kind, why in obstacles.items()
            if (asset, kind) not in self._told
        ]
        self._told = {(asset, kind) for asset, obstacles in self._found.items() for kind in obstacles}
        return [f"{asset}: its contract cannot be kept: {why}" for asset, _, why in new]
