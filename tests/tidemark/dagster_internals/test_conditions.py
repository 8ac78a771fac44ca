"""Contract of automation conditions: results that make no progress, lost candidates, conditions of checks."""

from typing import Any

import dagster as dg
import pytest
from dagster import AutomationContext, AutomationResult

from dagster_tidemark.dagster_internals import conditions
from dagster_tidemark.dagster_internals.conditions import (
    AssetGraphView,
    AutomationConditionNodeSnapshot,
    AutomationConditionSnapshot,
    EntitySubset,
    ResultWithoutProgress,
)


class Evaluated(dg.AutomationCondition[Any]):
    """Keeps the context, and returns a result of a class."""

    def __init__(self, result: type[AutomationResult[Any]]) -> None:
        self.result, self.contexts = result, list[AutomationContext[Any]]()

    @property
    def name(self) -> str:
        return "evaluated"

    def evaluate(self, context: AutomationContext[Any]) -> AutomationResult[Any]:
        self.contexts.append(context)
        return self.result(context, true_subset=context.get_empty_subset())


def evaluated(condition: dg.AutomationCondition[Any], times: int) -> None:
    @dg.asset(automation_condition=condition)
    def table() -> None: ...

    with dg.DagsterInstance.ephemeral() as instance:
        cursor = None
        for _ in range(times):
            cursor = dg.evaluate_automation_conditions(dg.Definitions([table]), instance, cursor=cursor).cursor


class First(dg.AutomationCondition[Any]):
    """Records whether Dagster's own `initial_evaluation` is true."""

    name = "first"

    def __init__(self, result: type[AutomationResult[Any]]) -> None:
        self.result, self.is_first = result, list[bool]()

    def evaluate(self, context: AutomationContext[Any]) -> AutomationResult[Any]:
        initial = dg.AutomationCondition.initial_evaluation()
        child = context.for_child_condition(initial, [0], context.candidate_subset)
        found: Any = initial.evaluate(child)
        self.is_first.append(not found.true_subset.is_empty)
        return self.result(context, true_subset=context.get_empty_subset(), child_results=[found])


@pytest.mark.parametrize(
    ("result", "expected"), [(AutomationResult, [True, False]), (ResultWithoutProgress, [True, True])]
)
def test_result_without_progress_keeps_the_next_evaluation_initial(
    result: type[AutomationResult[Any]], expected: list[bool]
) -> None:
    condition = First(result)
    evaluated(condition, times=2)
    assert condition.is_first == expected


def test_automation_context_has_the_annotated_types() -> None:
    condition = Evaluated(AutomationResult)
    evaluated(condition, times=1)
    (context,) = condition.contexts
    assert isinstance(context.candidate_subset, EntitySubset)
    assert isinstance(context.asset_graph_view, AssetGraphView)
    place: dict[str, Any] = {"parent_unique_id": None, "index": None}
    assert isinstance(condition.get_snapshot(**place), AutomationConditionSnapshot)
    assert isinstance(condition.get_node_snapshot("id"), AutomationConditionNodeSnapshot)


def test_condition_on_an_input_is_that_of_any_deps_updated() -> None:
    of_any = dg.AutomationCondition.any_deps_match(conditions.update_of_input()).with_label("any_deps_updated")
    assert of_any == dg.AutomationCondition.any_deps_updated()


def test_automation_result_is_limited_to_its_candidates() -> None:
    condition = Evaluated(AutomationResult)
    evaluated(condition, times=1)
    (context,) = condition.contexts
    nothing = context.for_child_condition(condition, [0], context.get_empty_subset())
    result = AutomationResult(nothing, true_subset=context.candidate_subset)
    conditions.limit_to_candidates(result, nothing)
    assert result.true_subset.is_empty


def test_automation_conditions_of_checks_are_replaced_only_if_present() -> None:
    eager = dg.AutomationCondition.eager()

    @dg.asset_check(asset="table", automation_condition=eager)
    def own() -> dg.AssetCheckResult:
        return dg.AssetCheckResult(passed=True)

    @dg.asset_check(asset="table")
    def plain() -> dg.AssetCheckResult:
        return dg.AssetCheckResult(passed=True)

    changed: conditions.Condition = dg.AutomationCondition.on_missing()
    (spec,) = conditions.with_check_conditions(own, lambda _: changed).check_specs
    assert spec.automation_condition == changed
    assert conditions.with_check_conditions(plain, lambda _: changed) is plain


def test_partitions_are_listed_and_removed_from_a_result() -> None:
    letters, condition = dg.StaticPartitionsDefinition(["a", "b"]), Evaluated(AutomationResult)

    @dg.asset(automation_condition=condition, partitions_def=letters)
    def table() -> None: ...

    with dg.DagsterInstance.ephemeral() as instance:
        dg.evaluate_automation_conditions(dg.Definitions([table]), instance)
    (context,) = condition.contexts
    result = AutomationResult(context, true_subset=context.candidate_subset)
    assert conditions.partition_keys(result.true_subset) == {"a", "b"}
    conditions.remove_partitions(result, ["a", "gone"])
    assert conditions.partition_keys(result.true_subset) == {"b"}
    assert {*result.get_new_cursor().previous_requested_subset.subset_value.get_partition_keys()} == {"b"}


def test_partitions_of_an_unpartitioned_subset_are_none() -> None:
    condition = Evaluated(AutomationResult)
    evaluated(condition, times=1)
    (context,) = condition.contexts
    assert conditions.partition_keys(context.candidate_subset) == {None}
    assert conditions.partition_keys(context.get_empty_subset()) == set()
