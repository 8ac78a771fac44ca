"""Reasons why a due partition waits: its inputs, a model, a pause after a failure, a blocking check.

Pure. Belongs here: the reasons not to request a run now. Does not belong here: when a partition is due
(`planner.demand`), and the decision about it (`planner.evaluate`).
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from dagster_tidemark.planner.decisions import CheckRequest, Decision, State
from dagster_tidemark.planner.deliveries import LOOK_BACK, DueDeliveries, DueDelivery, OnMissing
from dagster_tidemark.planner.demand import Demand, Demands
from dagster_tidemark.planner.graph import Graph, Node, Target
from dagster_tidemark.planner.guarded_reads import GuardedWrites
from dagster_tidemark.planner.history import History
from dagster_tidemark.planner.staleness import Pending, PendingWork
from dagster_tidemark.planner.wording import failed, lost, moment, name, names, unanswered
from dagster_tidemark.sources.feed import Partition

_PATIENCE = 3
"""Failed attempts to rebuild an input after which its readers are rebuilt without it."""

_STUCK = (
    State.AWAITED,
    State.BACKING_OFF,
    State.NO_DATA,
    State.INCOMPLETE,
    State.NO_CONSUMER,
    State.BLOCKED,
    State.UNANSWERED,
    State.PAUSED,
)


@dataclass
class Refits:
    """Progress of rebuilding the inputs of models, at one time. It is counted once per model, for all readers.

    A model reads all partitions of an input, and is fitted once for all of them. It waits until no partition of its
    inputs is stale, and its readers wait for it.
    """

    graph: Graph
    history: History
    backlog: PendingWork
    _told: dict[str, str] = field(default_factory=dict)

    def wait(self, node: Node) -> tuple[str, tuple[Target, ...]] | None:
        """Return why an asset waits for a rebuild to end, with the model it waits for, or None if it does not wait."""
        if node.key in self.graph.models and (told := self._rebuilt_so_far(node)):
            return f"its inputs are being rebuilt, {told}", ()
        for read in node.inputs:
            model = self.backlog.get((read.key, None)) if read.key in self.graph.models else None
            if model is not None and model.has_stale_upstream:
                told = self._rebuilt_so_far(self.graph.nodes[read.key])
                reason = f"model {read.key} is being refitted" + (f", {told}" if told else "")
                return reason, ((read.key, None),)
        return None

    def _rebuilt_so_far(self, model: Node) -> str:
        if model.key not in self._told:
            inputs = [read.key for read in model.inputs if read.upstream is None]
            stale = sum(
                pending.has_stale_upstream for key in inputs for pending in self.backlog.of.get(key, {}).values()
            )
            facts = self.history.facts
            built = sum(facts.is_built((key, p)) for key in inputs for p in facts.with_content(key)) if stale else 0
            self._told[model.key] = f"{max(0, built - stale)} of {built}" if stale else ""
        return self._told[model.key]


@dataclass
class WaitingReasons:
    """Reasons why partitions wait, at one time.

    Args:
        decisions: Decisions made so far. They cover all inputs of the partitions in question.
        at: Returns when a partition is requested for a demand.
        wake_at: Called with a time when the reason may change.
        deferred: Pending partitions of each asset without a decision in this pass.
        in_flight: Returns the state of a partition that is being built, or None.
        writes: Partitions with blocking checks that runs under way have not written yet.
        unanswered: Requested targets that got no run, with the number of requests and the end of the pause.
    """

    graph: Graph
    history: History
    backlog: PendingWork
    demands: Demands
    decisions: Mapping[Target, Decision]
    now: float
    at: Callable[[Target, Demand], float]
    wake_at: Callable[[float], None]
    unanswered: Mapping[Target, tuple[int, float]]
    deferred: Mapping[str, Collection[Partition]] = field(default_factory=dict)
    in_flight: Callable[[Target], State | None] = lambda _: None
    writes: GuardedWrites | None = None
    _refits: Refits = field(init=False)
    _deliveries: DueDeliveries = field(init=False)
    _to_be_rebuilt: dict[Target, bool] = field(default_factory=dict)
    _unchecked: dict[Target, tuple[str, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._refits = Refits(self.graph, self.history, self.backlog)
        self._deliveries = DueDeliveries(self.graph, self.history, self.backlog, self.now)

    def for_inputs(self, target: Target, pending: Pending, start_by: float) -> tuple[Target, ...]:
        """Return the inputs to wait for: their pending data makes the partition due, or they are being built anyway.

        After its latest start, a partition no longer waits for an input that cannot be built now. It also no longer
        waits for newer data of an input that already has pending data for it, only for an input without any. Otherwise
        a stream that never pauses would delay its readers forever.
        """
        waits: list[Target] = []
        passed: list[Target] = []
        for source, arrival in pending.pending_upstreams.items():
            needed = self.demands.of(target, arrival)
            if needed is not None and self.at(source, needed) <= self.now:
                late = self.now >= start_by and (self._is_stuck(source) or self._is_newer(source, arrival, target))
                late = late and self._has_some(source[0], target)
                (passed if late else waits).append(source)
            elif self.now < start_by and self._is_under_way(source):
                waits.append(source)
        if pending.news is None and not pending.stale:  # a run would find nothing new, perhaps because it is early
            return tuple(waits or pending.pending_upstreams)
        if waits or not passed:
            return tuple(waits)
        rest = [arrival for source, arrival in pending.pending_upstreams.items() if source not in passed]
        if pending.news is not None:
            rest.append(pending.news)
        needed = self.demands.of(target, min(rest)) if rest and self._has_all(target) else None
        if needed is not None:
            self.wake_at(needed.at)
        return () if needed is not None and needed.at <= self.now else tuple(passed)

    def for_rebuilt_inputs(self, node: Node, target: Target) -> tuple[Target, ...]:
        """Return the inputs that will change because they or their inputs are stale and can be rebuilt."""
        return tuple(source for source in self._restless(node, target) if self._is_to_be_rebuilt(source))

    def _restless(self, node: Node, target: Target) -> list[Target]:
        reads = (read for read in node.inputs if not read.use_latest)
        return [
            s for read in reads for s, pending in self.backlog.inputs(read, target[1]) if pending.has_stale_upstream
        ]

    def _is_to_be_rebuilt(self, source: Target) -> bool:
        """Return True if a stale input, or an upstream partition that makes it stale, can be rebuilt."""
        if source not in self._to_be_rebuilt:
            seen: set[Target] = set()
            stack, found = [source], False
            while stack and not found:
                one = stack.pop()
                pending, decision = self.backlog.of.get(one[0], {}).get(one[1]), self.decisions.get(one)
                if one in seen or pending is None:
                    continue
                seen.add(one)
                if pending.stale:  # a partition without a decision is rebuilt only if it is deferred
                    found = self._is_deferred(one) if decision is None else not _is_given_up(decision)
                else:
                    stack += self._restless(self.graph.nodes[one[0]], one)
            self._to_be_rebuilt[source] = found
        return self._to_be_rebuilt[source]

    def held(self, node: Node, target: Target, start_by: float, facts: Decision) -> Decision | None:
        """Return why a due partition with ready inputs is not requested, or None if it is."""
        return (
            self._lacks_partitions(node, target, facts)
            or self.blocked(node, target, facts)
            or self._pauses(target, facts)
            or self._waits_for_a_model(node, start_by, facts)
        )

    def _is_stuck(self, target: Target) -> bool:
        seen: set[Target] = set()
        stack = [target]
        while stack:  # a waiting input is stuck if all its inputs are; the chain can be long
            one = stack.pop()
            decision = self.decisions.get(one)
            if decision is None and self._is_deferred(one):
                return False
            if decision is None or one in seen:
                continue  # no sensor requests it: an asset left to people, or a partition that does not exist
            seen.add(one)
            if decision.state is State.WAITING:
                stack += decision.wait_for
            elif decision.state not in _STUCK:
                return False
        return True

    def _is_newer(self, source: Target, arrival: float, target: Target) -> bool:
        """Return True if data that an input lacks is newer than its last build, or than its data for a reader."""
        built = self.history.facts.built(source)
        if built is None:
            return False
        if arrival > built.started_at:
            return True
        # Its last run may have begun after the arrival, but before the data reached the run's inputs.
        if not self.history.facts.is_built(target):
            held = self.history.facts.first_arrival(source)
            return held is not None and held < arrival
        reads = (read for read in self.graph.nodes[target[0]].inputs if read.key == source[0])
        changes = (change for read in reads for one, change in self.history.news(read, target) if one == source)
        return any(change.arrived_at is not None and change.arrived_at < arrival for change in changes)

    def _is_under_way(self, target: Target) -> bool:
        decision = self.decisions.get(target)
        if decision is None:
            return self._is_deferred(target) and self.in_flight(target) is not None
        return decision.state in (State.RUNNING, State.QUEUED, State.REQUESTED)

    def _is_deferred(self, target: Target) -> bool:
        return target[1] in self.deferred.get(target[0], ())

    def _has_some(self, key: str, target: Target) -> bool:
        """Return True if a partition can be built without newer data of an input, also in the run of another input."""
        reads = [read for read in self.graph.nodes[target[0]].inputs if read.key == key]
        return all(read.optional or self.history.inputs_of(read, target[1]) for read in reads)

    def _has_all(self, target: Target) -> bool:
        node = self.graph.nodes[target[0]]
        return all(
            read.optional
            or self.history.inputs_of(read, target[1])
            or self.backlog.candidates.needs_none(node, read, target[1])
            for read in node.inputs
        )

    def _lacks_partitions(self, node: Node, target: Target, facts: Decision) -> Decision | None:
        missing = next((why for read in node.inputs if (why := read.missing_inputs(target[1]))), "")
        return facts.but(state=State.NO_DATA, reason=missing) if missing else None

    def blocked(self, node: Node, target: Target, facts: Decision, rebuilt: Collection[Target] = ()) -> Decision | None:
        """Return the decision on a partition that waits for a delivery or a blocking check of an input, or None.

        A check blocks if it failed, or if it has no result for the last write of the input, also for a write to come.

        Args:
            rebuilt: Inputs that the same run or an earlier run builds first. Their checks run again.
        """
        if (awaited := self.awaited(node, target, facts)) is not None:
            return awaited
        lacking: list[Target] = []
        to_come: list[Target] = []
        for read in node.inputs:
            if not self._guarded(read.key):
                continue
            with_it = read.key == node.key or read.key in node.together
            written = self.writes.read_by(read, target[1]) if self.writes else ()
            known = dict.fromkeys(self.history.inputs_of(read, target[1]))
            for source in known | dict.fromkeys(written):
                # The same run builds this input again: only then can the check pass.
                if source in rebuilt or (with_it and source[1] == target[1]):
                    continue
                check = self.history.blocking(source)
                if check is not None:
                    reason = f"the check {check} failed on {name(source)}"
                    return facts.but(state=State.BLOCKED, reason=reason, wait_for=(source,))
                if source in known and (unchecked := self.history.unchecked(source)):
                    self._unchecked[source] = unchecked
                    lacking.append(source)
                elif source in written:
                    to_come.append(source)
        if not (lacking or to_come):
            return None
        reason = self._lacks_result(lacking[0]) if lacking else self._is_written(to_come[0])
        return facts.but(state=State.BLOCKED, reason=reason, wait_for=(*lacking, *to_come))

    def _is_written(self, source: Target) -> str:
        return f"the check {min(self.graph.blocking(source[0]))} of {name(source)} is not evaluated yet"

    def awaited(self, node: Node, target: Target, facts: Decision) -> Decision | None:
        """Return the decision on a partition that waits for a missing delivery of an input, or None."""
        missing = self._missing(node, target, OnMissing.WAIT)
        if not missing:
            return None
        self.wake_at(missing[0].due_at + LOOK_BACK)
        said = names(each.said for each in missing)
        return facts.but(state=State.AWAITED, reason=said, wait_for=tuple(each.source for each in missing))

    def without(self, node: Node, target: Target) -> tuple[str, ...]:
        """Return the missing deliveries that a partition is built without, as its inputs declare it, in words."""
        return tuple(each.said for each in self._missing(node, target, OnMissing.BUILD))

    def _missing(self, node: Node, target: Target, what: OnMissing) -> list[DueDelivery]:
        if not any(read.on_missing == what for read in node.inputs):
            return []
        return self._deliveries.lacking(node, target[1], what)

    def check_requests(self) -> list[CheckRequest]:
        """Return the blocking checks to run: they have no result, and no run under way will evaluate them."""
        found: dict[tuple[str, str, Partition], int] = {}
        for source, checks in self._unchecked.items():
            alone = self.graph.nodes[source[0]].run_alone
            written = self.history.written(source).id
            paused = self.history.overrides.pause_of(self.graph.nodes[source[0]], source[1], self.now)
            for check in checks if paused is None and not self._is_being_checked(source) else ():
                if check in alone:
                    key = (source[0], check, source[1] if alone[check] else None)
                    found[key] = max(found.get(key, 0), written)
        return [CheckRequest(*key, written=written) for key, written in found.items()]

    def _guarded(self, key: str) -> bool:
        return bool(self.graph.blocking(key))

    def _is_being_checked(self, source: Target) -> bool:
        """Return True if a run that built or will build an input has not ended: it may still evaluate its checks."""
        by = self.history.written(source).run_id
        return source in self.history.running or (by is not None and by in self.history.open_runs)

    def _lacks_result(self, source: Target) -> str:
        check, node = self._unchecked[source][0], self.graph.nodes[source[0]]
        if self._is_being_checked(source):
            return f"the check {check} of {name(source)} is not evaluated yet"
        if check in node.run_alone:
            remedy = "it is run again, with growing pauses; you can also run it"
        elif check in self.graph.evaluated_elsewhere(source[0]):
            remedy = "another code location evaluates it; you can run it there"
        elif check in node.run_later:
            remedy = "its own automation condition requests it; you can also run it"
        else:
            remedy = f"it runs only with {node.key}: materialize {node.key} again"
        return f"the check {check} has no result since the last update of {name(source)}: {remedy}"

    def _pauses(self, target: Target, facts: Decision) -> Decision | None:
        asked, until = self.unanswered.get(target, (0, self.now))
        if until > self.now:
            self.wake_at(until)
            return facts.but(state=State.UNANSWERED, reason=unanswered(asked, until), next_try=until)
        failure = self.history.failures.get(target)
        if failure is None or facts.next_try is None or facts.next_try <= self.now:
            return None
        told = lost(failure.ended_at) if failure.lost else failed(failure.attempts)
        return facts.but(state=State.BACKING_OFF, reason=f"{told}, next at {moment(facts.next_try)}")

    def _waits_for_a_model(self, node: Node, start_by: float, facts: Decision) -> Decision | None:
        held = None if self.now >= start_by else self._refits.wait(node)
        if held is None:
            return None
        reason, wait_for = held
        if not all(map(self._is_to_be_rebuilt, wait_for)):
            return None
        return facts.but(state=State.WAITING, reason=reason, wait_for=wait_for)


def waiting(
    facts: Decision, inputs: tuple[Target, ...], decisions: Mapping[Target, Decision], why: str = ""
) -> Decision:
    """Return the decision on a partition that waits for these inputs. Its reason names hindered inputs first."""
    told = {source: _hindered(decisions.get(source)) for source in inputs}
    ordered = sorted(inputs, key=lambda source: not told[source])
    said = names(f"{name(source)} ({told[source]})" if told[source] else name(source) for source in ordered)
    return facts.but(state=State.WAITING, reason=f"{why}{said}", wait_for=inputs)


def _hindered(decision: Decision | None) -> str:
    """Return why an input cannot be built now, or an empty text."""
    if decision is None:
        return ""
    if decision.state is State.PAUSED:
        return f"{decision.state} {decision.reason}"
    if decision.attempts and decision.next_try is not None:
        return f"{failed(decision.attempts)}, next at {moment(decision.next_try)}"
    return str(decision.state) if decision.state in (State.BLOCKED, State.UNANSWERED, State.HELD) else ""


def _is_given_up(decision: Decision) -> bool:
    """Return True if a rebuild is impossible, or has failed several times."""
    if decision.state is State.BACKING_OFF:
        return decision.attempts >= _PATIENCE
    return decision.state in _STUCK
