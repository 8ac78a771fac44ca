"""Data that arrived and that no run can build, because a required input has nothing for its partition.

A contract promises that a table contains the data that arrived. If 299 of 300 required sources have data for a window
and one has none, the window cannot be built, and no table below it contains the data of the 299. Pure. Belongs here:
promises that are broken for this reason, and since when. Does not belong here: windows without any data
(`planner.unbuilt`), and inputs that may have nothing (`Input.optional`): partitions are built without them.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from dagster_tidemark.planner.contracts import CronContract, FreshnessStatus, Window, deadline, verdict, warn_at
from dagster_tidemark.planner.decisions import ContractStatus, Decision, Lack, Plan, State
from dagster_tidemark.planner.graph import Graph, Input, Node, Target
from dagster_tidemark.planner.history import History
from dagster_tidemark.planner.silence import Silence, reaches_back
from dagster_tidemark.planner.user_code import Raised, called
from dagster_tidemark.planner.wording import moment, name, names
from dagster_tidemark.sources.feed import Partition

_LONGER = 1.5
"""Factor above which a window is coarser than another. Clock changes and the lengths of months make less difference."""


@dataclass(frozen=True)
class _Held:
    """A partition that lacks a required input.

    Args:
        arrival: Arrival of the data that exists for it (Unix seconds).
        since: When that data could have been built: it exists, and the windows of the missing inputs have ended.
        sources: The silent sources.
    """

    target: Target
    missing: tuple[str, ...]
    arrival: float
    since: float
    sources: frozenset[str]


@dataclass
class _FirstData:
    """When the first data of each asset arrived, in any of its partitions, at one time."""

    history: History
    plan: Plan
    _of: dict[str, float | None] = field(default_factory=dict)
    _pending: dict[str, float] | None = None

    def of(self, asset: str) -> float | None:
        """Return when an asset first had data (Unix seconds), built or not; None if it has none."""
        if asset not in self._of:
            first = (self.history.facts.first_arrival((asset, p)) for p in self.history.facts.with_content(asset))
            earliest = min((at for at in first if at is not None), default=None)
            self._of[asset] = self._of_pending().get(asset) if earliest is None else earliest
        return self._of[asset]

    def _of_pending(self) -> dict[str, float]:
        if self._pending is None:
            self._pending = {}
            for decision in self.plan.decisions.values():
                if (at := decision.oldest_arrival) is not None:
                    self._pending[decision.asset] = min(at, self._pending.get(decision.asset, at))
        return self._pending


def withheld(
    graph: Graph, history: History, plan: Plan, silence: Silence, unbegun: Iterable[Decision] = ()
) -> dict[str, ContractStatus]:
    """Return the worst contract status of each asset for which data is withheld, directly or in an input.

    Args:
        unbegun: Decisions that the plan does not contain; see `first_promised`.
    """
    found: dict[str, ContractStatus] = {}
    first = _FirstData(history, plan)
    for decision in (*plan.decisions.values(), *unbegun):
        standings = called(_standings, graph, history, plan, silence, first, decision)
        if isinstance(standings, Raised):  # the planner names the asset
            continue
        for standing in standings:
            known = found.get(standing.asset)
            is_worse = known is None or (standing.deadline or 0.0) < (known.deadline or 0.0)
            lacks = standing.lacks if known is None else _earliest(*known.lacks, *standing.lacks)
            found[standing.asset] = replace(standing if is_worse or known is None else known, lacks=lacks)
    return found


def _earliest(*lacks: Lack) -> tuple[Lack, ...]:
    """Return the earliest broken promise for each set of sources."""
    found: dict[tuple[str, ...], Lack] = {}
    for lack in sorted(lacks, key=lambda lack: lack.deadline):
        found.setdefault(lack.sources, lack)
    return tuple(found.values())


def _standings(
    graph: Graph, history: History, plan: Plan, silence: Silence, first: _FirstData, decision: Decision
) -> list[ContractStatus]:
    held = _held(graph, history, plan, silence, first, decision)
    if held is None:
        return []
    below = _below(graph, history, held.target, plan.now)
    return [s for node, p in below if (s := _standing(node, p, history, held, silence, plan.now)) is not None]


def _held(
    graph: Graph, history: History, plan: Plan, silence: Silence, first: _FirstData, decision: Decision
) -> _Held | None:
    """Return the data that a partition withholds; None if there is none, or if it was never promised.

    A source that first had data after the partition's window promised none for that window.
    """
    node, target = graph.nodes[decision.asset], decision.target
    if decision.state is not State.NO_DATA or not decision.wait_for:
        return None
    if decision.built:
        return _held_again(graph, history, silence, decision)
    if target[1] in history.facts.with_content(target[0]):  # a person has reported it as materialized
        return None
    arrived = [_arrival(graph, history, plan, first, read, target) for read in node.inputs]
    lacking = silence.lacking(target)
    if not any(arrived) and any(not history.facts.with_content(source) for source, _ in lacking):
        # No partition can contain the data of the other inputs, so the data of longer windows counts as well.
        arrived = [_arrival(graph, history, plan, first, read, target, any_window=True) for read in node.inputs]
    arrivals = [at for at in arrived if at is not None]
    skip = history.overrides.skip_of(node, target[1])
    if skip is not None:  # data from before a skip is not owed
        later = [at for read in node.inputs for at in history.arrivals_since(read, target[1], skip)]
        arrivals = [max(max(arrivals), min(later))] if arrivals and later else []
    if not arrivals:
        return None
    window = node.promised_window(target[1])
    sources = _silent_sources(graph, decision, lacking)
    if window is not None and not all(reaches_back(graph, history, source, window.end) for source in sources):
        return None
    # A source that had data before is silent only after the end of the window that lacks its data.
    spoke = ((graph.nodes[s], p) for s, p in lacking if history.facts.with_content(s) and s in graph.nodes)
    ends = [of.end for node_, p in spoke if (of := _window(node_, p)) is not None]
    since = max([*arrivals, *ends, *([window.end] if window else [])])
    return _Held(target, _missing(decision), max(arrivals), since, sources)


def _held_again(graph: Graph, history: History, silence: Silence, decision: Decision) -> _Held | None:
    """Return the data that a built partition withholds, because it cannot be built again; None if it owes none."""
    if (since := decision.withheld_since) is None:
        return None
    sources = _silent_sources(graph, decision, silence.lacking(decision.target))
    window = graph.nodes[decision.asset].promised_window(decision.partition)
    if window is not None and not all(reaches_back(graph, history, source, window.end) for source in sources):
        return None
    return _Held(decision.target, _missing(decision), since, since, sources)


def _missing(decision: Decision) -> tuple[str, ...]:
    return tuple(dict.fromkeys(key for key, _ in decision.wait_for))


def _silent_sources(graph: Graph, decision: Decision, lacking: Iterable[Target]) -> frozenset[str]:
    above = (graph.sources_of.get(key, frozenset({key})) for key, _ in decision.wait_for)
    return frozenset(source for source, _ in lacking) or frozenset[str]().union(*above)


def _arrival(
    graph: Graph,
    history: History,
    plan: Plan,
    first: _FirstData,
    read: Input,
    target: Target,
    *,
    any_window: bool = False,
) -> float | None:
    """Return the arrival of an input's first data for this partition, or None. Data in built partitions is left out.

    Prices of a whole day, which each hour reads, do not count as data for an hour without orders.

    Args:
        any_window: True if the data of longer windows counts as well.
    """
    node, upstream = graph.nodes[target[0]], graph.nodes.get(read.key)
    if upstream is None or read.key == node.key or (any_window and read.use_latest):
        return None
    if read.upstream is None:
        counts = not node.partitioned or (any_window and not _is_any_built(history, node))
        return first.of(read.key) if counts and not read.use_latest else None
    ours, found = node.window(target[1]), list[float]()
    for partition in read.upstream(target[1]):
        source = (read.key, partition)
        decision = plan.decisions.get(source)
        arrival = history.facts.first_arrival(source)
        if arrival is None and decision:
            arrival = decision.oldest_arrival
        if arrival is None or (_is_coarser(_window(upstream, partition), ours) and not any_window):
            continue
        others = history.reading(node, read, partition)
        if not any(history.facts.is_built((node.key, p)) for p in others if p != target[1]):
            found.append(arrival)
    return min(found, default=None)


def first_promised(graph: Graph, history: History, asset: str) -> Decision | None:
    """Return a decision on the first promised partition of a table without pending work; None if nothing is promised.

    If each partition reads all of one input and some of another, the data of the first determines no partition to
    build. As long as the other input never had data, no partition has pending work, although data arrived.
    """
    node, has_content = graph.nodes[asset], bool(history.facts.with_content(asset))
    if not (node.automated and node.partitioned) or node.enumerated or node.refused or has_content:
        return None
    whole = [read.key for read in node.inputs if read.broad and not read.use_latest and read.key != asset]
    first = _FirstData(history, Plan(0.0, {}))
    arrivals = [at for key in whole if (at := first.of(key)) is not None]
    if not arrivals:
        return None
    keys = called(node.keys)
    partition = None if isinstance(keys, Raised) else called(_promised_at, node, keys, max(arrivals))
    if partition is None or isinstance(partition, Raised) or history.overrides.skip_of(node, partition) is not None:
        return None
    required = (read for read in node.inputs if not (read.optional or read.broad))
    wait_for: tuple[Target, ...] = tuple((read.key, None) for read in required)
    return Decision(asset, partition, State.NO_DATA, "", wait_for=wait_for)


def _promised_at(node: Node, keys: Sequence[Partition], at: float) -> Partition:
    """Return the newest partition whose window had ended at a time; the first partition if there is none."""
    ended = (p for p in reversed(keys) if (window := node.promised_window(p)) is not None and window.end <= at)
    return next(ended, keys[0] if keys else None)


def _is_any_built(history: History, node: Node) -> bool:
    return any(history.facts.is_built((node.key, p)) for p in history.facts.with_content(node.key))


def _is_coarser(theirs: Window | None, ours: Window | None) -> bool:
    if ours is None:
        return False
    return theirs is None or theirs.end - theirs.start > _LONGER * (ours.end - ours.start)


def _window(node: Node, partition: Partition) -> Window | None:
    return node.window(partition) if (partition is not None) is node.partitioned else None


def _below(graph: Graph, history: History, held: Target, now: float) -> Iterator[tuple[Node, Partition]]:
    """Yield a partition and all partitions made from it, at any depth, of assets with a contract."""
    seen, stack = {held}, [held]
    while stack:
        key, partition = stack.pop()
        node = graph.nodes[key]
        if node.contract is not None and not (node.source or node.refused):
            yield node, partition
        for reader, read in graph.readers.get(key, ()):
            for one in () if read.use_latest else history.reading(reader, read, partition):
                target = (reader.key, one)
                if target not in seen and not history.problem(target) and reader.exists_from(one) <= now:
                    seen.add(target)
                    stack.append(target)


def _standing(
    node: Node, partition: Partition, history: History, held: _Held, silence: Silence, now: float
) -> ContractStatus | None:
    """Return the status of an asset's contract for a partition, or None if another module evaluates it."""
    target, contract = (node.key, partition), node.contract
    built = history.facts.is_built(target)
    if contract is None or (isinstance(contract, CronContract) and not built):  # see `planner.unbuilt`
        return None
    window = node.promised_window(partition)
    since = held.since if built or window is None else max(held.since, window.end)
    promised = deadline(contract, since, window)
    state = verdict(promised, warn_at(contract, since), now)
    zone = contract.timezone if isinstance(contract, CronContract) else "UTC"
    silent = silence.told(held.sources)
    named = silent if held.sources == {*held.missing} else f"{names(held.missing)} ({silent})"
    reason = f"{name(held.target)} no data: {named}"
    if target != held.target:
        reason = f"{name(target)} lacks data that arrived for {reason}"
    if state is FreshnessStatus.BREACHED:
        reason = f"{reason}; promised for {moment(promised, zone)}"
    lack = Lack(partition, tuple(sorted(held.sources)), held.arrival, promised)
    late = max(0.0, now - held.arrival)
    return ContractStatus(node.key, state, late, partition, reason, deadline=promised, lacks=(lack,))
