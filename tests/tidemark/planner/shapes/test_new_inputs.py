"""A deploy gives built tables a source that never had data: they are late after their contract's time, by its name."""

import json
import time
from datetime import timedelta
from typing import Any

import dagster as dg
import pytest

from dagster_tidemark.asset_graph.planner_graph import graph_of
from dagster_tidemark.dagster_internals import instance_store
from dagster_tidemark.engine.lag_history import lags
from dagster_tidemark.event_log.redefined import PartitionsDefinitions
from dagster_tidemark.planner.contracts import FreshnessStatus
from dagster_tidemark.planner.decisions import ContractStatus
from dagster_tidemark.planner.graph import Graph
from dagster_tidemark.simulation.simulator import RunPace, Simulation
from tests.tidemark.planner.shapes.playing import CITIES, REGIONS, built, play
from tests.tidemark.toy_graph import DAYS, START, asset, lag, source, within

MONTHS = dg.MonthlyPartitionsDefinition("2026-10-01", end_offset=1)
ALL = dg.AllPartitionMapping()
HOUR = lag(hours=1)

Partitions = dg.PartitionsDefinition | None
BY: dict[str, tuple[Partitions, Partitions, str | None]] = {
    "no partitions": (None, None, None),
    "no partitions, the new source by days": (None, DAYS, None),
    "static keys": (REGIONS, REGIONS, "eu"),
    "dynamic keys": (CITIES, CITIES, "oslo"),
    "static keys, the new source without": (REGIONS, None, "eu"),
}


def tables(by: Partitions, new: Partitions, *, added: bool, policy: dg.FreshnessPolicy = HOUR) -> list[Any]:
    """A table that reads a source, and from a deploy on another source too; and a table below it."""
    more = [source("y", new)] if added else []
    reads = ["raw/x", "raw/y"] if added else ["raw/x"]
    return [
        source("x", by),
        *more,
        asset("core", *reads, by=by, freshness_policy=policy),
        asset("mart", "core", by=by, freshness_policy=lag(hours=3)),
    ]


def judged(simulation: Simulation, name: str = "core") -> ContractStatus:
    return simulation.standings()[name]


def deployed(by: Partitions, new: Partitions, key: str | None, **more: Any) -> Simulation:
    """Both tables are built at one; two hours after the start, a deploy adds the source."""
    simulation = play(tables(by, new, added=False, **more))
    with simulation.clock.frozen():
        simulation.instance.add_dynamic_partitions("cities", ["oslo", "rome"])
    simulation.arrive("raw/x", key, at=simulation.time(minutes=5))
    simulation.deploy(tables(by, new, added=True, **more), at=simulation.time(hours=2))
    simulation.run(hours=1, minutes=59)
    assert [built(simulation, name) for name in ("core", "mart")] == [[key]] * 2
    return simulation


@pytest.mark.parametrize("name", BY)
@pytest.mark.parametrize("more_arrives", [False, True])
def test_built_table_is_late_when_a_new_source_is_silent_for_the_contract_after_the_deploy(
    name: str, more_arrives: bool
) -> None:
    by, new, key = BY[name]
    simulation = deployed(by, new, key)
    if more_arrives:
        simulation.arrive("raw/x", key, at=simulation.time(hours=2, minutes=30))
    simulation.restart(at=simulation.time(hours=2, minutes=40))
    simulation.run(minutes=59)
    assert judged(simulation).verdict is FreshnessStatus.MET, "it has the contract's time since the deploy"
    simulation.run(minutes=4)
    found = judged(simulation)
    assert (found.verdict, found.partition) == (FreshnessStatus.BREACHED, key)
    assert found.deadline == pytest.approx(simulation.time(hours=3), abs=10)
    assert "raw/y never had data" in found.reason and "raw/x" not in found.reason
    assert [lack.sources for lack in found.lacks] == [("raw/y",)]
    below = judged(simulation, "mart")
    assert below.verdict is FreshnessStatus.MET
    simulation.run(hours=2)
    below = judged(simulation, "mart")
    assert (below.verdict, "raw/y never had data" in below.reason) == (FreshnessStatus.BREACHED, True)
    speaks = None if new is None else "2026-10-04" if new is DAYS else key
    simulation.arrive("raw/y", speaks, at=simulation.time(hours=6))
    simulation.run(hours=4)
    assert [built(simulation, table) for table in ("core", "mart")] == [[key, key]] * 2
    assert {str(judged(simulation, table).verdict) for table in ("core", "mart")} == {"met"}
    assert simulation.failed_ticks == []


