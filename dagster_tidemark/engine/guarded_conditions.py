"""A guard around user-defined conditions: an error affects the condition's own asset, and not the whole tick.

Dagster evaluates the conditions of a sensor's assets together, and one exception ends the tick for all assets.
Belongs here: the guard, and how it is put around the conditions of assets and checks. Does not belong here: the
planner's own condition (`engine.condition`), which does not need it.
"""

import dataclasses
import inspect
import re
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import dagster as dg
from dagster import AutomationContext, AutomationResult

from dagster_tidemark.dagster_internals.conditions import (
    AutomationConditionNodeSnapshot,
    AutomationConditionSnapshot,
    Condition,
    ResultWithoutProgress,
    limit_to_candidates,
    partition_keys,
    remove_partitions,
)
from dagster_tidemark.engine.engine import Engine, engine_for
from dagster_tidemark.engine.ui_reasons import because
from dagster_tidemark.planner.user_code import Raised, called

ASKS_FOR_NOTHING = "asks_for_nothing"
"""Attribute of conditions that are never true: no sensor needs to evaluate them."""

_LONGEST = 300
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")

T = TypeVar("T")


class Guarded(dg.AutomationCondition[Any]):
    """Condition that evaluates another one, and catches its failures.

    If the inner condition raises, returns no result, or requests a run that the daemon could not plan, the guard
    requests nothing and gives the reason.

    Dagster shows, stores and hashes the guard as the inner condition. If the inner condition raises, its cursor and the
    state of its `since` are kept, so that the events of that tick still count afterwards.
    """

    def __init__(self, condition: Condition) -> None:
        self.condition = condition
        self._told = ""

    @property
    def is_the_planners(self) -> bool:
        return bool(getattr(self.condition, "is_the_planners", False))

    @property
    def requires_cursor(self) -> bool:
        return self._said(lambda: self.condition.requires_cursor, True)

    @property
    def children(self) -> Sequence[Condition]:
        return self._said(lambda: self.condition.children, [])

    @property
    def name(self) -> str:
        return self._said(lambda: self.condition.name, type(self.condition).__name__)

    @property
    def description(self) -> str:
        return self._said(lambda: self.condition.description, "")

    @property
    def has_rule_condition(self) -> bool:
        return self._said(lambda: self.condition.has_rule_condition, False)

    def get_label(self) -> str | None:
        return self._said(lambda: self.condition.get_label(), None)

    def get_node_unique_id(self, **place: Any) -> str:
        return self._said(
            lambda: self.condition.get_node_unique_id(**place),
            super().get_node_unique_id(**place),
        )

    def get_backcompat_node_unique_ids(self, **place: Any) -> Sequence[str]:
        return self._said(lambda: self.condition.get_backcompat_node_unique_ids(**place), [])

    def get_unique_id(self, **place: Any) -> str:
        return self._said(lambda: self.condition.get_unique_id(**place), self.name)

    def get_node_snapshot(self, unique_id: str) -> AutomationConditionNodeSnapshot:
        return self._said(
            lambda: self.condition.get_node_snapshot(unique_id),
            super().get_node_snapshot(unique_id),
        )

    def get_snapshot(self, **place: Any) -> AutomationConditionSnapshot:
        alone = AutomationConditionSnapshot(node_snapshot=self.get_node_snapshot(self.name), children=[])
        return self._said(lambda: self.condition.get_snapshot(**place), alone)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Guarded) and self.condition == other.condition

    def __hash__(self) -> int:
        return hash(self.get_unique_id())

    async def evaluate(self, context: AutomationContext[Any]) -> AutomationResult[Any]:  # type: ignore[override]
        try:
            found: Any = await dataclasses.replace(context, condition=self.condition).evaluate_async()
            if inspect.isawaitable(found):
                found = await found
            if not isinstance(found, AutomationResult) or found.key != context.key:
                raise TypeError(f"expected a result for {context.key.to_user_string()}, found {found!r}")
            limit_to_candidates(found, context)
            # Dagster computes the cursor after all evaluations, where an exception would end the whole tick.
            found.get_new_cursor()
        except Exception as error:  # as in `called`, which cannot await a coroutine
            text = _ADDRESS.sub("", str(Raised(error)))[:_LONGEST]
            return self._failed(context, f"its own automation condition raises {text}", error)
        why = "" if found.true_subset.is_empty else _engine(context).no_run_of(context.key)
        if why:
            return self._failed(context, why)
        self._told = ""
        self._name(context, None)
        return self._without_paused(context, found)

    def _without_paused(self, context: AutomationContext[Any], found: AutomationResult[Any]) -> AutomationResult[Any]:
        """Return the result without partitions that a person has paused. They count again after the pause."""
        if found.true_subset.is_empty:
            return found
        asset = (context.key if isinstance(context.key, dg.AssetKey) else context.key.asset_key).to_user_string()
        wanted = partition_keys(found.true_subset)
        paused, why = _engine(context).paused(asset, wanted)
        if not paused:
            return found
        if paused == wanted:
            # The condition forgets this evaluation. So it requests the partitions after the pause, even of a cron tick.
            reason = because(context, 0, f"paused: {why}", found.true_subset)
            return ResultWithoutProgress(context, true_subset=context.get_empty_subset(), child_results=[reason])
        remove_partitions(found, [str(partition) for partition in paused])
        return found

    def _failed(
        self, context: AutomationContext[Any], why: str, error: Exception | None = None
    ) -> AutomationResult[Any]:
        if why != self._told:
            context.log.warning(f"{context.key.to_user_string()} is not requested: {why}", exc_info=error)
            self._told = why
        self._name(context, why)
        reason = because(context, 0, f"set aside: {why}", context.candidate_subset)
        return ResultWithoutProgress(context, true_subset=context.get_empty_subset(), child_results=[reason])

    def _name(self, context: AutomationContext[Any], why: str | None) -> None:
        """Add the reason why an asset is not requested to the plan, or remove it. Conditions of checks add none."""
        if isinstance(context.key, dg.AssetKey):
            _engine(context).not_asked_for(context.key.to_user_string(), why)

    def _said(self, says: Callable[[], T], otherwise: T) -> T:
        """Return a property of the condition, or a default if the user-defined code raises."""
        found = called(says)
        return otherwise if isinstance(found, Raised) else found


def _engine(context: AutomationContext[Any]) -> Engine:
    view = context.asset_graph_view
    return engine_for(view.instance, view.asset_graph)


def guarded(condition: Condition) -> Condition:
    """Return the condition within a guard, if it needs one."""
    needs_none = isinstance(condition, Guarded) or getattr(condition, ASKS_FOR_NOTHING, False)
    return condition if needs_none else Guarded(condition)
