"""The one automation condition: due by the planner's word; and its explanation, partition by partition.

Thin on purpose: the whole graph is planned once a tick, and each asset's condition returns its share.
"""

import weakref
from collections.abc import Iterable
from typing import Any

import dagster as dg
from dagster import AutomationContext, AutomationResult
from dagster._core.asset_graph_view.asset_graph_view import AssetGraphView
from dagster._core.asset_graph_view.entity_subset import EntitySubset

from pipelines.automation.decisions import Decision, Plan, State
from pipelines.automation.engine import engine_for
from pipelines.automation.graph import Target
from pipelines.sources.feed import Partition

_TOLD = 25
_planned: "weakref.WeakKeyDictionary[AssetGraphView, tuple[set[Target], Plan]]" = weakref.WeakKeyDictionary()

Subset = EntitySubset[dg.AssetKey]


def derived() -> "Derived":
    """Run when the data and its consumers make it due; see `automation.planner`.

    What an asset gets that says nothing else. Level-triggered: true while a partition does not contain data whose
    contract, or whose consumers' contracts, make it due. So an update that lands during a run, after a failure or
    while nothing was running is never lost. Partitions in great number are left to the sensor `catch_up`.

    It can be part of an asset's own condition, which then has the last word:

        derived() | AutomationCondition.on_missing()           also for another reason
        derived() & AutomationCondition.cron_tick_passed(...)  only at some time; due until then, tick after tick

    Such an asset runs one partition a run, never as a range and never together with another.
    """
    return Derived()


def with_automation(assets: Iterable[Any]) -> list[Any]:
    """The assets, each that has no automation of its own with the planner's.

    The one place where an asset gets its automation. What it is derived from, the planner reads off the asset: its
    freshness policy, its tags, the metadata of its dependencies, its inputs and its consumers.
    """
    return [
        asset.map_asset_specs(_automated)
        if isinstance(asset, dg.AssetsDefinition) and asset.is_materializable
        else asset
        for asset in assets
    ]


def _automated(spec: dg.AssetSpec) -> dg.AssetSpec:
    return spec if spec.automation_condition is not None else spec.replace_attributes(automation_condition=derived())


class Derived(dg.AutomationCondition[dg.AssetKey]):
    """See `derived`."""

    is_the_planners = True
    requires_cursor = False  # the planner remembers; a cursor would be written at every tick

    @property
    def name(self) -> str:
        return "derived"

    @property
    def description(self) -> str:
        return "data arrived that it does not contain, and by its contract or its consumers' it is due"

    def evaluate(self, context: AutomationContext[dg.AssetKey]) -> AutomationResult[dg.AssetKey]:
        requested, plan = _plan_of(context.asset_graph_view)
        name = context.key.to_user_string()
        due = _subset(context, {partition for key, partition in requested if key == name})
        told = [] if context.partitions_def is None and not plan.decisions else _reasons(plan, name)
        because = [_because(context, i, reason, partitions) for i, (reason, partitions) in enumerate(told)]
        return AutomationResult(context, true_subset=due, child_results=because)


class Because(dg.AutomationCondition[dg.AssetKey]):
    """A reason, for the partitions it holds of: a line of the explanation. It decides nothing.

    The text is the label, which the UI shows, and the description, by which Dagster tells whether the explanation is
    another one than the last that was stored.
    """

    requires_cursor = False

    def __init__(self, reason: str) -> None:
        self._reason = reason

    @property
    def name(self) -> str:
        return self._reason

    @property
    def description(self) -> str:
        return self._reason

    def get_label(self) -> str:
        return self._reason

    def evaluate(self, context: AutomationContext[dg.AssetKey]) -> AutomationResult[dg.AssetKey]:
        return AutomationResult(context, true_subset=context.candidate_subset)


def _plan_of(view: AssetGraphView) -> tuple[set[Target], Plan]:
    if view not in _planned:
        engine = engine_for(view.instance, view.asset_graph)
        requests, plan = engine.request(view.instance, view.effective_dt.timestamp(), ranges=False)
        _planned[view] = ({target for request in requests for target in request.targets}, plan)
    return _planned[view]


def _reasons(plan: Plan, asset: str) -> list[tuple[str, list[Partition]]]:
    """The reasons that hold of an asset, each with its partitions."""
    if plan.catching_up:
        return [(f"catching up: {plan.catching_up}", [])]
    found: dict[str, list[Partition]] = {}
    for decision in plan.of(asset):
        found.setdefault(_worded(decision), []).append(decision.partition)
    return sorted(found.items())[:_TOLD]


def _worded(decision: Decision) -> str:
    if decision.state is State.REQUESTED:
        return f"run: {decision.reason}"
    return f"not yet, {decision.state}: {decision.reason}"


def _because(
    context: AutomationContext[dg.AssetKey], index: int, reason: str, partitions: list[Partition]
) -> AutomationResult[dg.AssetKey]:
    subset = _subset(context, set(partitions))
    child = context.for_child_condition(Because(reason), child_indices=[index], candidate_subset=subset)
    return AutomationResult(child, true_subset=subset)


def _subset(context: AutomationContext[dg.AssetKey], partitions: set[Partition]) -> Subset:
    view = context.asset_graph_view
    keys = {partition for partition in partitions if partition is not None}
    if None in partitions:
        return view.get_full_subset(key=context.key)
    if keys and context.partitions_def:
        return view.get_subset_from_partition_keys(context.key, context.partitions_def, keys)
    return view.get_empty_subset(key=context.key)
