"""Root causes of late data at one moment, found in the plan, the contracts and the doubts.

Pure. The caller must prevent changes of the planner's memory during a call. Belongs here: which cause is at fault,
which contracts it breaks, and when. Does not belong here: incidents over time (`incidents.lifecycle`).

A contract is in trouble if its deadline has passed, or if the earliest possible end of its run is after the deadline.
A run that has not started counts with its usual duration, so that an ordinary day causes no warning. The usual
duration follows runs that become slower (`RunDurations.usual`). If something hinders a run, it counts with its longest
duration, so that a person has that much time to act.
"""

import math
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from dagster_tidemark.engine.doubts import QUEUE, SENSORS, Cause, Doubts
from dagster_tidemark.incidents.arrivals import INCOMPLETE, MISSES, Arrival
from dagster_tidemark.incidents.incident import CauseKind, LateAsset, Outage, RootCause, Trouble
from dagster_tidemark.incidents.wording import one_line
from dagster_tidemark.planner.contract_status import span
from dagster_tidemark.planner.contracts import FreshnessStatus, deadline
from dagster_tidemark.planner.decisions import RANGES, ContractStatus, Decision, Plan, State
from dagster_tidemark.planner.graph import Graph, Target
from dagster_tidemark.planner.history import History
from dagster_tidemark.planner.silence import Silence
from dagster_tidemark.planner.staleness import PendingWork
from dagster_tidemark.planner.wording import failed, moment, name
from dagster_tidemark.sources.feed import Partition

_NEXT_LOOK = 15.0
"""Most seconds until the next check. Predictions add them, so that no warning is one check too late."""
_SOON_STARTED = 20.0
"""Seconds in the queue after which a run waits for a slot."""
_HANGS = 2.0
"""A run hangs if it takes more than this multiple of its longest duration."""
_SHOWN = 3
_LONGEST_SAID = 1_000
"""Most characters of a cause, which is stored with each change. Errors of user code may be longer."""


@dataclass(frozen=True)
class Ownership:
    """Owners and group of an asset."""

    owners: tuple[str, ...] = ()
    group: str = ""


@dataclass(frozen=True)
class Evidence:
    """The state of the pipeline at one moment.

    Args:
        standings: Contract status of each asset, before doubts are applied.
        ours: The assets to report about.
        outage: The last period without a tick of any sensor, if it may still make assets late.
        dead_letters: Number of notifications in the dead-letter queue.
        arrivals: States of the expected arrivals.
    """

    graph: Graph
    history: History
    backlog: PendingWork
    plan: Plan
    standings: Mapping[str, ContractStatus]
    doubts: Doubts
    ours: Callable[[str], bool] = lambda _: True
    ownership: Mapping[str, Ownership] = field(default_factory=dict)
    outage: Outage | None = None
    dead_letters: int = 0
    arrivals: Sequence[Arrival] = ()


@dataclass(frozen=True)
class _Promise:
    """A partition's promise, its root causes, and whether it is missed.

    Args:
        is_missed: True if the deadline has passed, or cannot be met any more.
    """

    asset: str
    partition: Partition
    deadline: float | None
    arrived_at: float | None
    causes: tuple[RootCause, ...]
    is_missed: bool


def troubles(evidence: Evidence) -> list[Trouble]:
    """Return each root cause that makes a contract late, with all contracts that it makes late."""
    return _Search(evidence).found()


