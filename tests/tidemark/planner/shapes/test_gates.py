"""Blocking checks as gates: readers of a table are built only on builds that passed each of its blocking checks."""

import dagster as dg
import pytest

from dagster_tidemark.engine import engine
from dagster_tidemark.engine.condition import with_automation
from dagster_tidemark.engine.overview import overview
from dagster_tidemark.planner.decisions import State
from dagster_tidemark.planner.history import History
from dagster_tidemark.simulation.simulator import CheckFate, Simulation
from tests.tidemark.planner.shapes.playing import built, play
from tests.tidemark.planner.shapes.test_blocking_checks import DAY, OTHER, check, days, deploy
from tests.tidemark.toy_graph import ASAP, DAYS, START, asset, lag, source

NO_RESULT = (CheckFate.RAISES, CheckFate.SKIPPED, CheckFate.TIMES_OUT)


def results(simulation: Simulation) -> list[tuple[float, bool]]:
    return sorted(found for run in simulation.runs for found in run.results.values())


@pytest.mark.parametrize("fate", NO_RESULT)
def test_readers_of_an_asset_without_a_check_result_are_blocked_with_reason(fate: CheckFate) -> None:
    simulation = Simulation(days(check(), within=lag(hours=1)), start=START)
    simulation.fail_check("core/x", "complete", times=1000, how=fate)
    simulation.arrive("raw/x", DAY, at=simulation.time(minutes=5))
    simulation.run(hours=12)
    assert (built(simulation, "core/x"), built(simulation, "mart")) == ([DAY], [])
    decision = simulation.plan().decisions[("mart", DAY)]
    assert decision.state is State.BLOCKED
    assert f"the check complete has no result since the last update of core/x {DAY}" in decision.reason
    assert simulation.standings()["mart"].verdict == "breached"
    assert "complete" in simulation.standings()["mart"].reason
    assert simulation.failed_ticks == []
    alone = [run for run in simulation.runs if not run.assets]
    assert 5 <= len(alone) <= 25, "the check is run again, with growing pauses"


@pytest.mark.parametrize("fate", NO_RESULT)
def test_check_without_a_result_is_run_again_and_frees_its_readers(fate: CheckFate) -> None:
    simulation = Simulation(days(check(), within=lag(hours=1)), start=START)
    simulation.fail_check("core/x", "complete", times=1, how=fate)
    simulation.arrive("raw/x", DAY, at=simulation.time(minutes=5))
    simulation.run(hours=2)
    assert (built(simulation, "core/x"), built(simulation, "mart")) == ([DAY], [DAY])
    (passed,) = results(simulation)
    assert passed[1]
    assert passed[0] < min(run.created_at for run in simulation.runs_of("mart") if "mart" in run.committed)


def test_check_that_fails_in_its_own_run_blocks_and_is_not_rerun() -> None:
    simulation = Simulation(days(check()), start=START)
    simulation.fail_check("core/x", "complete", times=1, how=CheckFate.RAISES)
    simulation.fail_check("core/x", "complete", times=1)
    simulation.arrive("raw/x", DAY, at=simulation.time(minutes=5))
    simulation.run(hours=6)
    assert (built(simulation, "mart"), [passed for _, passed in results(simulation)]) == ([], [False])
    assert simulation.plan().decisions[("mart", DAY)].reason == f"the check complete failed on core/x {DAY}"


def test_passed_check_of_an_older_write_does_not_unblock_the_latest() -> None:
    simulation = Simulation(days(check()), start=START)
    simulation.arrive("raw/x", DAY, at=simulation.time(minutes=5))
    simulation.run(hours=1)
    assert built(simulation, "mart") == [DAY]
    simulation.fail_check("core/x", "complete", times=1000, how=CheckFate.RAISES)
    simulation.arrive("raw/x", DAY, at=simulation.time(hours=1))
    simulation.arrive("raw/x", OTHER, at=simulation.time(hours=1))
    simulation.run(hours=3)
    assert built(simulation, "core/x").count(DAY) == 2
    assert built(simulation, "mart") == [DAY]
    simulation.evaluate_check("core/x", "complete", passed=True, at=simulation.time(hours=4))
    simulation.run(hours=1)
    assert sorted(built(simulation, "mart")) == [OTHER, DAY, DAY]


