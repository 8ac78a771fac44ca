"""Windows of cron contracts that are missing after their tick, kept from one look to the next.

Pure. A window stays until it is built, or until a person gives it up by reporting it as materialized. Does not belong
here: their effect on a contract's status (`planner.contract_status`).
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from dagster_tidemark.planner.contracts import CronContract, tick_at_or_after, tick_before
from dagster_tidemark.planner.graph import Graph, Node
from dagster_tidemark.planner.history import History
from dagster_tidemark.planner.silence import reaches_back
from dagster_tidemark.sources.feed import Partition

Windows = Callable[[str, float, float], Iterable[Partition]]
"""From an asset and two times to its partitions whose window ends after the first time and up to the second."""


@dataclass(frozen=True)
class Since:
    """Start times of the judging of assets (Unix seconds).

    Args:
        began: When the planner first looked at this instance.
        assets: When it first looked at each asset with a cron contract.
    """

    began: float
    assets: Mapping[str, float] = field(default_factory=dict)

    def judged_from(self, graph: Graph, history: History, asset: str) -> float:
        """Return when judging of an asset begins: as soon as the planner can see its data arrive.

        For an asset that was added later, this is when it was added: its earlier windows were not promised.
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
        """Return the partitions of an asset that are missing although they were promised for a past time, oldest first.

        Returns:
            From the partition to its promised time.
        """
        if not isinstance(node.contract, CronContract):
            return {}
        judged_from = since.judged_from(self.graph, history, node.key)
        known = history.known.get(node.key, set())
        state = self._of.get(node.key)
        if state is None or state.since != judged_from or len(known) < state.known:  # fewer partitions: one was wiped
            state = self._of[node.key] = _Asset(judged_from, tick_before(node.contract, judged_from))
        if state.next_tick <= now:
            self._add(node, node.contract, state, history, now)
        # A run that found nothing to write has built it too.
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
    """Return the promised time of each partition: the own tick of its window, shared by all windows that end before it.

    A partition without a window was promised for the first tick since its judging began, or since a person added it.
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
