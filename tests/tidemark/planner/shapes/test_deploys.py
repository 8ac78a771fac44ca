"""What another version of the code, or a restart, must not make anybody forget, or stumble over."""

from datetime import timedelta
from typing import Any

import dagster as dg
import pytest

from dagster_tidemark.event_log import checkpoint
from dagster_tidemark.event_log.consumer import LogConsumer
from dagster_tidemark.planner.graph import Graph, Input, Node
from dagster_tidemark.planner.history import History
from dagster_tidemark.planner.staleness import PendingWork
from tests.tidemark.planner.shapes.playing import CITIES, built, healthy, keeps_the_pair, mapped, play
from tests.tidemark.toy_graph import ASAP, DAYS, asset, lag, source

DAY = "2026-10-05"


def by_city() -> list[Any]:
    return [source("visits", CITIES), asset("all", "raw/visits", freshness_policy=lag(minutes=30))]


@pytest.mark.parametrize("then", ["a restart", "a deploy", "a restart before anybody noticed"])
def test_added_dynamic_partition_is_read_by_one_run_after_restart_or_deploy(then: str) -> None:
    simulation = play(
        by_city(), reads=lambda _: [("raw/visits", c) for c in simulation.instance.get_dynamic_partitions("cities")]
    )
    simulation.add_keys("cities", "oslo", at=simulation.time(minutes=1))
    simulation.arrive("raw/visits", "oslo", at=simulation.time(minutes=2))
    simulation.arrive("raw/visits", "lima", at=simulation.time(minutes=10))
    simulation.arrive("raw/visits", "oslo", at=simulation.time(minutes=20))
    simulation.run(hours=1)
    added = simulation.time(hours=1)
    if then == "a restart before anybody noticed":
        simulation.outage(at=simulation.time(minutes=59), until=simulation.time(hours=1, minutes=5))
    simulation.add_keys("cities", "lima", at=added)
    if then == "a deploy":
        simulation.deploy(by_city(), at=added)
    elif then == "a restart":
        simulation.restart(at=simulation.time(hours=1, minutes=10))
    before = len(simulation.runs)
    simulation.run(hours=2)
    assert len(simulation.runs) == before + 1
    assert simulation.tables.fresh(("all", None))


def by_region(*regions: str) -> list[Any]:
    by = dg.StaticPartitionsDefinition(list(regions))
    return [source("x", by), asset("core/x", "raw/x", by=by, freshness_policy=lag(minutes=30)), *healthy()]


@pytest.mark.parametrize("restarts", [False, True])
def test_data_that_arrived_before_its_partition_was_declared_is_built_afterwards(restarts: bool) -> None:
    simulation = play(by_region("eu", "us"))
    simulation.arrive("raw/healthy", DAY, at=simulation.time(minutes=2))
    for minute, region in ((5, "eu"), (10, "apac")):
        simulation.arrive("raw/x", region, at=simulation.time(minutes=minute))
    simulation.run(hours=1)
    assert built(simulation, "core/x") == ["eu"]
    simulation.deploy(by_region("eu", "us", "apac"), at=simulation.time(hours=1))
    if restarts:
        simulation.restart(at=simulation.time(hours=1))
    simulation.run(hours=1)
    assert built(simulation, "core/x") == ["eu", "apac"]
    keeps_the_pair(simulation)


@pytest.mark.parametrize("restarts", [None, 1.0, 1.5])
@pytest.mark.parametrize("others_first", [False, True])
def test_table_is_rebuilt_for_data_that_arrived_before_its_partition_was_declared(
    others_first: bool, restarts: float | None
) -> None:
    """The run that built it could not ask for that key, although its data was there already."""

    def location(*regions: str) -> list[Any]:
        by = dg.StaticPartitionsDefinition(list(regions))
        return [source("x", by), asset("core/x", "raw/x", freshness_policy=lag(minutes=30))]

    regions = ["eu", "us"]
    simulation = play(location(*regions), reads=lambda _: [("raw/x", region) for region in regions])
    for minute, region in ((5, "eu" if others_first else "apac"), (15, "apac" if others_first else "eu")):
        simulation.arrive("raw/x", region, at=simulation.time(minutes=minute))
    simulation.run(hours=1)
    assert built(simulation, "core/x") == [None]
    regions.append("apac")
    simulation.deploy(location(*regions), at=simulation.time(hours=1))
    if restarts:
        simulation.restart(at=simulation.time(hours=restarts))
    simulation.run(hours=2)
    assert built(simulation, "core/x") == [None, None]
    assert simulation.tables.fresh(("core/x", None))


def by_days(of_source: dg.PartitionsDefinition) -> list[Any]:
    return [source("x", of_source), asset("core/x", "raw/x", by=DAYS, freshness_policy=lag(minutes=30)), *healthy()]


@pytest.mark.parametrize("restarts", [False, True])
def test_contract_stays_met_when_a_source_changes_to_days_by_region(restarts: bool) -> None:
    simulation = play(by_days(DAYS))
    simulation.arrive("raw/healthy", DAY, at=simulation.time(minutes=2))
    simulation.arrive("raw/x", DAY, at=simulation.time(minutes=5))
    simulation.run(hours=1)
    by_both = dg.MultiPartitionsDefinition({"day": DAYS, "region": dg.StaticPartitionsDefinition(["eu", "us"])})
    simulation.deploy(by_days(by_both), at=simulation.time(hours=1))
    if restarts:
        simulation.restart(at=simulation.time(hours=1))
    simulation.arrive("raw/x", f"{DAY}|eu", at=simulation.time(hours=2))
    simulation.run(hours=3)
    assert built(simulation, "core/x") == [DAY, DAY]
    assert simulation.standings()["core/x"].verdict == "met", simulation.standings()["core/x"]
    keeps_the_pair(simulation)


