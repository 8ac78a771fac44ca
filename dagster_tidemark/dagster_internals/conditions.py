"""Automation conditions: types of their evaluation, and changes of results and definitions without a public API."""

import dataclasses
from collections.abc import Callable, Collection
from typing import Any

import dagster as dg
from dagster import AutomationContext, AutomationResult
from dagster._core.asset_graph_view.asset_graph_view import AssetGraphView as AssetGraphView
from dagster._core.asset_graph_view.entity_subset import EntitySubset as EntitySubset
from dagster._core.asset_graph_view.serializable_entity_subset import SerializableEntitySubset
from dagster._core.definitions.declarative_automation.serialized_objects import AutomationConditionCursor
from dagster._core.definitions.declarative_automation.serialized_objects import (
    AutomationConditionNodeSnapshot as AutomationConditionNodeSnapshot,
)
from dagster._core.definitions.declarative_automation.serialized_objects import (
    AutomationConditionSnapshot as AutomationConditionSnapshot,
)
from dagster._core.definitions.partitions.subset import DefaultPartitionsSubset

from dagster_tidemark.dagster_internals.record_copies import changed

Condition = dg.AutomationCondition[Any]


class ResultWithoutProgress(AutomationResult[Any]):
    """Result of a condition that raised an error. The next evaluation continues from the last successful one."""

    def get_new_cursor(self) -> AutomationConditionCursor[Any]:
        new, before = super().get_new_cursor(), self._context._cursor
        if before is not None:
            return dataclasses.replace(before, result_value_hash=new.result_value_hash)
        # The next evaluation must count as the first, also for Dagster's `initial_evaluation`. That condition looks for
        # an earlier request of the same kind (partitioned or not) as the asset, so store a request of the other kind.
        partitioned = new.previous_requested_subset.is_partitioned
        other: Any = False if partitioned else DefaultPartitionsSubset(set())
        return dataclasses.replace(new, previous_requested_subset=SerializableEntitySubset(self.key, other))


def update_of_input() -> Condition:
    """Return the condition that `AutomationCondition.any_deps_updated` applies to each input."""
    found: Condition = dg.AutomationCondition.any_deps_updated().operand
    return found


def limit_to_candidates(result: AutomationResult[Any], context: AutomationContext[Any]) -> None:
    """Remove partitions that no longer exist from a result.

    `AutomationCondition.since` keeps removed dynamic partitions in its state, and would request runs of them.
    """
    if not result.true_subset.compute_difference(context.candidate_subset).is_empty:
        result._true_subset = result.true_subset.compute_intersection(context.candidate_subset)


def partition_keys(subset: EntitySubset[Any]) -> set[str | None]:
    """Return the partitions of a subset. None stands for a whole asset or check without partitions."""
    if subset.partitions_def is None:
        return set() if subset.is_empty else {None}
    return set(subset.expensively_compute_partition_keys())


def remove_partitions(result: AutomationResult[Any], keys: Collection[str]) -> None:
    """Remove partitions from a result, so that they are not requested and do not count as requested."""
    gone = result.true_subset.compute_intersection_with_partition_keys(set(keys))
    result._true_subset = result.true_subset.compute_difference(gone)


def with_check_conditions(
    definition: dg.AssetsDefinition, changed_condition: Callable[[Condition], Condition]
) -> dg.AssetsDefinition:
    """Return a copy of an asset's definition with changed conditions of its checks.

    If no check has a condition, the definition itself is returned.

    Args:
        changed_condition: Function from the condition of a check to the new condition.
    """
    specs = definition.get_attributes_dict()["check_specs_by_output_name"]
    own = {
        output: changed(spec, automation_condition=changed_condition(spec.automation_condition))
        for output, spec in specs.items()
        if spec.automation_condition is not None
    }
    if not own:
        return definition
    attributes: dict[str, Any] = definition.get_attributes_dict() | {"check_specs_by_output_name": {**specs, **own}}
    return type(definition).dagster_internal_init(**attributes)
