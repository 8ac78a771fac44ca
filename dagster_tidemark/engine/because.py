"""A line of explanation in the UI's tab Automation: a condition that decides nothing and says why.

Does not belong here: what is said (`engine.condition`, `engine.guarded_conditions`).
"""

from typing import Any

import dagster as dg
from dagster import AutomationContext, AutomationResult
from dagster._core.asset_graph_view.entity_subset import EntitySubset


class Because(dg.AutomationCondition[Any]):
    """A reason, for the partitions it holds of.

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

    def evaluate(self, context: AutomationContext[Any]) -> AutomationResult[Any]:
        return AutomationResult(context, true_subset=context.candidate_subset)


def because(
    context: AutomationContext[Any], index: int, reason: str, partitions: EntitySubset[Any]
) -> AutomationResult[Any]:
    """The reason as the child result of a condition."""
    child = context.for_child_condition(Because(reason), child_indices=[index], candidate_subset=partitions)
    return AutomationResult(child, true_subset=partitions)
