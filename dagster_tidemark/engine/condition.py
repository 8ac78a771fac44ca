"""The automation condition of all assets: true for partitions that the planner requests, with a reason for each.

Thin on purpose: the whole graph is planned once a tick, and each asset's condition takes only its own requests.
"""

import weakref
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Any

import dagster as dg
from dagster import AutomationContext, AutomationResult

from dagster_tidemark.asset_graph.declarations import with_dep_metadata_moved
from dagster_tidemark.dagster_internals.conditions import AssetGraphView, EntitySubset, with_check_conditions
from dagster_tidemark.engine.engine import Engine, engine_for
from dagster_tidemark.engine.guarded_conditions import Guarded, guarded
from dagster_tidemark.engine.tick_log import log_new
from dagster_tidemark.engine.ui_reasons import because, label, urgency
from dagster_tidemark.planner.decisions import Plan
from dagster_tidemark.planner.user_code import Raised, called
from dagster_tidemark.sources.feed import Partition

_TOLD = 25

Context = AutomationContext[dg.AssetKey]
Subset = EntitySubset[dg.AssetKey]


def derived() -> "Derived":
    """Return the condition of assets that declare none: run when new data and the consumers' contracts make it due.

    The condition is level-triggered: true while a partition lacks data that its contract, or a consumer's contract,
    makes due. So data that arrives during a run, after a failure or while nothing was running is never lost. The sensor
    `catch_up` requests large numbers of partitions. See `planner.planner`.

    It can be part of an asset's own condition, which then decides:

        derived() | AutomationCondition.on_missing()           also for another reason
        derived() & AutomationCondition.cron_tick_passed(...)  only at some time; the asset stays due until then

    Each run of such an asset builds one partition, never a range, and no other asset.
    """
    return Derived()


def with_automation(definitions: Iterable[Any]) -> list[Any]:
    """Return the assets and checks, with the planner's condition on each asset that declares none.

    No other place gives assets their automation. The planner derives it from the asset's freshness policy, tags,
    dependency metadata, inputs and consumers. Declared conditions of assets and checks get a guard, so that an error
    in a condition affects only its own asset.
    """
    return [_with_automation(each) if isinstance(each, dg.AssetsDefinition) else each for each in definitions]


def own_assets(definitions: dg.Definitions) -> list[dg.AssetsDefinition]:
    """Return the assets that Tidemark automates. An extended location may have others."""
    every = [each for each in definitions.assets or () if isinstance(each, dg.AssetsDefinition)]
    return [
        each for each in every if any(isinstance(spec.automation_condition, Derived | Guarded) for spec in each.specs)
    ]


def _with_automation(definition: dg.AssetsDefinition) -> dg.AssetsDefinition:
    found = with_check_conditions(definition, guarded)
    return found.map_asset_specs(_automated) if found.is_materializable else found


def _automated(spec: dg.AssetSpec) -> dg.AssetSpec:
    spec = with_dep_metadata_moved(spec)
    own = spec.automation_condition
    if isinstance(own, Derived):
        return spec
    return spec.replace_attributes(automation_condition=derived() if own is None else guarded(own))


class Derived(dg.AutomationCondition[dg.AssetKey]):
    """Condition that is true for the partitions that the planner requests; see `derived`."""

    is_the_planners = True
    requires_cursor = False  # the planner keeps the state; a cursor would be written at every tick

    @property
    def name(self) -> str:
        return "derived"

    @property
    def description(self) -> str:
        return "new data has arrived, and the asset is due by its own contract or a reader's"

    def evaluate(self, context: Context) -> AutomationResult[dg.AssetKey]:
        look = _look_of(context)
        due = _subset(context, look.take(context))
        told = [] if context.partitions_def is None and not look.says_anything else look.reasons(context.key)
        lines = [because(context, i, reason, _subset(context, held)) for i, (reason, held) in enumerate(told)]
        return AutomationResult(context, true_subset=due, child_results=lines)


