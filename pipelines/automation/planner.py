"""From history to decisions: what is due now, and together with what.

Pure: it asks nobody and changes nothing but its own set of what is settled. Level-triggered: something is due
because an input's content is newer than what the last materialization contains, however that came about.

This is the smallest form: every asset runs as soon as something is pending. Contracts on freshness come on top.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from pipelines.automation.graph import Graph, Input, Node, Target
from pipelines.automation.history import History
from pipelines.sources.feed import Partition

SINGLES = 8
"""More due partitions of an asset than this are asked for as ranges: one run each instead of one a partition."""

_RANGES_PER_TICK = 8
_FIRST_BACKOFF = 60.0
_LONGEST_BACKOFF = 3600.0


@dataclass(frozen=True)
class Request:
    """One run to ask for: these assets over these consecutive partitions."""

    assets: tuple[str, ...]
    partitions: tuple[Partition, ...]
    as_range: bool = False

    @property
    def targets(self) -> list[Target]:
        return [(asset, partition) for asset in self.assets for partition in self.partitions]


@dataclass
class Plan:
    """What to ask for, and for each pending target that is not asked for, why not."""

    requests: list[Request] = field(default_factory=list)
    waiting: dict[Target, str] = field(default_factory=dict)


def plan(graph: Graph, history: History, now: float, reserved: Iterable[Target] = ()) -> Plan:
    """Decide what is due at `now` (Unix seconds).

    Args:
        reserved: Targets that were asked for and whose run is not in the history yet.
    """
    planner = _Planner(graph, history, now, set(reserved))
    return planner.run()


def backoff(attempts: int) -> float:
    """Seconds to wait after so many failed attempts in a row."""
    return min(_FIRST_BACKOFF * 2.0 ** (attempts - 1), _LONGEST_BACKOFF)


class _Planner:
    def __init__(self, graph: Graph, history: History, now: float, reserved: set[Target]) -> None:
        self.graph = graph
        self.history = history
        self.now = now
        self.reserved = reserved
        self.plan = Plan()

    def run(self) -> Plan:
        due = self._due()
        taken: set[Target] = set()
        for key, node in self.graph.nodes.items():
            partitions = [p for p in due.get(key, ()) if (key, p) not in taken]
            for request in self._requests(node, partitions):
                joined = self._with_readers(request)
                taken.update(joined.targets)
                self.plan.requests.append(joined)
        for target in taken:
            self.plan.waiting.pop(target, None)
        return self.plan

    def _due(self) -> dict[str, list[Partition]]:
        due: dict[str, list[Partition]] = {}
        for target in list(self.history.unsettled):
            node = self.graph.nodes.get(target[0])
            if node is None or not node.automated:
                self.history.unsettled.discard(target)
                continue
            if not node.exists(target[1], self.now):
                continue  # its window has not begun: kept aside until it has
            why_not = self._why_not(node, target)
            if why_not is None:
                due.setdefault(target[0], []).append(target[1])
            elif why_not:
                self.plan.waiting[target] = why_not
            else:
                self.history.unsettled.discard(target)
        return due

    def _why_not(self, node: Node, target: Target) -> str | None:
        """None: due. Empty: nothing is pending. Else the reason to wait."""
        built = target in self.history.built
        if built and not self.history.news(target):
            return ""
        absent = self._absent(node, target[1])
        if absent:
            return f"no data: {', '.join(absent)}"
        return self._held(target)

    def _absent(self, node: Node, partition: Partition, given: Sequence[str] = ()) -> list[str]:
        return [
            read.key for read in node.inputs if read.key not in given and not self.history.inputs_of(read, partition)
        ]

    def _held(self, target: Target) -> str | None:
        if target in self.history.running or target in self.reserved:
            return "running"
        failure = self.history.failures.get(target)
        if (
            failure
            and self.now < failure.ended_at + backoff(failure.attempts)
            and not self._newer(target, failure.as_of)
        ):
            return f"backing off after {failure.attempts} failed attempts"
        return None

    def _newer(self, target: Target, id: int) -> bool:
        node = self.graph.nodes[target[0]]
        sources = (source for read in node.inputs for source in self.history.inputs_of(read, target[1]))
        return any(self.history.changes[source].id > id for source in sources)

    def _requests(self, node: Node, partitions: list[Partition]) -> list[Request]:
        if not node.partitioned:
            return [Request((node.key,), (None,))] if partitions else []
        newest_first = sorted(partitions, key=node.ordinal, reverse=True)
        alone = [p for p in newest_first if self._failed_often((node.key, p))]
        ordered = [p for p in newest_first if p not in alone]
        for held in alone[SINGLES:]:
            self.plan.waiting[(node.key, held)] = "throttled: newer partitions first"
        return [Request((node.key,), (p,)) for p in alone[:SINGLES]] + self._together(node, ordered)

    def _failed_often(self, target: Target) -> bool:
        # One bad partition would hold up its whole range for ever; alone it holds up itself.
        return target in self.history.failures and self.history.failures[target].attempts > 1

    def _together(self, node: Node, ordered: list[Partition]) -> list[Request]:
        fresh = [p for p in ordered if (node.key, p) not in self.history.built]
        if len(ordered) <= SINGLES and len(fresh) <= 1:
            return [Request((node.key,), (p,)) for p in ordered]
        ranges = [Request((node.key,), tuple(run), as_range=True) for run in _runs(node, ordered)]
        for held in ranges[_RANGES_PER_TICK:]:
            self.plan.waiting.update(dict.fromkeys(held.targets, "throttled: newer partitions first"))
        return ranges[:_RANGES_PER_TICK]

    def _with_readers(self, request: Request) -> Request:
        assets = list(request.assets)
        for key, node in self.graph.nodes.items():
            reads = [read for read in node.inputs if read.key in assets]
            if key not in assets and reads and self._can_join(node, reads, assets, request.partitions):
                assets.append(key)
        return Request(tuple(assets), request.partitions, request.as_range)

    def _can_join(
        self, node: Node, reads: Sequence[Input], assets: Sequence[str], partitions: Sequence[Partition]
    ) -> bool:
        return (
            node.automated
            and all(read.joinable for read in reads)
            and all(not self._absent(node, p, given=assets) and self._held((node.key, p)) is None for p in partitions)
        )


def _runs(node: Node, newest_first: Sequence[Partition]) -> list[list[Partition]]:
    """Consecutive partitions together, oldest first in each, the newest run first."""
    runs: list[list[Partition]] = []
    for partition in newest_first:
        if runs and node.ordinal(runs[-1][0]) - node.ordinal(partition) == 1:
            runs[-1].insert(0, partition)
        else:
            runs.append([partition])
    return runs
