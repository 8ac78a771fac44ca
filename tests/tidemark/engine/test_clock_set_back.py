"""A clock that is set back by an hour: no pause lasts longer because of that."""

from itertools import pairwise

import dagster as dg
import pytest

from dagster_tidemark.dagster_internals import event_time
from dagster_tidemark.engine.check_attempts import CheckAttempts
from dagster_tidemark.engine.engine import engine_for
from dagster_tidemark.planner.decisions import CheckRequest, Plan
from dagster_tidemark.sensors.streams import Ended
from dagster_tidemark.simulation.simulator import Simulation
from tests.tidemark.planner.shapes.playing import asked, built
from tests.tidemark.toy_graph import ASAP, DAYS, START, asset, lag, source

DAY, BACK = "2026-10-04", 3600.0
NEAR = 300.0  # seconds


def one_table() -> Simulation:
    read = asset("core/x", "raw/x", by=DAYS, freshness_policy=lag(minutes=30), **ASAP)
    return Simulation([source("x", DAYS), read], start=START)


@pytest.mark.parametrize("restarts", [False, True])
def test_failed_partition_is_retried_as_soon_as_without_the_step(restarts: bool) -> None:
    simulation = one_table()
    simulation.fail("core/x", times=3)
    simulation.arrive("raw/x", DAY, at=simulation.time(minutes=65))
    simulation.step_clock(-BACK, at=simulation.time(minutes=68))
    # Dagster ticks no sensor until the clock is past its last tick: one hour passes in any case.
    if restarts:
        simulation.restart(at=simulation.time(minutes=127))
    simulation.run(hours=4)
    assert built(simulation, "core/x") == [DAY]
    times = [run.created_at for run in simulation.runs_of("core/x")]
    assert simulation.runs[-1].ended_at is not None
    assert times[-1] < simulation.time(minutes=128) + 7 * 60 + NEAR
    assert all(later - earlier >= 60 for earlier, later in pairwise(times)), "pauses remain"
    assert simulation.failed_ticks == []


def test_failure_with_the_time_of_a_clock_that_is_a_day_ahead_is_retried() -> None:
    simulation = one_table()
    simulation.slow("core/x", seconds=120)
    simulation.fail("core/x", times=2)
    simulation.arrive("raw/x", DAY, at=simulation.time(minutes=5))
    simulation.run(minutes=6)
    history, (run,) = simulation._engine().follower.history, simulation.runs
    simulation.run(minutes=1, seconds=30)
    assert run.ended_at is not None
    ((target, failure),) = history.failures.items()
    history.failures[target] = failure.__class__(failure.attempts, failure.as_of, failure.ended_at + 86400)
    simulation.run(minutes=20)
    assert built(simulation, "core/x") == [DAY]
    assert asked(simulation, "core/x") == [DAY] * 3


def test_request_that_led_to_no_run_is_repeated_after_a_minute(instance: dg.DagsterInstance) -> None:
    repository = dg.Definitions([source("x"), asset("a", "raw/x")]).get_repository_def()
    engine, now = engine_for(instance, repository.asset_graph), event_time.now()
    engine.look(now, instance)
    target = ("a", None)
    engine.take([target], now + BACK)
    engine.look(now)
    assert target in engine.reserved
    engine.look(now + 61)
    assert target not in engine.reserved
    engine.unanswered[target] = (2, now + BACK)
    engine.look(now + 61)
    assert engine.unanswered[target] == (2, now + 61 + 60)


def test_check_without_a_result_is_requested_again() -> None:
    attempts, request = CheckAttempts(), CheckRequest("a", "is_complete")
    assert attempts.take(Plan(BACK, checks=(request,))) == [request]
    assert attempts.due(Plan(BACK + 59, checks=(request,))) == []
    assert attempts.take(Plan(0.0, checks=(request,))) == [request]
    assert attempts.due(Plan(59.0, checks=(request,))) == [], "the pauses count from then on"


def test_stream_whose_shifts_failed_is_started() -> None:
    ended = Ended(failures=4, at=BACK)
    assert ended.rests_until(BACK + 1) == BACK + 20
    assert ended.rests_until(0.0) == 0.0
