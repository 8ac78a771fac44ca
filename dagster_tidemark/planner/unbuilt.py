"""Windows of cron contracts that are missing after their promised time, remembered between evaluations.

Pure. A window is missing until it is built, or until a person gives it up by reporting it as materialized. Does not
belong here: the effect of missing windows on a contract's status (`planner.contract_status`).
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from dagster_tidemark.planner.contracts import CronContract, tick_at_or_after, tick_before
from dagster_tidemark.planner.graph import Graph, Node
from dagster_tidemark.planner.history import History
from dagster_tidemark.planner.silence import reaches_back
from dagster_tidemark.sources.feed import Partition

Windows = Callable[[str, float, float], Iterable[Partition]]
"""Returns the partitions of an asset whose window ends after the first time, and not after the second."""


@dataclass(frozen=True)
class Since:
    """Times when the evaluation of cron contracts began (Unix seconds).

    Args:
        began: Time when contracts of this instance were first evaluated.
        assets: Time when the contract of each asset was first evaluated.
    """

    began: float
    assets: Mapping[str, float] = field(default_factory=dict)

    def judged_from(self, graph: Graph, history: History, asset: str) -> float:
        """Return the time when the evaluation of an asset's contract begins.

        This is the first event of a source, or the first evaluation if that is earlier. If the asset was added later,
        it is the time when it was added: its earlier windows were not promised.
        """
        looked = self.assets[asset]
        if looked > self.began:
            return looked
        seen = (history.first_seen.get(source) for source in graph.sources_of[asset])
        return min([looked, *(at for at in seen if at is not None)])


@dataclass
class _Asset:
    since: float
    until: float
    next_tick: float = float("-inf")
    known: int = 0
    missing: dict[Partition, float] = field(default_factory=dict)


@dataclass
class Unbuilt:
    """Missing windows of each asset with a cron contract.

    Each window is checked once, at its own tick. After that, only missing windows are checked again.
    """

    graph: Graph
    windows: Windows
    _of: dict[str, _Asset] = field(default_factory=dict)

    def missing(self, node: Node, history: History, since: Since, now: float) -> Mapping[Partition, float]:
        """Return the missing partitions of an asset that were promised for a past time, oldest first.

        Returns:
            The promised time of each partition.
        """
        if not isinstance(node.contract, CronContract):
            return {}
        judged_from = since.judged_from(self.graph, history, node.key)
        known = history.facts.with_content(node.key)
        state = self._of.get(node.key)
        if state is None or state.since != judged_from or len(known) < state.known:  # fewer partitions: one was wiped
            state = self._of[node.key] = _Asset(judged_from, tick_before(node.contract, judged_from))
        if state.next_tick <= now:
            self._add(node, node.contract, state, history, now)
        # A partition also counts as built if its run found nothing to write.
        state.missing = {
            p: promised
            for p, promised in state.missing.items()
            if p not in known and not history.facts.is_built((node.key, p)) and (p is None or node.exists(p))
            if self._could_be_there(node, p, state.since, history)
        }
        state.known = len(known)
        return state.missing

    def _could_be_there(self, node: Node, partition: Partition, since: float, history: History) -> bool:
        """Return False if a window was not promised: it ended before evaluation began, and no source has data that old.

        For example, a source and its table may be deployed together at noon. No contract promised the day before.
        """
        window = node.promised_window(partition)
        if window is None or window.end > since:
            return True
        return any(reaches_back(self.graph, history, source, window.end) for source in self.graph.sources_of[node.key])

    def _add(self, node: Node, contract: CronContract, state: _Asset, history: History, now: float) -> None:
        known = history.facts.with_content(node.key)
        state.next_tick = tick_at_or_after(contract, now + 1)
        if not node.partitioned:
            promised = tick_at_or_after(contract, state.since)
            state.missing = {None: promised} if promised <= now and None not in known else {}
        else:
            last = tick_before(contract, now + 1)
            if last > state.until:
                ended = self.windows(node.key, state.until, last)
                new = _promised(node, contract, state.since, history, (p for p in ended if p not in known))
                state.missing = dict(sorted((state.missing | new).items(), key=lambda window: window[1]))
                state.until = last


def _promised(
    node: Node, contract: CronContract, since: float, history: History, partitions: Iterable[Partition]
) -> dict[Partition, float]:
    """Return the promised time of each partition: the first tick after its window has ended.

    A partition without a window is promised for the first tick after evaluation began, or after its key was added.
    """
    found: dict[Partition, float] = {}
    after = tick = float("-inf")
    for partition in partitions:
        window = node.promised_window(partition)
        if window is None:
            _, came = history.keys.appeared.get((node.key, partition), (since, since))
            found[partition] = tick_at_or_after(contract, max(since, came))
        else:
            if not after <= window.end <= tick:
                after, tick = window.end, tick_at_or_after(contract, window.end)
            found[partition] = tick
    return found
