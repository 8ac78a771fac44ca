"""Days of sensors' messages in the simulator: what runs for them, when, and what does not."""

import random
from datetime import UTC, datetime, timedelta
from typing import Any

import dagster as dg
import pytest

from dagster_tidemark.planner.contracts import FreshnessStatus
from dagster_tidemark.simulation.simulator import RunPace, Simulation
from pipelines.definitions import defs
from tests.tidemark.planner.lag_oracle import Oracle, RunRecord, Target, sample

START = datetime(2026, 10, 4, tzinfo=UTC)
RAW, CORE, HOT, ALERTS = "raw/readings", "core/readings", "marts/hot_spots", "alerts/cold_chain"
WITHIN = {CORE: 5 * 60.0, HOT: 30 * 60.0}


def hour(number: int) -> str:
    return f"{START + timedelta(hours=number):%Y-%m-%d-%H:00}"


def begin(**more: Any) -> Simulation:
    return Simulation(defs, start=START, seed=1, pace=RunPace(step=20.0), **more)


def with_rule(code_version: str) -> dg.Definitions:
    """The whole graph, with another code version of the alerts."""

    def coded(spec: dg.AssetSpec) -> dg.AssetSpec:
        is_it = spec.key.to_user_string() == ALERTS
        return spec.replace_attributes(code_version=code_version) if is_it else spec

    assets = [a.map_asset_specs(coded) if isinstance(a, dg.AssetsDefinition) else a for a in defs.assets or ()]
    return dg.Definitions(assets, resources=defs.resources)


def reads(target: Target) -> list[list[Target]]:
    """What a partition reads, written down a second time."""
    asset, partition = target
    if asset == CORE:
        return [[(RAW, partition)]]
    if asset == HOT:
        begins = datetime.strptime(str(partition), "%Y-%m-%d-%H:%M")
        return [[(CORE, f"{begins - timedelta(hours=h):%Y-%m-%d-%H:00}") for h in (1, 0)]]
    return []


def test_readings_are_built_at_once_and_hot_spots_within_half_an_hour() -> None:
    simulation = begin()
    for minute in (12, 50):
        simulation.arrive(RAW, hour(7), at=simulation.time(hours=7, minutes=minute))
    simulation.run(hours=7.9)
    arrived = simulation.time(hours=7, minutes=12)
    first, second = simulation.runs_of(CORE, hour(7))
    assert first.created_at <= arrived + 15 and second.created_at <= simulation.time(hours=7, minutes=50) + 15
    (built, *_) = simulation.runs_of(HOT, hour(7))
    assert built.ended_at is not None and arrived + 15 * 60 < built.ended_at <= arrived + WITHIN[HOT]
    assert not simulation.runs_of(HOT, hour(8)), "there is no such hour yet"
    simulation.run(hours=1)
    assert simulation.tables.fresh((HOT, hour(7)))
    # What was read at the end of an hour holds on in the next, also if nothing is read there.
    (following,) = simulation.runs_of(HOT, hour(8))
    assert following.ended_at is not None
    assert simulation.time(hours=8) < following.ended_at <= simulation.time(hours=8) + WITHIN[HOT]
    assert not simulation.runs_of(HOT, hour(9)) and not simulation.runs_of(CORE, hour(8))
    assert {simulation.standings()[asset].verdict for asset in WITHIN} == {FreshnessStatus.MET}


def test_late_messages_rebuild_their_hour_and_the_next() -> None:
    simulation = begin()
    for number in (5, 6, 7):
        simulation.arrive(RAW, hour(number), at=simulation.time(hours=number, minutes=5))
    simulation.run(hours=9)
    before = len(simulation.runs)
    simulation.arrive(RAW, hour(5), at=simulation.time(hours=9, minutes=10))
    simulation.run(hours=1)
    new = simulation.runs[before:]
    assert [run.partitions for run in new if CORE in run.assets] == [(hour(5),)]
    assert sorted(p for run in new if HOT in run.assets for p in run.partitions) == [hour(5), hour(6)]


@pytest.mark.proof
def test_three_hours_of_messages_reach_every_table_in_time() -> None:
    simulation = begin()
    dice = random.Random(4)
    for minute in range(3 * 60):
        late = dice.random() < 0.05
        read_in = max(0, minute // 60 - late)
        simulation.arrive(RAW, hour(read_in), at=simulation.time(minutes=minute + dice.uniform(0, 0.5)))
    simulation.run(hours=4)
    runs = [
        RunRecord(run.created_at, {(asset, p): at for asset, at in run.committed.items() for p in run.partitions})
        for run in simulation.runs
    ]
    oracle = Oracle(simulation.arrivals, runs, reads)
    # Of an hour that is to come nothing is promised before it is there.
    due = {
        (asset, hour(number)): lambda arrival, asset=asset, number=number: (
            max(  # type: ignore[misc]
                arrival, simulation.time(hours=number)
            )
            + WITHIN[asset]
        )
        for asset in WITHIN
        for number in range(3)
    }
    looks, lacking, misses = sample(oracle, due, [simulation.time(minutes=n) for n in range(1, 4 * 60)])
    assert looks == 6 * 239 and lacking > 100
    assert not misses, misses[:5]
    assert len(simulation.runs_of(HOT)) < 30, "it is as lazy as its contract lets it"


def test_alert_history_is_built_once_and_again_only_for_new_code() -> None:
    simulation = begin()
    for minute in range(0, 180, 10):
        simulation.arrive(RAW, hour(minute // 60), at=simulation.time(minutes=minute))
        # The shift tells of what it has raised.
        simulation.report(ALERTS, at=simulation.time(minutes=minute, seconds=40))
    simulation.run(hours=4)
    assert len(simulation.runs_of(ALERTS)) == 1
    simulation.deploy(with_rule("2"), at=simulation.time(hours=4))
    simulation.report(ALERTS, at=simulation.time(hours=4, seconds=2))
    simulation.run(hours=1)
    assert [run.code[ALERTS] for run in simulation.runs_of(ALERTS)] == ["1", "2"]
    simulation.arrive(RAW, hour(5), at=simulation.time(hours=5, minutes=1))
    simulation.run(hours=1)
    assert len(simulation.runs_of(ALERTS)) == 2


def test_requests_answered_by_shifts_cause_no_runs() -> None:
    simulation = begin()
    for minute in range(30):
        simulation.arrive("raw/scoring_requests", None, at=simulation.time(minutes=minute))
        simulation.report("ml/scores", at=simulation.time(minutes=minute, seconds=20))
    simulation.run(hours=2)
    assert simulation.runs == []
