"""Contracts that cannot be kept even if nothing fails, each with the numbers.

Three kinds are found: the runs from the sources to the table usually take longer than promised, an input is promised
for a later time than the table, and more runs are due together than the slots can run. Waiting times between runs are
left out, and runs without a known duration count as zero, so every named contract is certain to be broken.

Pure. Belongs here: the comparison of contracts with durations, slots and promises of inputs. Does not belong here:
deadlines (`planner.contracts`), and data that is late at present (`planner.contract_status`).
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial

from dagster_tidemark.planner.connected_components import connected
from dagster_tidemark.planner.contract_status import span, told
from dagster_tidemark.planner.contracts import (
    Contract,
    CronContract,
    InputPromise,
    LagContract,
    Window,
    first_tick,
    tick_at_or_after,
)
from dagster_tidemark.planner.graph import Graph, Input, Node
from dagster_tidemark.planner.run_durations import RunDurations
from dagster_tidemark.planner.unbuilt import Windows
from dagster_tidemark.planner.user_code import Raised, called
from dagster_tidemark.planner.wording import moment, names
from dagster_tidemark.sources.feed import Partition

_DAYS_AHEAD = 8 * 86_400.0
"""Time ahead in which windows are compared: each weekday, and a week's window."""


class Obstacle(StrEnum):
    """Why a contract cannot be kept."""

    TOO_SLOW = "usual runs take longer"
    INPUT_LATER = "an input is promised later"
    TOO_FEW_SLOTS = "too few slots"


@dataclass(frozen=True)
class _Chain:
    """The slowest chain of runs that ends with an asset.

    Args:
        before: Seconds of the runs before the last one.
        last: Seconds of the last run.
        runs: The assets that the last run of each step builds.
    """

    before: float = 0.0
    last: float = 0.0
    runs: tuple[tuple[str, float], ...] = ()

    @property
    def seconds(self) -> float:
        return self.before + self.last


def infeasible(
    graph: Graph,
    durations: RunDurations,
    slots: int | None = None,
    windows: Windows | None = None,
    now: float = 0.0,
) -> dict[str, dict[Obstacle, str]]:
    """Return why contracts cannot be kept, by asset and kind.

    Args:
        slots: Number of runs that the instance runs at once; None if it sets no limit.
        windows: Lists the partitions of an asset by the end of their windows. None compares no promises of inputs.
        now: The present time (Unix seconds). Windows that end in the following eight days are compared.
    """
    found: dict[str, dict[Obstacle, str]] = {}
    chains = _chains(graph, durations)
    for key, why in _too_slow(graph, chains):
        found.setdefault(key, {})[Obstacle.TOO_SLOW] = why
    for key, why in _inputs_later(graph, chains, windows, now) if windows is not None else ():
        found.setdefault(key, {}).setdefault(Obstacle.INPUT_LATER, why)
    for key, why in _too_few_slots(graph, durations, slots) if slots else ():
        found.setdefault(key, {}).setdefault(Obstacle.TOO_FEW_SLOTS, why)
    return found


def in_words(obstacles: Mapping[Obstacle, str]) -> str:
    """Return the reasons why a contract cannot be kept as one text; empty if it can."""
    return "; ".join(obstacles.values())


def _given(contract: Contract) -> float:
    """Return the seconds from the latest arrival that counts to the deadline."""
    return contract.fail if isinstance(contract, LagContract) else contract.bound


def _chains(graph: Graph, durations: RunDurations) -> dict[str, _Chain]:
    chains: dict[str, _Chain] = {}
    for key, node in graph.nodes.items():
        chains[key] = _chain(node, durations.usual(key), chains)
    return chains


def _chain(node: Node, own: float, chains: dict[str, _Chain]) -> _Chain:
    slowest = _Chain(0.0, own, ((node.key, own),) if own else ())
    for read in node.inputs:
        if read.use_latest:  # no run of it is needed before
            continue
        above = chains.get(read.key, _Chain())
        if read.joinable:  # one run may build both, and its duration counts for each of them
            last = max(above.last, own)
            chain = _Chain(above.before, last, (*above.runs[:-1], (node.key, last)) if last else ())
        else:
            chain = _Chain(above.seconds, own, (*above.runs, (node.key, own)) if own else above.runs)
        slowest = max(slowest, chain, key=lambda each: each.seconds)
    return slowest


