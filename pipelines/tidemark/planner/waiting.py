"""What a partition that is due waits for: its inputs, a model, a pause after a failure, a check that failed.

Pure. Belongs here: the reasons not to ask for a run now. Does not belong here: when a partition is due
(`planner.demand`), and what is made of it (`planner.evaluate`).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from pipelines.tidemark.planner.backlog import Backlog, Pending
from pipelines.tidemark.planner.decisions import Decision, State
from pipelines.tidemark.planner.demand import Demand, Demands
from pipelines.tidemark.planner.graph import Graph, Node, Target
from pipelines.tidemark.planner.history import History
from pipelines.tidemark.planner.models import Refits
from pipelines.tidemark.planner.wording import lost, moment, name, names, unanswered

_PATIENCE = 3
"""Failed attempts to rebuild an input after which those who read it are rebuilt without it."""

_STUCK = (State.BACKING_OFF, State.NO_DATA, State.INCOMPLETE, State.NO_CONSUMER, State.BLOCKED, State.UNANSWERED)


@dataclass
class Waiting:
    """What partitions wait for, at one time.

    Args:
        decisions: Those made so far: on every input of what is asked about.
        at: When a partition is asked for, given what is asked of it.
        wake_at: Takes a time at which the answer may be another.
        unanswered: Targets that were asked for without a run coming of it, to how often and until when they pause.
    """

    graph: Graph
    history: History
    backlog: Backlog
    demands: Demands
    decisions: Mapping[Target, Decision]
    now: float
    at: Callable[[Target, Demand], float]
    wake_at: Callable[[float], None]
    unanswered: Mapping[Target, tuple[int, float]]
    _refits: Refits = field(init=False)
    _to_be_rebuilt: dict[Target, bool] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._refits = Refits(self.graph, self.history, self.backlog)

    def for_inputs(self, target: Target, pending: Pending, start_by: float) -> tuple[Target, ...]:
        """The inputs that go first: whose pending data makes this due, or that are being built anyway.

        All of it only while there is time. Past the latest start nobody waits for an input that cannot be built now,
        nor for what arrived after the input was built last: what else arrived is not held up by them. A stream that
        never pauses would hold up its readers for ever.
        """
        waits: list[Target] = []
        passed: list[Target] = []
        for source, arrival in pending.pending_upstreams.items():
            needed = self.demands.of(target, arrival)
            if needed is not None and self.at(source, needed) <= self.now:
                late = self.now >= start_by and (self._is_stuck(source) or self._is_newer_than_built(source, arrival))
                (passed if late else waits).append(source)
            elif self.now < start_by and self._is_under_way(source):
                waits.append(source)
        if pending.news is None and not pending.stale:  # asked for early, perhaps: a run would find nothing new
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
        """The inputs that are to be rebuilt, or read what is; not those for which that cannot be done."""
        return tuple(source for source in self._restless(node, target) if self._is_to_be_rebuilt(source))

    def _restless(self, node: Node, target: Target) -> list[Target]:
        reads = (read for read in node.inputs if not read.use_latest)
        return [
            s for read in reads for s, pending in self.backlog.inputs(read, target[1]) if pending.has_stale_upstream
        ]

    def _is_to_be_rebuilt(self, source: Target) -> bool:
        """Whether a has_stale_upstream input, or one of those that make it so, can be built: nobody waits for ever."""
        if source not in self._to_be_rebuilt:
            seen: set[Target] = set()
            stack, found = [source], False
            while stack and not found:
                one = stack.pop()
                pending, decision = self.backlog.of.get(one[0], {}).get(one[1]), self.decisions.get(one)
                if one in seen or pending is None:
                    continue
                seen.add(one)
                if pending.stale:  # without a decision nobody here rebuilds it: it is left to people, or set aside
                    found = decision is not None and not _is_given_up(decision)
                else:
                    stack += self._restless(self.graph.nodes[one[0]], one)
            self._to_be_rebuilt[source] = found
        return self._to_be_rebuilt[source]

    def held(self, node: Node, target: Target, start_by: float, facts: Decision) -> Decision | None:
        """Why a partition that is due, and whose inputs are ready, is not asked for all the same; None if it is."""
        return (
            self._lacks_partitions(node, target, facts)
            or self._is_blocked(node, target, facts)
            or self._pauses(target, facts)
            or self._waits_for_a_model(node, start_by, facts)
        )

    def _is_stuck(self, target: Target) -> bool:
        seen: set[Target] = set()
        stack = [target]
        while stack:  # all it waits for is stuck as well; a table's own past can be a long chain
            one = stack.pop()
            decision = self.decisions.get(one)
            if decision is None or one in seen:
                continue  # nobody asks for it: an asset left to people, or a partition that does not exist
            seen.add(one)
            if decision.state is State.WAITING:
                stack += decision.wait_for
            elif decision.state not in _STUCK:
                return False
        return True

    def _is_newer_than_built(self, source: Target, arrival: float) -> bool:
        built = self.history.built.get(source)
        return built is not None and arrival > built.started_at

    def _is_under_way(self, target: Target) -> bool:
        decision = self.decisions.get(target)
        return decision is not None and decision.state in (State.RUNNING, State.REQUESTED)

    def _has_all(self, target: Target) -> bool:
        node = self.graph.nodes[target[0]]
        return all(
            self.history.inputs_of(read, target[1]) or self.backlog.candidates.needs_none(node, read, target[1])
            for read in node.inputs
        )

    def _lacks_partitions(self, node: Node, target: Target, facts: Decision) -> Decision | None:
        missing = next((why for read in node.inputs if (why := read.missing_inputs(target[1]))), "")
        return replace(facts, state=State.NO_DATA, reason=missing) if missing else None

    def _is_blocked(self, node: Node, target: Target, facts: Decision) -> Decision | None:
        for read in (read for read in node.inputs if read.key in self.history.checks.failed):
            with_it = read.key == node.key or read.key in node.together
            for source in self.history.inputs_of(read, target[1]):
                # What the same run builds is built anew with it: that is how the check gets to pass.
                check = None if with_it and source[1] == target[1] else self.history.blocking(source)
                if check is not None:
                    reason = f"the check {check} failed on {name(source)}"
                    return replace(facts, state=State.BLOCKED, reason=reason, wait_for=(source,))
        return None

    def _pauses(self, target: Target, facts: Decision) -> Decision | None:
        asked, until = self.unanswered.get(target, (0, self.now))
        if until > self.now:
            self.wake_at(until)
            return replace(facts, state=State.UNANSWERED, reason=unanswered(asked, until), next_try=until)
        failure = self.history.failures.get(target)
        if failure is None or facts.next_try is None or facts.next_try <= self.now:
            return None
        told = lost(failure.ended_at) if failure.lost else f"{failure.attempts} failed attempts"
        return replace(facts, state=State.BACKING_OFF, reason=f"{told}, next at {moment(facts.next_try)}")

    def _waits_for_a_model(self, node: Node, start_by: float, facts: Decision) -> Decision | None:
        held = None if self.now >= start_by else self._refits.wait(node)
        if held is None:
            return None
        reason, wait_for = held
        if not all(map(self._is_to_be_rebuilt, wait_for)):
            return None
        return replace(facts, state=State.WAITING, reason=reason, wait_for=wait_for)


def waiting(facts: Decision, inputs: tuple[Target, ...], why: str = "") -> Decision:
    """The decision on a partition that waits for these inputs."""
    told = names(map(name, inputs))
    return replace(facts, state=State.WAITING, reason=f"{why}{told}", wait_for=inputs)


def _is_given_up(decision: Decision) -> bool:
    """Whether a rebuild cannot be done, or has failed several times."""
    if decision.state is State.BACKING_OFF:
        return decision.attempts >= _PATIENCE
    return decision.state in _STUCK
