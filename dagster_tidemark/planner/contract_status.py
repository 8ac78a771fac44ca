"""Status of contracts: from the decisions about partitions to one verdict per asset.

Pure. The contract check and `tidemark status` report the results of this module. Does not belong here: pending work
and its due times (`planner.planner`).
"""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace

from dagster_tidemark.planner.contracts import Contract, CronContract, FreshnessStatus, LagContract
from dagster_tidemark.planner.decisions import ContractStatus, Decision, Lack, Plan, State
from dagster_tidemark.planner.graph import Graph, Node
from dagster_tidemark.planner.history import History
from dagster_tidemark.planner.loops import A_LOOP
from dagster_tidemark.planner.overrides import Override
from dagster_tidemark.planner.silence import Silence
from dagster_tidemark.planner.unbuildable_data import first_promised, withheld
from dagster_tidemark.planner.user_code import Raised, called
from dagster_tidemark.planner.wording import moment, name, names
from dagster_tidemark.sources.feed import Partition

_WORST_FIRST = (FreshnessStatus.BREACHED, FreshnessStatus.NOT_JUDGED, FreshnessStatus.AT_RISK, FreshnessStatus.MET)
_ON_ITS_WAY = (State.RUNNING, State.QUEUED, State.REQUESTED)
_MET = "it contains everything that arrived"
_THEIRS = "this code location does not build it, so its freshness policy is not evaluated"

Missing = Callable[[Node], Mapping[Partition, float]]
"""Returns the missing partitions of an asset that were promised for a past time, each with that time, the oldest first.
Raises if the asset's windows cannot be computed."""


def standings(graph: Graph, history: History, plan: Plan, missing: Missing) -> dict[str, ContractStatus]:
    """Return the status of each asset with a contract, at the time of the plan."""
    found: dict[str, ContractStatus] = {}
    silence = Silence(graph, history)
    held = withheld(graph, history, plan, silence, _unbegun(graph, history, plan))
    above: dict[str, set[str]] = {}  # direct and indirect inputs that the planner skips, by asset
    whole: dict[str, str] = {}
    for key, node in graph.nodes.items():
        above[key] = set().union(*(above.get(r.key, set()) | ({r.key} & whole.keys()) for r in node.inputs))
        reason = is_set_aside(node, plan)
        if reason:
            whole[key] = reason
        if node.contract is not None:
            reason = reason or (_THEIRS if node.source else "")
            found[key] = _not_judged(key, reason) if reason else _standing(node, history, plan, missing, silence, held)
            notes = [f"{name((key, p))}: {why}" for p, why in sorted(plan.aside(key).items(), key=str) if not reason]
            notes += [f"upstream {source}: {whole[source]}" for source in sorted(above[key])]
            found[key] = _with_loops(_noted(found[key], tuple(notes)), plan)
            found[key] = _with_overrides(found[key], _overridden(graph, history, plan, key))
            found[key] = replace(found[key], promised_lag=node.contract.promised_lag)
    return found


def _unbegun(graph: Graph, history: History, plan: Plan) -> list[Decision]:
    """Return the first promised partition of each table that has data for all partitions and no pending work."""
    decided = {asset for asset, _ in plan.decisions}
    found = (first_promised(graph, history, key) for key in graph.nodes if key not in decided)
    return [decision for decision in found if decision is not None]


def _overridden(graph: Graph, history: History, plan: Plan, asset: str) -> tuple[str, ...]:
    """Return the pauses of an asset and of its direct and indirect inputs in words, and its skipped partitions."""
    found: dict[str, None] = {}
    if history.overrides.pauses:
        seen, stack = {asset}, [asset]
        while stack:
            one = stack.pop()
            for pause in history.overrides.pauses_of_asset(one, plan.now):
                covered = f" ({pause.partitions})" if pause.partitions else ""
                found[f"{one}{covered} is paused {pause.told()}"] = None
            above = [r.key for r in graph.nodes[one].inputs if r.key in graph.nodes] if one in graph.nodes else []
            more = [key for key in above if key not in seen]
            seen.update(more)
            stack += more
    for told, count in Counter(skip.told() for skip in plan.left_out(asset).values()).items():
        found[f"{count} partition{'s' if count > 1 else ''} skipped {told}"] = None
    return tuple(found)


def _with_overrides(standing: ContractStatus, notes: tuple[str, ...]) -> ContractStatus:
    if not notes:
        return standing
    said = [note for note in notes if note.rpartition(" is paused ")[2] not in standing.reason]
    return replace(standing, reason="; ".join([standing.reason, *said]), overridden=notes)


def is_set_aside(node: Node, plan: Plan) -> str:
    """Return why the planner skips an asset; empty if it does not."""
    if node.left_out:
        return node.left_out
    reason = plan.aside(node.key).get(None, "")
    # An event without a partition key does not set a whole partitioned asset aside.
    return "" if reason and node.partitioned and reason == node.problem(None) else reason


def told(contract: Contract) -> str:
    """Return a contract in words. They are stored with a deploy, and `plan` takes other words for another contract."""
    if isinstance(contract, LagContract):
        return f"within {span(contract.fail)}"
    bound = f", what arrived {span(contract.bound)} before" if contract.bound else ""
    zone = "" if contract.timezone == "UTC" else f" {contract.timezone}"
    return f"by {contract.schedule}{zone}{bound}"


