"""Models: assets that read all partitions of an input, and are fitted once for all partitions.

A model waits until no partition of its inputs is stale, and readers wait for the model. Does not belong here: the end
of a reader's wait at its latest start (`planner.waiting`).
"""

from dataclasses import dataclass, field

from dagster_tidemark.planner.graph import Graph, Node, Target
from dagster_tidemark.planner.history import History
from dagster_tidemark.planner.staleness import PendingWork


@dataclass
class Refits:
    """Progress of rebuilding the inputs of models, at one time. It is counted once per model, for all readers."""

    graph: Graph
    history: History
    backlog: PendingWork
    _told: dict[str, str] = field(default_factory=dict)

    def wait(self, node: Node) -> tuple[str, tuple[Target, ...]] | None:
        """Return why an asset waits for a rebuild to end, with the model it waits for, or None if it does not wait."""
        if node.key in self.graph.models and (told := self._rebuilt_so_far(node)):
            return f"its inputs are being rebuilt, {told}", ()
        for read in node.inputs:
            model = self.backlog.get((read.key, None)) if read.key in self.graph.models else None
            if model is not None and model.has_stale_upstream:
                told = self._rebuilt_so_far(self.graph.nodes[read.key])
                reason = f"model {read.key} is being refitted" + (f", {told}" if told else "")
                return reason, ((read.key, None),)
        return None

    def _rebuilt_so_far(self, model: Node) -> str:
        if model.key not in self._told:
            inputs = [read.key for read in model.inputs if read.upstream is None]
            stale = sum(
                pending.has_stale_upstream for key in inputs for pending in self.backlog.of.get(key, {}).values()
            )
            known = self.history.known
            built = sum((key, p) in self.history.built for key in inputs for p in known.get(key, ())) if stale else 0
            self._told[model.key] = f"{max(0, built - stale)} of {built}" if stale else ""
        return self._told[model.key]
