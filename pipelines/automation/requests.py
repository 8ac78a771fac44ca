"""From decisions to runs: what shares one, and what is asked for as a range.

Belongs here: which runs to ask for, given which partitions are to be asked for. Does not belong here: which are.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from pipelines.automation.decisions import Decision, Request, State
from pipelines.automation.graph import Graph, Node, Target
from pipelines.automation.history import History
from pipelines.sources.feed import Partition

SINGLES = 8
"""More due partitions of an asset than this are asked for as ranges: one run each instead of one a partition."""

_RANGES_PER_TICK = 8
_SHARE_OF_A_REBUILD = 4
_LONGEST_REBUILD = 900.0


@dataclass
class Requests:
    """The runs for what the planner found due."""

    graph: Graph
    history: History

    def of(
        self, decisions: Mapping[Target, Decision], *, rebuilding: bool
    ) -> tuple[list[Request], dict[Target, Decision]]:
        """The runs to ask for, and what the decisions about those become that are not asked for, or along with others.

        Args:
            rebuilding: Whether a run of the class rebuild is there already: there is one at a time, so that none
                queues with partitions that something could arrive for.
        """
        found = _Found(self.graph, self.history, decisions)
        for key in self.graph.nodes:
            found.arrivals(key)
        found.rebuild(allowed=not rebuilding)
        return found.requests, found.changed


class _Found:
    def __init__(self, graph: Graph, history: History, decisions: Mapping[Target, Decision]) -> None:
        self.graph, self.history, self.decisions = graph, history, decisions
        self.requests: list[Request] = []
        self.changed: dict[Target, Decision] = {}
        self.taken: set[Target] = set()
        self.arrived: dict[str, list[Partition]] = {}
        self.stale: dict[str, list[Partition]] = {}
        self.waiting: dict[Partition, set[str]] = {}
        for (key, partition), decision in decisions.items():
            if decision.state is State.REQUESTED:
                of = self.stale if decision.due_at is None else self.arrived
                of.setdefault(key, []).append(partition)
            elif decision.state is State.WAITING and decision.due_at is not None:
                self.waiting.setdefault(partition, set()).add(key)

    def arrivals(self, key: str) -> None:
        """The runs for an asset's due partitions, with whoever waits for just those."""
        node = self.graph.nodes[key]
        due = [p for p in self.arrived.get(key, ()) if (key, p) not in self.taken]
        newest_first = sorted(due, key=node.ordinal, reverse=True)
        alone = [p for p in newest_first if self._failed_often((key, p))]
        for held in alone[SINGLES:]:
            self._throttle((key, held))
        for partition in alone[:SINGLES]:
            self._ask(Request(self._joined(key, partition), (partition,)))
        self._together(node, [p for p in newest_first if not self._failed_often((key, p))])

    def rebuild(self, *, allowed: bool) -> None:
        """At most one run for what is stale by code alone: the newest partitions, and not for long."""
        for key in self.graph.nodes:
            stale = sorted(self.stale.get(key, ()), key=self.graph.nodes[key].ordinal, reverse=True)
            first = _runs(self.graph.nodes[key], [(p, ()) for p in stale])[:1] if allowed else []
            chosen = list(first[0][0][-self._most(key) :]) if first else []
            if chosen:
                allowed = False
                self._ask(Request((key,), tuple(chosen), as_range=True, rebuild=True))
            for partition in stale:
                if partition not in chosen:
                    self._throttle((key, partition), "one rebuild at a time, newest partitions first")

    def _most(self, key: str) -> int:
        bound = (self.graph.strictest or _LONGEST_REBUILD * _SHARE_OF_A_REBUILD) / _SHARE_OF_A_REBUILD
        return max(1, int(bound / self.history.stride(key)))

    def _together(self, node: Node, ordered: Sequence[Partition]) -> None:
        fresh = [p for p in ordered if (node.key, p) not in self.history.built]
        joined = [(p, self._joined(node.key, p)) for p in ordered]
        if node.conditional or not node.partitioned or (len(ordered) <= SINGLES and len(fresh) <= 1):
            for partition, assets in joined[:SINGLES]:
                self._ask(Request(assets, (partition,), conditional=node.conditional))
            for partition, _ in joined[SINGLES:]:
                self._throttle((node.key, partition))
            return
        ranges = [Request(assets, tuple(run), as_range=True) for run, assets in _runs(node, joined)]
        for request in ranges[:_RANGES_PER_TICK]:
            self._ask(request)
        for held in ranges[_RANGES_PER_TICK:]:
            for target in held.targets:
                self._throttle(target)

    def _joined(self, key: str, partition: Partition) -> tuple[str, ...]:
        """The asset, and all that wait for nothing but what is in the same run."""
        assets = [key]
        waiting = self.waiting.get(partition, set())
        for name in [n for n in self.graph.nodes if n in waiting] if waiting else ():
            node, decision = self.graph.nodes[name], self.decisions[(name, partition)]
            inside = {(asset, partition) for asset in assets}
            shared = all(read.joinable for read in node.inputs if (read.key, partition) in inside)
            if node.conditional or self.graph.nodes[key].conditional:
                continue
            if decision.wait_for and inside.issuperset(decision.wait_for) and shared and not decision.attempts:
                assets.append(name)
        return tuple(assets)

    def _ask(self, request: Request) -> None:
        self.requests.append(request)
        for target in request.targets:
            self.taken.add(target)
            decision = self.decisions[target]
            if decision.state is not State.REQUESTED:
                with_ = request.assets[0]
                self.changed[target] = replace(decision, state=State.REQUESTED, reason=f"in one run with {with_}")

    def _throttle(self, target: Target, reason: str = "newer partitions first") -> None:
        self.changed[target] = replace(self.decisions[target], state=State.THROTTLED, reason=reason)

    def _failed_often(self, target: Target) -> bool:
        # One bad partition would hold up its whole range for ever; alone it holds up itself.
        return self.decisions[target].attempts > 1


def _runs(
    node: Node, newest_first: Sequence[tuple[Partition, tuple[str, ...]]]
) -> list[tuple[list[Partition], tuple[str, ...]]]:
    """Consecutive partitions with the same assets together, oldest first in each, the newest run first."""
    runs: list[tuple[list[Partition], tuple[str, ...]]] = []
    for partition, assets in newest_first:
        if runs and runs[-1][1] == assets and node.ordinal(runs[-1][0][0]) - node.ordinal(partition) == 1:
            runs[-1][0].insert(0, partition)
        else:
            runs.append(([partition], assets))
    return runs