def span(seconds: float) -> str:
    """Return a time span in its two largest units."""
    left, parts = max(0, round(seconds)), list[str]()
    for unit, length in (("d", 86_400), ("h", 3600), ("min", 60), ("s", 1)):
        if left >= length or (unit == "s" and not parts):
            parts.append(f"{left // length} {unit}")
            left %= length
    return " ".join(parts[:2])


def _badness(standing: ContractStatus) -> tuple[int, float]:
    return _WORST_FIRST.index(standing.verdict), -standing.lag


def _of_decision(decision: Decision, plan: Plan) -> ContractStatus:
    now = plan.now
    verdict = decision.verdict(now)
    if verdict is FreshnessStatus.AT_RISK and _goes_as_planned(decision):
        verdict = FreshnessStatus.MET
    if verdict is FreshnessStatus.MET and decision.state is State.PAUSED and _outlasts(decision):
        verdict = FreshnessStatus.AT_RISK
    reason = f"{name(decision.target)} {decision.state}: {decision.reason}"
    inputs = (plan.decisions.get(target) for target in decision.wait_for)
    if left := [name(each.target) for each in inputs if each is not None and each.state is State.LEFT]:
        reason = f"{reason}; {names(left)}: {State.LEFT}"
    if verdict is FreshnessStatus.BREACHED and decision.deadline is not None:
        reason = f"{reason}; promised for {moment(decision.deadline, decision.zone)}"
    return ContractStatus(
        decision.asset,
        verdict,
        decision.lag(now),
        decision.partition,
        reason,
        due_at=decision.due_at,
        deadline=decision.deadline,
    )


def _outlasts(decision: Decision) -> bool:
    """Return True if a pause ends too late to keep the promise, or has no end."""
    if decision.deadline is None:
        return False
    latest = decision.deadline if decision.latest_start is None else decision.latest_start
    return decision.next_try is None or decision.next_try > latest


def _goes_as_planned(decision: Decision) -> bool:
    # Runs are requested close to their latest start on purpose. That is a risk only if the contract sets a warning.
    return decision.warn_at is None and decision.state in _ON_ITS_WAY and not decision.attempts


def _standing(
    node: Node, history: History, plan: Plan, missing: Missing, silence: Silence, held: Mapping[str, ContractStatus]
) -> ContractStatus:
    judged = [_of_decision(decision, plan) for decision in plan.of(node.key)]
    judged += [held[node.key]] if node.key in held else []
    raised = called(lambda: judged.extend(_unbuilt(node, history, plan, missing, silence)))
    if isinstance(raised, Raised):
        judged.append(_not_judged(node.key, f"its windows cannot be computed: {raised}"))
    worst = min(judged, key=_badness, default=ContractStatus(node.key, FreshnessStatus.MET, 0.0, reason=_MET))
    lacks = tuple(lack for standing in judged for lack in standing.lacks)
    return replace(worst, lacks=lacks) if lacks != worst.lacks else worst


def _not_judged(asset: str, reason: str) -> ContractStatus:
    return ContractStatus(asset, FreshnessStatus.NOT_JUDGED, 0.0, reason=f"set aside: {reason}")


def _noted(standing: ContractStatus, notes: tuple[str, ...]) -> ContractStatus:
    if not notes:
        return standing
    reason = f"{standing.reason}; set aside: {names(notes)}".replace(_MET, "it contains everything else that arrived")
    return replace(standing, reason=reason, set_aside=notes)


def _with_loops(standing: ContractStatus, plan: Plan) -> ContractStatus:
    if A_LOOP in standing.reason:
        return standing
    told = [loop.reason for loop in plan.loops if standing.asset in loop.tables]
    return replace(standing, reason="; ".join([standing.reason, *told])) if told else standing


def _unbuilt(node: Node, history: History, plan: Plan, missing: Missing, silence: Silence) -> list[ContractStatus]:
    """Return the status of the oldest missing window whose promised time is past and that no decision covers."""
    found, known, aside = missing(node), history.facts.with_content(node.key), plan.aside(node.key)
    for partition, promised in found.items():
        target = (node.key, partition)
        decision = plan.decisions.get(target)
        judged_by_it = decision is not None and decision.deadline is not None
        if promised > plan.now or partition in known or partition in aside or judged_by_it:
            continue
        skip = history.overrides.skip_of(node, partition)
        if partition in plan.left_out(node.key) or (skip is not None and _gives_up(skip, node, partition, promised)):
            continue
        zone = node.contract.timezone if isinstance(node.contract, CronContract) else "UTC"
        reason = f"{name(target)} was promised for {moment(promised, zone)}; {silence.of(target)}"
        lacks: tuple[Lack, ...] = ()
        if decision is not None:
            reason = f"{reason}; {decision.state}: {decision.reason}"
        if decision is None or decision.state is State.NO_DATA:
            silent = {source for source, _ in silence.lacking(target)} or silence.graph.sources_of[node.key]
            lacks = (Lack(partition, tuple(sorted(silent)), None, promised),)
        if len(found) > 1:
            reason = f"{reason}; {len(found)} windows are missing"
        late = plan.now - promised
        return [
            ContractStatus(node.key, FreshnessStatus.BREACHED, late, partition, reason, deadline=promised, lacks=lacks)
        ]
    return []


def _gives_up(skip: Override, node: Node, partition: Partition, promised: float) -> bool:
    """Return True if a skip exempts a missing window: it was promised before the skip, or named when it was over.

    A later delivery of any other window is a later change, and its silence is no different.
    """
    if promised <= skip.at:
        return True
    window = node.promised_window(partition)
    return not skip.whole and (window is None or window.end <= skip.at)