@dataclass
class _Look:
    """The plan of one tick of a sensor."""

    engine: Engine
    plan: Plan
    asked: dict[str, list[Partition]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for request in self.plan.requests:
            for asset, partition in request.targets if not request.as_range else ():
                # If the own condition of one asset decides, the other assets of the request wait for that decision.
                if self.engine.graph.nodes[asset].conditional or not request.conditional:
                    self.asked.setdefault(asset, []).append(partition)

    @property
    def says_anything(self) -> bool:
        return bool(self.plan.decisions or self.plan.set_aside or self.plan.skipped)

    def take(self, context: Context) -> list[Partition]:
        """Return the asset's requested partitions. Reserve them, unless the asset's own condition may refuse them."""
        name = context.key.to_user_string()
        asked = self.asked.get(name, [])
        gone = [(name, partition) for partition in asked if not _exists(context, partition)]
        if gone:
            self.engine.reject(gone, "the code location has no such partition", self.plan.now)
        there = [(name, partition) for partition in asked if (name, partition) not in gone]
        if there and not self.engine.graph.nodes[name].conditional:
            there = self.engine.take(there, self.plan.now)
        return [partition for _, partition in there]

    def reasons(self, key: dg.AssetKey) -> list[tuple[str, list[Partition]]]:
        """Return the reasons for an asset's state, each with its partitions. Partitions set aside come first."""
        if self.plan.catching_up:
            return [(f"catching up: {self.plan.catching_up}", [])]
        name = key.to_user_string()
        aside: dict[str, list[Partition]] = {}
        for partition, reason in self.plan.aside(name).items():
            aside.setdefault(f"set aside: {reason}", []).append(partition)
        found: dict[str, list[Partition]] = {}
        for decision in sorted(self.plan.of(name), key=urgency):
            found.setdefault(label(decision), []).append(decision.partition)
        if self.plan.deferred.get(name):
            found["older partitions are also pending: they are planned after these are requested"] = []
        left_out: dict[str, list[Partition]] = {}
        for partition, skip in self.plan.left_out(name).items():
            left_out.setdefault(f"skipped {skip.told()}", []).append(partition)
        every = [*sorted(aside.items()), *found.items(), *left_out.items()]
        left = [partition for _, held in every[_TOLD:] for partition in held]
        return [*every[:_TOLD], *([(f"and {len(every) - _TOLD} more reasons", left)] if left else [])]


_looks: "weakref.WeakKeyDictionary[AssetGraphView, _Look]" = weakref.WeakKeyDictionary()


def _look_of(context: Context) -> _Look:
    view = context.asset_graph_view
    if view not in _looks:
        engine = engine_for(view.instance, view.asset_graph)
        look = _looks[view] = _Look(engine, engine.look(view.effective_dt.timestamp(), view.instance))
        log_new(context, engine, look.plan, view.instance)
    return _looks[view]


def _exists(context: Context, partition: Partition) -> bool:
    if context.partitions_def is None or partition is None:
        return context.partitions_def is None and partition is None
    found = called(context.partitions_def.has_partition_key, partition)  # raises also for a malformed key
    return not isinstance(found, Raised) and found


def _subset(context: Context, partitions: Collection[Partition]) -> Subset:
    """Return the partitions that exist as a subset. The partition None means the whole asset."""
    found = called(_subset_of_all, context, partitions)
    if not isinstance(found, Raised):
        return found
    there = [partition for partition in partitions if _exists(context, partition)]
    if len(there) < len(partitions):
        return _subset(context, there)
    return context.asset_graph_view.get_empty_subset(key=context.key)


def _subset_of_all(context: Context, partitions: Collection[Partition]) -> Subset:
    view = context.asset_graph_view
    if None in partitions:
        return view.get_full_subset(key=context.key)
    keys = {partition for partition in partitions if partition is not None}
    if keys and context.partitions_def:
        return view.get_subset_from_partition_keys(context.key, context.partitions_def, keys)
    return view.get_empty_subset(key=context.key)
