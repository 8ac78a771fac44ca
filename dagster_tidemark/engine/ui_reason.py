"""A line of explanation in the UI's tab Automation: a condition that only carries a reason.

Does not belong here: the reasons (`engine.condition`, `engine.guarded_conditions`).
"""

from typing import Any

import dagster as dg
from dagster import AutomationContext, AutomationResult

from dagster_tidemark.dagster_internals.conditions import EntitySubset


class Because(dg.AutomationCondition[Any]):
    """A reason, and the partitions it applies to.

    The text is both label and description. The UI shows the label. Dagster stores an explanation again only if the
    description differs from the stored one.
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
    """Return the reason as the child result of a condition."""
    child = context.for_child_condition(Because(reason), child_indices=[index], candidate_subset=partitions)
    return AutomationResult(child, true_subset=partitions)
