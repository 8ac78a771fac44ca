"""Every rule's test can fail: each defect, seeded in the planner, is caught by the test of the rule it breaks.

A defect is a line of one function, replaced. The test is run once with it; before that, the suites themselves have
shown it passes without.
"""

import importlib
import inspect
import sys
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from tests.tidemark.automation import test_any_graph as shapes
from tests.tidemark.automation import test_contracts as ticks
from tests.tidemark.automation import test_rebuilds as rebuilds
from tests.tidemark.automation import test_semantics as meaning
from tests.tidemark.automation import test_semantics_contracts as contracts
from tests.tidemark.automation import test_wipes as wipes
from tests.tidemark.automation.shapes import test_blocking_checks as checks
from tests.tidemark.automation.shapes import test_deploys as deploys
from tests.tidemark.automation.shapes import test_fairness as fairness
from tests.tidemark.automation.shapes import test_isolation as isolation
from tests.tidemark.automation.shapes import test_keys as keys
from tests.tidemark.automation.shapes import test_operations as operations
from tests.tidemark.automation.shapes import test_time as times


@dataclass(frozen=True)
class Defect:
    """In `where` `good` becomes `bad`; `test` has to notice.

    Args:
        where: module:qualified name, the module below the package.
    """

    where: str
    good: str
    bad: str
    test: Callable[..., None]
    arguments: tuple[Any, ...] = ()
    package: str = "dagster_tidemark"