def test_built_table_is_no_longer_late_after_its_silent_source_is_removed() -> None:
    simulation = deployed(None, None, None)
    simulation.run(hours=2)
    assert judged(simulation).verdict is FreshnessStatus.BREACHED
    simulation.deploy(tables(None, None, added=False), at=simulation.time(hours=5))
    simulation.run(hours=2)
    assert judged(simulation).verdict is FreshnessStatus.MET
    assert built(simulation, "core") == [None]


def test_source_that_a_deploy_gives_other_partitions_counts_as_new() -> None:
    def location(by: Partitions) -> list[Any]:
        return [source("x"), source("y", by), asset("core", "raw/x", "raw/y", freshness_policy=HOUR)]

    simulation = play(location(DAYS))
    for name, key in (("raw/x", None), ("raw/y", "2026-10-04")):
        simulation.arrive(name, key, at=simulation.time(minutes=5))
    simulation.deploy(location(MONTHS), at=simulation.time(hours=2))
    simulation.run(hours=2, minutes=59)
    assert (built(simulation, "core"), str(judged(simulation).verdict)) == ([None], "met")
    simulation.run(minutes=2)
    assert judged(simulation).verdict is FreshnessStatus.BREACHED
    assert "raw/y never had data" in judged(simulation).reason


def test_new_source_of_a_table_below_another_is_named() -> None:
    def location(*, added: bool) -> list[Any]:
        more = [source("y"), asset("base", "raw/y")] if added else []
        reads = ["raw/x", "base"] if added else ["raw/x"]
        return [source("x"), *more, asset("core", *reads, freshness_policy=HOUR)]

    simulation = play(location(added=False))
    simulation.arrive("raw/x", at=simulation.time(minutes=5))
    simulation.deploy(location(added=True), at=simulation.time(hours=2))
    simulation.run(hours=4)
    found = judged(simulation)
    assert found.verdict is FreshnessStatus.BREACHED
    assert "base (raw/y never had data)" in found.reason
    assert "raw/y never had data" in found.reason


def test_contract_by_a_time_of_day_is_broken_at_the_first_tick_after_the_deploy() -> None:
    simulation = deployed(None, None, None, policy=dg.FreshnessPolicy.cron("0 9 * * *", timedelta(minutes=30)))
    simulation.run_until(simulation.time(hours=8, minutes=59))
    assert judged(simulation).verdict is not FreshnessStatus.BREACHED
    simulation.run(minutes=2)
    found = judged(simulation)
    assert (found.verdict, found.deadline) == (FreshnessStatus.BREACHED, simulation.time(hours=9))


def test_input_that_was_optional_is_required_from_the_deploy_on() -> None:
    def location(**metadata: Any) -> list[Any]:
        new = dg.AssetDep(dg.AssetKey(["raw", "y"]), metadata=metadata)
        return [source("x"), source("y"), asset("core", "raw/x", new, freshness_policy=HOUR)]

    simulation = play(location(optional=True))
    simulation.arrive("raw/x", at=simulation.time(minutes=5))
    simulation.run(hours=2)
    assert (built(simulation, "core"), str(judged(simulation).verdict)) == ([None], "met")
    simulation.deploy(location(), at=simulation.time(hours=2))
    simulation.run(minutes=50)
    assert judged(simulation).verdict is FreshnessStatus.MET
    simulation.run(minutes=20)
    assert judged(simulation).verdict is FreshnessStatus.BREACHED


