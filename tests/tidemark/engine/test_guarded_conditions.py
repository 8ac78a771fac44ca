"""A condition that somebody wrote and that raises: it harms its own asset, and nobody else's tick."""

from collections.abc import Iterator
from typing import Any

import dagster as dg
import pytest
from dagster import AutomationContext, AutomationResult

from dagster_tidemark.asset_graph.planner_graph import graph_of
from dagster_tidemark.engine.condition import Derived, derived, with_automation
from dagster_tidemark.engine.guarded_conditions import Guarded
from tests.tidemark.ticks import Location
from tests.tidemark.toy_graph import HOURS, asset, lag, source

HOUR = "2026-10-05-07:00"
CRON = dg.AutomationCondition.cron_tick_passed("0 9 * * *")


class Raises(dg.AutomationCondition[Any]):
    """Fails while it is told to."""

    fails = True

    def evaluate(self, context: AutomationContext[Any]) -> AutomationResult[Any]:
        if self.fails:
            raise ValueError("no such column")
        return AutomationResult(context, true_subset=context.get_empty_subset())


class RaisesLater(dg.AutomationCondition[Any]):
    async def evaluate(self, context: AutomationContext[Any]) -> AutomationResult[Any]:  # type: ignore[override]
        raise RuntimeError("no such column")


class GivesNothing(dg.AutomationCondition[Any]):
    def evaluate(self, context: AutomationContext[Any]) -> Any:
        return None


class OfAnother(dg.AutomationCondition[Any]):
    def evaluate(self, context: AutomationContext[Any]) -> Any:
        key = dg.AssetKey(["core", "orders"])
        return AutomationResult(context, true_subset=context.asset_graph_view.get_full_subset(key=key))


class HasNoName(Raises):
    @property
    def description(self) -> str:
        raise KeyError("description")


class Always(dg.AutomationCondition[Any]):
    """True while it is told to be."""

    is_true = True

    @property
    def name(self) -> str:
        return "always"

    def evaluate(self, context: AutomationContext[Any]) -> AutomationResult[Any]:
        true = context.candidate_subset if self.is_true else context.get_empty_subset()
        return AutomationResult(context, true_subset=true)


def pair(**more: Any) -> list[Any]:
    """A healthy pair."""
    return [
        source("orders", HOURS),
        asset("core/orders", "raw/orders", by=HOURS, freshness_policy=lag(minutes=5), tags={"tidemark/pace": "asap"}),
    ]


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as ephemeral:
        yield ephemeral


@pytest.mark.parametrize(
    ("condition", "said"),
    [
        (Raises(), "ValueError: no such column"),
        (RaisesLater(), "RuntimeError: no such column"),
        (GivesNothing(), "expected a result for marts/own, found None"),
        (OfAnother(), "expected a result for marts/own, found "),
        (derived() & RaisesLater(), "RuntimeError: no such column"),
        (Raises().since(CRON), "ValueError: no such column"),
        (HasNoName(), "ValueError: no such column"),
    ],
)
def test_asset_with_a_failing_condition_is_reported_and_others_are_requested(
    instance: dg.DagsterInstance, condition: dg.AutomationCondition[Any], said: str, caplog: pytest.LogCaptureFixture
) -> None:
    location = Location(
        instance, [*pair(), asset("marts/own", "core/orders", by=HOURS, automation_condition=condition)]
    )
    location.observe("raw/orders", HOUR)
    ticked = location.tick()
    assert ticked.asked == {("core/orders", HOUR)}
    assert any("raises" in line and said in line for line in ticked.said("marts/own"))
    assert [r for r in caplog.messages if "marts/own" in r and said in r]


def test_repeated_condition_failure_is_logged_and_stored_once(
    instance: dg.DagsterInstance, caplog: pytest.LogCaptureFixture
) -> None:
    location = Location(instance, [*pair(), asset("marts/own", "core/orders", by=HOURS, automation_condition=Raises())])
    assert [location.tick().said("marts/own") != [] for _ in range(3)] == [True, False, False]
    assert len([r for r in caplog.messages if "no such column" in r]) == 1


def test_check_with_a_failing_condition_does_not_affect_assets(instance: dg.DagsterInstance) -> None:
    @dg.asset_check(asset=dg.AssetKey(["core", "orders"]), automation_condition=Raises())
    def looks_right() -> dg.AssetCheckResult:
        raise NotImplementedError

    location = Location(instance, [*pair(), looks_right])
    location.observe("raw/orders", HOUR)
    assert location.tick().asked == {("core/orders", HOUR)}


def test_guarded_condition_has_the_snapshot_and_id_of_the_original() -> None:
    own = (derived() & CRON).with_label("at nine")
    (guard,) = (spec.automation_condition for spec in with_automation([_with(own)])[0].specs)
    assert isinstance(guard, Guarded)
    assert guard.get_snapshot() == own.get_snapshot()
    assert (guard.get_unique_id(), hash(guard), guard.get_label()) == (own.get_unique_id(), hash(own), "at nine")
    assert guard.children == own.children
    node = graph_of(dg.Definitions(with_automation([_with(own)])).resolve_asset_graph()).nodes["marts/own"]
    assert node.automated and node.conditional
    (unguarded,) = (spec.automation_condition for spec in with_automation([_with(derived())])[0].specs)
    assert isinstance(unguarded, Derived)


def test_since_condition_keeps_its_state_after_a_failed_tick(instance: dg.DagsterInstance) -> None:
    trigger, reset, other = Always(), Always(), Raises()
    reset.is_true = other.fails = False
    # OR, so that the failing one is evaluated whatever the other says.
    own = trigger.since(reset) | other
    location = Location(instance, [*pair(), asset("marts/own", "raw/orders", automation_condition=own)])
    assert ("marts/own", None) in location.tick().asked
    trigger.is_true, other.fails = False, True
    assert location.tick().asked == set()
    other.fails = False
    assert ("marts/own", None) in location.tick().asked


def test_initial_evaluation_condition_is_still_true_after_a_failed_first_tick(instance: dg.DagsterInstance) -> None:
    other = Raises()
    for key, by in (("marts/own", None), ("marts/hours", HOURS)):
        other.fails = True
        own = dg.AutomationCondition.initial_evaluation() | other
        location = Location(instance, [*pair(), asset(key, "raw/orders", by=by, automation_condition=own)])
        assert location.tick().asked == set()
        other.fails = False
        assert key in {name for name, _ in location.tick().asked}
        assert location.tick().asked == set()


def _with(condition: dg.AutomationCondition[Any]) -> dg.AssetsDefinition:
    return asset("marts/own", "core/orders", by=HOURS, automation_condition=condition)
