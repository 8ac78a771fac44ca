"""One look at everything pending: what is due now, what waits for what.

Belongs here: the decision on each partition, at one time. Does not belong here: what is pending
(`planner.backlog`), when it is due (`planner.demand`), what it waits for (`planner.waiting`) and which runs
to ask for (`planner.requests`). Whatever goes wrong about one partition sets that one aside, with the reason.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace

from pipelines.tidemark.planner import retries
from pipelines.tidemark.planner.backlog import Backlog, Pending
from pipelines.tidemark.planner.capacity import Upcoming, earlier_starts
from pipelines.tidemark.planner.contracts import first_tick, warn_at
from pipelines.tidemark.planner.decisions import Asked, Decision, Plan, State
from pipelines.tidemark.planner.demand import Demand, Demands
from pipelines.tidemark.planner.graph import Graph, Node, Target
from pipelines.tidemark.planner.history import History
from pipelines.tidemark.planner.requests import Requests
from pipelines.tidemark.planner.waiting import Waiting, waiting
from pipelines.tidemark.planner.wording import moment, names
from pipelines.tidemark.sources.feed import Partition

_AT_ONCE = 200
"""Partitions between two chances to stop."""


class Tick:
    """One look at everything pending, at one time."""

    def __init__(
        self,
        graph: Graph,
        history: History,
        backlog: Backlog,
        margin: float,
        slots: int | None,
        now: float,
        asked: Asked,
    ) -> None:
        self.graph, self.history, self.backlog, self.now = graph, history, backlog, now
        self.asked = asked
        self.decisions: dict[Target, Decision] = {}
        self.aside: dict[Target, str] = {}
        self.plan: Plan | None = None
        self.wake = float("inf")
        self._margin, self._slots = margin, slots
        self._earlier: dict[Target, float] = {}
        self.demands = Demands(graph, history, backlog, margin)
        self._waiting = Waiting(
            graph, history, backlog, self.demands, self.decisions, now, self._at, self._wake_at, asked.unanswered
        )

    def steps(self) -> Iterator[int]:
        """Work until the plan is made; between two steps it may be left for a while. Yields how much is decided."""
        if self._slots:
            upcoming: list[Upcoming] = []
            for target, pending in self._each(_is_asked_for):
                self._isolated(target, lambda t=target, p=pending: upcoming.extend(self._upcoming(t, p)))  # type: ignore[misc]
                if len(upcoming) % _AT_ONCE == 0:
                    yield 0
            self._earlier = earlier_starts(upcoming, self._slots, self._margin)
        for count, (target, pending) in enumerate(self._each(_is_asked_for), start=1):
            self._isolated(target, lambda t=target, p=pending: self._take(self._decide(t, p)))  # type: ignore[misc]
            if count % _AT_ONCE == 0:
                yield count
        left: list[Decision] = []
        for count, (target, pending) in enumerate(self._each(_is_only_judged), start=len(self.decisions) + 1):
            self._isolated(target, lambda t=target, p=pending: left.extend(self._left(t, p)))  # type: ignore[misc]
            if count % _AT_ONCE == 0:
                yield count
        requests = Requests(self.graph, self.history, self.asked)
        asked, changed = requests.of(self.decisions)
        self.aside |= requests.aside
        self.decisions |= changed | {decision.target: decision for decision in left}
        self.plan = Plan(self.now, self.decisions, asked, self._set_aside())

    def _each(self, wanted: Callable[[Node], bool]) -> Iterator[tuple[Target, Pending]]:
        for key, node in self.graph.nodes.items():
            if wanted(node):
                entries = self.backlog.of.get(key, {})
                # What is made from its own past is decided in order, as the later waits for the earlier.
                partitions = sorted(entries, key=node.order) if node.reads_itself else list(entries)
                yield from (((key, partition), entries[partition]) for partition in partitions)

    def _left(self, target: Target, pending: Pending) -> list[Decision]:
        """What becomes of what others ask for: nothing, but its promise is looked at."""
        if pending.arrival is None:
            return []
        facts = self._facts(self.graph.nodes[target[0]], target, pending)
        if facts.deadline is not None:
            self._wake_at(facts.deadline)
        return [replace(facts, state=State.LEFT, reason=_arrived(facts))]

    def _isolated(self, target: Target, act: Callable[[], None]) -> None:
        if target in self.aside:
            return
        try:
            act()
        except Exception as error:  # anybody's mapping or partitions definition may have raised
            self.aside[target] = f"{type(error).__name__}: {error}"
            self._wake_at(self.now + 60.0)

    def _set_aside(self) -> dict[Target, str]:
        found = {**self.history.set_aside, **self.backlog.aside, **self.aside}
        found |= {(key, None): why for (key, _), why in self.history.broken.items()}
        found |= {(key, None): why for key, why in self.backlog.candidates.failed.items()}
        found |= {(key, p): why for key, odd in self.backlog.candidates.odd.items() for p, why in odd.items()}
        found |= {(key, None): node.left_out for key, node in self.graph.nodes.items() if node.left_out}
        return found

    def _take(self, decision: Decision | None) -> None:
        if decision is not None:
            self.decisions[decision.target] = decision
            for time in (decision.next_try, decision.due_at, decision.latest_start):
                if time is not None:
                    self._wake_at(time)

    def _upcoming(self, target: Target, pending: Pending) -> list[Upcoming]:
        """What has to be run later, if nothing happens but time."""
        if pending.arrival is None or pending.missing_inputs or self._in_flight(target):
            return []
        demand = self.demands.of(target, pending.arrival)
        if demand is None or demand.at <= self.now:
            return []
        node = self.graph.nodes[target[0]]
        joinable = {read.key for read in node.inputs if read.joinable}
        joins = next((s for s in pending.pending_upstreams if s[0] in joinable and s[1] == target[1]), None)
        after = [source for source in pending.pending_upstreams if source != joins]
        most = 1 if node.conditional else node.most
        return [Upcoming(target, demand.latest, self.history.lead(target[0]), joins, after, most)]

    def _at(self, target: Target, demand: Demand) -> float:
        """When to ask for it: when it is due, or earlier because too much is due together."""
        return min(demand.at, self._earlier.get(target, demand.at))

    def _wake_at(self, time: float) -> None:
        if time > self.now:
            self.wake = min(self.wake, time)

    def _decide(self, target: Target, pending: Pending) -> Decision | None:
        if pending.arrival is None and not (pending.stale or pending.missing_inputs or pending.unchanged):
            return None
        node = self.graph.nodes[target[0]]
        facts = self._facts(node, target, pending)
        if pending.missing_inputs:
            lacking: tuple[tuple[str, Partition], ...] = tuple((key, None) for key in pending.missing_inputs)
            return replace(facts, state=State.NO_DATA, reason=names(pending.missing_inputs), wait_for=lacking)
        demand = None if pending.arrival is None else self.demands.of(target, pending.arrival)
        if demand is not None and pending.arrival is not None:
            due = replace(facts, due_at=demand.at, due_for=demand.for_)
            by_contract = self._by_contract(node, target, pending, demand, due)
            # New data comes to a model all the time: it would learn from rebuilt inputs with its next deadline only.
            is_refit = pending.stale and node.key in self.graph.models
            if by_contract.state is not State.NOT_DUE or not is_refit:
                return by_contract
        if pending.stale:
            return self._by_code(node, target, facts)
        if pending.unchanged:
            return replace(facts, state=State.INCOMPLETE, reason=names(pending.unchanged))
        return replace(facts, state=State.NO_CONSUMER, reason="it has no contract, and nobody who reads it needs it")

    def _facts(self, node: Node, target: Target, pending: Pending) -> Decision:
        facts = Decision(
            node.key,
            target[1],
            State.NOT_DUE,
            "",
            oldest_arrival=pending.arrival,
            stale=pending.stale,
            built=pending.built,
        )
        failure = self.history.failures.get(target)
        if failure is not None:
            again = retries.next_try(failure, has_new_data=self.history.has_new_data(target, failure.as_of))
            facts = replace(facts, attempts=failure.attempts, next_try=again)
        own = None if pending.arrival is None else self.demands.own(target, pending.arrival)
        if own is None or pending.arrival is None or node.contract is None:
            return facts
        promised = replace(facts, latest_start=own.start_by)
        if not pending.built and not self._judged(node, target):
            return promised
        return replace(promised, deadline=own.deadline, warn_at=warn_at(node.contract, pending.arrival))

    def _judged(self, node: Node, target: Target) -> bool:
        """Whether anybody was there to see a window's data come in time."""
        promised = first_tick(node.contract, node.promised_window(target[1])) if node.contract else None
        seen = [self.history.first_seen[s] for s in self.graph.sources_of[node.key] if s in self.history.first_seen]
        return promised is None or not seen or promised >= min(seen)

    def _by_contract(self, node: Node, target: Target, pending: Pending, demand: Demand, facts: Decision) -> Decision:
        if self._in_flight(target):
            return replace(facts, state=State.RUNNING, reason=_arrived(facts))
        start_by = demand.latest if facts.latest_start is None else min(facts.latest_start, demand.start_by)
        self._wake_at(start_by)
        self._wake_at(self._at(target, demand))
        if self._at(target, demand) > self.now:
            reason = f"{_arrived(facts)}, to be asked for at {moment(demand.at)} for {demand.for_}"
            return replace(facts, state=State.NOT_DUE, reason=reason)
        inputs = self._waiting.for_inputs(target, pending, start_by)
        if inputs:
            return waiting(facts, inputs)
        held = self._waiting.held(node, target, start_by, facts)
        return held or replace(facts, state=State.REQUESTED, reason=f"{_arrived(facts)}, due for {demand.for_}")

    def _by_code(self, node: Node, target: Target, facts: Decision) -> Decision:
        if self._in_flight(target):
            return replace(facts, state=State.RUNNING, reason=facts.stale)
        inputs = self._waiting.for_rebuilt_inputs(node, target)
        if inputs:
            return waiting(facts, inputs, f"{facts.stale}; first its inputs are rebuilt: ")
        held = self._waiting.held(node, target, float("inf"), facts)
        return held or replace(facts, state=State.REQUESTED, reason=facts.stale)

    def _in_flight(self, target: Target) -> bool:
        together = self.graph.nodes[target[0]].together or (target[0],)
        targets = ((key, target[1]) for key in together)
        return any(t in self.history.running or t in self.asked.reserved for t in targets)


def _is_asked_for(node: Node) -> bool:
    return node.automated and not node.refused


def _is_only_judged(node: Node) -> bool:
    return node.contract is not None and not (node.automated or node.source or node.refused)


def _arrived(facts: Decision) -> str:
    if facts.oldest_arrival is None:
        return facts.stale
    return f"{'data' if facts.built else 'first data'} of {moment(facts.oldest_arrival)}"
