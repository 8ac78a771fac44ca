"""Every rule's test can fail: each defect, seeded in the planner, is caught by the test of the rule it breaks.

A defect is a line of one function, replaced. The test is run once with it; before that, the suites themselves have
shown it passes without.
"""

import importlib
import inspect
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from tests.automation import test_semantics as meaning
from tests.automation import test_semantics_contracts as contracts


@dataclass(frozen=True)
class Defect:
    """In `where` (module:qualified name below pipelines.automation) `good` becomes `bad`; `test` has to notice."""

    where: str
    good: str
    bad: str
    test: Callable[..., None]
    arguments: tuple[Any, ...] = ()


DEFECTS = [
    Defect(
        "history:History._changed",
        "same = self.versions.get(target) == version",
        "same = False",
        meaning.test_the_same_version_observed_again_is_no_arrival_and_another_one_is,
    ),
    Defect(
        "history:History.observed",
        "if listed_at < self.listed_at.get(target, 0.0):",
        "if False:",
        meaning.test_an_observation_with_an_older_listing_is_dropped,
    ),
    Defect(
        "records:contains",
        "change.id <= built.as_of",
        "change.id <= built.id",
        meaning.test_an_update_that_arrives_during_the_run_of_its_partition_is_taken_over_afterwards,
    ),
    Defect(
        "records:contains",
        "or (change.run_id is not None and change.run_id == built.run_id)",
        "",
        meaning.test_in_a_run_of_both_the_consumer_contains_what_the_run_made_and_does_not_run_again,
    ),
    Defect(
        "history:History._apply",
        "if before is None or m.id > before.id:",
        "if before is None or m.as_of > before.as_of:",
        meaning.test_an_older_run_that_ends_last_makes_the_newer_changes_pending_again,
    ),
    Defect(
        "history:History.materialized",
        "self._changed(target, version, Change(id, at))",
        "pass",
        meaning.test_a_reported_materialization_is_a_change_for_consumers,
    ),
    Defect(
        "history:History.materialized",
        "self._changed(target, version, Change(id, at))",
        "self.built[target] = Built(id, id, '')",
        meaning.test_a_reported_materialization_clears_nothing_pending_of_its_own,
    ),
    Defect(
        "history:History._changed",
        "same = self.versions.get(target) == version",
        "same = False",
        meaning.test_consumers_run_only_if_the_content_differs,
        ("the same", 1),
    ),
    Defect(
        "history:History._changed",
        "same = self.versions.get(target) == version",
        "same = target in self.versions",
        meaning.test_consumers_run_only_if_the_content_differs,
        (None, 2),
    ),
    Defect(
        "pending:Backlog._mark_readers",
        "marked.update(read.downstream(target[1]))",
        "marked.update(self.of.get(node.key, ()))",
        meaning.test_a_late_hour_into_an_old_day_refreshes_that_day_only,
    ),
    Defect(
        "tick:Tick._decide",
        "if pending.absent:",
        "if False:",
        meaning.test_while_one_required_input_is_silent_nothing_is_requested_and_the_reason_names_it,
    ),
    Defect(
        "tick:Tick._held",
        "if failure is None or facts.next_try is None or facts.next_try <= self.now:",
        "if True:",
        meaning.test_a_failed_run_backs_off_from_a_minute_on_to_an_hour_and_heals_without_a_person,
    ),
    Defect(
        "tick:backoff",
        "2.0 **",
        "1.0 **",
        meaning.test_a_failed_run_backs_off_from_a_minute_on_to_an_hour_and_heals_without_a_person,
    ),
    Defect(
        "tick:Tick._held",
        "if self.history.newest_input(node, target[1]) > failure.as_of:",
        "if False:",
        meaning.test_new_data_ends_the_pause_after_a_failure,
    ),
    Defect(
        "history:History._shorten_pauses",
        "failure.attempts > 1",
        "False",
        meaning.test_the_first_success_of_another_partition_ends_the_long_pauses_of_an_asset,
    ),
    Defect(
        "history:History.ended",
        "self.dirty.add(target)",
        "self.failures.pop(target, None); self.built[target] = Built(as_of, as_of, run_id)",
        meaning.test_a_failed_run_backs_off_from_a_minute_on_to_an_hour_and_heals_without_a_person,
    ),
    Defect(
        "requests:_Found.arrivals",
        "due = [p for p in self.arrived.get(key, ()) if (key, p) not in self.taken]",
        "due = [p for p in self.arrived.get(key, ()) if (key, p) not in self.taken][-1:]",
        meaning.test_a_three_day_outage_catches_up_every_partition,
    ),
    Defect(
        "contracts:due",
        "latest = start_by - reserve(contract, pace)",
        "latest = start_by",
        contracts.test_there_is_time_for_a_second_attempt_before_the_deadline,
    ),
    Defect(
        "contracts:due",
        "latest = start_by - reserve(contract, pace)",
        "latest = arrival",
        contracts.test_a_lag_contract_is_served_once_and_as_late_as_it_allows,
    ),
    Defect(
        "contracts:due",
        "opens = max(arrival, ended if",
        "opens = max(arrival + 9e9, ended if",
        contracts.test_a_window_that_has_ended_and_was_never_built_is_due_as_soon_as_its_inputs_are_there,
    ),
    Defect(
        "contracts:due",
        "promised - contract.bound if",
        "promised - 4 * contract.bound if",
        contracts.test_a_report_is_asked_for_when_nothing_later_is_required_and_not_before,
    ),
    Defect(
        "contracts:deadline",
        "after = arrival + contract.bound",
        "after = arrival",
        contracts.test_what_arrives_after_the_bound_comes_with_the_next_tick_once_together_with_all_others,
    ),
    Defect(
        "contracts:deadline",
        "after if own is None else max(own, after)",
        "own if own is not None else after",
        contracts.test_a_file_weeks_late_comes_with_the_next_tick,
    ),
    Defect(
        "contracts:deadline",
        "if own is not None and not built:",
        "if False:",
        contracts.test_a_window_past_its_tick_that_was_never_built_is_due_at_once,
    ),
    Defect(
        "history:History.lead",
        "max(self.leads.get(asset, ()), default=DEFAULT_LEAD)",
        "DEFAULT_LEAD",
        contracts.test_a_path_longer_than_the_bound_starts_earlier_and_goes_again_for_what_came_later,
    ),
    Defect(
        "pending:Backlog._pending",
        "arrival = None if absent else max(first, default=None)",
        "arrival = None if absent else min(first, default=None)",
        contracts.test_of_a_partition_never_built_the_clock_starts_when_its_last_required_input_has_data,
    ),
    Defect(
        "history:History._consumed",
        "max(arrivals, default=m.at)",
        "m.at",
        contracts.test_lag_stays_relative_to_the_sources_at_any_depth,
    ),
    Defect(
        "demand:Demands._find",
        "self.backlog.readers(target)",
        "()",
        contracts.test_an_asset_without_a_contract_runs_as_its_strictest_consumer_needs,
    ),
    Defect(
        "demand:Demands._by_itself",
        "return None if own is None else",
        "return Demand(arrival, arrival, node.key) if own is None else",
        contracts.test_an_asset_nobody_needs_is_not_run_and_says_so,
    ),
    Defect(
        "tick:Tick._waits",
        "(stuck if self._stuck(source) and self.now >= start_by else waits).append(source)",
        "pass",
        contracts.test_an_input_of_another_grain_goes_first_and_the_consumer_is_still_in_time,
    ),
    Defect(
        "demand:Demands._by_itself",
        "if node.asap:",
        "if False:",
        contracts.test_pace_asap_runs_at_once_whatever_the_contract,
    ),
    Defect(
        "asset_graph:input_of",
        "bool(declared.get(USE_LATEST))",
        "False",
        contracts.test_a_use_latest_input_makes_its_consumer_neither_pending_nor_late_but_has_to_exist,
    ),
    Defect(
        "records:reaches",
        "if read.ripple_days is None or arrived_at is None:",
        "if True:",
        contracts.test_a_rippling_input_makes_the_last_days_stale_and_not_history,
    ),
    Defect(
        "pending:Backlog._pending",
        "built.code_version != node.code_version",
        "False",
        contracts.test_other_code_rebuilds_what_was_built_and_never_what_was_not,
    ),
    Defect(
        "tick:Tick._decide",
        "if demand is not None and pending.arrival is not None:",
        "if not pending.stale and demand is not None and pending.arrival is not None:",
        contracts.test_stale_code_holds_up_no_arrival_and_one_run_clears_both,
    ),
    Defect(
        "contracts:LagContract.scaled",
        "self.fail * scale",
        "self.fail",
        contracts.test_the_scale_multiplies_lag_windows_and_never_a_time_of_day,
    ),
    Defect("history:History.forget", "known.pop(target, None)", "pass", contracts.test_a_wiped_table_is_built_again),
]


