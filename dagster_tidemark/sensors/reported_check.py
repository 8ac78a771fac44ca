"""The automation condition of checks that only a sensor reports."""

import dagster as dg
from dagster import AutomationContext, AutomationResult


class ReportedBySensor(dg.AutomationCondition[dg.AssetCheckKey]):
    """A condition that is never true: only the sensor `contracts` reports this check.

    The check has a condition because Dagster would otherwise execute it within every run of its asset.
    """

    asks_for_nothing = True  # no automation sensor needs to evaluate it
    requires_cursor = False

    @property
    def name(self) -> str:
        return "reported by the sensor contracts"

    def evaluate(self, context: AutomationContext[dg.AssetCheckKey]) -> AutomationResult[dg.AssetCheckKey]:
        return AutomationResult(context, true_subset=context.get_empty_subset())
