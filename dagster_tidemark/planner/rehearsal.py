"""Rehearsal of another version of the code: the planner runs on a copy of the history until nothing is due.

Each requested partition counts as built with changed content, and the next plan is made from that state. If nothing is
due, the time is set to the next due time. This finds the runs that the sensors would request. Belongs here: the
partitions that run, and why the code makes them run. Does not belong here: changes of the code
(`planner.code_changes`).
"""

import math
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import count

from dagster_tidemark.planner.decisions import CheckRequest, Decision, Plan, State
from dagster_tidemark.planner.evaluate import Bound
from dagster_tidemark.planner.event_records import Outcome
from dagster_tidemark.planner.graph import Graph, Node, Target
from dagster_tidemark.planner.grouping import held_by_operation
from dagster_tidemark.planner.history import History
from dagster_tidemark.planner.planner import Planner
from dagster_tidemark.planner.wording import name, names

_MOST_ROUNDS = 10_000
_HORIZON = 32 * 86_400.0
"""Seconds that a rehearsal covers. The slowest contract (a month) is due within this time."""

_FIRST_ID = 1 << 60
"""Ids of the rehearsal's events are higher than any id of an event log."""

_ASKED_FOR = (State.REQUESTED, State.THROTTLED)


@dataclass(frozen=True)
class Rebuild:
    """Partition that runs because the code has changed.

    Args:
        reason: Cause of the run.
        certain: True if it runs in any case. False if it runs only if a rebuild changes its inputs (`after`).
        after: Inputs whose rebuild makes it run.
        due_at: Time when it is due (Unix seconds), if that is later than now.
        held: Reason why it does not run until a person acts; empty if there is none.
    """

    asset: str
    partition: str | None
    reason: str
    certain: bool = True
    after: tuple[Target, ...] = ()
    due_at: float | None = None
    held: str = ""

    @property
    def target(self) -> Target:
        return self.asset, self.partition


@dataclass(frozen=True)
class Changed:
    """Declared differences between the code of an asset and the running code, except for code versions.

    Args:
        said: The differences in words.
        asks_anew: True if the asset is new or its contract promises more. It may need inputs that were never built.
        reads: Inputs that the asset did not read before.
    """

    said: str
    asks_anew: bool = False
    reads: frozenset[str] = frozenset()


