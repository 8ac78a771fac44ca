"""How the contracts stand: from the decisions about partitions to one verdict an asset.

Pure. The contract check and `pipelines status` say what is worked out here. Does not belong here: what is pending
and when it is due (`automation.planner`).
"""

from collections.abc import Mapping, Sequence

from pipelines.automation.contracts import Contract, CronContract, LagContract, Verdict, first_tick
from pipelines.automation.decisions import Decision, Plan, Standing, State
from pipelines.automation.graph import Graph, Node, Target
from pipelines.automation.history import History
from pipelines.automation.reasons import moment, name, names
from pipelines.sources.feed import Partition

_WORST_FIRST = (Verdict.BREACHED, Verdict.AT_RISK, Verdict.MET)
_ON_ITS_WAY = (State.RUNNING, State.REQUESTED)


def standings(
    graph: Graph, history: History, plan: Plan, latest: Mapping[str, Sequence[Partition]]
) -> dict[str, Standing]:
    """How each asset with a contract stands, at the time of the plan.

    Args:
        latest: The last few partitions of each asset, the newest first. Of a cron contract, the newest whose first
            tick is past has to be there, whether its data came or not.
    """
    found = {}
    for node in graph.nodes.values():
        if node.contract is not None:
            judged = [_of_decision(decision, plan.now) for decision in plan.of(node.key)]
            judged += _unbuilt(graph, node, history, plan, latest.get(node.key, ()))
            met = Standing(node.key, Verdict.MET, 0.0, reason="everything that arrived is in it")
            found[node.key] = min(judged, key=_badness, default=met)
    return found


def told(contract: Contract) -> str:
    """A contract in words."""
    if isinstance(contract, LagContract):
        return f"within {span(contract.fail)}"
    bound = f", what arrived {span(contract.bound)} before" if contract.bound else ""
    return f"by {contract.schedule}{bound}"


def span(seconds: float) -> str:
    """A span of time: in its two largest units."""
    left, parts = max(0, round(seconds)), list[str]()
    for unit, length in (("d", 86_400), ("h", 3600), ("min", 60), ("s", 1)):
        if left >= length or (unit == "s" and not parts):
            parts.append(f"{left // length} {unit}")
            left %= length
    return " ".join(parts[:2])


def _badness(standing: Standing) -> tuple[int, float]:
    return _WORST_FIRST.index(standing.verdict), -standing.lag


def _of_decision(decision: Decision, now: float) -> Standing:
    verdict = decision.verdict(now)
    if verdict is Verdict.AT_RISK and _goes_as_planned(decision):
        verdict = Verdict.MET
    reason = f"{name(decision.target)} {decision.state}: {decision.reason}"
    if verdict is Verdict.BREACHED and decision.deadline is not None:
        reason = f"{reason}; promised for {moment(decision.deadline)}"
    return Standing(
        decision.asset,
        verdict,
        decision.lag(now),
        decision.partition,
        reason,
        due_at=decision.due_at,
        deadline=decision.deadline,
    )


def _goes_as_planned(decision: Decision) -> bool:
    # A lazy run is asked for about when it has to be: only what holds it up is a risk, unless the contract names one.
    return decision.warn_at is None and decision.state in _ON_ITS_WAY and not decision.attempts


def _unbuilt(graph: Graph, node: Node, history: History, plan: Plan, latest: Sequence[Partition]) -> list[Standing]:
    """The newest window whose tick is past, if it is not there and nothing of it is pending: nothing arrived for it."""
    if not isinstance(node.contract, CronContract):
        return []
    seen = [history.first_seen[source] for source in graph.sources_of[node.key] if source in history.first_seen]
    for partition in latest:
        promised = first_tick(node.contract, node.window(partition))
        if promised is None or promised > plan.now:
            continue
        target = (node.key, partition)
        decision = plan.decisions.get(target)
        judged_by_it = decision is not None and decision.deadline is not None
        if target in history.built or judged_by_it or not seen or promised < min(seen):
            return []
        reason = f"{name(target)} was promised for {moment(promised)}; {_silent(graph, node, history)}"
        return [Standing(node.key, Verdict.BREACHED, plan.now - promised, partition, reason, deadline=promised)]
    return []


def _silent(graph: Graph, node: Node, history: History) -> str:
    return names(_silent_since(source, history) for source in sorted(graph.sources_of[node.key]))


def _silent_since(source: str, history: History) -> str:
    targets: list[Target] = [(source, partition) for partition in history.known.get(source, ())]
    arrivals = [change.arrived_at for target in targets for change in history.changes.get(target, ())]
    last = max((at for at in arrivals if at is not None), default=None)
    return f"{source} never had data" if last is None else f"{source} silent since {moment(last)}"
