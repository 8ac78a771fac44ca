"""Models: assets that read all partitions of an input, and are fitted once for all of them.

A model waits for the last stale partition of its inputs, and those who read it wait for the model. Does not belong
here: until when (`automation.planner`: not past their own deadline).
"""

from pipelines.automation.graph import Graph, Node, Target
from pipelines.automation.history import History
from pipelines.automation.pending import Backlog


def wait(graph: Graph, history: History, backlog: Backlog, node: Node) -> tuple[str, tuple[Target, ...]] | None:
    """Why an asset waits for a rebuild to end, and for which model; None if it need not."""
    if node.key in graph.models and (told := _rebuilt_so_far(history, backlog, node)):
        return f"its inputs are being rebuilt, {told}", ()
    for read in node.inputs:
        model = backlog.get((read.key, None))
        if read.key in graph.models and model is not None and model.restless:
            told = _rebuilt_so_far(history, backlog, graph.nodes[read.key])
            reason = f"model {read.key} is being refitted" + (f", {told}" if told else "")
            return reason, ((read.key, None),)
    return None


def _rebuilt_so_far(history: History, backlog: Backlog, model: Node) -> str:
    inputs = [read.key for read in model.inputs if read.upstream is None]
    stale = sum(pending.restless for key in inputs for pending in backlog.of.get(key, {}).values())
    built = sum((key, p) in history.built for key in inputs for p in history.known.get(key, ()))
    return f"{max(0, built - stale)} of {built}" if stale else ""