@dataclass
class Rehearsal:
    """Simulation of the runs that another version of the code would cause.

    Args:
        history: A copy of the history with the new graph. The rehearsal changes this copy.
        changed: Assets whose declaration differs.
        versions: From an asset to the code version of its open runs.
    """

    graph: Graph
    history: History
    now: float
    changed: Mapping[str, Changed]
    versions: Mapping[str, str | None]
    found: dict[Target, Rebuild] = field(default_factory=dict)
    _began: float = field(init=False)
    _first: set[Target] = field(default_factory=set)
    _ids: Iterator[int] = field(default_factory=lambda: count(_FIRST_ID))
    _planner: Planner = field(init=False)

    def __post_init__(self) -> None:
        self._planner, self._began = Planner(self.graph, self.history, bound=Bound(many=math.inf)), self.now

    def play(self) -> list[Rebuild]:
        """Return the partitions that run, in the order of their runs, and then partitions that wait for a person."""
        self._end_open_runs()
        due_at = None
        for _ in range(_MOST_ROUNDS):
            plan = self._planner.plan(self.now)
            if plan.checks:
                self._pass(plan.checks)
                continue
            if asked := [target for target in plan.decisions if self._is_asked_for(plan, target)]:
                self._build(plan, asked, due_at)
                continue
            later = [d.due_at for d in plan.decisions.values() if d.state is State.NOT_DUE and self._why(d.target, d)]
            due_at = min((at for at in later if at is not None and at > self.now), default=None)
            if due_at is None or due_at > self._began + _HORIZON:
                break
            self.now = due_at
            self.graph.moment.moves_to(due_at)
        self._tell_of_the_rest(plan)
        return list(self.found.values())

    def _end_open_runs(self) -> None:
        """End the open runs: they build with the code version of their request."""
        for run_id, run in list(self.history.open_runs.items()):
            for target in sorted(run.planned, key=str):
                self._write(target, run_id, self.versions.get(target[0]))
            self.history.ended(run_id, at=self.now, outcome=Outcome.SUCCEEDED)

    def _pass(self, checks: Iterable[CheckRequest]) -> None:
        """Count checks as passed, because a rehearsal counts every build as good."""
        for one in checks:
            self.history.checked(
                (one.asset, one.partition), one.check, id=next(self._ids), passed=True, run_id=None, evaluated_by=None
            )

    def _is_asked_for(self, plan: Plan, target: Target) -> bool:
        node, decision = self.graph.nodes[target[0]], plan.decisions[target]
        held = held_by_operation(self.graph, plan.decisions, target)
        return decision.state in _ASKED_FOR and not node.conditional and held is None

    def _build(self, plan: Plan, asked: Iterable[Target], due_at: float | None) -> None:
        """Count the requested targets as built, together with all targets of the same operation."""
        targets = dict.fromkeys(one for target in asked for one in self._operation(target))
        of_asset: dict[str, list[Target]] = {}
        for target in targets:
            of_asset.setdefault(target[0], []).append(target)
        run_id = f"rehearsal {next(self._ids)}"
        self.history.planned(targets, id=next(self._ids), run_id=run_id, at=self.now)
        for key, node in self.graph.nodes.items():  # in topological order: a run may build an asset and its input
            mine = of_asset.get(key, [])
            for target in mine:
                why = self._why(target, plan.decisions.get(target)) or self._along(target)
                if why is not None:
                    self.found.setdefault(target, replace(why, due_at=due_at))
                    if not self.history.facts.is_built(target):
                        self._first.add(target)
            for target in mine:
                self._write(target, run_id, node.code_version)
        self.history.ended(run_id, at=self.now, outcome=Outcome.SUCCEEDED)

    def _operation(self, target: Target) -> list[Target]:
        return [(key, target[1]) for key in self.graph.nodes[target[0]].together or (target[0],)]

    def _write(self, target: Target, run_id: str, code_version: str | None) -> None:
        id = next(self._ids)
        as_of = self.history.as_of(run_id, target)
        self.history.materialized(
            target,
            id=id,
            run_id=run_id,
            as_of=as_of,
            version=f"rehearsal {id}",
            at=self.now,
            code_version=code_version,
        )
        for check in self.graph.nodes[target[0]].blocking if target[0] in self.graph.nodes else ():
            self.history.checked(target, check, id=next(self._ids), passed=True, run_id=run_id, evaluated_by=run_id)

    def _why(self, target: Target, decision: Decision | None) -> Rebuild | None:
        """Return why the code makes a partition run; None if only new data or a new window does."""
        node, built = self.graph.nodes[target[0]], self.history.facts.built(target)
        if node.exists_from(target[1]) > self._began:
            return None
        if built is not None and built.code_version and node.code_version and built.code_version != node.code_version:
            return Rebuild(*target, f"code version {built.code_version} -> {node.code_version}")
        changed = self.changed.get(node.key)
        if changed is not None and (built is None or self._has_news(node, target, changed.reads)):
            return Rebuild(*target, changed.said)
        wanted_by = decision.due_for if decision is not None else None
        if wanted_by and wanted_by != node.key and wanted_by in self.changed and self.changed[wanted_by].asks_anew:
            return Rebuild(*target, f"needed by {wanted_by}")
        after = tuple(sorted(set(self._rebuilt_inputs(node, target)), key=str))
        return Rebuild(*target, f"after {names(map(name, after))}", certain=False, after=after) if after else None

    def _has_news(self, node: Node, target: Target, inputs: Collection[str]) -> bool:
        """Return True if one of the inputs has changes that a built partition does not contain."""
        return any(any(self.history.news(read, target)) for read in node.inputs if read.key in inputs)

    def _rebuilt_inputs(self, node: Node, target: Target) -> Iterator[Target]:
        for read in node.inputs:
            if self.history.facts.is_built(target):
                yield from (source for source, _ in self.history.news(read, target) if source in self.found)
            else:
                yield from (source for source in self.history.inputs_of(read, target[1]) if source in self._first)

    def _along(self, target: Target) -> Rebuild | None:
        """Return the rebuild of a partition that runs only because its operation builds another one, or None."""
        others = tuple(other for other in self._operation(target) if other != target and other in self.found)
        if not others:
            return None
        with_ = self.found[others[0]]
        return Rebuild(*target, f"in one operation with {others[0][0]}", with_.certain, with_.after)

    def _tell_of_the_rest(self, plan: Plan) -> None:
        for target, decision in plan.decisions.items():
            why = self._why(target, decision)
            if why is not None and target not in self.found:
                self.found[target] = replace(why, held=f"{decision.state}: {decision.reason}")
        for target, built in self.history.facts.builds().items():
            node = self.graph.nodes.get(target[0])
            if node is None or node.source or target in self.found or self.history.problem(target):
                continue
            aside = plan.aside(node.key)
            reason = node.left_out or aside.get(target[1]) or aside.get(None) or "its runs are only started manually"
            if built.code_version and node.code_version and built.code_version != node.code_version:
                said = f"code version {built.code_version} -> {node.code_version}"
                self.found[target] = Rebuild(*target, said, held=reason)