DEFECTS = [
    Defect(
        "planner.history:History._changed",
        "same = self.versions.get(target) == version",
        "same = False",
        meaning.test_the_same_version_observed_again_is_no_arrival_and_another_one_is,
    ),
    Defect(
        "planner.history:History.observed",
        "if listed_at < self.listed_at.get(target, 0.0):",
        "if False:",
        meaning.test_an_observation_with_an_older_listing_is_dropped,
    ),
    Defect(
        "planner.event_records:contains",
        "change.id <= built.as_of",
        "change.id <= built.id",
        meaning.test_an_update_that_arrives_during_the_run_of_its_partition_is_taken_over_afterwards,
    ),
    Defect(
        "planner.event_records:contains",
        "or (change.run_id is not None and change.run_id == built.run_id)",
        "",
        meaning.test_in_a_run_of_both_the_consumer_contains_what_the_run_made_and_does_not_run_again,
    ),
    Defect(
        "planner.history:History._apply",
        "if before is None or m.id > before.id:",
        "if before is None or m.as_of > before.as_of:",
        meaning.test_an_older_run_that_ends_last_makes_the_newer_changes_pending_again,
    ),
    Defect(
        "planner.history:History.materialized",
        "self._has_new_data(target, version, Change(id, at), at)",
        "pass",
        meaning.test_a_reported_materialization_is_a_change_for_consumers,
    ),
    Defect(
        "planner.history:History.materialized",
        "self._has_new_data(target, version, Change(id, at), at)",
        "self.built[target] = Built(id, id, '')",
        meaning.test_a_reported_materialization_clears_nothing_pending_of_its_own,
    ),
    Defect(
        "planner.history:History._changed",
        "same = self.versions.get(target) == version",
        "same = False",
        meaning.test_consumers_run_only_if_the_content_differs,
        ("the same", 1),
    ),
    Defect(
        "planner.history:History._changed",
        "same = self.versions.get(target) == version",
        "same = target in self.versions",
        meaning.test_consumers_run_only_if_the_content_differs,
        (None, 2),
    ),
    Defect(
        "planner.staleness:PendingWork._mark_readers",
        "marked.update(self.history.reading(node, read, target[1]))",
        "marked.update(self.of.get(node.key, ()))",
        meaning.test_a_late_hour_into_an_old_day_refreshes_that_day_only,
    ),
    Defect(
        "planner.evaluate:EvaluationPass._decide",
        "if pending.missing_inputs:",
        "if False:",
        meaning.test_while_one_required_input_is_silent_nothing_is_requested_and_the_reason_names_it,
    ),
    Defect(
        "planner.waiting:WaitingReasons._pauses",
        "if failure is None or facts.next_try is None or facts.next_try <= self.now:",
        "if True:",
        meaning.test_a_failed_run_backs_off_from_a_minute_on_to_an_hour_and_heals_without_a_person,
    ),
    Defect(
        "planner.run_retries:backoff",
        "growing_pause(attempts, FIRST_PAUSE, LONGEST_PAUSE)",
        "FIRST_PAUSE",
        meaning.test_a_failed_run_backs_off_from_a_minute_on_to_an_hour_and_heals_without_a_person,
    ),
    Defect(
        "planner.run_retries:next_try",
        "if has_new_data else pause",
        "if False else pause",
        meaning.test_new_data_ends_the_pause_after_a_failure,
    ),
    Defect(
        "planner.history:History._shorten_pauses",
        "if target[0] == asset:",
        "if False:",
        meaning.test_the_first_success_of_another_partition_ends_the_long_pauses_of_an_asset,
    ),
    Defect(
        "planner.history:History.ended",
        "if outcome is Outcome.SUCCEEDED:",
        "if True:",
        meaning.test_a_failed_run_backs_off_from_a_minute_on_to_an_hour_and_heals_without_a_person,
    ),
    Defect(
        "planner.requests:_Found.arrivals",
        "newest_first = sorted(due, key=node.order, reverse=True)",
        "newest_first = sorted(due, key=node.order, reverse=True)[:1]",
        meaning.test_a_three_day_outage_catches_up_every_partition,
    ),
    Defect(
        "planner.contracts:due",
        "latest = start_by - reserve(contract, pace)",
        "latest = start_by",
        contracts.test_there_is_time_for_a_second_attempt_before_the_deadline,
    ),
    Defect(
        "planner.contracts:due",
        "latest = start_by - reserve(contract, pace)",
        "latest = arrival",
        contracts.test_a_lag_contract_is_served_once_and_as_late_as_it_allows,
    ),
    Defect(
        "planner.contracts:due",
        "opens = max(arrival, ended if",
        "opens = max(arrival + 9e9, ended if",
        contracts.test_a_window_that_has_ended_and_was_never_built_is_due_as_soon_as_its_inputs_are_there,
    ),
    Defect(
        "planner.contracts:due",
        "promised - contract.bound if",
        "promised - 4 * contract.bound if",
        contracts.test_a_report_is_asked_for_when_nothing_later_is_required_and_not_before,
    ),
    Defect(
        "planner.contracts:deadline",
        "after = arrival + contract.bound",
        "after = arrival",
        contracts.test_what_arrives_after_the_bound_comes_with_the_next_tick_once_together_with_all_others,
    ),
    Defect(
        "planner.contracts:deadline",
        "after if own is None else max(own, after)",
        "own if own is not None else after",
        contracts.test_a_file_weeks_late_comes_with_the_next_tick,
    ),
    Defect(
        "planner.contracts:deadline",
        "if own is not None and not built:",
        "if False:",
        contracts.test_a_window_past_its_tick_that_was_never_built_is_due_at_once,
    ),
    Defect(
        "planner.run_durations:RunDurations.of_run",
        "if not samples:",
        "if True:",
        contracts.test_a_path_longer_than_the_bound_starts_earlier_and_goes_again_for_what_came_later,
    ),
    Defect(
        "planner.staleness:PendingWork._first",
        "arrival = None if missing_inputs else max(first, default=without_required)",
        "arrival = None if missing_inputs else min(first, default=without_required)",
        contracts.test_of_a_partition_never_built_the_clock_starts_when_its_last_required_input_has_data,
    ),
    Defect(
        "planner.history:History._consumed",
        "max(*arrivals, node.exists_from(m.target[1])) if arrivals else m.at",
        "m.at",
        contracts.test_lag_stays_relative_to_the_sources_at_any_depth,
    ),
    Defect(
        "planner.demand:Demands._readers",
        "self.backlog.readers(target)",
        "()",
        contracts.test_an_asset_without_a_contract_runs_as_its_strictest_consumer_needs,
    ),
    Defect(
        "planner.demand:Demands._by_itself",
        "return Needs(asap)",
        "return Needs({node.key: 0.0})",
        contracts.test_an_asset_nobody_needs_is_not_run_and_says_so,
    ),
    Defect(
        "planner.waiting:WaitingReasons.for_inputs",
        "(passed if late else waits).append(source)",
        "pass",
        contracts.test_an_input_of_another_grain_goes_first_and_the_consumer_is_still_in_time,
    ),
    Defect(
        "planner.demand:Demands._by_itself",
        "if node.asap else {}",
        "if False else {}",
        contracts.test_pace_asap_runs_at_once_whatever_the_contract,
    ),
    Defect(
        "asset_graph.planner_graph:input_of",
        "use_latest_of(metadata, name)",
        "False",
        contracts.test_a_use_latest_input_makes_its_consumer_neither_pending_nor_late_but_has_to_exist,
    ),
    Defect(
        "planner.event_records:reaches",
        "if read.ripple_days is None or arrived_at is None or window is None:",
        "if True:",
        contracts.test_a_rippling_input_makes_the_last_days_stale_and_not_history,
    ),
    Defect(
        "planner.staleness:PendingWork._stale",
        "built.code_version != node.code_version",
        "False",
        contracts.test_other_code_rebuilds_what_was_built_and_never_what_was_not,
    ),
    Defect(
        "planner.staleness:PendingWork._stale",
        "built.as_of <= self.graph.moment.loaded_after",
        "True",
        rebuilds.test_code_that_is_edited_and_not_yet_loaded_makes_nothing_run_again_and_again,
        ("long ago",),
    ),
    Defect(
        "planner.evaluate:EvaluationPass._decide",
        "if demand is not None and pending.arrival is not None:",
        "if not pending.stale and demand is not None and pending.arrival is not None:",
        contracts.test_stale_code_holds_up_no_arrival_and_one_run_clears_both,
    ),
    Defect(
        "planner.contracts:LagContract.scaled",
        "self.fail * scale",
        "self.fail",
        contracts.test_the_scale_multiplies_lag_windows_and_never_a_time_of_day,
    ),
    Defect(
        "planner.history:History.forget", "known.pop(target, None)", "pass", contracts.test_a_wiped_table_is_built_again
    ),
    # Graphs of other shapes.
    Defect(
        "planner.staleness:PendingWork._look",
        "called(lambda: self._pending(node, target) if self._exists(node, target, now) else None)",
        "self._pending(node, target) if self._exists(node, target, now) else None",
        shapes.test_what_raises_for_one_partition_leaves_the_others_of_its_asset,
    ),
    Defect(
        "planner.history:History.reading",
        "called(read.downstream, partition)",
        "read.downstream(partition)",
        shapes.test_a_mapping_that_raises_sets_its_asset_aside_and_nobody_else,
    ),
    Defect(
        "planner.staleness:PendingWork._look",
        "self._sleep(target, now + _LOOK_AGAIN)",
        "pass",
        shapes.test_a_mapping_that_raised_for_a_while_is_asked_again_without_any_event,
    ),
    Defect(
        "planner.candidates:Candidates.moved",
        "node.enumerated or",
        "False or",
        shapes.test_days_that_read_only_a_table_without_partitions_are_built_when_it_is_there,
    ),
    Defect(
        "planner.candidates:Candidates.begins",
        "window.end if window else _NEVER",
        "_NEVER",
        shapes.test_partitions_of_an_asset_without_inputs_are_built_once_their_window_is_over,
    ),
    Defect(
        "planner.staleness:PendingWork._exists",
        "exists = node.exists(target[1])",
        "exists = True",
        shapes.test_dynamic_keys_are_built_when_they_are_added_and_no_more_once_they_are_removed,
    ),
    Defect(
        "planner.history:History._began_after",
        " and not self._dynamic_keys(source) <= self._dynamic_keys(reader)",
        "",
        keys.test_what_a_person_builds_of_a_key_before_anybody_noticed_that_it_came_is_built,
    ),
    Defect(
        "planner.history:History._began_after",
        "if gone <= built.started_at < came",
        "if False",
        keys.test_data_of_a_key_that_is_added_later_is_contained_only_by_a_run_after_that,
    ),
    Defect(
        "planner.candidates:Candidates._after_first",
        "return any(",
        "return True or any(",
        shapes.test_a_cumulative_table_begins_with_the_first_day_that_has_data_and_goes_on_in_order,
    ),
    Defect(
        "planner.candidates:Candidates.gap",
        "if place >= self._last.get((node.key, group), place):",
        "if True:",
        shapes.test_a_day_without_data_is_gone_through_and_a_late_file_before_the_first_rebuilds_what_follows,
    ),
    Defect(
        "planner.waiting:WaitingReasons._is_newer",
        "if built is None:",
        "if True:",
        shapes.test_a_stream_that_never_pauses_does_not_starve_a_reader_that_runs_as_soon_as_possible,
    ),
    Defect(
        "planner.run_retries:next_try",
        "max(FIRST_PAUSE, failure.seconds)",
        "0.0",
        shapes.test_an_input_that_fails_under_a_stream_keeps_a_rate,
    ),
    Defect(
        "planner.run_retries:after",
        "1 if starts_over else attempts + 1",
        "attempts + 1",
        shapes.test_the_count_of_attempts_starts_over_with_new_data,
    ),
    Defect(
        "planner.run_retries:after",
        "if outcome is Outcome.LOST:",
        "if False:",
        shapes.test_an_attempt_lost_with_the_platform_is_none_of_the_partition,
    ),
    Defect(
        "planner.history:History.ended",
        "if outcome is Outcome.LOST and built is not None and built.as_of <= as_of:",
        "if False:",
        shapes.test_an_up_to_date_partition_whose_run_was_lost_is_asked_for_again,
    ),
    Defect(
        "planner.history:History.ended",
        "if outcome is Outcome.SUCCEEDED:",
        "if False:",
        shapes.test_a_run_that_succeeds_without_writing_contains_what_it_saw,
    ),
    Defect(
        "planner.check_results:CheckResults.blocking",
        "result is not None and not result.passed",
        "False",
        shapes.test_nobody_is_built_on_what_a_blocking_check_failed_until_it_passes_or_is_rebuilt,
    ),
    Defect(
        "planner.requests:_Found._together",
        "node.most == 1",
        "False",
        shapes.test_an_asset_that_takes_one_partition_a_run_is_never_asked_for_as_a_range_nor_floods_the_queue,
    ),
    Defect(
        "planner.requests:_parts",
        "range(len(run), 0, -most)",
        "range(len(run), 0, -len(run))",
        shapes.test_a_range_is_cut_as_the_backfill_policy_says,
    ),
    Defect(
        "planner.requests:_Found._operation",
        "if together else (key,)",
        "if False else (key,)",
        shapes.test_what_one_operation_builds_is_built_in_one_run_and_held_together,
    ),
    Defect(
        "planner.requests:_Found.rebuild",
        "if node.conditional:",
        "if False:",
        shapes.test_an_assets_own_condition_has_the_last_word_over_rebuilds_too,
    ),
    Defect(
        "planner.waiting:WaitingReasons._pauses",
        "if until > self.now:",
        "if False:",
        shapes.test_what_was_asked_for_in_vain_pauses_and_says_so,
    ),
    Defect(
        "planner.graph:Graph.without_runs_of",
        "automated=False",
        "automated=True",
        isolation.test_what_no_run_can_be_planned_of_is_set_aside_and_named,
        (isolation.without_config, 1),
    ),
    Defect(
        "planner.evaluate:_is_only_judged",
        "return node.contract is not None and not (node.automated or node.source or node.refused)",
        "return False",
        operations.test_a_policy_is_judged_whoever_asks_for_the_runs,
        (operations.dg.AutomationCondition.eager(),),
    ),
    Defect(
        "planner.requests:_Found._together",
        "assets = self._joined_by_all(node, run, joined)",
        "assets = joined[run[0]]",
        operations.test_a_range_is_one_run_though_only_some_of_it_could_be_built_together_with_a_reader,
    ),
    Defect(
        "planner.capacity:_as_ranges",
        "most = min((run.most for run in close if run.most is not None), default=len(close))",
        "most = len(close)",
        fairness.test_many_partitions_that_take_a_run_each_are_begun_early_enough,
    ),
    Defect(
        "planner.waiting:WaitingReasons._is_to_be_rebuilt",
        "self._is_deferred(one) if decision is None",
        "True if decision is None",
        deploys.test_a_rebuild_does_not_wait_for_an_input_that_the_planner_never_rebuilds,
        ("people",),
    ),
    Defect(
        "planner.waiting:WaitingReasons.blocked",
        "with_it and source[1] == target[1]",
        "with_it",
        checks.test_a_day_is_not_built_on_a_day_before_of_which_the_check_failed,
    ),
    Defect(
        "planner.history:History.written",
        "self.changes.get(target, ())[-1:]",
        "()",
        checks.test_a_failed_check_of_an_external_table_ends_with_its_next_build,
    ),
    Defect(
        "planner.requests:_Found._singly",
        "order >= node.order(partition)",
        "True",
        fairness.test_runs_over_old_partitions_that_are_stuck_keep_no_new_one_waiting,
    ),
    Defect(
        "engine.run_requests:as_ranges",
        "for run in _in_ranges(group, graph)",
        "for run in group",
        fairness.test_what_a_condition_of_its_own_asks_for_in_great_number_is_asked_for_as_ranges,
        (fairness.dg.BackfillPolicy.single_run(), 1),
    ),
    Defect(
        "engine.condition:_Look.__post_init__",
        "or not request.conditional",
        "or True",
        operations.test_the_own_condition_of_one_output_is_not_passed_by_through_another,
    ),
    Defect(
        "planner.history:History.as_of",
        "built is not None and built.run_id == run_id",
        "False",
        operations.test_a_step_that_is_tried_again_and_tells_its_outputs_twice_runs_no_reader_twice,
    ),
    Defect(
        "planner.contracts:_tick",
        "tick >= at",
        "True",
        ticks.test_when_the_clocks_change_no_tick_is_on_the_wrong_side,
        ("Europe/Berlin", "30 2 * * *"),
    ),
    Defect(
        "event_log.checkpoint:completed",
        "history.unseen[(asset, partition)] = tuple(Change(*change) for change in changes)",
        "pass",
        wipes.test_a_change_that_was_wiped_before_anybody_read_it_is_still_news_after_a_restart,
        (True,),
    ),
    Defect(
        "event_log.reading_again:wiped",
        "intake.history.heard_of",
        "{asset for asset, of in intake.history.known.items() if of}",
        wipes.test_what_a_run_found_nothing_for_is_run_again_after_a_wipe,
        (False,),
    ),
    Defect(
        "planner.unbuilt:_promised",
        "found[partition] = tick_at_or_after(contract, max(since, came))",
        "continue",
        times.test_what_is_about_no_window_of_time_is_promised_as_well,
        ("static",),
    ),
    Defect(
        "engine.overview:_since",
        "if key in assets and key not in promised and not node.source",
        "if False",
        deploys.test_windows_of_a_time_without_a_promise_are_no_breach_once_there_is_one_again,
    ),
    Defect(
        "planner.evaluate:EvaluationPass._set_aside",
        "for key, odd in self.backlog.candidates.odd.items()",
        "for key, odd in ()",
        keys.test_a_key_that_holds_what_stands_between_dimensions_is_named,
    ),
    Defect(
        "planner.history:History._began_after",
        "self.keys.declared.get(source, 0.0)",
        "0.0",
        deploys.test_what_was_built_before_a_key_was_declared_does_not_contain_what_lay_there,
        (False, None),
    ),
    Defect(
        "planner.evaluate:EvaluationPass._by_contract",
        "min(facts.latest_start, demand.start_by)",
        "facts.latest_start",
        fairness.test_what_waits_for_an_input_waits_no_longer_than_its_readers_contracts_let_it,
        ({},),
    ),
    Defect(
        "planner.waiting:WaitingReasons.for_inputs",
        "pending.news is None and not pending.stale",
        "False",
        fairness.test_what_many_are_due_for_and_cannot_be_had_makes_none_of_them_run_early,
    ),
]


def place_of(defect: Defect) -> tuple[Any, str, Callable[..., Any], str]:
    """The owner and name of the function that a defect is seeded in, the function, and its source.

    Raises:
        AssertionError: the line that the defect replaces is not there once.
    """
    module_name, qualified = defect.where.split(":")
    owner: Any = importlib.import_module(f"{defect.package}.{module_name}")
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
        for importer in [module for at, module in sys.modules.items() if at.startswith("pipelines.")]:
            if getattr(importer, name, None) is function:
                monkeypatch.setattr(importer, name, scope[name])


@pytest.mark.parametrize("defect", DEFECTS, ids=lambda d: f"{d.where}-{d.good[:24]}" if isinstance(d, Defect) else None)
def test_a_seeded_defect_is_caught(defect: Defect, monkeypatch: pytest.MonkeyPatch) -> None:
    seed(defect, monkeypatch)
    arguments = [monkeypatch] if "monkeypatch" in inspect.signature(defect.test).parameters else defect.arguments
    with pytest.raises((AssertionError, ValueError, IndexError, KeyError)):
        defect.test(*arguments)