@pytest.mark.parametrize("fate", [CheckFate.RAISES, CheckFate.FAILS])
def test_non_blocking_check_that_fails_or_raises_does_not_block_the_readers(fate: CheckFate) -> None:
    simulation = Simulation(days(check(blocking=False)), start=START)
    simulation.fail_check("core/x", "complete", times=1000, how=fate)
    simulation.arrive("raw/x", DAY, at=simulation.time(minutes=5))
    simulation.run(hours=1)
    assert built(simulation, "mart") == [DAY]


@pytest.mark.parametrize("how", ["live", "checkpoint", "log"])
@pytest.mark.parametrize("passes", [True, False])
def test_check_added_by_a_deploy_runs_once_on_existing_partitions(
    how: str, passes: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    simulation = Simulation(days(within=lag(hours=2)), start=START)
    for day in (OTHER, DAY):
        simulation.arrive("raw/x", day, at=simulation.time(minutes=5))
    simulation.run(minutes=30)
    assert (sorted(built(simulation, "core/x")), built(simulation, "mart")) == ([OTHER, DAY], [OTHER])
    if not passes:
        simulation.fail_check("core/x", "complete", times=1000, how=CheckFate.RAISES)
    deploy(simulation, days(check(), within=lag(hours=2)), how, monkeypatch)
    simulation.run(hours=5)
    assert sorted(built(simulation, "mart")) == ([OTHER, DAY] if passes else [OTHER])
    if passes:
        assert [passed for _, passed in results(simulation)] == [True], "one run looks at all of the table"
        assert results(simulation)[0][0] < simulation.runs_of("mart", DAY)[0].created_at
    else:
        assert "you can also run it" in simulation.plan().decisions[("mart", DAY)].reason
        deploy(simulation, days(within=lag(hours=2)), how, monkeypatch)  # and a deploy that removes it frees them
        simulation.run(hours=1)
        assert sorted(built(simulation, "mart")) == [OTHER, DAY]


def test_run_shared_with_one_input_does_not_skip_the_check_of_another() -> None:
    tables = [
        source("x", DAYS),
        source("y", DAYS),
        asset("core/x", "raw/x", by=DAYS, **ASAP),
        asset("core/y", "raw/y", by=DAYS),
        asset("mart", "core/x", "core/y", by=DAYS, freshness_policy=lag(minutes=30)),
    ]
    simulation = play(tables, [check()])
    simulation.fail_check("core/x", "complete", times=1000)
    simulation.arrive("raw/x", DAY, at=simulation.time(minutes=5))
    simulation.arrive("raw/y", DAY, at=simulation.time(minutes=10))
    simulation.run(hours=3)
    assert (built(simulation, "core/x"), built(simulation, "mart")) == ([DAY], [])
    assert simulation.plan().decisions[("mart", DAY)].state is State.BLOCKED


def test_readers_wait_for_a_blocking_check_with_a_custom_automation_condition() -> None:
    @dg.asset_check(
        asset=dg.AssetKey(["core", "x"]),
        name="complete",
        blocking=True,
        automation_condition=dg.AutomationCondition.cron_tick_passed("0 * * * *"),
    )
    def complete() -> dg.AssetCheckResult:
        raise NotImplementedError

    simulation = play([*days().assets], [complete], own_every=60)
    simulation.arrive("raw/x", DAY, at=simulation.time(minutes=5))
    simulation.run(minutes=50)
    assert (built(simulation, "core/x"), built(simulation, "mart")) == ([DAY], [])
    assert "its own automation condition" in simulation.plan().decisions[("mart", DAY)].reason
    simulation.run(minutes=20)
    assert built(simulation, "mart") == [DAY]


@pytest.mark.parametrize("fate", ["passes", "fails", "raises", "is left out", "raises in the step"])
def test_dagster_run_frees_the_readers_only_if_the_blocking_check_passes(fate: str) -> None:
    spec = dg.AssetCheckSpec("complete", asset="a", blocking=True)

    @dg.asset(check_specs=[spec] if fate == "raises in the step" else [])
    def a():  # type: ignore[no-untyped-def]
        yield dg.MaterializeResult()
        if fate == "raises in the step":
            raise ValueError("the check is wrong")

    @dg.asset_check(asset=a, blocking=True)
    def complete() -> dg.AssetCheckResult:
        if fate == "raises":
            raise ValueError("the check is wrong")
        return dg.AssetCheckResult(passed=fate == "passes")

    b = asset("b", "a", **ASAP)
    checks = [] if fate == "raises in the step" else [complete]
    definitions = dg.Definitions(assets=with_automation([a, b]), asset_checks=checks)
    selection = dg.AssetSelection.assets(a)
    chosen = selection.without_checks() if fate == "is left out" else selection
    job = dg.define_asset_job("job", chosen).resolve(asset_graph=definitions.resolve_asset_graph())
    with dg.DagsterInstance.ephemeral() as instance:
        job.execute_in_process(instance=instance, raise_on_error=False)
        plan, _ = overview(instance, definitions.resolve_asset_graph(), wait=True)
        for _ in range(2):  # the end of a run is known one look later
            plan, _ = overview(instance, definitions.resolve_asset_graph(), wait=True)
        decision = plan.decisions[("b", None)]
        engine.forget(instance)
    assert decision.state is (State.REQUESTED if fate == "passes" else State.BLOCKED)
    if fate != "passes":
        assert "the check complete" in decision.reason and decision.reason.partition(":")[0].endswith(
            (" on a", " of a")
        )
        alone = fate in ("raises", "is left out")
        assert [(c.asset, c.check) for c in plan.checks] == ([("a", "complete")] if alone else [])


def test_check_result_reported_before_the_output_counts_for_its_run() -> None:
    simulation = Simulation(days(check()), start=START)
    history = History(simulation.graph)
    target = ("core/x", DAY)
    for run, id in (("one", 1), ("two", 11)):
        history.planned([target], id=id, run_id=run)
        assert run == "one" or history.unchecked(target) == ()
        history.checked(
            (target[0], None), "complete", id=id + 1, passed=True, run_id=None, evaluated_by=run
        )  # Dagster names the former materialization, of another run
        history.materialized(target, id=id + 2, run_id=run, as_of=id, version=run, at=0.0)
        history.ended(run, at=0.0)
        assert history.unchecked(target) == ()
    history.planned([target], id=21, run_id="three")
    history.materialized(target, id=22, run_id="three", as_of=21, version="three", at=0.0)
    assert history.unchecked(target) == ("complete",)


def test_check_evaluated_after_its_runs_were_deleted_applies_to_all_partitions() -> None:
    tables = [
        source("x", DAYS),
        source("y", DAYS),
        asset("core/x", "raw/x", by=DAYS, **ASAP),
        asset("mart", "core/x", "raw/y", by=DAYS, **ASAP),
    ]
    simulation = play(tables, [check()])
    for name, day in (("raw/x", DAY), ("raw/x", OTHER), ("raw/y", DAY), ("raw/y", OTHER)):
        simulation.arrive(name, day, at=simulation.time(minutes=5))
    simulation.delete_runs("core/x", at=simulation.time(hours=2))
    simulation.evaluate_check("core/x", "complete", passed=False, at=simulation.time(hours=3))
    for day in (DAY, OTHER):
        simulation.arrive("raw/y", day, at=simulation.time(hours=4))
    simulation.run(hours=6)
    assert sorted(built(simulation, "mart")) == sorted([DAY, OTHER]), "nothing is built on what the check has refused"
    simulation.evaluate_check("core/x", "complete", passed=True, at=simulation.time(hours=7))
    simulation.run(hours=2)
    assert sorted(built(simulation, "mart")) == sorted([DAY, OTHER] * 2)
