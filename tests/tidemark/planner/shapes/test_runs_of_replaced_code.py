"""Runs of replaced code that wrote nothing: no event names their code version, and the new code is not blamed."""

from typing import Any

import pytest

from dagster_tidemark.simulation.simulator import RunFate, Simulation
from tests.tidemark.planner.shapes.playing import asked, built, play
from tests.tidemark.toy_graph import ASAP, DAYS, asset, source

DAY = "2026-10-04"


def code(version: str) -> list[Any]:
    return [source("x", DAYS), asset("core/x", "raw/x", by=DAYS, **ASAP | {"code_version": version})]


def failing() -> Simulation:
    """A platform on which a partition has failed for two hours; the next try is up to an hour away."""
    simulation = play(code("1"))
    simulation.fail("core/x", times=99)
    simulation.arrive("raw/x", DAY, at=simulation.time(minutes=5))
    simulation.run(hours=2)
    return simulation


def test_new_code_is_tried_at_once_after_failures_of_the_replaced_code() -> None:
    simulation = failing()
    simulation.heal(at=simulation.time(hours=2))
    simulation.deploy(code("2"), at=simulation.time(hours=2))
    simulation.run(minutes=2)
    assert built(simulation, "core/x") == [DAY]


def test_new_code_that_fails_too_waits_with_pauses_of_its_own() -> None:
    simulation = failing()
    before = len(simulation.runs)
    simulation.deploy(code("2"), at=simulation.time(hours=2))
    simulation.run(minutes=10)
    assert len(simulation.runs) - before == 4, "at once, and after 1, 2 and 4 minutes"


def test_restart_with_the_same_code_keeps_the_pause() -> None:
    simulation = failing()
    before = len(simulation.runs)
    simulation.restart(at=simulation.time(hours=2))
    simulation.restart(at=simulation.time(hours=2, minutes=1))
    simulation.run(minutes=5)
    assert len(simulation.runs) == before


def test_run_of_the_replaced_code_that_fails_after_the_deploy_causes_no_pause() -> None:
    simulation = play(code("1"))
    simulation.slow("core/x", seconds=300)
    simulation.fail("core/x")
    simulation.arrive("raw/x", DAY, at=simulation.time(minutes=5))
    simulation.deploy(code("2"), at=simulation.time(minutes=6))
    simulation.run(minutes=11)
    assert asked(simulation, "core/x") == [DAY] * 2
    assert built(simulation, "core/x") == [DAY]


@pytest.mark.parametrize("deployed", [0.5, 120], ids=["during the run", "later"])
def test_partition_that_the_replaced_code_found_empty_is_run_with_the_new_code(deployed: float) -> None:
    simulation = play(code("1"))
    simulation.fail("core/x", how=RunFate.YIELDS_NOTHING)
    simulation.slow("core/x", seconds=60)
    simulation.arrive("raw/x", DAY, at=simulation.time(minutes=5))
    simulation.deploy(code("2"), at=simulation.time(minutes=5 + deployed))
    simulation.run(hours=4)
    assert asked(simulation, "core/x") == [DAY] * 2
    assert built(simulation, "core/x") == [DAY]