def _too_slow(graph: Graph, chains: Mapping[str, _Chain]) -> Iterator[tuple[str, str]]:
    for key, node in graph.nodes.items():
        chain = chains[key]
        if node.contract is not None and node.has_judged_contract and chain.seconds > _given(node.contract):
            steps = ", ".join(f"{asset} {span(seconds)}" for asset, seconds in chain.runs)
            yield key, f"promised {told(node.contract)}, usual runs take {span(chain.seconds)}: {steps}"


def _inputs_later(
    graph: Graph, chains: Mapping[str, _Chain], windows: Windows, now: float
) -> Iterator[tuple[str, str]]:
    """Yield each cron contract whose window must be built before an input's data for the window is promised."""
    every = [*(each for node in graph.nodes.values() for each in node.promises), *_external(graph)]
    required = _inputs_at_any_depth(graph, lambda read: not (read.optional or read.use_latest))
    dues: dict[tuple[int, Window], _Dues] = {}
    for key, node in graph.nodes.items():
        if not isinstance(node.contract, CronContract) or not node.has_judged_contract or not node.partitioned:
            continue
        for number, promise in enumerate(every):
            source = graph.nodes.get(promise.source)
            if source is not None and not source.automated and promise.source in required[key]:
                parts = partial(_partitions_read, graph, required, key, source.key)
                later = _Later(node, node.contract, promise, source, windows, parts, number, dues)
                found = called(later.said, chains[key].seconds, now)
                if found and not isinstance(found, Raised):  # a user's partitions may raise: the planner names them
                    yield key, found


def _partitions_read(
    graph: Graph, required: Mapping[str, frozenset[str]], key: str, source: str, partition: Partition
) -> set[Partition] | None:
    """Return the partitions of a source that a partition of a table requires; None means all."""
    wanted: dict[str, set[Partition]] = {key: {partition}}
    for one in reversed(list(graph.nodes)):
        for read in graph.nodes[one].inputs if one in wanted else ():
            is_on_the_way = read.key == source or source in required.get(read.key, ())
            if is_on_the_way and not (read.optional or read.use_latest or read.key == one):
                if read.upstream is None:
                    return None
                wanted.setdefault(read.key, set()).update(*map(read.upstream, wanted[one]))
    return wanted.get(source, set())


@dataclass(frozen=True)
class _Dues:
    """Due times of a source's data of a window, by partition.

    Args:
        is_part: True if other partitions of the window have no promise, because of their keys.
    """

    of: Mapping[Partition, float]
    is_part: bool


@dataclass(frozen=True)
class _Later:
    """Comparison of a cron contract with the promise of a source.

    Args:
        parts: Returns the partitions of the source that a partition requires; None means all.
        number: Number of the promise.
        dues: Due times of the windows' data by promise, shared by all comparisons.
    """

    node: Node
    contract: CronContract
    promise: InputPromise
    source: Node
    windows: Windows
    parts: Callable[[Partition], set[Partition] | None]
    number: int
    dues: dict[tuple[int, Window], _Dues]

    def said(self, runs: float, now: float) -> str:
        """Return why windows that end soon cannot be built in time; empty if they can.

        Args:
            runs: Seconds of the usual runs from the source to the table.
        """
        compared, broken = 0, list[tuple[float, float]]()
        for partition in self.windows(self.node.key, now, now + _DAYS_AHEAD):
            window = self.node.promised_window(partition)
            due = None if window is None else self._due(window, partition)
            if window is None or due is None:
                continue
            compared += 1
            tick = tick_at_or_after(self.contract, window.end)
            if due + runs > tick:
                broken.append((due, tick))
        if not broken:
            return ""
        (due, tick), zone = broken[0], self.contract.timezone
        takes = f", and usual runs take {span(runs)}" if runs else ""
        return (
            f"promised {told(self.contract)}, but {self.source.key} is {self.promise.said}{takes}: late in "
            f"{len(broken)} of the next {compared} windows, first by {span(due + runs - tick)} for {moment(tick, zone)}"
        )

    def _due(self, window: Window, partition: Partition) -> float | None:
        """Return when the last data of a partition is promised; None without a promise."""
        at = (self.number, window)
        if at not in self.dues:
            self.dues[at] = self._computed(window)
        dues = self.dues[at]
        read = self.parts(partition) if dues.is_part else None
        return max((due for part, due in dues.of.items() if read is None or part in read), default=None)

    def _computed(self, window: Window) -> _Dues:
        every = list(self.windows(self.source.key, window.start, window.end)) if self.source.partitioned else []
        parts = [part for part in every if self.promise.is_about(part)]
        ends = {part: end for part in parts if (end := self.source.window(part)) is not None}
        dues = {part: due for part, end in ends.items() if (due := self.promise.due_at(end)) is not None}
        return _Dues(dues, is_part=len(parts) < len(every))


