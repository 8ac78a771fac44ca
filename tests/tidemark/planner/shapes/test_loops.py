"""Loops through observations: a table writes what a source observes, and is made from that source."""

from typing import Any

import pytest

from dagster_tidemark.simulation.simulator import RunPace, Simulation
from tests.sampling import sample
from tests.tidemark.planner.shapes.playing import built, play
from tests.tidemark.toy_graph import ASAP, HOURS, asset, lag, source

HOUR = "2026-10-05-00:00"
FAST = RunPace(step=10.0)


def turn(simulation: Simulation, causes: dict[str, str], hours: float) -> None:
    """Let time pass. A commit of each of these tables brings new data of a source 15 seconds later."""
    seen = {table: len(built(simulation, table)) for table in causes}
    for _ in range(int(hours * 3600 / 15)):
        simulation.run(seconds=15)
        for table, read in causes.items():
            if (count := len(built(simulation, table))) > seen[table]:
                seen[table] = count
                simulation.arrive(read, HOUR, at=simulation.moment().timestamp())


def two_tables(**more: Any) -> list[Any]:
    return [
        source("one", HOURS),
        source("two", HOURS),
        asset("a", "raw/one", by=HOURS, freshness_policy=lag(minutes=5), **more),
        asset("b", "raw/two", by=HOURS, freshness_policy=lag(minutes=5), **more),
    ]


@pytest.mark.parametrize("pace", [ASAP, {}])
def test_loop_of_two_tables_through_observations_is_logged_once_and_slowed_down(
    pace: dict[str, Any], capfd: pytest.CaptureFixture[str]
) -> None:
    simulation = play(two_tables(**pace), pace=FAST)
    simulation.arrive("raw/one", HOUR, at=simulation.time(minutes=1))
    turn(simulation, {"a": "raw/two", "b": "raw/one"}, hours=5)
    assert len(simulation.runs) < 80, "without a bound 64 an hour"
    reasons = {key: standing.reason for key, standing in simulation.standings().items()}
    for key in ("a", "b"):
        assert "gets new data each time a, b is built" in reasons[key], reasons
    assert capfd.readouterr().err.count("a loop: ") == 1


def test_table_in_a_loop_with_its_source_builds_other_data_in_time() -> None:
    assets = [source("one", HOURS), source("x", HOURS), asset("a", "raw/one", "raw/x", by=HOURS, **ASAP)]
    simulation = play(assets, pace=FAST)
    for read in ("raw/one", "raw/x"):
        simulation.arrive(read, HOUR, at=simulation.time(minutes=1))
    turn(simulation, {"a": "raw/one"}, hours=2)
    (loop,) = simulation.plan().loops
    assert (loop.source, loop.tables) == ("raw/one", ("a",))
    assert "a loop: raw/one gets new data" in simulation.plan().waiting[("a", HOUR)]
    before = len(simulation.runs)
    simulation.arrive("raw/x", HOUR, at=simulation.moment().timestamp())
    simulation.run(minutes=1)
    assert len(simulation.runs) == before + 1, "new data of another source is not held back"


@pytest.mark.parametrize(
    ("every", "minutes"),
    sample([(20.0, 30.0), (45.0, 1.0), (60.0, 1.0), (60.0, 30.0)], (45.0, 1.0), (60.0, 1.0), (60.0, 30.0)),
)
def test_source_that_changes_by_itself_is_not_reported_as_a_loop(every: float, minutes: float) -> None:
    contract = lag(minutes=minutes)
    simulation = play([source("x", HOURS), asset("a", "raw/x", by=HOURS, freshness_policy=contract, **ASAP)], pace=FAST)
    for n in range(int(2400 / every)):
        simulation.arrive("raw/x", HOUR, at=simulation.time(minutes=1) + n * every)
    for _ in range(21):
        simulation.run(minutes=2)
        assert not simulation.plan().loops
        assert simulation.standings()["a"].verdict == "met"


def test_new_data_after_builds_of_an_unrelated_table_is_not_a_loop() -> None:
    simulation = play([*two_tables(**ASAP)], pace=FAST)
    simulation.arrive("raw/one", HOUR, at=simulation.time(minutes=1))
    for n in range(30):
        simulation.arrive("raw/one", HOUR, at=simulation.time(minutes=2 + 2 * n))
    turn(simulation, {"a": "raw/two"}, hours=1)
    assert len(built(simulation, "b")) > 25 and not simulation.plan().loops
