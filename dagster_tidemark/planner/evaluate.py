"""One evaluation of all pending partitions: which are due, and why the others wait.

Belongs here: the decision on each partition, at one time. Does not belong here: the pending work
(`planner.staleness`), when it is due (`planner.demand`), what it waits for (`planner.waiting`) and which runs
to request (`planner.grouping`). If the decision on a partition raises, only that partition is set aside.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice

from dagster_tidemark.planner import run_retries
from dagster_tidemark.planner.admission import Admission, Upcoming, earlier_starts
from dagster_tidemark.planner.contracts import CronContract, first_tick, warn_at
from dagster_tidemark.planner.decisions import Asked, Decision, Plan, Request, State
from dagster_tidemark.planner.demand import Demand, Demands
from dagster_tidemark.planner.graph import Graph, Node, Target
from dagster_tidemark.planner.grouping import Requests
from dagster_tidemark.planner.guarded_reads import GuardedWrites, readers_first
from dagster_tidemark.planner.history import History
from dagster_tidemark.planner.loops import Loop
from dagster_tidemark.planner.staleness import Pending, PendingWork
from dagster_tidemark.planner.user_code import Raised, called
from dagster_tidemark.planner.waiting import WaitingReasons, waiting
from dagster_tidemark.planner.wording import moment, names
from dagster_tidemark.sources.feed import Partition

_AT_ONCE = 200
"""Number of decisions before the caller may pause."""

_SOON = (State.REQUESTED, State.QUEUED, State.RUNNING, State.WAITING)
"""States of partitions that a run builds soon, if slots allow."""


_NOTHING_DECIDED = Decision("", None, State.NOT_DUE, "")


@dataclass(frozen=True)
class Bound:
    """Limits on the number of decisions in one evaluation pass.

    Args:
        many: Number of pending partitions above which the limits apply.
        most: Number of partitions of an asset that a run builds soon. Decisions on older partitions are deferred.
        longest: Number of deferred partitions that may be added to a requested range.
        range: Number of deferred partitions that may be added to all ranges in one pass.
    """

    many: float = 20_000
    most: int = 16
    longest: int = 2_000
    range: int = 20_000


class EvaluationPass:
    """One evaluation of all pending partitions, at one time."""

    def __init__(
        self,
        graph: Graph,
        history: History,
        backlog: PendingWork,
        *,
        margin: float,
        slots: int | None,
        now: float,
        asked: Asked,
        bound: Bound,
    ) -> None:
        self.graph, self.history, self.backlog, self.now = graph, history, backlog, now
        self.asked = asked
        self.decisions: dict[Target, Decision] = {}
        self.aside: dict[Target, str] = {}
        self.plan: Plan | None = None
        self.wake = float("inf")
        self._margin, self._slots = margin, slots
        self._earlier: dict[Target, float] = {}
        self._loops = history.loops.of(graph)
        self._bound = bound
        self._deferred: dict[str, dict[Partition, None]] = {}
        self._held_back: dict[str, list[Partition]] = {}
        self._asked: list[Request] = []
        self._changed: dict[Target, Decision] = {}
        self.demands = Demands(graph, history, backlog, margin)
        self._waiting = WaitingReasons(
            graph, history, backlog, self.demands, self.decisions, now, self._at, self._wake_at, asked.unanswered
        )
        self._writes = GuardedWrites(graph, history, asked)
        self._waiting.deferred, self._waiting.in_flight = self._deferred, self._in_flight
        self._waiting.writes = self._writes

    def steps(self) -> Iterator[int]:
        """Make the plan in steps, and yield the number of decisions so far. The caller may pause between two steps."""
        many = sum(map(len, self.backlog.of.values())) > self._bound.many
        most = self._bound.most if many else None
        if self._slots:
            yield from self._look_ahead(self._slots, most)
        yield from self._decide_each(most)
        left: list[Decision] = []
        for count, (target, pending) in enumerate(self._each(_is_only_judged), start=len(self.decisions) + 1):
            self._isolated(target, lambda t=target, p=pending: left.extend(self._left(t, p)))  # type: ignore[misc]
            if count % _AT_ONCE == 0:
                yield count
        yield from self._request()
        yield from self._decide_more()
        self.decisions |= self._changed | {decision.target: decision for decision in left}
        skips = (skip.id for of in self.backlog.skips.of.values() for skip in of.values())
        self.plan = Plan(
            self.now,
            self.decisions,
            self._asked,
            self._set_aside(),
            checks=self._waiting.check_requests(),
            loops=_confirmed(self._loops.values()),
            deferred={key: len(rest) for key, rest in self._deferred.items() if rest},
            skipped={key: dict(of) for key, of in self.backlog.skips.of.items() if of},
            left=Counter(chain(*self.backlog.asked_again.values(), skips)),
        )
        # It refers back to this pass. Only the garbage collector would free this cycle, which takes half a second.
        del self._waiting

    def _look_ahead(self, slots: int, most: int | None) -> Iterator[int]:
        """Find partitions that are due later but must be requested earlier, because too many are due together."""
        upcoming: list[Upcoming] = []
        for node in filter(_is_asked_for, self.graph.nodes.values()):
            due = 0
            for partition in self.backlog.in_order(node):
                found: list[Upcoming] = []
                target, pending = (node.key, partition), self.backlog.of[node.key][partition]
                self._isolated(target, lambda t=target, p=pending, f=found: f.extend(self._upcoming(t, p)))  # type: ignore[misc]
                upcoming += found
                due += not found
                if due == most:
                    break
                if len(upcoming) % _AT_ONCE == 0:
                    yield 0
        lanes = self._admission().lanes or slots
        self._earlier = earlier_starts(upcoming, lanes, self._margin)

    def _decide_each(self, most: int | None) -> Iterator[int]:
        """Decide on all pending partitions, or for each asset until `most` partitions will be built soon.

        The others are deferred, except the oldest, which may break a promise first.
        """
        count = 0
        for node in filter(_is_asked_for, self.graph.nodes.values()):
            soon, ordered, is_needed = 0, self.backlog.in_order(node), node.key in self.graph.tightest
            is_paused = self.history.overrides.is_paused(node, self.now)
            for place, partition in enumerate(ordered):
                if soon == most:
                    entries, rest = self.backlog.of[node.key], ordered[place:]
                    stale = [] if is_needed else [p for p in rest if entries[p].stale]
                    for one in stale:
                        self._decided((node.key, one))
                    self._defer(node, rest, stale)
                    break
                decision = self._decided((node.key, partition))
                # If no contract needs the asset, its older partitions have no consumer either.
                soon += decision is not None and (
                    decision.state in _SOON
                    or (decision.state is State.NO_CONSUMER and not is_needed)
                    or (decision.state is State.PAUSED and is_paused)
                )
                count += 1
                if count % _AT_ONCE == 0:
                    yield count

    def _decided(self, target: Target) -> Decision | None:
        pending = self.backlog.of[target[0]][target[1]]
        self._isolated(target, lambda: self._take(self._decide(target, pending)))
        return self.decisions.get(target)

    def _defer(self, node: Node, rest: Sequence[Partition], stale: Sequence[Partition]) -> None:
        """Leave the rest of an asset's partitions to later passes, except the oldest.

        Args:
            stale: Partitions of `rest` that already have a decision.
        """
        ends = dict.fromkeys((_oldest(rest, self.backlog.of[node.key]), rest[-1]))
        for partition in (p for p in ends if (node.key, p) not in self.decisions):
            decision = self._decided((node.key, partition))
            if decision is not None and decision.state is State.REQUESTED:
                self._held_back.setdefault(node.key, []).append(partition)
                reason = f"{decision.reason}; newer partitions first, {len(rest)} older ones are pending"
                self._take(decision.but(state=State.THROTTLED, reason=reason))
        deferred = self._deferred[node.key] = dict.fromkeys(rest)
        for partition in (p for p in (*stale, *ends) if (node.key, p) in self.decisions):
            deferred.pop(partition, None)

    def _request(self) -> Iterator[int]:
        """Find the runs to request now, and the changed decisions."""
        requests = Requests(self.graph, self.history, self.asked)
        for _ in requests.steps(self.decisions):
            yield len(self.decisions)
        found, changed = requests.found
        self.aside |= requests.aside
        admission = self._admission()
        admitted, held = admission.of(found, self.decisions | changed)
        self._wake_at(admission.again_at)
        late = (decision.target for decision in self.decisions.values() if self._waits_for_a_write(decision))
        after = changed | held
        self._asked, held = readers_first(admitted, self.decisions | after, late, self.graph, self.history, self.asked)
        self._changed = after | held

    def _waits_for_a_write(self, decision: Decision) -> bool:
        """Return True if a late partition waits until a run has written a guarded input and evaluated its checks."""
        is_late = decision.start_by is not None and decision.start_by <= self.now
        return decision.state is State.BLOCKED and is_late and any(map(self._is_written, decision.wait_for))

    def _is_written(self, source: Target) -> bool:
        by = self.history.written(source).run_id
        is_checked = by is not None and by in self.history.open_runs and by not in self.asked.by_people
        return self._writes.has(source) or is_checked

    def _decide_more(self) -> Iterator[int]:
        """Decide on more partitions of requested ranges: a range costs one run, however long it is.

        One pass decides on a limited number. The other ranges are left for the next pass.
        """
        before, left, later = (self._asked, self._changed), self._bound.range, list[Request]()
        for request in before[0]:
            short = [key for key in request.assets if self._deferred.get(key)] if request.as_range else []
            if short and left <= 0:
                later.append(request)
            for key in short if left > 0 else ():
                rest = self._deferred[key]
                more = list(islice(rest, self._bound.longest))
                if len(more) == len(rest):
                    more += self._held_back.pop(key, ())
                left -= len(more)
                for count, partition in enumerate(more, start=1):
                    rest.pop(partition, None)
                    self._decided((key, partition))
                    if count % _AT_ONCE == 0:
                        yield len(self.decisions)
        if left == self._bound.range:
            return
        yield from self._request()
        if sum(len(r.targets) for r in self._asked) < sum(len(r.targets) for r in before[0]):
            self._asked, self._changed = before  # a longer run would hold a slot that is kept free
        for request in later:
            self._wake_at(self.now + 1.0)
            targets = set(request.targets)
            self._asked = [asked for asked in self._asked if targets.isdisjoint(asked.targets)]
            for target in targets & self.decisions.keys():
                self._changed[target] = self.decisions[target].but(
                    state=State.THROTTLED, reason="ranges of other tables are requested first"
                )

    def _admission(self) -> Admission:
        return Admission(self.graph, self.history, self.asked, self._slots, self._margin, self.now)

    def _each(self, wanted: Callable[[Node], bool]) -> Iterator[tuple[Target, Pending]]:
        for key, node in self.graph.nodes.items():
            if wanted(node):
                entries = dict(self.backlog.of.get(key, {}))
                yield from (((key, partition), pending) for partition, pending in entries.items())

    def _left(self, target: Target, pending: Pending) -> list[Decision]:
        """Return the decision on a partition that the planner does not request, to evaluate its contract only."""
        if pending.arrival is None and not pending.missing_inputs:
            return []
        facts = self._facts(self.graph.nodes[target[0]], target, pending)
        if pending.missing_inputs:
            return [_without_data(facts, pending)]
        if facts.deadline is not None:
            self._wake_at(facts.deadline)
        return [facts.but(state=State.LEFT, reason=_arrived(facts))]

    def _isolated(self, target: Target, act: Callable[[], None]) -> None:
        if target in self.aside:
            return
        raised = called(act)
        if isinstance(raised, Raised):
            self.aside[target] = str(raised)
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
        """Return the partition if it becomes due later without any event."""
        if pending.arrival is None or pending.missing_inputs or self._in_flight(target):
            return []
        demand = self.demands.of(target, pending.arrival)
        if demand is None or demand.at <= self.now:
            return []
        node = self.graph.nodes[target[0]]
        if self.history.overrides.pause_of(node, target[1], self.now) is not None:
            return []
        joinable = {read.key for read in node.inputs if self.graph.share_a_run(node, read)}
        joins = next((s for s in pending.pending_upstreams if s[0] in joinable and s[1] == target[1]), None)
        after = [source for source in pending.pending_upstreams if source != joins]
        most = 1 if node.conditional else node.most
        return [Upcoming(target, demand.latest, self.history.durations.of_run(target[0]), joins, after, most)]

    def _at(self, target: Target, demand: Demand) -> float:
        """Return when to request a partition: when it is due, or earlier if too many are due together."""
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
            return _without_data(facts, pending)
        demand = None if pending.arrival is None else self.demands.of(target, pending.arrival)
        if demand is not None and pending.arrival is not None:
            is_asap = self.graph.nodes[demand.for_].asap
            start_by = demand.at if is_asap or demand.start_by == float("inf") else demand.start_by
            due = facts.but(due_at=demand.at, due_for=demand.for_, start_by=start_by)
            by_contract = self._by_contract(node, target, pending, demand, due)
            # A model always has new data pending: by contract it would read rebuilt inputs only at its next deadline.
            is_refit = pending.stale and node.key in self.graph.models
            if by_contract.state is not State.NOT_DUE or not is_refit:
                return by_contract
        if pending.stale:
            return self._by_code(node, target, facts)
        if pending.unchanged:
            return facts.but(state=State.INCOMPLETE, reason=names(pending.unchanged))
        return facts.but(state=State.NO_CONSUMER, reason="it has no contract, and no asset that reads it needs it")

    def _facts(self, node: Node, target: Target, pending: Pending) -> Decision:
        facts = _NOTHING_DECIDED.but(
            asset=node.key,
            partition=target[1],
            oldest_arrival=pending.arrival,
            stale=pending.stale,
            built=pending.built,
            zone=node.contract.timezone if isinstance(node.contract, CronContract) else "UTC",
        )
        failure = self.history.failures.get(target)
        if failure is not None:
            again = run_retries.next_try(failure, has_new_data=self.history.has_new_data(target, failure.as_of))
            facts = facts.but(attempts=failure.attempts, next_try=again)
        own = None if pending.arrival is None else self.demands.own(target, pending.arrival)
        if own is None or pending.arrival is None or node.contract is None:
            return facts
        promised = facts.but(latest_start=own.start_by)
        if not pending.built and not is_judged(self.graph, self.history, node, target):
            return promised
        return promised.but(deadline=own.deadline, warn_at=warn_at(node.contract, pending.arrival))

    def _by_contract(self, node: Node, target: Target, pending: Pending, demand: Demand, facts: Decision) -> Decision:
        if (state := self._in_flight(target)) is not None:
            return facts.but(state=state, reason=_arrived(facts))
        if (paused := self._paused(node, target, facts)) is not None:
            return paused
        start_by = demand.latest if facts.latest_start is None else min(facts.latest_start, demand.start_by)
        self._wake_at(start_by)
        self._wake_at(self._at(target, demand))
        loop = self._loop_of(node, target, pending)
        if loop is not None and (loop.confirmed or self._at(target, demand) <= self.now):
            held = self._held_by(loop, target, demand, facts)
            if held is not None:
                return held
        if self._at(target, demand) > self.now and loop is None:
            reason = f"{_arrived(facts)}, to be requested at {moment(demand.at)}{_for(node, demand)}"
            return facts.but(state=State.NOT_DUE, reason=reason)
        inputs = self._waiting.for_inputs(target, pending, start_by)
        if inputs:
            # A partition may share the run of an input that it waits for, unless the check of another input blocks it.
            return self._waiting.blocked(node, target, facts, inputs) or waiting(facts, inputs, self.decisions)
        held = self._waiting.held(node, target, start_by, facts)
        return held or self._requested(node, target, facts, f"{_arrived(facts)}, due{_for(node, demand)}")

    def _requested(self, node: Node, target: Target, facts: Decision, reason: str) -> Decision:
        without = self._waiting.without(node, target)
        if not without:
            return facts.but(state=State.REQUESTED, reason=reason)
        reason = f"{reason}, without the missing {names(without)}"
        return facts.but(state=State.REQUESTED, reason=reason, without=without)

    def _loop_of(self, node: Node, target: Target, pending: Pending) -> Loop | None:
        """Return the loop if only data of a loop, or suspected loop, makes a built partition due; else None."""
        loop = self._loops.get(node.key)
        if loop is None or not self.history.facts.is_built(target):
            return None
        others = (read for read in node.inputs if read.key != loop.source)
        if any(any(self.history.news(read, target)) for read in others):
            return None
        return loop if all(key in loop.tables or key == loop.source for key, _ in pending.pending_upstreams) else None

    def _held_by(self, loop: Loop, target: Target, demand: Demand, facts: Decision) -> Decision | None:
        """Return the decision to pause after a recent run of a partition in a loop, or None.

        The test of a suspected loop never delays a run past its latest start.
        """
        built = self.history.facts.built(target)
        until = max(built.started_at + loop.pause if built else 0.0, facts.next_try or 0.0)
        if not loop.confirmed:
            until = min(until, demand.start_by, math.inf if facts.latest_start is None else facts.latest_start)
        if until <= self.now:
            return None
        why = loop.reason if loop.confirmed else f"to see whether {loop.source} changes only after builds of this asset"
        reason = f"{why}; next at {moment(until, facts.zone)}"
        return facts.but(state=State.BACKING_OFF, reason=reason, next_try=until)

    def _by_code(self, node: Node, target: Target, facts: Decision) -> Decision:
        if (state := self._in_flight(target)) is not None:
            return facts.but(state=state, reason=facts.stale)
        if (paused := self._paused(node, target, facts)) is not None:
            return paused
        inputs = self._waiting.for_rebuilt_inputs(node, target)
        if inputs:
            why = f"{facts.stale}; its inputs are rebuilt first: "
            return self._waiting.awaited(node, target, facts) or waiting(facts, inputs, self.decisions, why)
        held = self._waiting.held(node, target, float("inf"), facts)
        return held or self._requested(node, target, facts, facts.stale)

    def _paused(self, node: Node, target: Target, facts: Decision) -> Decision | None:
        """Return the decision on a partition that a person has paused, or None. Its deadline still counts."""
        pause = self.history.overrides.pause_of(node, target[1], self.now)
        if pause is None:
            return None
        return facts.but(state=State.PAUSED, reason=pause.told(), next_try=pause.until)

    def _in_flight(self, target: Target) -> State | None:
        """Return the state of a partition's run that is under way, in the queue or requested, or None."""
        if not (self.history.running or self.asked.reserved):
            return None
        together = self.graph.nodes[target[0]].together
        if not together and target not in self.history.running:
            return State.QUEUED if target in self.asked.reserved else None
        targets = [(key, target[1]) for key in together or (target[0],)]
        runs = set().union(*(self.history.running.get(t, ()) for t in targets))
        if runs - self.asked.queued:
            return State.RUNNING
        return State.QUEUED if runs or any(t in self.asked.reserved for t in targets) else None