def test_open_window_owes_only_data_that_arrives_after_the_deploy() -> None:
    def location(*, added: bool) -> list[Any]:
        more = [source("y", MONTHS)] if added else []
        reads = [within("raw/x"), *(["raw/y"] if added else [])]
        return [source("x", DAYS), *more, asset("core", *reads, by=MONTHS, freshness_policy=HOUR)]

    simulation = play(location(added=False))
    simulation.arrive("raw/x", "2026-10-05", at=simulation.time(minutes=5))
    simulation.deploy(location(added=True), at=simulation.time(hours=2))
    simulation.run(hours=5)
    assert built(simulation, "core") == ["2026-10-01"]
    assert judged(simulation).verdict is FreshnessStatus.MET, "the month contains all that arrived"
    simulation.arrive("raw/x", "2026-10-05", at=simulation.time(hours=6))
    simulation.run(hours=1, minutes=59)
    assert judged(simulation).verdict is FreshnessStatus.MET
    simulation.run(minutes=2)
    found = judged(simulation)
    assert (found.verdict, found.deadline) == (FreshnessStatus.BREACHED, simulation.time(hours=7))
    assert "raw/y never had data" in found.reason


@pytest.mark.parametrize("later", [False, True])
def test_table_that_a_person_built_without_a_source_owes_only_later_data(later: bool) -> None:
    simulation = play(tables(REGIONS, REGIONS, added=True))
    simulation.arrive("raw/x", "eu", at=simulation.time(minutes=5))
    simulation.request(["core"], ["eu"], at=simulation.time(minutes=10))
    if later:
        simulation.arrive("raw/x", "eu", at=simulation.time(hours=2))
    simulation.run(hours=4)
    assert built(simulation, "core") == ["eu"]
    assert str(judged(simulation).verdict) == ("breached" if later else "met"), judged(simulation).reason
    if later:
        assert judged(simulation).deadline == simulation.time(hours=3)
        simulation.skip("core", at=simulation.time(hours=5))
        simulation.run(hours=2)
        assert judged(simulation).verdict is FreshnessStatus.MET, "a person has given it up"


def test_data_from_before_a_skip_does_not_make_later_data_late() -> None:
    simulation = play(tables(DAYS, DAYS, added=True))
    simulation.arrive("raw/x", "2026-10-04", at=simulation.time(minutes=5))
    simulation.skip("core", at=simulation.time(hours=2))
    simulation.run(hours=5)
    assert judged(simulation).verdict is FreshnessStatus.MET, "a person has given it up"
    simulation.arrive("raw/x", "2026-10-04", at=simulation.time(hours=8))
    simulation.run(hours=3, minutes=50)
    assert judged(simulation).verdict is FreshnessStatus.MET
    simulation.run(minutes=20)
    found = judged(simulation)
    assert (found.verdict, found.deadline) == (FreshnessStatus.BREACHED, simulation.time(hours=9))


def test_table_that_only_people_run_is_late_too_when_a_required_source_is_silent() -> None:
    by_hand = asset("core", "raw/x", "raw/y", by=DAYS, freshness_policy=HOUR, automation_condition=None)
    simulation = play([source("x", DAYS), source("y", DAYS), by_hand])
    simulation.arrive("raw/x", "2026-10-04", at=simulation.time(minutes=5))
    simulation.run(hours=1)
    assert judged(simulation).verdict is FreshnessStatus.MET
    simulation.run(minutes=6)
    found = judged(simulation)
    assert (found.verdict, found.deadline) == (FreshnessStatus.BREACHED, simulation.time(hours=1, minutes=5))
    assert "raw/y never had data" in found.reason
    simulation.arrive("raw/y", "2026-10-04", at=simulation.time(hours=2))
    simulation.request(["core"], ["2026-10-04"], at=simulation.time(hours=3))
    simulation.run(hours=3)
    assert judged(simulation).verdict is FreshnessStatus.MET