def place_of(defect: Defect) -> tuple[Any, str, Callable[..., Any], str]:
    """The owner and name of the function that a defect is seeded in, the function, and its source.

    Raises:
        AssertionError: the line that the defect replaces is not there once.
    """
    module_name, qualified = defect.where.split(":")
    owner: Any = importlib.import_module(f"pipelines.automation.{module_name}")
    *path, name = qualified.split(".")
    for part in path:
        owner = getattr(owner, part)
    function = inspect.unwrap(getattr(owner, name))
    source = textwrap.dedent(inspect.getsource(function))
    assert source.count(defect.good) == 1, f"{defect.where} has no longer one {defect.good!r}"
    return owner, name, function, source


def seed(defect: Defect, monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace the function by itself with the defect, everywhere it has been imported to."""
    owner, name, function, source = place_of(defect)
    scope: dict[str, Any] = dict(vars(inspect.getmodule(function)))
    exec(compile(source.replace(defect.good, defect.bad), f"<defect in {defect.where}>", "exec"), scope)
    monkeypatch.setattr(owner, name, scope[name])
    if inspect.ismodule(owner):
        for other in ("demand", "history", "pending", "planner", "records", "tick"):
            importer = importlib.import_module(f"pipelines.automation.{other}")
            if getattr(importer, name, None) is function:
                monkeypatch.setattr(importer, name, scope[name])


@pytest.mark.parametrize("defect", DEFECTS, ids=lambda d: f"{d.where}-{d.good[:24]}" if isinstance(d, Defect) else None)
def test_a_seeded_defect_is_caught(defect: Defect, monkeypatch: pytest.MonkeyPatch) -> None:
    seed(defect, monkeypatch)
    arguments = [monkeypatch] if "monkeypatch" in inspect.signature(defect.test).parameters else defect.arguments
    with pytest.raises((AssertionError, ValueError, IndexError, KeyError)):
        defect.test(*arguments)
