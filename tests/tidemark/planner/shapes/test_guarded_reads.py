"""Slow blocking checks: no run reads a write that no passed check has seen, whenever it was requested."""

from typing import Any

import dagster as dg
import pytest

from dagster_tidemark.asset_graph.planner_graph import graph_of
from dagster_tidemark.planner.decisions import Asked, Request, State
from dagster_tidemark.planner.guarded_reads import readers_first
from dagster_tidemark.planner.history import History
from dagster_tidemark.simulation.simulator import RunPace, Simulation
from tests.tidemark.planner.shapes.playing import built
from tests.tidemark.planner.shapes.test_blocking_checks import check
from tests.tidemark.toy_graph import ASAP, DAYS, HOURS, START, asset, lag, source, within

HOUR, DAY = "2026-10-05-01:00", "2026-10-05"
SLOW = (240.0, 300.0)


def location(**mart: Any) -> dg.Definitions:
    """Hours as soon as possible, with a blocking check; and the day that reads them."""
    settings: dict[str, Any] = {"freshness_policy": lag(minutes=30)} | mart
    return dg.Definitions(
        [
            source("x", HOURS),
            asset("core/x", "raw/x", by=HOURS, **ASAP),
            asset("mart", within("core/x"), by=DAYS, **settings),
        ],
        asset_checks=[check()],
    )


def play(check: tuple[float, float] = SLOW, **mart: Any) -> Simulation:
    return Simulation(location(**mart), start=START, pace=RunPace(check=check, at_once=4))


def unchecked_reads(simulation: Simulation) -> list[str]:
    """The reads of hours whose content no check had passed when the run of the day read them."""
    found = []
    for run in simulation.runs_of("mart"):
        for source_, content in run.saw.get(("mart", run.partitions[0]), {}).items():
            writers = [w for w in simulation.runs_of("core/x", source_[1]) if w.wrote.get(source_) == content]
            passed = [at for w in writers for at, has_passed in w.results.values() if has_passed]
            if not any(at <= run.began["mart"] for at in passed):
                found.append(f"{source_} at {run.began['mart'] - simulation.time():.0f} s")
    return found


def test_check_lasts_as_long_as_the_pace_says_and_its_readers_wait() -> None:
    simulation = play()
    simulation.arrive("raw/x", HOUR, at=simulation.time(hours=1, minutes=5))
    simulation.run(hours=2)
    (run,) = simulation.runs_of("core/x")
    ((evaluated, began),) = run.evaluating.items()
    at, has_passed = run.results[evaluated]
    assert began == run.committed["core/x"] and has_passed and SLOW[0] <= at - began <= SLOW[1]
    assert run.ended_at == at and simulation.runs_of("mart")[0].created_at >= at


def test_slow_evaluation_by_a_person_is_about_the_data_at_its_begin() -> None:
    simulation = play(check=(0.0, 0.0))
    simulation.fail_check("core/x", "complete", times=1)
    simulation.arrive("raw/x", HOUR, at=simulation.time(hours=1, minutes=5))
    simulation.evaluate_check("core/x", "complete", passed=True, at=simulation.time(hours=1, minutes=20), seconds=1200)
    simulation.fail_check("core/x", "complete", times=1)
    simulation.arrive("raw/x", HOUR, at=simulation.time(hours=1, minutes=25))
    simulation.run(hours=3)
    assert built(simulation, "core/x") == [HOUR, HOUR]
    assert (built(simulation, "mart"), simulation.plan().decisions["mart", DAY].state) == ([], State.BLOCKED)


def test_guarded_table_is_not_written_between_the_request_of_a_reader_and_its_begin() -> None:
    simulation = play()
    simulation.hold_in_queue("mart", at=simulation.time(), until=simulation.time(hours=2))
    simulation.arrive("raw/x", HOUR, at=simulation.time(hours=1, minutes=5))
    simulation.arrive("raw/x", HOUR, at=simulation.time(hours=1, minutes=57))
    simulation.run(hours=1, minutes=59)
    decision = simulation.plan().decisions["core/x", HOUR]
    assert (decision.state, decision.reason) == (State.THROTTLED, f"mart {DAY} reads it first: its run has not begun")
    simulation.run(hours=2)
    assert unchecked_reads(simulation) == []
    assert (built(simulation, "core/x"), built(simulation, "mart")) == ([HOUR, HOUR], [DAY, DAY])
    assert simulation.runs_of("core/x")[1].created_at >= simulation.runs_of("mart")[0].began["mart"] - 5


@pytest.mark.parametrize(
    "slow", [pytest.param(seconds, marks=pytest.mark.proof) for seconds in ((0.0, 0.0), (5.0, 20.0))] + [(60.0, 90.0)]
)
def test_late_reader_of_a_table_that_is_always_written_reads_only_checked_data(slow: tuple[float, float]) -> None:
    simulation = play(check=slow, freshness_policy=lag(minutes=15))
    for n in range(360):  # of four hours in turn, two hours long
        hour = f"{DAY}-0{n % 4}:00"
        simulation.arrive("raw/x", hour, at=simulation.time(hours=4, seconds=20 * n))
    simulation.run(hours=8)
    runs = simulation.runs_of("mart")
    assert unchecked_reads(simulation) == []
    assert len([run for run in runs if run.created_at < simulation.time(hours=6)]) >= 6, "it is not held up for ever"
    assert simulation.tables.fresh(("mart", DAY))
    assert str(simulation.standings()["mart"].verdict) == "met"


@pytest.mark.parametrize(("off", "kept"), [("", ["mart"]), ("catch_up", ["core/x", "mart"])])
def test_reader_whose_sensor_is_switched_off_holds_no_writer_back(off: str, kept: list[str]) -> None:
    graph = graph_of(location().resolve_asset_graph())
    requests = [Request(("core/x",), (HOUR,)), Request(("mart",), ("2026-10-04", DAY), as_range=True)]
    asked = Asked(off=frozenset({off}))
    found, _ = readers_first(requests, {}, [], graph, History(graph), asked)
    assert [request.assets[0] for request in found] == kept


def test_manual_run_of_a_reader_holds_no_writer_back() -> None:
    simulation = play()
    simulation.hold_in_queue("mart", at=simulation.time(), until=simulation.time(hours=5))
    simulation.request(["mart"], [DAY], at=simulation.time(hours=1))
    simulation.arrive("raw/x", HOUR, at=simulation.time(hours=1, minutes=5))
    simulation.run(hours=2)
    assert built(simulation, "core/x") == [HOUR]
