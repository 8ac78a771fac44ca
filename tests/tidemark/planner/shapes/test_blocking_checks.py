"""Blocking checks: what a failure holds up, for how long, and what a deploy, a rebuild or a person makes of it."""

from typing import Any

import dagster as dg
import pytest

from dagster_tidemark.engine import engine
from dagster_tidemark.planner.check_results import CheckResult, CheckResults
from dagster_tidemark.simulation.simulator import Simulation
from tests.tidemark.planner.shapes.playing import built, mapped, play
from tests.tidemark.toy_graph import ASAP, DAYS, START, asset, lag, source

DAY, OTHER = "2026-10-05", "2026-10-04"
PAST = dg.TimeWindowPartitionMapping(start_offset=-1, end_offset=-1)


def check(asset_key: str = "core/x", *, blocking: bool = True) -> dg.AssetChecksDefinition:
    @dg.asset_check(asset=dg.AssetKey.from_user_string(asset_key), name="complete", blocking=blocking)
    def complete() -> dg.AssetCheckResult:
        raise NotImplementedError

    return complete


def days(*checks: dg.AssetChecksDefinition, within: dg.FreshnessPolicy | None = None) -> dg.Definitions:
    """A day of one table, read by that of another."""
    reader: dict[str, Any] = {"freshness_policy": within} if within else ASAP
    tables = [source("x", DAYS), asset("core/x", "raw/x", by=DAYS, **ASAP), asset("mart", "core/x", by=DAYS, **reader)]
    return dg.Definitions(assets=tables, asset_checks=list(checks))


def deploy(simulation: Simulation, found: dg.Definitions, how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The code becomes another: in a process that goes on, in one that begins from a checkpoint, or from the log."""
    if how == "live":
        monkeypatch.setattr(engine, "forget", lambda _: None)
    elif how == "checkpoint":
        with simulation.clock.frozen():
            simulation._engine().follower.save(simulation.instance)
    simulation.deploy(found, at=simulation.clock.now)


@pytest.mark.parametrize("how", ["live", "checkpoint", "log"])
@pytest.mark.parametrize("to", ["not blocking", "gone"])
def test_failed_check_made_non_blocking_or_removed_by_deploy_frees_the_readers(
    how: str, to: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    simulation = Simulation(days(check()), start=START)
    simulation.fail_check("core/x", "complete", times=1)
    simulation.arrive("raw/x", DAY, at=simulation.time(minutes=5))
    simulation.run(hours=1)
    assert (built(simulation, "core/x"), built(simulation, "mart")) == ([DAY], [])
    deploy(simulation, days(check(blocking=False)) if to == "not blocking" else days(), how, monkeypatch)
    simulation.run(hours=1)
    assert built(simulation, "mart") == [DAY]


@pytest.mark.parametrize("how", ["live", "checkpoint", "log"])
@pytest.mark.parametrize("passes", [True, False])
def test_check_that_becomes_blocking_applies_its_earlier_result(
    how: str, passes: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    simulation = Simulation(days(check(blocking=False), within=lag(hours=4)), start=START)
    simulation.fail_check("core/x", "complete", times=1)
    simulation.arrive("raw/x", DAY, at=simulation.time(minutes=5))
    simulation.run(minutes=30)
    if passes:
        simulation.evaluate_check("core/x", "complete", passed=True, at=simulation.time(minutes=40))
    simulation.run(minutes=30)
    assert (built(simulation, "core/x"), built(simulation, "mart")) == ([DAY], [])
    deploy(simulation, days(check(), within=lag(hours=4)), how, monkeypatch)
    simulation.run(hours=8)
    assert built(simulation, "mart") == ([DAY] if passes else [])


def test_self_dependent_partition_waits_while_the_check_of_the_previous_one_fails() -> None:
    table = asset("core/x", "raw/x", mapped("core/x", PAST), by=DAYS, **ASAP)
    simulation = play([source("x", DAYS), table], [check()])
    simulation.fail_check("core/x", "complete", times=1)
    simulation.arrive("raw/x", OTHER, at=simulation.time(minutes=5))
    simulation.arrive("raw/x", DAY, at=simulation.time(hours=1))
    simulation.run(hours=2)
    assert built(simulation, "core/x") == [OTHER]
    assert "complete failed" in simulation.plan().decisions[("core/x", DAY)].reason
    simulation.arrive("raw/x", OTHER, at=simulation.time(hours=2))
    simulation.run(hours=1)
    assert built(simulation, "core/x") == [OTHER, OTHER, DAY], "the day itself is built anew, and frees the next"


def test_failed_check_of_an_external_table_stops_blocking_after_its_next_materialization() -> None:
    simulation = play([dg.AssetSpec("theirs"), asset("mart", "theirs", **ASAP)], [check("theirs")])
    simulation.report("theirs", at=simulation.time(minutes=5), version="1")
    simulation.run(hours=1)
    simulation.evaluate_check("theirs", "complete", passed=False, at=simulation.time(hours=1))
    simulation.report("theirs", at=simulation.time(hours=2), version="2")
    simulation.run(hours=2)
    assert len(built(simulation, "mart")) == 2


@pytest.mark.parametrize(
    ("evaluations", "a_built", "blocked"),
    [
        ([(5, False, "")], 1, "ab"),
        ([(5, False, ""), (6, True, "b")], 1, "a"),
        ([(5, False, "a"), (9, False, "b")], 7, "b"),  # a was built anew without its check
        ([(8, False, "ab"), (9, True, "a")], 1, "b"),
        ([(8, False, "a"), (9, True, "")], 1, ""),
        ([(8, False, "a"), (9, False, ""), (10, True, "b")], 1, "a"),
    ],
)
def test_partition_is_blocked_by_its_latest_check_evaluation(
    evaluations: list[tuple[int, bool, str]], a_built: int, blocked: str
) -> None:
    results = CheckResults()
    for id, passed, partitions in evaluations:  # of no partition: of the asset as it stands
        results.evaluated("x", "complete", CheckResult(id, passed), set(partitions))
    built_ids = {"a": a_built, "b": 1}
    assert "".join(p for p, id in built_ids.items() if results.blocking(("x", p), id)) == blocked