def test_lag_of_past_periods_counts_the_time_without_the_new_source() -> None:
    simulation = deployed(None, None, None)
    simulation.arrive("raw/y", at=simulation.time(hours=6))
    simulation.run(hours=8)
    with simulation.clock.frozen():
        period = (simulation.time(), simulation.time(hours=8))
        every = lags(simulation.instance, simulation.asset_graph, [period])
    (found,) = [each for each in every if each.asset == "core"]
    late = (1 - found.lag.within) * 8 * 3600
    assert late == pytest.approx(3 * 3600, abs=120), "from the end of the contract's hour to the build"


@pytest.mark.parametrize("by", [None, DAYS])
@pytest.mark.parametrize("through", ["a source", "a new table", "a new table that fails"])
def test_old_data_of_a_new_input_counts_from_the_deploy_on(by: Partitions, through: str) -> None:
    def location(*, added: bool) -> list[Any]:
        new = "raw/y" if through == "a source" else "base"
        more = [asset("base", "raw/y", by=by)] if added and new == "base" else []
        both = [source("x", by), source("y", by), asset("other", "raw/y", by=by, freshness_policy=HOUR), *more]
        core = asset("core", "raw/x", *([new] if added else []), by=by, freshness_policy=HOUR)
        return [*both, core, asset("mart", "core", by=by, freshness_policy=lag(hours=2))]

    simulation = Simulation(location(added=False), start=START, pace=RunPace(step=300.0))
    if through == "a new table that fails":
        simulation.fail("base", times=1000)
    key = "2026-10-04" if by is DAYS else None
    for name in ("raw/x", "raw/y"):
        simulation.arrive(name, key, at=simulation.time(minutes=5))
    simulation.deploy(location(added=True), at=simulation.time(hours=6))
    simulation.run(hours=5, minutes=59)
    for _ in range(40):
        simulation.run(minutes=1.5)
        assert {str(found.verdict) for found in simulation.standings().values()} <= {"met", "at risk"}
    simulation.run(hours=4)
    assert str(judged(simulation).verdict) == ("breached" if "fails" in through else "met")
    if "fails" not in through:
        assert simulation.tables.fresh(("mart", key))


def test_time_of_an_input_is_kept_and_unknown_for_records_of_earlier_versions() -> None:
    def graph(*reads: str) -> Graph:
        table = asset("core", *reads, dg.AssetDep(dg.AssetKey(["raw", "o"]), metadata={"optional": True}))
        return graph_of(dg.Definitions([table]).resolve_asset_graph())

    with dg.DagsterInstance.ephemeral() as instance:
        before = time.time()
        new = PartitionsDefinitions.of(instance, "here", graph("raw/x"))
        assert list(new.inputs["core"]) == ["raw/x"] and new.inputs["core"]["raw/x"] >= before
        new.date(known := graph("raw/x"))
        assert known.moment.inputs_added == {}, "the asset itself is new"
        new.keep(instance)
        more = PartitionsDefinitions.of(instance, "here", graph("raw/x", "raw/y"))
        assert more.inputs["core"]["raw/x"] == new.inputs["core"]["raw/x"] < more.inputs["core"]["raw/y"]
        more.date(known := graph("raw/x", "raw/y"))
        assert known.moment.added_at("core", "raw/y") == more.inputs["core"]["raw/y"]
        assert (known.moment.added_at("core", "raw/x"), known.moment.added_at("core", "raw/z")) == (0.0, 0.0)
        kept = json.loads(instance_store.saved(instance, new.key) or "")
        instance_store.save(instance, new.key, json.dumps({name: of[:3] for name, of in kept.items()}))
        old = PartitionsDefinitions.of(instance, "here", graph("raw/x", "raw/y"))
        assert old.inputs["core"] == {"raw/x": 0.0, "raw/y": 0.0}