def test_repaired_asset_is_read_again_from_the_event_log() -> None:
    broken = Graph({"x": Node("x", refused="its partitions definition cannot be read"), "y": Node("y")})
    repaired = Graph({"x": Node("x"), "y": Node("y")})
    follower = LogConsumer(History(broken), "key")
    follower.adopt(repaired)
    assert follower._to_read_again == ["x"]
    kept = checkpoint.load([checkpoint.dump(History(broken), {})], repaired)
    assert kept is not None and kept.added == ["x"]


def test_events_of_a_newly_valid_partition_key_are_read_again() -> None:
    before, now = (Graph({"x": Node("x", partitioned=True, problem=of)}) for of in (lambda _: "no key", lambda _: None))
    history = History(before)
    history.observed(("x", "apac"), id=1, version="v1", arrived_at=1.0, listed_at=None)
    assert history.set_aside
    kept = checkpoint.load([checkpoint.dump(history, {})], now)
    assert kept is not None and kept.added == ["x"]
    follower = LogConsumer(history, "key")
    follower.adopt(now)
    assert follower._to_read_again == ["x"]


def test_partition_that_is_no_longer_a_valid_key_is_ignored() -> None:
    def downstream(partition: str | None) -> list[str | None]:
        raise ValueError(f"{partition} has no region")

    read = Input("x", lambda partition: [partition], downstream)
    readers = Node("y", [read], partitioned=True)
    history = History(Graph({"x": Node("x", partitioned=True, source=True), "y": readers}))
    history.observed(("x", DAY), id=1, version="v1", arrived_at=1.0, listed_at=None)
    now = Graph({"x": Node("x", partitioned=True, source=True, problem=lambda _: "no region"), "y": readers})
    history.adopt(now)
    PendingWork(now, history).settle(2.0)
    assert (history.broken, history.dirty) == ({}, set())


def left_to_people(kind: str, version: str) -> dg.AssetsDefinition:
    """An asset that only people build, or a condition of its own."""
    if kind == "config":

        @dg.asset(key=["theirs"], deps=[["raw", "y"]], code_version=version, config_schema={"day": str})
        def theirs() -> None: ...

        return theirs
    own = dg.AutomationCondition.on_missing() if kind == "condition" else None
    return asset("theirs", "raw/y", code_version=version, automation_condition=own)


@pytest.mark.parametrize("kind", ["people", "condition", "config"])
def test_rebuild_does_not_wait_for_an_input_that_the_planner_never_rebuilds(kind: str) -> None:
    def assets(version: str) -> list[Any]:
        reader = asset("mart", "raw/x", "theirs", code_version=version, freshness_policy=lag(hours=1))
        return [source("x"), source("y"), left_to_people(kind, version), reader]

    simulation = play(assets("1"), own_every=600)
    for name in ("raw/x", "raw/y"):
        simulation.arrive(name, at=simulation.time(minutes=1))
    simulation.request(["theirs"], at=simulation.time(minutes=5))
    simulation.run(hours=3)
    before = len(built(simulation, "mart"))
    assert before
    simulation.deploy(assets("2"), at=simulation.time(hours=3))
    simulation.run(hours=2)
    assert len(built(simulation, "mart")) == before + 1


def test_rebuild_does_not_wait_for_a_model_that_is_built_only_manually() -> None:
    def assets(version: str) -> list[Any]:
        return [
            source("x", DAYS),
            source("y", DAYS),
            asset("core/x", "raw/x", by=DAYS, code_version=version, **ASAP),
            asset("model", mapped("core/x", dg.AllPartitionMapping()), automation_condition=None),
            asset("forecast", "raw/y", "model", by=DAYS, freshness_policy=lag(hours=4), code_version=version),
        ]

    simulation = play(assets("1"))
    for name in ("raw/x", "raw/y"):
        simulation.arrive(name, DAY, at=simulation.time(minutes=5))
    simulation.request(["model"], at=simulation.time(minutes=30))
    simulation.run(hours=6)
    assert built(simulation, "forecast") == [DAY]
    simulation.deploy(assets("2"), at=simulation.time(hours=6))
    simulation.run(days=1)
    assert built(simulation, "forecast") == [DAY, DAY]


def test_partitions_without_a_contract_are_not_breached_when_the_contract_returns() -> None:
    def assets(policy: dg.FreshnessPolicy | None) -> list[Any]:
        return [source("x", DAYS), asset("core/x", "raw/x", by=DAYS, freshness_policy=policy)]

    nine = dg.FreshnessPolicy.cron("0 9 * * *", timedelta(hours=1))
    simulation = play(assets(nine))
    simulation.arrive("raw/x", "2026-10-04", at=simulation.time(minutes=5))
    simulation.arrive("raw/x", DAY, at=simulation.time(hours=1))
    simulation.run(hours=34)
    assert simulation.standings()["core/x"].verdict == "met"
    simulation.deploy(assets(None), at=simulation.time(hours=34))
    simulation.run(days=5)
    simulation.standings()
    simulation.deploy(assets(nine), at=simulation.time(days=5, hours=34))
    simulation.run(hours=1)
    assert simulation.standings()["core/x"].verdict == "met"
    simulation.run(days=2)
    assert simulation.standings()["core/x"].verdict == "breached"
