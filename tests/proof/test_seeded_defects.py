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

from tests.tidemark.event_log import test_wipes as wipes
from tests.tidemark.planner import test_any_graph as shapes
from tests.tidemark.planner import test_contracts as ticks
from tests.tidemark.planner import test_random_graphs as random_graphs
from tests.tidemark.planner import test_rebuilds as rebuilds
from tests.tidemark.planner import test_semantics as meaning
from tests.tidemark.planner import test_semantics_contracts as contracts
from tests.tidemark.planner.shapes import test_blocking_checks as checks
from tests.tidemark.planner.shapes import test_deploys as deploys
from tests.tidemark.planner.shapes import test_fairness as fairness
from tests.tidemark.planner.shapes import test_guarded_reads as reads
from tests.tidemark.planner.shapes import test_isolation as isolation
from tests.tidemark.planner.shapes import test_keys as keys
from tests.tidemark.planner.shapes import test_new_inputs as inputs
from tests.tidemark.planner.shapes import test_operations as operations
from tests.tidemark.planner.shapes import test_time as times


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
        "same = facts.version == version",
        "same = False",
        meaning.test_only_an_observation_of_another_version_causes_a_second_run,
    ),
    Defect(
        "planner.history:History.observed",
        "if listed_at < (self.facts.of(target).listed_at or 0.0):",
        "if False:",
        meaning.test_observation_with_an_older_listing_causes_no_second_run,
    ),
    Defect(
        "planner.event_records:contains",
        "change.id <= built.as_of",
        "change.id <= built.id",
        meaning.test_update_during_a_run_of_its_partition_is_loaded_afterwards,
    ),
    Defect(
        "planner.event_records:contains",
        "or (change.run_id is not None and change.run_id == built.run_id)",
        "",
        meaning.test_reader_in_a_joint_run_is_not_run_again,
    ),
    Defect(
        "planner.history:History._apply",
        "if before is None or m.id > before.id:",
        "if before is None or m.as_of > before.as_of:",
        meaning.test_older_run_that_ends_last_is_followed_by_another_run,
    ),
    Defect(
        "planner.history:History.materialized",
        "self._has_new_data(target, version, Change(id, at), at)",
        "pass",
        meaning.test_reported_materialization_runs_the_readers_again,
    ),
    Defect(
        "planner.history:History.materialized",
        "self._has_new_data(target, version, Change(id, at), at)",
        "self.facts.to_change(target).built = Built(id, id, '')",
        meaning.test_reported_materialization_does_not_clear_pending_data_of_its_asset,
    ),
    Defect(
        "planner.history:History._changed",
        "same = facts.version == version",
        "same = False",
        meaning.test_readers_run_only_if_the_content_of_their_input_differs,
        ("the same", 1),
    ),
    Defect(
        "planner.history:History._changed",
        "same = facts.version == version",
        "same = facts.version is not None",
        meaning.test_readers_run_only_if_the_content_of_their_input_differs,
        (None, 2),
    ),
    Defect(
        "planner.staleness:PendingWork._mark_readers",
        "marked.update(self.history.reading(node, read, target[1]))",
        "marked.update(self.of.get(node.key, ()))",
        meaning.test_late_hour_of_an_old_day_rebuilds_only_that_day,
    ),
    Defect(
        "planner.evaluate:EvaluationPass._decide",
        "if pending.missing_inputs:",
        "if False:",
        meaning.test_reader_of_a_silent_required_input_is_not_requested_and_reports_it,
    ),
    Defect(
        "planner.waiting:WaitingReasons._pauses",
        "if failure is None or facts.next_try is None or facts.next_try <= self.now:",
        "if True:",
        meaning.test_failed_run_is_retried_with_pauses_from_one_minute_to_one_hour,
    ),
    Defect(
        "planner.run_retries:backoff",
        "growing_pause(attempts, FIRST_PAUSE, LONGEST_PAUSE)",
        "FIRST_PAUSE",
        meaning.test_failed_run_is_retried_with_pauses_from_one_minute_to_one_hour,
    ),
    Defect(
        "planner.run_retries:next_try",
        "if has_new_data else pause",
        "if False else pause",
        meaning.test_new_data_ends_the_pause_after_a_failed_run,
    ),
    Defect(
        "planner.history:History._shorten_pauses",
        "if target[0] == asset:",
        "if False:",
        meaning.test_success_of_another_partition_ends_the_long_pauses_of_an_asset,
    ),
    Defect(
        "planner.history:History.ended",
        "if outcome is Outcome.SUCCEEDED:",
        "if True:",
        meaning.test_failed_run_is_retried_with_pauses_from_one_minute_to_one_hour,
    ),
    Defect(
        "planner.grouping:_Found.arrivals",
        "newest_first = sorted(due, key=node.order, reverse=True)",
        "newest_first = sorted(due, key=node.order, reverse=True)[:1]",
        meaning.test_every_partition_is_built_after_a_three_day_outage,
    ),
    Defect(
        "planner.contracts:due",
        "latest = start_by - reserve(contract, pace)",
        "latest = start_by",
        contracts.test_time_for_a_second_attempt_remains_before_the_deadline,
    ),
    Defect(
        "planner.contracts:due",
        "latest = start_by - reserve(contract, pace)",
        "latest = arrival",
        contracts.test_lag_contract_is_served_by_one_run_as_late_as_possible,
    ),
    Defect(
        "planner.contracts:due",
        "opens = max(arrival, ended if",
        "opens = max(arrival + 9e9, ended if",
        contracts.test_unbuilt_partition_of_an_ended_window_is_built_when_its_inputs_arrive,
    ),
    Defect(
        "planner.contracts:due",
        "promised - contract.bound if",
        "promised - 4 * contract.bound if",
        contracts.test_report_is_requested_at_the_lower_bound_and_not_before,
    ),
    Defect(
        "planner.contracts:deadline",
        "after = arrival + contract.bound",
        "after = arrival",
        contracts.test_report_includes_late_data_once_with_the_next_cron_tick,
    ),
    Defect(
        "planner.contracts:deadline",
        "after if own is None else max(own, after)",
        "own if own is not None else after",
        contracts.test_report_includes_a_file_weeks_late_with_the_next_cron_tick,
    ),
    Defect(
        "planner.contracts:deadline",
        "if own is not None and not built:",
        "if False:",
        contracts.test_unbuilt_report_past_its_cron_tick_is_due_at_once,
    ),
    Defect(
        "planner.run_durations:RunDurations.of_run",
        "if not samples:",
        "if True:",
        contracts.test_slow_report_starts_before_the_lower_bound_and_meets_its_deadline,
    ),
    Defect(
        "planner.staleness:PendingWork._first",
        "arrival = None if missing_inputs else max(first, default=without_required)",
        "arrival = None if missing_inputs else min(first, default=without_required)",
        contracts.test_lag_of_an_unbuilt_partition_starts_with_its_last_required_input,
    ),
    Defect(
        "planner.history:History._consumed",
        "max(*arrivals, node.exists_from(m.target[1])) if arrivals else m.at",
        "m.at",
        contracts.test_lag_is_measured_from_the_sources_at_any_depth,
    ),
    Defect(
        "planner.demand:Demands._readers",
        "self.backlog.readers(target)",
        "()",
        contracts.test_asset_without_a_contract_runs_for_its_strictest_reader,
    ),
    Defect(
        "planner.demand:Demands._by_itself",
        "return Needs(asap)",
        "return Needs({node.key: 0.0})",
        contracts.test_asset_without_a_reader_is_not_run_and_reports_no_consumer,
    ),
    Defect(
        "planner.waiting:WaitingReasons.for_inputs",
        "(passed if late else waits).append(source)",
        "pass",
        contracts.test_input_of_another_grain_runs_first_and_its_reader_is_in_time,
    ),
    Defect(
        "planner.demand:Demands._by_itself",
        "if node.asap else {}",
        "if False else {}",
        contracts.test_pace_asap_runs_at_once_regardless_of_the_contract,
    ),
    Defect(
        "asset_graph.planner_graph:input_of",
        "flag_of(metadata, USE_LATEST, name)",
        "False",
        contracts.test_use_latest_input_must_exist_but_never_makes_its_reader_due,
    ),
    Defect(
        "planner.event_records:reaches",
        "if read.ripple_days is None or arrived_at is None or window is None:",
        "if True:",
        contracts.test_rippling_input_makes_only_the_last_days_stale,
    ),
    Defect(
        "planner.staleness:PendingWork._stale",
        "built.code_version != node.code_version",
        "False",
        contracts.test_new_code_rebuilds_only_partitions_that_were_built,
    ),
    Defect(
        "planner.staleness:PendingWork._stale",
        "built.as_of <= self.graph.moment.loaded_after",
        "True",
        rebuilds.test_edited_code_that_is_not_loaded_causes_no_repeated_runs,
        ("long ago",),
    ),
    Defect(
        "planner.evaluate:EvaluationPass._decide",
        "if demand is not None and pending.arrival is not None:",
        "if not pending.stale and demand is not None and pending.arrival is not None:",
        contracts.test_stale_code_does_not_delay_new_data_and_one_run_clears_both,
    ),
    Defect(
        "planner.contracts:LagContract.scaled",
        "self.fail * scale",
        "self.fail",
        contracts.test_contract_scale_shortens_lag_windows_but_not_a_time_of_day,
    ),
    Defect(
        "planner.history:History.forget",
        "self.facts.put(target, PartitionRecord(version=self.facts.version(target)))",
        "pass",
        contracts.test_a_wiped_table_is_built_again,
    ),
    # Graphs of other shapes.
    Defect(
        "planner.staleness:PendingWork._look",
        "called(lambda: self._pending(node, target) if self._exists(node, target, now) else None)",
        "self._pending(node, target) if self._exists(node, target, now) else None",
        shapes.test_mapping_that_raises_for_one_partition_leaves_the_others_requested,
    ),
    Defect(
        "planner.history:History.reading",
        "called(read.downstream, partition)",
        "read.downstream(partition)",
        shapes.test_mapping_that_raises_sets_aside_only_its_own_asset,
    ),
    Defect(
        "planner.staleness:PendingWork._look",
        "self._sleep(target, now + _LOOK_AGAIN)",
        "pass",
        shapes.test_mapping_that_raised_temporarily_is_retried_without_an_event,
    ),
    Defect(
        "planner.candidates:Candidates.moved",
        "node.enumerated or",
        "False or",
        shapes.test_planner_requests_days_of_an_unpartitioned_input_once_it_has_data,
    ),
    Defect(
        "planner.candidates:Candidates.begins",
        "window.end if window else _NEVER",
        "_NEVER",
        shapes.test_partitions_without_inputs_are_built_after_their_window_ends,
    ),
    Defect(
        "planner.staleness:PendingWork._exists",
        "exists = node.exists(target[1])",
        "exists = True",
        shapes.test_dynamic_partitions_are_requested_when_added_and_dropped_when_removed,
    ),
    Defect(
        "planner.history:History._began_after",
        " and not self._dynamic_keys(source) <= self._dynamic_keys(reader)",
        "",
        keys.test_dynamic_partition_built_manually_when_added_is_not_requested_again,
    ),
    Defect(
        "planner.history:History._began_after",
        "if gone <= built.started_at < came",
        "if False",
        keys.test_data_of_a_dynamic_partition_added_later_causes_another_run,
    ),
    Defect(
        "planner.candidates:Candidates._after_first",
        "return any(",
        "return True or any(",
        shapes.test_cumulative_table_is_built_in_order_from_the_first_day_with_data,
    ),
    Defect(
        "planner.candidates:Candidates.gap",
        "if place >= self._last.get((node.key, group), place):",
        "if True:",
        shapes.test_cumulative_table_includes_days_without_data_and_is_rebuilt_after_late_files,
    ),
    Defect(
        "planner.waiting:WaitingReasons._is_newer",
        "if built is None:",
        "if True:",
        shapes.test_continuous_stream_does_not_starve_a_reader_with_pace_asap,
    ),
    Defect(
        "planner.run_retries:next_try",
        "max(FIRST_PAUSE, failure.seconds)",
        "0.0",
        shapes.test_planner_limits_the_retry_rate_of_a_failing_table_under_a_stream,
    ),
    Defect(
        "planner.run_retries:after",
        "1 if starts_over else attempts + 1",
        "attempts + 1",
        shapes.test_attempt_count_is_reset_by_new_data,
    ),
    Defect(
        "planner.run_retries:after",
        "if outcome is Outcome.LOST:",
        "if False:",
        shapes.test_lost_run_does_not_count_as_an_attempt_of_the_partition,
    ),
    Defect(
        "planner.history:History.ended",
        "if outcome is Outcome.LOST and built is not None and built.as_of <= as_of:",
        "if False:",
        shapes.test_up_to_date_partition_of_a_lost_run_is_requested_again,
    ),
    Defect(
        "planner.history:History.ended",
        "if outcome is Outcome.SUCCEEDED:",
        "if False:",
        shapes.test_successful_run_without_output_contains_the_data_it_read,
    ),
    Defect(
        "planner.check_results:CheckResults.blocking",
        "result is not None and not result.passed",
        "False",
        shapes.test_failed_blocking_check_blocks_readers_until_it_passes_or_a_rebuild_passes,
    ),
    Defect(
        "planner.grouping:_Found._together",
        "node.most == 1",
        "False",
        shapes.test_single_partition_runs_are_not_ranges_and_do_not_flood_the_queue,
    ),
    Defect(
        "planner.grouping:_parts",
        "range(len(run), 0, -most)",
        "range(len(run), 0, -len(run))",
        shapes.test_partition_range_is_split_by_the_backfill_policy,
    ),
    Defect(
        "planner.grouping:_Found._operation",
        "if together else (key,)",
        "if False else (key,)",
        shapes.test_multi_asset_outputs_share_one_run_and_are_held_until_it_ends,
    ),
    Defect(
        "planner.grouping:_Found.rebuild",
        "if node.conditional:",
        "if False:",
        shapes.test_custom_automation_condition_also_applies_to_rebuilds,
    ),
    Defect(
        "planner.waiting:WaitingReasons._pauses",
        "if until > self.now:",
        "if False:",
        shapes.test_unanswered_run_request_is_paused_and_reported,
    ),
    Defect(
        "planner.graph:Graph.without_runs_of",
        "automated=False",
        "automated=True",
        isolation.test_asset_whose_run_cannot_be_planned_is_set_aside_and_reported,
        (isolation.without_config, 1),
    ),
    Defect(
        "planner.evaluate:_is_only_judged",
        "return node.contract is not None and not (node.automated or node.source or node.refused)",
        "return False",
        operations.test_freshness_policy_is_evaluated_for_assets_with_a_custom_condition,
        (operations.dg.AutomationCondition.eager(),),
    ),
    Defect(
        "planner.grouping:_Found._together",
        "assets = self._joined_by_all(node, run, joined)",
        "assets = joined[run[0]]",
        operations.test_partition_range_is_one_run_even_if_a_reader_covers_only_part,
    ),
    Defect(
        "planner.admission:_as_ranges",
        "most = min((run.most for run in close if run.most is not None), default=len(close))",
        "most = len(close)",
        fairness.test_many_single_partition_runs_start_early_enough_for_the_deadline,
    ),
    Defect(
        "planner.waiting:WaitingReasons._is_to_be_rebuilt",
        "self._is_deferred(one) if decision is None",
        "True if decision is None",
        deploys.test_rebuild_does_not_wait_for_an_input_that_the_planner_never_rebuilds,
        ("people",),
    ),
    Defect(
        "planner.waiting:WaitingReasons.blocked",
        "with_it and source[1] == target[1]",
        "with_it",
        checks.test_self_dependent_partition_waits_while_the_check_of_the_previous_one_fails,
    ),
    Defect(
        "planner.history:History.written",
        "facts.changes[-1].id if facts.changes else 0",
        "0",
        checks.test_failed_check_of_an_external_table_stops_blocking_after_its_next_materialization,
    ),
    Defect(
        "planner.grouping:_Found._singly",
        "order >= node.order(partition)",
        "True",
        fairness.test_stuck_runs_of_old_partitions_do_not_delay_new_partitions,
    ),
    Defect(
        "engine.run_requests:as_ranges",
        "for run in _in_ranges(group, graph)",
        "for run in group",
        fairness.test_many_partitions_of_a_custom_condition_are_requested_as_ranges,
        (fairness.dg.BackfillPolicy.single_run(), 1),
    ),
    Defect(
        "engine.condition:_Look.__post_init__",
        "or not request.conditional",
        "or True",
        operations.test_custom_condition_of_one_output_is_not_bypassed_through_another,
    ),
    Defect(
        "planner.history:History.as_of",
        "built is not None and built.run_id == run_id",
        "False",
        operations.test_retried_step_that_reports_its_outputs_twice_runs_no_reader_twice,
    ),
    Defect(
        "planner.contracts:_tick",
        "tick >= at",
        "True",
        ticks.test_cron_ticks_are_ordered_correctly_around_every_clock_change,
        ("Europe/Berlin", "30 2 * * *"),
    ),
    Defect(
        "event_log.checkpoint:completed",
        "history.unseen[(asset, partition)] = tuple(Change(*change) for change in changes)",
        "pass",
        wipes.test_change_wiped_before_it_was_read_reaches_the_reader_after_restart,
        (True,),
    ),
    Defect(
        "event_log.reading_again:wiped",
        "intake.history.heard_of",
        "intake.history.facts.assets_with_content()",
        wipes.test_partition_that_a_run_found_empty_is_run_again_after_wipe,
        (False,),
    ),
    Defect(
        "planner.unbuilt:_promised",
        "found[partition] = tick_at_or_after(contract, max(since, came))",
        "continue",
        times.test_cron_contract_applies_to_partitions_without_a_time_window,
        ("static",),
    ),
    Defect(
        "engine.overview:since_of",
        "if key in assets and key not in promised and not node.source",
        "if False",
        deploys.test_partitions_without_a_contract_are_not_breached_when_the_contract_returns,
    ),
    Defect(
        "planner.evaluate:EvaluationPass._set_aside",
        "for key, odd in self.backlog.candidates.odd.items()",
        "for key, odd in ()",
        keys.test_dynamic_key_that_contains_the_dimension_separator_is_set_aside_until_removed,
    ),
    Defect(
        "planner.history:History._began_after",
        "self.keys.declared.get(source, 0.0)",
        "0.0",
        deploys.test_table_is_rebuilt_for_data_that_arrived_before_its_partition_was_declared,
        (False, None),
    ),
    Defect(
        "planner.evaluate:EvaluationPass._by_contract",
        "min(facts.latest_start, demand.start_by)",
        "facts.latest_start",
        fairness.test_asset_waits_for_a_blocked_input_only_while_its_readers_contract_allows,
        ({},),
    ),
    Defect(
        "planner.waiting:WaitingReasons.for_inputs",
        "pending.news is None and not pending.stale",
        "False",
        fairness.test_unavailable_input_of_many_partitions_makes_none_of_them_run_early,
    ),
    Defect(
        "planner.guarded_reads:GuardedWrites.read_by",
        "if not written:",
        "if True:",
        random_graphs.test_readers_stay_blocked_on_random_days_when_checks_give_no_result,
        (30,),
    ),
    Defect(
        "planner.guarded_reads:readers_first",
        "if not guarded:",
        "if True:",
        reads.test_guarded_table_is_not_written_between_the_request_of_a_reader_and_its_begin,
    ),
    Defect(
        "planner.evaluate:EvaluationPass._waits_for_a_write",
        "decision.state is State.BLOCKED",
        "False",
        reads.test_late_reader_of_a_table_that_is_always_written_reads_only_checked_data,
        ((5.0, 20.0),),
    ),
    Defect(
        "planner.staleness:PendingWork._withheld_since",
        "was_added = added_at > self.history.covered(target).started_at",
        "was_added = False",
        inputs.test_built_table_is_no_longer_late_after_its_silent_source_is_removed,
    ),
    Defect(
        "planner.check_results:CheckResult.is_on",
        "self.began > written.id",
        "True",
        reads.test_slow_evaluation_by_a_person_is_about_the_data_at_its_begin,
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
        for importer in [
            module for at, module in sys.modules.items() if at.startswith(("dagster_tidemark.", "pipelines."))
        ]:
            if getattr(importer, name, None) is function:
                monkeypatch.setattr(importer, name, scope[name])


@pytest.mark.parametrize("defect", DEFECTS, ids=lambda d: f"{d.where}-{d.good[:24]}" if isinstance(d, Defect) else None)
def test_seeded_planner_defect_fails_the_test_of_its_rule(defect: Defect, monkeypatch: pytest.MonkeyPatch) -> None:
    seed(defect, monkeypatch)
    arguments = [monkeypatch] if "monkeypatch" in inspect.signature(defect.test).parameters else defect.arguments
    with pytest.raises((AssertionError, ValueError, IndexError, KeyError)):
        defect.test(*arguments)