def is_judged(graph: Graph, history: History, node: Node, target: Target) -> bool:
    """Return True unless a window was promised for a time before the first event of its sources."""
    promised = first_tick(node.contract, node.promised_window(target[1])) if node.contract else None
    seen = [history.first_seen[s] for s in graph.sources_of[node.key] if s in history.first_seen]
    return promised is None or not seen or promised >= min(seen)


def _without_data(facts: Decision, pending: Pending) -> Decision:
    """Return the decision on a partition whose required inputs have nothing for it."""
    return facts.but(
        state=State.NO_DATA,
        reason=names(pending.missing_inputs),
        wait_for=tuple((key, None) for key in pending.missing_inputs),
        withheld_since=pending.withheld_since,
    )


def _oldest(partitions: Sequence[Partition], entries: Mapping[Partition, Pending]) -> Partition:
    """Return the partition with the earliest arrival, the last one if several are equal or if nothing arrived."""
    oldest, earliest = partitions[-1], math.inf
    for partition in reversed(partitions):  # `min` with a key takes three times as long
        arrival = entries[partition].arrival
        if arrival is not None and arrival < earliest:
            oldest, earliest = partition, arrival
    return oldest


def _confirmed(loops: Iterable[Loop]) -> tuple[Loop, ...]:
    """Return each confirmed loop once, even if it leads through several sources."""
    return tuple({loop.tables: loop for loop in loops if loop.confirmed}.values())


def _is_asked_for(node: Node) -> bool:
    return node.automated and not node.refused


def _is_only_judged(node: Node) -> bool:
    return node.contract is not None and not (node.automated or node.source or node.refused)


def _for(node: Node, demand: Demand) -> str:
    return "" if demand.for_ == node.key else f" for {demand.for_}"


def _arrived(facts: Decision) -> str:
    if facts.oldest_arrival is None:
        return facts.stale
    return f"{'data' if facts.built else 'first data'} of {moment(facts.oldest_arrival)}"