class _Search:
    def __init__(self, evidence: Evidence) -> None:
        self._evidence, self._now = evidence, evidence.plan.now
        self._decisions = evidence.plan.decisions
        self._silence = Silence(evidence.graph, evidence.history)
        self._roots: dict[Target, tuple[RootCause, ...]] = {}
        self._ends: dict[Target, tuple[float, bool]] = {}

    def found(self) -> list[Trouble]:
        promises = [*self._of_decisions(), *self._of_standings(), *self._of_doubts(), *self._of_expected()]
        missed = {cause.key for promise in promises if promise.is_missed for cause in promise.causes}
        causes: dict[str, RootCause] = {}
        late: dict[str, dict[str, list[_Promise]]] = {}
        for promise in promises:
            for cause in promise.causes:
                if cause.key not in missed:
                    continue
                # A cause that repairs itself is listed only with the contracts that are missed until then.
                if cause.repairs_itself and not promise.is_missed:
                    continue
                causes[cause.key] = _newer(causes.get(cause.key), cause)
                late.setdefault(cause.key, {}).setdefault(promise.asset, []).append(promise)
        found = [
            Trouble(
                replace(cause, said=one_line(cause.said, _LONGEST_SAID)),
                tuple(self._late(asset, of) for asset, of in late[key].items()),
            )
            for key, cause in causes.items()
        ]
        if self._evidence.dead_letters:
            found.append(Trouble(_dead_letters()))
        return found

    # Promises.

    def _of_decisions(self) -> Iterable[_Promise]:
        for decision in self._decisions.values():
            if decision.deadline is None or not self._evidence.ours(decision.asset):
                continue
            end, _ = self._end(decision.target)
            is_missed = self._now > decision.deadline or end > decision.deadline
            roots = self._roots_of(decision.target)
            if roots and all(map(_ends_by_itself, roots)):
                is_missed = self._now > decision.deadline  # a person chose the end, and needs no warning
            if is_missed or decision.state not in (State.RUNNING, State.REQUESTED, State.QUEUED):
                causes = self._explained(decision, roots)
                if causes:
                    yield _Promise(
                        decision.asset,
                        decision.partition,
                        decision.deadline,
                        decision.oldest_arrival,
                        causes,
                        is_missed,
                    )

    def _of_standings(self) -> Iterable[_Promise]:
        for asset, standing in self._evidence.standings.items():
            if not self._evidence.ours(asset):
                continue
            for lack in standing.lacks:
                causes = tuple(self._silent(source) for source in lack.sources)
                is_missed = self._now + self._longest(asset) + _NEXT_LOOK > lack.deadline
                explained = self._in_doubt(asset) or causes
                yield _Promise(asset, lack.partition, lack.deadline, lack.since, explained, is_missed)
            if standing.verdict is FreshnessStatus.NOT_JUDGED:
                said = standing.reason.removeprefix("set aside: ")
                remedy = "correct it, and reload the code location"
                cause = RootCause(CauseKind.SET_ASIDE, asset, f"{asset} is set aside: {said}", 0.0, asset, remedy)
                yield _Promise(asset, None, None, None, (cause,), is_missed=True)
            elif standing.verdict is FreshnessStatus.BREACHED and not standing.lacks:
                decision = self._decisions.get((asset, standing.partition))
                if decision is not None and decision.deadline is not None:
                    continue  # judged above
                roots: tuple[RootCause, ...] = (_not_requested(asset, standing.reason),)
                if decision is not None:
                    roots = self._explained(decision, self._roots_of(decision.target)) or roots
                yield _Promise(asset, standing.partition, standing.deadline, None, roots, is_missed=True)

    def _of_doubts(self) -> Iterable[_Promise]:
        """Yield the promises that may be broken because no sensor sees the data that arrives."""
        for asset, node in self._evidence.graph.nodes.items():
            if node.contract is None or node.source or not self._evidence.ours(asset):
                continue
            causes = self._in_doubt(asset)
            if not causes:
                continue
            # Data may have arrived right after the last tick.
            since = causes[0].since
            promised = deadline(node.contract, since, None)
            is_missed = self._now + self._margin(asset, promised - since) > promised
            if all(_ends_by_itself(cause) for cause in causes):
                is_missed = self._now > promised
            yield _Promise(asset, None, promised, None, causes, is_missed)

    def _of_expected(self) -> Iterable[_Promise]:
        """Yield the due windows of sources. Leave out sources that no sensor checks: their state is unknown."""
        for each in self._evidence.arrivals:
            if each.state in MISSES and not self._evidence.doubts.about(each.source, "", [each.source]):
                cause = _incomplete(each) if each.state in INCOMPLETE else self._silent(each.source)
                yield _Promise(each.source, each.partition, each.due_at, each.arrived_at, (cause,), is_missed=True)

    # Root causes.

    def _explained(self, decision: Decision, roots: tuple[RootCause, ...]) -> tuple[RootCause, ...]:
        """Return a fault of the platform in place of the causes that are only its effects."""
        doubts, outage = self._in_doubt(decision.asset), self._evidence.outage
        if doubts:
            own = tuple(root for root in roots if _is_independent(root, doubts[0].since))
            return own or doubts
        if outage is not None and roots and all(root.kind in _EFFECTS_OF_AN_OUTAGE for root in roots):
            # A run that failed before or after the outage failed for another reason.
            failures = [root.since for root in roots if root.kind is CauseKind.FAILING]
            died = all(outage.since - _NEXT_LOOK <= at <= outage.until + _NEXT_LOOK for at in failures)
            if died and decision.oldest_arrival is not None and decision.oldest_arrival < outage.until:
                return (_outage(outage),)
        return roots

    def _in_doubt(self, asset: str) -> tuple[RootCause, ...]:
        """Return the first doubt about an asset as a root cause."""
        node = self._evidence.graph.nodes[asset]
        found = self._evidence.doubts.about(asset, node.sensor, self._evidence.graph.sources_of.get(asset, ()))
        return (_platform(found[0]),) if found else ()

    def _roots_of(self, target: Target) -> tuple[RootCause, ...]:
        """Return the causes that keep a partition from being built, following its inputs."""
        for one in self._inputs_first(target, self._roots):
            found: dict[str, RootCause] = {}  # thousands of failed partitions of an asset have one cause
            for cause in self._find(one):
                found[cause.key] = _newer(found.get(cause.key), cause)
            self._roots[one] = tuple(found.values())
        return self._roots[target]

    def _find(self, target: Target) -> Iterable[RootCause]:
        decision = self._decisions.get(target)
        if decision is None:
            return ()
        match decision.state:
            case State.RUNNING:
                return self._below(target) or [self._own(decision)]
            case State.WAITING | State.NOT_DUE | State.INCOMPLETE:
                below = self._below(target)
                return below or ([] if decision.state is State.NOT_DUE else [self._own(decision)])
            case State.NO_DATA:
                silent = {source for source, _ in self._silence.lacking(target)}
                found = [self._silent(source) for source in sorted(silent)]
                return found or [_not_requested(decision.asset, decision.reason)]
            case State.AWAITED:
                return [self._silent(source) for source in sorted({key for key, _ in decision.wait_for})]
            case State.BLOCKED:
                return [self._blocked(source, decision.reason) for source in decision.wait_for]
            case _:
                return [self._own(decision)]

    def _below(self, target: Target) -> list[RootCause]:
        return [root for source in self._inputs(target) for root in self._roots.get(source, ())]

    def _inputs(self, target: Target) -> Collection[Target]:
        """Return the pending inputs that a partition waits for, will wait for when it is due, or is built after."""
        decision = self._decisions.get(target)
        if decision is None or decision.state not in _AFTER_INPUTS:
            return ()
        if decision.state is State.WAITING:
            return decision.wait_for
        pending = self._evidence.backlog.of.get(target[0], {}).get(target[1])
        inputs = pending.pending_upstreams if pending is not None else ()
        if decision.state is State.RUNNING:
            return [source for source in inputs if self._share_run(source, target)]
        return inputs

    def _share_run(self, source: Target, target: Target) -> bool:
        running = self._evidence.history.running
        return not set(running.get(source, ())).isdisjoint(running.get(target, ()))

    def _inputs_first(self, target: Target, known: Container[Target]) -> Iterator[Target]:
        """Yield a partition and its pending inputs at any depth, inputs first, except the known ones.

        The stack is explicit, because a chain of partitions can be as long as a table's history. An input that leads
        back to its reader is not followed again.
        """
        stack, opened = [target], set[Target]()
        while stack:
            one = stack[-1]
            if one in known:
                stack.pop()
            elif one in opened:
                stack.pop()
                yield one
            else:
                opened.add(one)
                stack += [source for source in self._inputs(one) if source not in known and source not in opened]

    def _own(self, decision: Decision) -> RootCause:
        """Return the cause that is in the asset itself."""
        asset, said = decision.asset, f"{name(decision.target)} {decision.state}: {decision.reason}"
        if decision.state is State.PAUSED:
            return self._pause(decision)
        failure = self._evidence.history.failures.get(decision.target)
        if failure is not None and (failure.attempts or failure.lost):
            how = failed(failure.attempts) if failure.attempts else "its runs die"
            said = f"{name(decision.target)} fails: {how}, the last at {moment(failure.ended_at)}"
            remedy = f"see the log of the newest run of {asset}"
            again = decision.next_try
            return RootCause(CauseKind.FAILING, asset, said, failure.ended_at, asset, remedy, True, again)
        if decision.state is State.HELD:
            sensor = RANGES if f" {RANGES} " in decision.reason else self._evidence.graph.nodes[asset].sensor
            remedy = f"switch it on: dagster sensor start {sensor}"
            said = f"sensor {sensor} is switched off"
            return RootCause(CauseKind.PLATFORM, f"sensor {sensor}", said, 0.0, "", remedy)
        if decision.state in (State.QUEUED, State.THROTTLED):
            said = f"the run of {name(decision.target)} waits for a slot"
            remedy = "end runs that hang, or raise max_concurrent_runs"
            return RootCause(CauseKind.QUEUE, QUEUE, said, 0.0, "", remedy, True)
        if decision.state in (State.RUNNING, State.REQUESTED):
            usual = self._usual(asset)
            took = f" (runs usually take {span(usual)})" if usual else ""
            said = f"the run of {name(decision.target)} ends too late{took}"
            return RootCause(CauseKind.SLOW, asset, said, 0.0, asset, f"see the newest run of {asset}", True)
        if decision.state is State.UNANSWERED:
            remedy = "see the sensor's ticks in the UI, under Automation"
            return RootCause(CauseKind.NOT_REQUESTED, asset, said, 0.0, asset, remedy, True, decision.next_try)
        return _not_requested(asset, said)

    def _pause(self, decision: Decision) -> RootCause:
        """Return the pause of a partition. A pause with an end repairs itself at its end."""
        node, until = self._evidence.graph.nodes[decision.asset], decision.next_try
        pause = self._evidence.history.overrides.pause_of(node, decision.partition, self._now)
        what, since = (pause.what, pause.at) if pause is not None else (decision.asset, 0.0)
        said, remedy = f"{what} is paused {decision.reason}", f"end the pause: tidemark resume {what}"
        return RootCause(CauseKind.PAUSED, what, said, since, decision.asset, remedy, until is not None, until)

    def _silent(self, source: str) -> RootCause:
        said, remedy = self._silence.told([source]), f"ask the supplier of {source}"
        return RootCause(CauseKind.MISSING, source, said, 0.0, source, remedy)

    def _blocked(self, source: Target, reason: str) -> RootCause:
        history, asset = self._evidence.history, source[0]
        if check := history.blocking(source):
            remedy = f"correct the data or the check, then materialize {name(source)} again"
            return RootCause(CauseKind.CHECK, f"{asset}: {check}", reason, 0.0, asset, remedy)
        node = self._evidence.graph.nodes[asset]
        unchecked = history.unchecked(source)
        lacking = unchecked or sorted(self._evidence.graph.blocking(asset))  # a run is about to write the source
        subject, check = f"{asset}: {', '.join(lacking)}", f"the check {', '.join(lacking)} of {name(source)}"
        if not unchecked or source in history.running or history.written(source).run_id in history.open_runs:
            remedy = f"see the newest run of {asset}"
            return RootCause(CauseKind.CHECK, subject, f"{check} is still evaluated", 0.0, asset, remedy, True)
        remedy = "see the log of the newest run of the check; correct the check if it raised"
        is_repeated = node.run_alone.keys() >= set(lacking)
        if not is_repeated:
            alone = {*self._evidence.graph.evaluated_elsewhere(asset), *node.run_later, *node.run_alone}
            again = "run the check" if alone >= set(lacking) else f"materialize {name(source)}"
            remedy = f"{remedy}, then {again} again"
        return RootCause(CauseKind.CHECK, subject, f"{check} has no result", 0.0, asset, remedy, is_repeated)

    # Durations.

    def _end(self, target: Target) -> tuple[float, bool]:
        """Return the earliest end of a partition's build, and whether something hinders it until then."""
        for one in self._inputs_first(target, self._ends):
            self._ends[one] = self._compute_end(one)
        return self._ends[target]

    def _compute_end(self, target: Target) -> tuple[float, bool]:
        decision = self._decisions.get(target)
        if decision is None:
            return self._now, False
        asset, now = decision.asset, self._now
        match decision.state:
            case State.RUNNING:
                runs = self._evidence.history.running.get(target, ())
                open_runs = self._evidence.history.open_runs
                began = max((open_runs[run].created_at for run in runs if run in open_runs), default=now)
                hangs = self._longest(asset) and now - began > _HANGS * self._longest(asset)
                return (now + self._usual(asset), True) if hangs else (max(now, began + self._usual(asset)), False)
            case State.QUEUED if self._waits_long(target):
                return now + self._usual(asset) + _NEXT_LOOK, True
            case State.REQUESTED | State.QUEUED | State.THROTTLED:
                return now + self._usual(asset), False
            case State.NOT_DUE:
                return max(now, decision.due_at or now) + self._usual(asset), False
            case State.BACKING_OFF | State.UNANSWERED:
                return max(now, decision.next_try or now) + self._usual(asset), True
            case State.WAITING:
                ends = [self._ends[source] for source in decision.wait_for if source in self._ends]
                is_hindered = any(hindered for _, hindered in ends)
                takes = self._longest(asset) if is_hindered else self._usual(asset)
                return max([now, *(end for end, _ in ends)]) + takes, is_hindered
            case _:
                arrived, promised = decision.oldest_arrival, decision.deadline
                allowed = promised - arrived if promised is not None and arrived is not None else math.inf
                return now + self._margin(asset, allowed), True

    def _waits_long(self, target: Target) -> bool:
        """Return True if the run of a partition has been in the queue for longer than it takes to leave a free one."""
        open_runs = self._evidence.history.open_runs
        runs = self._evidence.history.running.get(target, ())
        created = [open_runs[run].created_at for run in runs if run in open_runs]
        return bool(created) and self._now - max(created) > _SOON_STARTED

    def _longest(self, asset: str) -> float:
        """Return the longest duration of the asset's runs; 0 if none was measured, so that no guess warns."""
        durations = self._evidence.history.durations
        return durations.of_run(asset) if durations.samples.get(asset) else 0.0

    def _margin(self, asset: str, allowed: float) -> float:
        """Return how long before its deadline a hindered run counts as late, in seconds.

        This is the longest duration of the asset's runs, so that a person can still prevent the breach. If the contract
        allows less from the arrival on, any short fault would count: then this is the usual duration, or 0.
        """
        return next((t for of in (self._longest, self._usual) if (t := of(asset) + _NEXT_LOOK) <= allowed), 0.0)

    def _usual(self, asset: str) -> float:
        return self._evidence.history.durations.usual(asset)

    def _late(self, asset: str, promises: Sequence[_Promise]) -> LateAsset:
        ordered = sorted(promises, key=lambda each: (each.deadline or 0.0, str(each.partition)))
        keys = list(dict.fromkeys(str(each.partition) for each in ordered if each.partition is not None))
        deadlines = [each.deadline for each in ordered if each.deadline is not None]
        arrivals = [each.arrived_at for each in ordered if each.arrived_at is not None]
        known = self._evidence.ownership.get(asset, Ownership())
        return LateAsset(
            asset,
            tuple(keys[:_SHOWN]),
            max(1, len(keys)),
            min(arrivals, default=None),
            deadlines[0] if deadlines else None,
            is_late=not deadlines or self._now > deadlines[0],
            owners=known.owners,
            group=known.group,
        )


