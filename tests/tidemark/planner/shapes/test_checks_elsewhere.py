"""Blocking checks that another code location declares: our graph does not show them, their evaluations do."""

from typing import Any

import dagster as dg
import pytest

from dagster_tidemark.dagster_internals import run_storage
from dagster_tidemark.event_log import deployed
from dagster_tidemark.simulation.simulator import RunPace, Simulation
from tests.tidemark.planner.shapes.playing import built, play
from tests.tidemark.toy_graph import ASAP, DAYS, asset, source

DAY = "2026-10-05"
THEIRS = "theirs"


def tables(**of_a: Any) -> list[Any]:
    return [source("x", DAYS), asset("a", "raw/x", by=DAYS, **ASAP, **of_a), asset("b", "a", by=DAYS, **ASAP)]


def played(assets: list[Any], guarded: str = "a", *, passed: bool = True) -> Simulation:
    """A day of data an hour; after the first, another location's check is evaluated."""
    simulation = play(assets, pace=RunPace(step=10.0))
    for hour in (0, 2, 4):
        simulation.arrive("raw/x", DAY, at=simulation.time(hours=hour, minutes=5))
    simulation.evaluate_check(guarded, THEIRS, passed=passed, blocking=True, by_run=False, at=simulation.time(hours=1))
    simulation.run(hours=3)
    return simulation


def why(simulation: Simulation, table: str = "b") -> str:
    return simulation.plan().waiting.get((table, DAY), "")


@pytest.mark.parametrize("restarts", [False, True])
def test_readers_wait_after_each_write_for_the_check_of_another_code_location(restarts: bool) -> None:
    simulation = played(tables())
    if restarts:
        simulation.restart(at=simulation.clock.now + 60)
        simulation.run(minutes=5)
    assert (len(built(simulation, "a")), len(built(simulation, "b"))) == (2, 1)
    assert "the check theirs has no result since the last update of a 2026-10-05" in why(
        simulation
    ) and "another code location" in why(simulation)
    simulation.evaluate_check(
        "a", THEIRS, passed=True, blocking=True, by_run=False, at=simulation.time(hours=3, minutes=30)
    )
    simulation.run(minutes=45)
    assert len(built(simulation, "b")) == 2
    simulation.run(hours=2)
    assert (len(built(simulation, "a")), len(built(simulation, "b"))) == (3, 2)


def test_failed_check_of_another_code_location_blocks_the_readers() -> None:
    simulation = played(tables())
    simulation.evaluate_check(
        "a", THEIRS, passed=False, blocking=True, by_run=False, at=simulation.time(hours=3, minutes=30)
    )
    simulation.run(minutes=45)
    assert "the check theirs failed on a" in why(simulation) and len(built(simulation, "b")) == 1


def test_check_of_a_table_built_by_another_code_location_blocks_its_readers() -> None:
    simulation = played([source("x", DAYS), asset("b", "raw/x", by=DAYS, **ASAP)], guarded="raw/x")
    assert len(built(simulation, "b")) == 1 and "the check theirs has no result since the last update of raw/x" in why(
        simulation
    )
    simulation.evaluate_check("raw/x", THEIRS, passed=True, by_run=False, blocking=True, at=simulation.clock.now + 60)
    simulation.run(minutes=10)
    assert len(built(simulation, "b")) == 2


def test_check_made_non_blocking_in_another_code_location_frees_the_readers() -> None:
    simulation = played(tables())
    simulation.evaluate_check("a", THEIRS, passed=False, blocking=False, by_run=False, at=simulation.clock.now + 60)
    simulation.run(hours=2)
    assert len(built(simulation, "b")) == len(built(simulation, "a")) == 3


@pytest.mark.parametrize("name", ["a", "raw/x"])
def test_declared_check_of_another_code_location_blocks_before_its_first_evaluation(name: str) -> None:
    declared = {"metadata": {"tidemark/blocking_checks": [THEIRS]}}
    if name == "a":
        assets = tables(**declared)
    else:
        raw = dg.AssetSpec(["raw", "x"], partitions_def=DAYS, **declared)
        assets = [raw, asset("b", "raw/x", by=DAYS, **ASAP)]
    simulation = play(assets, pace=RunPace(step=10.0))
    simulation.tell("raw/x", DAY, "1", at=simulation.time(minutes=5))
    simulation.run(hours=1)
    assert built(simulation, "b") == [] and f"the check theirs has no result since the last update of {name}" in why(
        simulation
    )
    simulation.evaluate_check(name, THEIRS, passed=True, by_run=False, blocking=True, at=simulation.clock.now + 60)
    simulation.run(minutes=10)
    assert built(simulation, "b") == [DAY]


def test_asset_with_blocking_check_names_that_are_no_list_is_set_aside() -> None:
    simulation = play(tables(metadata={"tidemark/blocking_checks": "theirs"}))
    assert "expected a list of names of checks" in simulation.graph.nodes["a"].refused


@pytest.mark.parametrize("removed_here", [False, True])
def test_removed_check_blocks_only_if_it_belonged_to_another_code_location(
    removed_here: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The runs of the simulation belong to one location: the homes say whether that is this one."""

    @dg.asset_check(name=THEIRS, asset="a", blocking=True)
    def theirs() -> dg.AssetCheckResult:
        raise NotImplementedError

    simulation = play(tables(), [theirs], pace=RunPace(step=10.0))
    simulation.arrive("raw/x", DAY, at=simulation.time(minutes=5))
    simulation.run(hours=1)
    (run, *_) = simulation.runs
    (location,) = run_storage.locations_of_runs(simulation.instance, [run.id]).values()
    homes = frozenset({location if removed_here else "ours"})
    monkeypatch.setattr(deployed, "locations", lambda *_: homes)
    simulation.deploy(tables(), at=simulation.clock.now + 60)
    simulation.run(minutes=5)
    simulation.arrive("raw/x", DAY, at=simulation.clock.now + 60)
    simulation.run(minutes=30)
    assert len(built(simulation, "b")) == (2 if removed_here else 1)
