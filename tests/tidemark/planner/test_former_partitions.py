"""Partitions that a new definition no longer has: one line once, then forgotten; and read again when they come back."""

import logging
from typing import Any

import dagster as dg
import pytest

from dagster_tidemark.simulation.simulator import Simulation
from tests.tidemark.toy_graph import START, asset, lag, source

DAYS = [f"2026-10-{day:02}" for day in range(1, 5)]


def daily(start: str) -> dg.PartitionsDefinition:
    return dg.DailyPartitionsDefinition(start, end_offset=1)


def location(by: dg.PartitionsDefinition) -> list[Any]:
    return [source("a", by), asset("a", "raw/a", by=by, freshness_policy=lag(hours=1))]


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.WARNING)
    return caplog


def said(lines: pytest.LogCaptureFixture) -> list[str]:
    texts = [record.getMessage() for record in lines.records]
    return [text for text in texts if "set aside" in text or "former" in text]


def loaded(by: dg.PartitionsDefinition, keys: list[str]) -> Simulation:
    simulation = Simulation(location(by), start=START, every_tick=False)
    for key in keys:
        simulation.arrive("raw/a", key, at=simulation.time(minutes=1))
    simulation.run(hours=2)
    assert sorted(p for run in simulation.runs for p in run.partitions) == keys
    return simulation


REDEFINED = {
    "a later start": (daily("2026-10-01"), daily("2026-10-03"), DAYS, DAYS[:2]),
    "another grain": (daily("2026-10-01"), dg.HourlyPartitionsDefinition("2026-10-01-00:00"), DAYS, DAYS),
    "a key less": (
        dg.StaticPartitionsDefinition(["a", "b"]),
        dg.StaticPartitionsDefinition(["b"]),
        ["a", "b"],
        ["a"],
    ),
    "no partitions": (dg.StaticPartitionsDefinition(["a"]), None, ["a"], ["a"]),
}


@pytest.mark.parametrize("by", REDEFINED)
@pytest.mark.parametrize("in_flight", [False, True])
def test_former_partitions_are_logged_once_per_asset_and_forgotten(
    by: str, in_flight: bool, lines: pytest.LogCaptureFixture
) -> None:
    before, after, keys, former = REDEFINED[by]
    simulation = loaded(before, keys)
    if in_flight:
        simulation.slow("a", seconds=900)
        simulation.request(["a"], former[:1], at=simulation.clock.now + 60)
        simulation.run(minutes=5)
    assert said(lines) == []
    simulation.deploy(location(after), at=simulation.clock.now + 60)  # type: ignore[arg-type]
    simulation.run(hours=1)
    reach = former[0] if len(former) == 1 else f"{former[0]} to {former[-1]}"
    expected = f"{len(former)} former partitions ({reach}) no longer exist and are forgotten"
    assert sorted(said(lines)) == [f"a: {expected}", f"raw/a: {expected}"]
    assert not simulation.plan().set_aside
    assert all(not standing.set_aside for standing in simulation.standings().values())
    for _ in range(2):
        simulation.restart(at=simulation.clock.now + 60)
        simulation.run(hours=1)
    assert len(said(lines)) == 2, "not again after a restart"
    assert not simulation.plan().set_aside


def test_key_that_was_never_a_partition_is_reported_also_after_restart(lines: pytest.LogCaptureFixture) -> None:
    simulation = loaded(daily("2026-10-01"), DAYS)
    simulation.deploy(location(daily("2026-10-03")), at=simulation.clock.now + 60)
    simulation.run(hours=1)
    simulation.tell("raw/a", "2026-10-02", "late", at=simulation.clock.now + 60)
    simulation.tell("raw/a", "yesterday", "odd", at=simulation.clock.now + 60)
    simulation.run(hours=1)
    simulation.restart(at=simulation.clock.now + 60)
    simulation.run(hours=1)
    assert set(simulation.plan().set_aside) == {("raw/a", "2026-10-02"), ("raw/a", "yesterday")}


@pytest.mark.parametrize("restarted", [False, True])
def test_partitions_that_are_declared_again_are_known_again(restarted: bool) -> None:
    simulation = loaded(daily("2026-10-01"), DAYS)
    simulation.deploy(location(daily("2026-10-03")), at=simulation.clock.now + 60)
    simulation.run(hours=1)
    if restarted:
        simulation.restart(at=simulation.clock.now + 60)
        simulation.run(hours=1)
    built = len(simulation.runs)
    simulation.deploy(location(daily("2026-10-01")), at=simulation.clock.now + 60)
    simulation.run(hours=1)
    assert not simulation.plan().decisions
    assert not simulation.plan().set_aside
    simulation.arrive("raw/a", DAYS[0], at=simulation.clock.now + 60)
    simulation.run(hours=2)
    assert [run.partitions for run in simulation.runs[built:]][-1:] == [(DAYS[0],)]
