"""The one automation condition: due by the planner's word.

Thin on purpose: the whole graph is planned once a tick, and each asset's condition returns its share.
"""

import weakref

import dagster as dg
from dagster import AutomationContext, AutomationResult
from dagster._core.asset_graph_view.asset_graph_view import AssetGraphView

from pipelines.automation.engine import engine_for
from pipelines.automation.graph import Target

_requested: weakref.WeakKeyDictionary[AssetGraphView, set[Target]] = weakref.WeakKeyDictionary()


def derived() -> dg.AutomationCondition[dg.AssetKey]:
    """Run when the data and its consumers make it due; see `automation.planner`.

    Level-triggered: true while an input's content is newer than what the partition was built from, nothing of
    it is in flight and no backoff holds it. So an update that lands during a run, after a failure or while
    nothing was running is never lost. Partitions in great number are left to the sensor `catch_up`.
    """
    return Derived()


class Derived(dg.AutomationCondition[dg.AssetKey]):
    """See `derived`."""

    @property
    def name(self) -> str:
        return "derived"

    @property
    def description(self) -> str:
        return "an input changed since this was built, every input has data, nothing is in flight"

    def evaluate(self, context: AutomationContext[dg.AssetKey]) -> AutomationResult[dg.AssetKey]:
        view = context.asset_graph_view
        if view not in _requested:
            engine = engine_for(view.instance, view.asset_graph)
            requests, _ = engine.request(view.instance, context.evaluation_time.timestamp(), ranges=False)
            _requested[view] = {target for request in requests for target in request.targets}
        name = context.key.to_user_string()
        mine = {partition for key, partition in _requested[view] if key == name}
        keys = {partition for partition in mine if partition is not None}
        if None in mine:
            due = view.get_full_subset(key=context.key)
        elif keys and context.partitions_def:
            due = view.get_subset_from_partition_keys(context.key, context.partitions_def, keys)
        else:
            due = view.get_empty_subset(key=context.key)
        return AutomationResult(context, true_subset=due)