_AFTER_INPUTS = (State.WAITING, State.NOT_DUE, State.INCOMPLETE, State.RUNNING)
_EFFECTS_OF_AN_OUTAGE = (CauseKind.SLOW, CauseKind.QUEUE, CauseKind.NOT_REQUESTED, CauseKind.FAILING)


def _is_independent(root: RootCause, doubted_since: float) -> bool:
    """Return True if a cause is not just an effect of a platform fault (`doubted_since`: when it began)."""
    if root.kind is CauseKind.FAILING:
        return root.since < doubted_since
    return root.kind in (CauseKind.CHECK, CauseKind.SET_ASIDE, CauseKind.PAUSED)


def _newer(known: RootCause | None, cause: RootCause) -> RootCause:
    """Return the cause with newer evidence. Its next try becomes the earlier one of both causes."""
    if known is None:
        return cause
    tries = [each.next_try for each in (known, cause) if each.next_try is not None]
    newest = cause if cause.since > known.since else known
    return replace(newest, next_try=min(tries, default=None))


def _ends_by_itself(root: RootCause) -> bool:
    """Return True for a pause with an end."""
    return root.kind is CauseKind.PAUSED and root.next_try is not None


def _platform(cause: Cause) -> RootCause:
    if cause.is_pause:
        repairs_itself = cause.until is not None
        named = cause.name.removeprefix("pause of ")
        return RootCause(
            CauseKind.PAUSED, named, cause.said, cause.since, "", cause.remedy, repairs_itself, cause.until
        )
    kind = CauseKind.QUEUE if cause.identity == QUEUE else CauseKind.PLATFORM
    return RootCause(kind, cause.identity, cause.without_age, cause.since, "", cause.remedy)


def _incomplete(found: Arrival) -> RootCause:
    remedy = f"ask the supplier of {found.source} for the complete data"
    since = found.arrived_at or 0.0
    return RootCause(CauseKind.INCOMPLETE, found.source, found.said, since, found.source, remedy)


def _outage(outage: Outage) -> RootCause:
    said = f"no sensor ticked from {moment(outage.since)} to {moment(outage.until)}"
    remedy = "find out why Dagster's daemon or the code server was down: see their logs"
    return RootCause(CauseKind.PLATFORM, SENSORS, said, outage.since, "", remedy, True)


def _not_requested(asset: str, said: str) -> RootCause:
    remedy = f"see the Automation tab of {asset} in the UI"
    return RootCause(CauseKind.NOT_REQUESTED, asset, said, 0.0, asset, remedy)


def _dead_letters() -> RootCause:
    said = "the queue moved notifications to its dead-letter queue"
    return RootCause(CauseKind.DEAD_LETTERS, "notifications", said, 0.0, "ops/landing_events", "run `tidemark redrive`")
