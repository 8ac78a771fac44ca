"""One look at everything pending: what is due now, what waits for what.

Belongs here: the decision on each partition, at one time. Does not belong here: what is pending
(`automation.pending`), when it is due (`automation.demand`) and which runs to ask for (`automation.requests`).
"""

from collections.abc import Collection
from dataclasses import replace

from pipelines.automation import refit
from pipelines.automation.admission import Upcoming, earlier_starts
from pipelines.automation.contracts import first_tick, warn_at
from pipelines.automation.decisions import Decision, Plan, State
from pipelines.automation.demand import Demand, Demands
from pipelines.automation.graph import Graph, Node, Target
from pipelines.automation.history import History
from pipelines.automation.pending import Backlog, Pending
from pipelines.automation.reasons import moment, name, names
from pipelines.automation.requests import Requests
from pipelines.sources.feed import Partition

_FIRST_BACKOFF = 60.0
_LONGEST_BACKOFF = 3600.0
_STUCK = (State.BACKING_OFF, State.NO_DATA, State.INCOMPLETE, State.NO_CONSUMER)


def backoff(attempts: int) -> float:
    """Seconds to wait after so many failed attempts in a row."""
    return min(_FIRST_BACKOFF * 2.0 ** min(attempts - 1, 10), _LONGEST_BACKOFF)


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
        reserved: Collection[Target],
        rebuilding: bool,
    ) -> None:
        self.graph, self.history, self.backlog, self.now = graph, history, backlog, now
        self.demands = Demands(graph, history, backlog, margin)
        self.reserved = reserved
        self.rebuilding = rebuilding
        self.decisions: dict[Target, Decision] = {}
        self.wake = float("inf")
        self.earlier = earlier_starts(self._upcoming(), slots, margin) if slots else {}

    def run(self) -> Plan:
        requests = Requests(self.graph, self.history)
        for key, node in self.graph.nodes.items():
            for partition, pending in self.backlog.of.get(key, {}).items():
                decision = self._decide(node, partition, pending) if node.automated else None
                if decision is not None:
                    self.decisions[decision.target] = decision
                    self._wake_at(decision.next_try, decision.due_at, decision.latest_start)
        asked, throttled = requests.of(self.decisions, rebuilding=self.rebuilding)
        self.decisions |= throttled
        return Plan(self.now, self.decisions, asked, self.history.set_aside)

    def _upcoming(self) -> list[Upcoming]:
        """What has to be run later, if nothing happens but time."""
        found = []
        for key, node in self.graph.nodes.items():
            joinable = {read.key for read in node.inputs if read.joinable}
            for partition, pending in self.backlog.of.get(key, {}).items() if node.automated else ():
                target = (key, partition)
                if pending.arrival is None or pending.absent or self._in_flight(target):
                    continue
                demand = self.demands.of(target, pending.arrival)
                if demand is not None and demand.at > self.now:
                    joins = next((s for s in pending.behind if s[0] in joinable and s[1] == partition), None)
                    after = [s for s in pending.behind if s != joins]
                    found.append(Upcoming(target, demand.latest, self.history.lead(key), joins, after))
        return found

    def _at(self, target: Target, demand: Demand) -> float:
        """When to ask for it: when it is due, or earlier because too much is due together."""
        return min(demand.at, self.earlier.get(target, demand.at))

    def _wake_at(self, *times: float | None) -> None:
        self.wake = min([self.wake, *(t for t in times if t is not None and t > self.now)])

    def _decide(self, node: Node, partition: Partition, pending: Pending) -> Decision | None:
        target = (node.key, partition)
        if pending.arrival is None and not (pending.stale or pending.absent or pending.unchanged):
            return None
        facts = self._facts(node, target, pending)
        if pending.absent:
            lacking = tuple((key, None) for key in pending.absent)
            return replace(facts, state=State.NO_DATA, reason=names(pending.absent), wait_for=lacking)
        demand = None if pending.arrival is None else self.demands.of(target, pending.arrival)
        if demand is not None and pending.arrival is not None:
            facts = replace(facts, due_at=demand.at, due_for=demand.for_)
            return self._by_contract(node, target, pending, demand, facts)
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
            facts = replace(facts, attempts=failure.attempts, next_try=failure.ended_at + backoff(failure.attempts))
        own = None if pending.arrival is None else self.demands.own(target, pending.arrival)
        if own is None or pending.arrival is None or node.contract is None:
            return facts
        promised = replace(facts, latest_start=own.start_by)
        if not pending.built and not self._judged(node, target):
            return promised
        return replace(promised, deadline=own.deadline, warn_at=warn_at(node.contract, pending.arrival))

    def _judged(self, node: Node, target: Target) -> bool:
        """Whether anybody was there to see a window's data come in time."""
        promised = first_tick(node.contract, node.window(target[1])) if node.contract else None
        seen = [self.history.first_seen[s] for s in self.graph.sources_of[node.key] if s in self.history.first_seen]
        return promised is None or not seen or promised >= min(seen)

    def _by_contract(self, node: Node, target: Target, pending: Pending, demand: Demand, facts: Decision) -> Decision:
        if self._in_flight(target):
            return replace(facts, state=State.RUNNING, reason=_arrived(facts))
        start_by = demand.latest if facts.latest_start is None else facts.latest_start
        self._wake_at(start_by)
        self._wake_at(self._at(target, demand))
        if self._at(target, demand) > self.now:
            reason = f"{_arrived(facts)}, to be asked for at {moment(demand.at)} for {demand.for_}"
            return replace(facts, state=State.NOT_DUE, reason=reason)
        waits = self._waits(target, pending, start_by)
        if waits:
            return replace(facts, state=State.WAITING, reason=names(map(name, waits)), wait_for=waits)
        held = self._held(node, target, facts) or self._waits_for_a_model(node, start_by, facts)
        return held or replace(facts, state=State.REQUESTED, reason=f"{_arrived(facts)}, due for {demand.for_}")

    def _by_code(self, node: Node, target: Target, facts: Decision) -> Decision:
        if self._in_flight(target):
            return replace(facts, state=State.RUNNING, reason=facts.stale)
        stale = [
            s
            for read in node.inputs
            if not read.use_latest
            for s, p in self.backlog.inputs(read, target[1])
            if p.restless
        ]
        if stale:
            reason = f"{facts.stale}; first its inputs are rebuilt: {names(map(name, stale))}"
            return replace(facts, state=State.WAITING, reason=reason, wait_for=tuple(stale))
        held = self._held(node, target, facts) or self._waits_for_a_model(node, float("inf"), facts)
        return held or replace(facts, state=State.REQUESTED, reason=facts.stale)

    def _in_flight(self, target: Target) -> bool:
        return target in self.history.running or target in self.reserved

    def _waits(self, target: Target, pending: Pending, start_by: float) -> tuple[Target, ...]:
        """The inputs that go first: whose pending data makes this due, or that are being built anyway.

        An input that cannot be built now is waited for while there is time. After that what else arrived is not
        held up by it, and is due by its own arrival.
        """
        waits: list[Target] = []
        stuck: list[Target] = []
        for source, arrival in pending.behind.items():
            needed = self.demands.of(target, arrival)
            if needed is not None and self._at(source, needed) <= self.now:
                (stuck if self._stuck(source) and self.now >= start_by else waits).append(source)
            elif self.now < start_by and self._under_way(source):
                waits.append(source)
        if waits or not stuck:
            return tuple(waits)
        rest = [a for s, a in pending.behind.items() if s not in stuck]
        if pending.news is not None:
            rest.append(pending.news)
        needed = self.demands.of(target, min(rest)) if rest and self._all_there(target) else None
        if needed is not None:
            self._wake_at(needed.at)
        return () if needed is not None and needed.at <= self.now else tuple(stuck)

    def _stuck(self, target: Target) -> bool:
        decision = self.decisions.get(target)
        if decision is None:
            return True  # nobody asks for it: an asset left to people, or a partition that does not exist
        if decision.state is State.WAITING:
            return all(self._stuck(source) for source in decision.wait_for)
        return decision.state in _STUCK

    def _under_way(self, target: Target) -> bool:
        decision = self.decisions.get(target)
        return decision is not None and decision.state in (State.RUNNING, State.REQUESTED)

    def _all_there(self, target: Target) -> bool:
        node = self.graph.nodes[target[0]]
        return all(self.history.inputs_of(read, target[1]) for read in node.inputs)

    def _held(self, node: Node, target: Target, facts: Decision) -> Decision | None:
        failure = self.history.failures.get(target)
        if failure is None or facts.next_try is None or facts.next_try <= self.now:
            return None
        if self.history.newest_input(node, target[1]) > failure.as_of:
            return None
        reason = f"{failure.attempts} failed attempts, next at {moment(facts.next_try)}"
        return replace(facts, state=State.BACKING_OFF, reason=reason)

    def _waits_for_a_model(self, node: Node, start_by: float, facts: Decision) -> Decision | None:
        held = None if self.now >= start_by else refit.wait(self.graph, self.history, self.backlog, node)
        if held is None:
            return None
        reason, wait_for = held
        return replace(facts, state=State.WAITING, reason=reason, wait_for=wait_for)


def _arrived(facts: Decision) -> str:
    if facts.oldest_arrival is None:
        return facts.stale
    return f"{'data' if facts.built else 'first data'} of {moment(facts.oldest_arrival)}"
