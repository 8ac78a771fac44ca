"""The windows of cron contracts that are not there though their tick is past, kept from one look to the next.

Pure. A window stays until it is built, or given up by a person, who reports it as materialized. Does not belong here:
what is said about them (`planner.contract_status`).
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from dagster_tidemark.planner.contracts import CronContract, tick_at_or_after, tick_before
from dagster_tidemark.planner.graph import Graph, Node
from dagster_tidemark.planner.history import History
from dagster_tidemark.planner.silence import reaches_back
from dagster_tidemark.sources.feed import Partition

Windows = Callable[[str, float, float], Iterable[Partition]]
"""From an asset and two times to its partitions whose window ends after the first, and not after the second."""


@dataclass(frozen=True)
class Since:
    """From when on assets are judged (Unix seconds).

    Args:
        began: When the planner first looked at this instance.
        assets: When it first looked at each asset with a cron contract.
    """

    began: float
    assets: Mapping[str, float] = field(default_factory=dict)

    def judged_from(self, graph: Graph, history: History, asset: str) -> float:
        """From when on an asset is judged: since somebody is there to see its data come.

        For one that was added later, since then: nobody promised its windows before.
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
    """What is missing of each asset with a cron contract.

    Each window is looked at once, at its own tick. After that only those that were missing are looked at again.
    """

    graph: Graph
    windows: Windows
    _of: dict[str, _Asset] = field(default_factory=dict)

    def missing(self, node: Node, history: History, since: Since, now: float) -> Mapping[Partition, float]:
        """The partitions of an asset that were promised for a time that is past, and are not there; oldest first.

        Returns:
            From the partition to the time it was promised for.
        """
        if not isinstance(node.contract, CronContract):
            return {}
        judged_from = since.judged_from(self.graph, history, node.key)
        known = history.known.get(node.key, set())
        state = self._of.get(node.key)
        if state is None or state.since != judged_from or len(known) < state.known:  # fewer are there: one was wiped
            state = self._of[node.key] = _Asset(judged_from, tick_before(node.contract, judged_from))
        if state.next_tick <= now:
            self._add(node, node.contract, state, history, now)
        # A run that saw that there was nothing to write has built it too.
        state.missing = {
            p: promised
            for p, promised in state.missing.items()
            if p not in known and (node.key, p) not in history.built and (p is None or node.exists(p))
            if self._could_be_there(node, p, state.since, history)
        }
        state.known = len(known)
        return state.missing

    def _could_be_there(self, node: Node, partition: Partition, since: float, history: History) -> bool:
        """Return False if a window is not promised: it ended before judging began, and no source reaches back so far.

        A source and its table may be deployed together, in the middle of a day: no contract promised the day before.
        """
        window = node.promised_window(partition)
        if window is None or window.end > since:
            return True
        return any(reaches_back(self.graph, history, source, window.end) for source in self.graph.sources_of[node.key])

    def _add(self, node: Node, contract: CronContract, state: _Asset, history: History, now: float) -> None:
        known = history.known.get(node.key, set())
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
    """The time each was promised for: the own tick of its window, which is also that of all that end before it.

    What is about no time was promised for the first tick since it is judged, or since a person added it.
    """
    found: dict[Partition, float] = {}
    after = tick = float("-inf")
    for partition in partitions:
        window = node.promised_window(partition)
        if window is None:
            _, came = history.appeared.get((node.key, partition), (since, since))
            found[partition] = tick_at_or_after(contract, max(since, came))
        else:
            if not after <= window.end <= tick:
                after, tick = window.end, tick_at_or_after(contract, window.end)
            found[partition] = tick
    return found