def _external(graph: Graph) -> Iterator[InputPromise]:
    """Yield the cron contracts of assets whose runs the planner does not request."""
    for key, node in graph.nodes.items():
        contract = node.contract
        if isinstance(contract, CronContract) and not node.automated:
            yield InputPromise(key, f"promised {told(contract)}", partial(first_tick, contract))


def _inputs_at_any_depth(graph: Graph, counts: Callable[[Input], bool]) -> dict[str, frozenset[str]]:
    """Return the inputs of each asset, and their inputs, without the asset itself.

    Args:
        counts: Returns True for the inputs that are followed.
    """
    found: dict[str, frozenset[str]] = {}
    for key, node in graph.nodes.items():
        direct = [read.key for read in node.inputs if read.key in found and counts(read)]
        found[key] = frozenset(direct).union(*(found[each] for each in direct))
    return found


def _too_few_slots(graph: Graph, durations: RunDurations, slots: int) -> Iterator[tuple[str, str]]:
    """Yield the contracts of assets that are due together, if their runs together exceed the time of all slots."""
    above = _inputs_at_any_depth(graph, lambda read: not read.use_latest)
    for what, due in _due_together(graph, above):
        for given in sorted({seconds for _, seconds in due}):
            members = [key for key, seconds in due if seconds <= given]
            runs = _runs_of(graph, durations, members, what, above)
            work = sum(runs.values())
            if len(runs) > slots and work > slots * given:
                longest = sorted(runs, key=lambda run: -runs[run])
                each = names(f"{run} {span(runs[run])}" for run in longest)
                said = (
                    f"{len(runs)} runs are due together {what.said} and take {span(work)}, but {slots} slots have "
                    f"{span(slots * given)} within {span(given)}: {each}"
                )
                yield from ((key, said) for key in members)


@dataclass(frozen=True)
class _Occasion:
    """Event that makes several assets due.

    Args:
        source: The source whose data makes them due; None for a time of a schedule.
    """

    said: str
    source: str | None = None


def _due_together(
    graph: Graph, above: Mapping[str, frozenset[str]]
) -> Iterator[tuple[_Occasion, list[tuple[str, float]]]]:
    """Yield the assets with lag contracts that read the same source, and those with cron contracts of equal times.

    Each has the seconds that its contract gives.

    Args:
        above: The inputs of each asset at any depth.
    """
    by_time: dict[tuple[str, str], list[tuple[str, float]]] = {}
    by_source: dict[str, list[tuple[str, float]]] = {}
    for key, node in graph.nodes.items():
        contract = node.contract
        if contract is None or not node.has_judged_contract or not node.automated:
            continue
        given = (key, _given(contract))
        if isinstance(contract, CronContract):
            by_time.setdefault((contract.schedule, contract.timezone), []).append(given)
        else:
            for source in sorted(k for k in above[key] if not graph.nodes[k].automated):
                by_source.setdefault(source, []).append(given)
    for source, due in by_source.items():
        yield _Occasion(f"when data arrives in {source}", source), due
    for (schedule, zone), due in by_time.items():
        yield _Occasion(f"by {schedule}{'' if zone == 'UTC' else f' {zone}'}"), due


def _runs_of(
    graph: Graph,
    durations: RunDurations,
    keys: Sequence[str],
    what: _Occasion,
    above: Mapping[str, frozenset[str]],
) -> dict[str, float]:
    """Return the runs that must end by the deadline, each with its usual seconds, by one of its assets.

    With a source, the runs between the source and the assets are counted too. Assets that one run can build are one
    run.
    """
    members = dict.fromkeys(keys)
    if what.source is not None:
        over = frozenset[str]().union(*(above[key] for key in keys))
        members |= dict.fromkeys(
            k for k, node in graph.nodes.items() if k in over and node.automated and what.source in above[k]
        )
    together = connected(members, lambda key: [read.key for read in graph.nodes[key].inputs if read.joinable])
    found = {part[0]: max(durations.usual(key) for key in part) for part in together}
    return {run: seconds for run, seconds in found.items() if seconds}
