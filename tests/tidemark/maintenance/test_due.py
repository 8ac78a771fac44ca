"""Maintenance is due by count and by age, and rests after failures."""

from dataclasses import replace

import pytest

from dagster_tidemark.lakehouse.maintenance.due import (
    Action,
    LastAction,
    MaintenancePolicy,
    TableFacts,
    due_actions,
)

NOW = 1_000_000.0
HOUR, DAY = 3600.0, 86_400.0
POLICY = MaintenancePolicy()
FRESH = {action: LastAction(NOW - HOUR) for action in Action}
QUIET = TableFacts("core.orders", NOW - 30 * DAY, bytes=1000, last=FRESH)


def due(facts: TableFacts, policy: MaintenancePolicy = POLICY, now: float = NOW) -> dict[Action, str]:
    return {each.action: each.reason for each in due_actions(facts, policy, now)}


def test_nothing_is_due_for_a_table_that_nothing_has_changed() -> None:
    assert due(QUIET) == {}
    assert due(TableFacts("core.orders", None)) == {}, "no commit yet"


@pytest.mark.parametrize(
    ("few", "many", "action"),
    [
        ({"small_files": 49}, {"small_files": 50}, Action.COMPACT),
        ({"delete_files": 9}, {"delete_files": 10}, Action.DELETES),
        ({"manifests": 19}, {"manifests": 20}, Action.MANIFESTS),
        ({"expirable": tuple(range(99))}, {"expirable": tuple(range(100))}, Action.EXPIRE),
        ({"expirable": (1,), "held_bytes": 250}, {"expirable": (1,), "held_bytes": 251}, Action.EXPIRE),
    ],
)
def test_action_is_due_by_count_and_after_a_day_for_fewer(few: dict, many: dict, action: Action) -> None:  # type: ignore[type-arg]
    assert due(replace(QUIET, **few)) == {}
    assert list(due(replace(QUIET, **many))) == [action]
    assert action in due(replace(QUIET, **few), now=NOW + DAY)


def test_what_an_action_left_is_not_due_again() -> None:
    left = replace(QUIET, small_files=60, last=FRESH | {Action.COMPACT: LastAction(NOW - HOUR, left=60)})
    assert due(left) == {}
    assert Action.COMPACT not in due(left, now=NOW + 2 * DAY)
    assert list(due(replace(left, small_files=110))) == [Action.COMPACT]


def test_orphans_are_searched_once_a_day_from_a_days_age_on() -> None:
    new = TableFacts("a.b", NOW - HOUR)
    assert due(new) == {} and list(due(new, now=NOW + DAY)) == [Action.ORPHANS]


def test_action_waits_after_a_failure_and_while_a_run_builds_the_table() -> None:
    failed = FRESH | {Action.COMPACT: LastAction(NOW - 400, failures=2, why="GC is disabled")}
    facts = replace(QUIET, small_files=99, expirable=tuple(range(100)), last=failed)
    assert [each.waits.partition(":")[0] for each in due_actions(facts, POLICY, NOW)] == [
        "it failed 2 times in a row, and is tried again later",
        "",
    ]
    assert [each.waits for each in due_actions(facts, POLICY, NOW + 201)] == ["", ""]
    built = replace(facts, builds="4711", last=FRESH)
    assert [each.waits for each in due_actions(built, POLICY, NOW)] == ["run 4711 builds the table", ""]


def test_action_is_due_after_the_clock_was_set_back() -> None:
    failed = FRESH | {Action.COMPACT: LastAction(NOW - 400, failures=2, why="GC is disabled")}
    facts = replace(QUIET, small_files=99, delete_files=1, last=failed)
    found = {each.action: each.waits for each in due_actions(facts, POLICY, NOW - 5 * DAY)}
    assert found == {Action.COMPACT: "", Action.DELETES: "", Action.ORPHANS: ""}
    (waiting,) = due_actions(replace(facts, delete_files=0), POLICY, NOW - 500)
    assert waiting.waits.startswith("it failed 2 times"), "a clock that differs by minutes ends no pause"


def test_by_hand_everything_useful_is_due_and_nothing_is_removed_earlier() -> None:
    policy = POLICY.at_once()
    facts = replace(QUIET, small_files=5, delete_files=1, manifests=1, expirable=(1,))
    assert list(due(facts, policy)) == list(Action)
    assert (policy.orphans_older, policy.small_bytes) == (POLICY.orphans_older, POLICY.small_bytes)
    assert list(due(QUIET, policy)) == [Action.ORPHANS]


def test_expiry_waits_while_a_branch_of_a_preview_has_no_commit_of_its_own() -> None:
    facts = replace(QUIET, expirable=tuple(range(200)), preview="preview_1")
    [found] = due_actions(facts, POLICY, NOW)
    assert found.action is Action.EXPIRE and "preview_1 has no commit yet; `tidemark plan --discard`" in found.waits
