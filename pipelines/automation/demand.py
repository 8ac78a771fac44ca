"""When what is pending has to be run: by an asset's own contract, and by those who read it.

An asset without a contract runs as its consumers need; an input that several read runs at the strictest one's pace.

Belongs here: due times through the graph, from pending data and the learned duration of runs. Nothing here depends
on the time it is asked. Does not belong here: whether it can run (`automation.planner`).
"""

from dataclasses import dataclass, field

from pipelines.automation.contracts import Due, Pace, due
from pipelines.automation.graph import Graph, Node, Target
from pipelines.automation.history import History
from pipelines.automation.pending import Backlog, Pending


@dataclass(frozen=True, slots=True)
class Demand:
    """When a partition has to be run.

    Args:
        opens: From then on waiting brings nothing.
        latest: When it has to be asked for.
        for_: The asset whose contract asks for it.
    """

    opens: float
    latest: float
    for_: str

    @property
    def at(self) -> float:
        return min(self.opens, self.latest)

    def before(self, seconds: float) -> "Demand":
        """What this asks of an input that has to be run that much earlier.

        Where nothing later is required it may start then: earlier only if there would be too little time.
        """
        return Demand(self.opens, self.latest - seconds, self.for_)


@dataclass
class Demands:
    """The due times of everything pending, computed when asked for."""

    graph: Graph
    history: History
    backlog: Backlog
    margin: float
    _known: dict[tuple[Target, float], Demand | None] = field(default_factory=dict)

    def of(self, target: Target, arrival: float) -> Demand | None:
        """When a partition has to run for data that arrived at a time; None if nothing and nobody needs it."""
        at = (target, arrival)
        if at not in self._known:
            self._known[at] = None  # a graph has no cycles; a partition that reads its own past ends here
            self._known[at] = self._find(target, arrival)
        return self._known[at]

    def own(self, target: Target, arrival: float) -> Due | None:
        """The due time by the asset's own contract."""
        node, pending = self.graph.nodes[target[0]], self.backlog.get(target)
        if node.contract is None or pending is None:
            return None
        window, pace = node.window(target[1]), self.pace(node.key)
        if pending.built or pending.arrival is None or arrival > pending.arrival:
            # A first build is promised with the data that makes it possible; what comes after that has its own time.
            return due(node.contract, arrival, window, pace)
        return due(node.contract, pending.arrival, window, pace, built=False)

    def pace(self, asset: str) -> Pace:
        """How long the asset takes to run, and to start."""
        return Pace(self.history.lead(asset), self.margin)

    def _find(self, target: Target, arrival: float) -> Demand | None:
        node = self.graph.nodes[target[0]]
        found = [] if (own := self._by_itself(node, target, arrival)) is None else [own]
        for read, reader, pending in self.backlog.readers(target):
            if target not in pending.behind or pending.absent or pending.unchanged:
                continue
            earlier = 0.0 if read.joinable else self.history.lead(node.key) + self.margin
            needed = self.of(reader, arrival)
            if needed is not None:
                found.append(needed.before(earlier))
            together = self._together_with(target, reader, pending, earlier)
            if together is not None:
                found.append(together)
        if not found:
            return None
        strictest = min(found, key=lambda demand: demand.at)
        return Demand(min(d.opens for d in found), min(d.latest for d in found), strictest.for_)

    def _by_itself(self, node: Node, target: Target, arrival: float) -> Demand | None:
        if node.asap:
            return Demand(arrival, arrival, node.key)
        own = self.own(target, arrival)
        return None if own is None else Demand(own.opens, own.latest, node.key)

    def _together_with(self, target: Target, reader: Target, pending: Pending, earlier: float) -> Demand | None:
        """What asks an input to run once more before a reader that is going to run anyway, for other data.

        Once: what arrives after that is only waited for if the reader's contract needs it, or an input that keeps
        changing would hold its reader up for ever.
        """
        if pending.arrival is None:
            return None
        needed = self.of(reader, pending.arrival)
        if needed is None:
            return None
        wanted = needed.before(earlier)
        built = self.history.built.get(target)
        return wanted if built is None or built.started_at < wanted.at else None
