"""Partitions by key: dynamic, static, of several dimensions, and what makes those due that no input names."""

from typing import Any

import dagster as dg
import pytest

from dagster_tidemark import LINEAGE, ByKey, Feed, Grain, Table, build_definitions, feed_assets, load_settings
from dagster_tidemark.simulation.simulator import Simulation
from tests.tidemark.automation.shapes.playing import (
    CITIES,
    REGIONS,
    START,
    asked,
    built,
    healthy,
    keeps_the_pair,
    mapped,
    play,
)
from tests.tidemark.automation.toy_graph import ASAP, DAYS, asset, lag, source

DAY = "2026-10-05"
DAY_AND_REGION = dg.MultiPartitionsDefinition({"day": DAYS, "region": REGIONS})
DAY_AND_CITY = dg.MultiPartitionsDefinition({"day": DAYS, "city": CITIES})
OF_THE_DAY = dg.MultiToSingleDimensionPartitionMapping("day")


def cities() -> list[Any]:
    return [source("visits", CITIES), asset("core/visits", "raw/visits", by=CITIES, freshness_policy=lag(minutes=30))]


def test_a_dynamic_partition_that_is_removed_while_pending_is_no_longer_asked_for_nor_breached() -> None:
    simulation = play([*cities(), *healthy()])
    simulation.add_keys("cities", "oslo", "rome", at=simulation.time(minutes=1))
    for city in ("oslo", "rome"):
        simulation.arrive("raw/visits", city, at=simulation.time(minutes=2))
    simulation.arrive("raw/healthy", DAY, at=simulation.time(minutes=2))
    simulation.fail("core/visits", "oslo", times=99)
    simulation.remove_key("cities", "oslo", at=simulation.time(minutes=10))
    simulation.run(minutes=10)
    asked_before = len(simulation.runs_of("core/visits"))
    simulation.run(hours=2)
    assert built(simulation, "core/visits") == ["rome"]
    assert len(simulation.runs_of("core/visits")) == asked_before
    assert simulation.for_nothing == []
    assert simulation.standings()["core/visits"].verdict == "met"
    keeps_the_pair(simulation)


def test_a_dynamic_partition_is_built_once_its_key_exists() -> None:
    simulation = play([*cities(), *healthy()])
    simulation.arrive("raw/visits", "oslo", at=simulation.time(minutes=2))
    simulation.arrive("raw/healthy", DAY, at=simulation.time(minutes=2))
    simulation.run(hours=1)
    assert asked(simulation, "core/visits") == []
    simulation.add_keys("cities", "oslo", at=simulation.time(hours=1))
    simulation.run(hours=2)
    assert built(simulation, "core/visits") == ["oslo"]
    keeps_the_pair(simulation)


def test_what_a_person_builds_of_a_key_before_anybody_noticed_that_it_came_is_built() -> None:
    simulation = play([source("visits", CITIES), asset("core/visits", "raw/visits", by=CITIES, **ASAP)])
    simulation.arrive("raw/visits", "oslo", at=simulation.time(minutes=2))
    simulation.add_keys("cities", "rome", at=simulation.time(minutes=3))
    simulation.run(minutes=10)
    added = simulation.time(minutes=10, seconds=1)
    simulation.add_keys("cities", "oslo", at=added)
    simulation.request(["core/visits"], ["oslo"], at=added)
    simulation.run(minutes=30)
    assert asked(simulation, "core/visits") == ["oslo"]
    assert simulation.plan().decisions == {}


def test_a_removed_key_that_comes_back_is_built() -> None:
    simulation = play(cities())
    simulation.add_keys("cities", "oslo", at=simulation.time(minutes=1))
    simulation.arrive("raw/visits", "oslo", at=simulation.time(minutes=2))
    simulation.remove_key("cities", "oslo", at=simulation.time(minutes=3))
    simulation.add_keys("cities", "oslo", at=simulation.time(hours=2))
    simulation.run(hours=3)
    assert built(simulation, "core/visits") == ["oslo"]


def test_four_neighbours_of_two_dimensions_are_built_once_each() -> None:
    simulation = play(
        [source("sales", DAY_AND_REGION), asset("core/sales", "raw/sales", by=DAY_AND_REGION, **ASAP)], every_tick=True
    )
    # Their range, by Dagster's own reading of it, is from us to eu: empty.
    neighbours = ["2026-10-03|us", "2026-10-04|eu", "2026-10-04|us", "2026-10-05|eu"]
    # One moment for all four, or the first is asked for alone.
    simulation.outage(at=simulation.time(minutes=1), until=simulation.time(minutes=5))
    for key in neighbours:
        simulation.arrive("raw/sales", key, at=simulation.time(minutes=2))
    simulation.run(minutes=30)
    assert sorted(map(str, built(simulation, "core/sales"))) == neighbours
    assert sorted(map(str, asked(simulation, "core/sales"))) == neighbours
    assert all(run.partitions for run in simulation.runs), "no run over nothing"


def test_a_day_and_region_whose_data_comes_before_the_day_begins_is_built_when_it_begins() -> None:
    simulation = play([source("sales", DAY_AND_REGION), asset("core/sales", "raw/sales", by=DAY_AND_REGION, **ASAP)])
    simulation.arrive("raw/sales", "2026-10-06|us", at=simulation.time(hours=20))
    simulation.run(hours=25)
    (run,) = simulation.runs
    assert run.partitions == ("2026-10-06|us",)
    assert simulation.time(hours=24) <= run.created_at <= simulation.time(hours=24.1)


def test_many_partitions_of_a_day_and_a_region_are_ranges_that_hold_just_what_was_meant() -> None:
    simulation = play([source("sales", DAY_AND_REGION), asset("core/sales", "raw/sales", by=DAY_AND_REGION, **ASAP)])
    meant = [f"2026-10-0{day}|{region}" for day in range(1, 6) for region in ("eu", "us") if (day, region) != (3, "us")]
    simulation.outage(at=simulation.time(minutes=1), until=simulation.time(minutes=5))
    for key in meant:
        simulation.arrive("raw/sales", key, at=simulation.time(minutes=2))
    simulation.run(hours=1)
    assert sorted(map(str, asked(simulation, "core/sales"))) == meant


def test_days_by_dynamic_keys_load_and_are_built_where_the_key_exists() -> None:
    simulation = play(
        [
            source("sales", DAY_AND_CITY),
            asset("core/sales", "raw/sales", by=DAY_AND_CITY, **ASAP),
            asset("marts/day", mapped("core/sales", OF_THE_DAY), by=DAYS, freshness_policy=lag(minutes=30)),
            *healthy(),
        ]
    )
    simulation.add_keys("cities", "oslo", at=simulation.time(minutes=1))
    for city in ("oslo", "rome"):
        # The dimensions of a key are in the order of their names.
        simulation.arrive("raw/sales", f"{city}|{DAY}", at=simulation.time(minutes=2))
    simulation.arrive("raw/healthy", DAY, at=simulation.time(minutes=2))
    simulation.run(hours=2)
    assert built(simulation, "core/sales") == [f"oslo|{DAY}"]
    assert built(simulation, "marts/day") == [DAY]
    keeps_the_pair(simulation)


def test_static_partitions_that_read_an_unpartitioned_table_are_built_when_it_is_there() -> None:
    simulation = play([source("rates"), asset("core/rates", "raw/rates", by=REGIONS, freshness_policy=lag(minutes=30))])
    simulation.arrive("raw/rates", at=simulation.time(minutes=5))
    simulation.run(hours=1)
    assert sorted(map(str, built(simulation, "core/rates"))) == ["eu", "us"]


def test_days_that_read_nothing_but_an_unpartitioned_table_are_built_when_it_is_there() -> None:
    some_days = dg.DailyPartitionsDefinition("2026-10-01", end_offset=1)
    simulation = play(
        [source("rates"), asset("core/rates", "raw/rates", by=some_days, freshness_policy=lag(minutes=30))]
    )
    simulation.arrive("raw/rates", at=simulation.time(minutes=5))
    simulation.run(hours=1)
    assert sorted(map(str, built(simulation, "core/rates"))) == [f"2026-10-0{day}" for day in range(1, 6)]
    simulation.run(hours=24)
    assert "2026-10-06" in built(simulation, "core/rates"), "and a day that begins later, when it begins"


def test_the_partitions_of_an_asset_without_inputs_are_built() -> None:
    simulation = play([asset("core/calendar", by=REGIONS, freshness_policy=lag(hours=1))])
    simulation.run(hours=3)
    assert sorted(map(str, built(simulation, "core/calendar"))) == ["eu", "us"]


def test_all_partitions_of_dynamic_keys_are_read_by_one_table() -> None:
    simulation = play(
        [
            *cities(),
            asset("marts/all", mapped("core/visits", dg.AllPartitionMapping()), freshness_policy=lag(hours=1)),
            *healthy(),
        ]
    )
    simulation.add_keys("cities", "oslo", "rome", at=simulation.time(minutes=1))
    for minute, city in ((2, "oslo"), (3, "rome"), (100, "oslo")):
        simulation.arrive("raw/visits", city, at=simulation.time(minutes=minute))
    simulation.arrive("raw/healthy", DAY, at=simulation.time(minutes=2))
    simulation.run(hours=4)
    assert simulation.tables.fresh(("marts/all", None))
    assert 2 <= len(built(simulation, "marts/all")) <= 4
    keeps_the_pair(simulation)


def test_a_key_with_the_wrong_number_of_dimensions_is_set_aside() -> None:
    simulation = play(
        [source("sales", DAY_AND_REGION), asset("core/sales", "raw/sales", by=DAY_AND_REGION, **ASAP), *healthy()]
    )
    for key in ("2026-10-05", "2026-10-05|eu|x", "nonsense|eu", f"{DAY}|eu"):
        simulation.arrive("raw/sales", key, at=simulation.time(minutes=2))
    simulation.arrive("raw/healthy", DAY, at=simulation.time(minutes=2))
    simulation.run(hours=1)
    assert built(simulation, "core/sales") == [f"{DAY}|eu"]
    assert ("raw/sales", "nonsense|eu") in simulation.plan().set_aside
    keeps_the_pair(simulation)


def test_data_of_a_key_that_is_added_later_is_contained_only_by_a_run_after_that() -> None:
    simulation = play(
        [source("visits", CITIES), asset("all", "raw/visits", **ASAP)],
        reads=lambda _: [("raw/visits", city) for city in simulation.instance.get_dynamic_partitions("cities")],
    )
    simulation.add_keys("cities", "oslo", at=simulation.time(minutes=1))
    simulation.arrive("raw/visits", "oslo", at=simulation.time(minutes=2))
    simulation.arrive("raw/visits", "rome", at=simulation.time(minutes=10))
    simulation.arrive("raw/visits", "oslo", at=simulation.time(minutes=20))
    simulation.run(hours=1)
    assert len(simulation.runs) == 2, "of rome nobody could read anything"
    simulation.add_keys("cities", "rome", at=simulation.time(hours=1))
    simulation.run(hours=1)
    assert len(simulation.runs) == 3
    assert simulation.tables.fresh(("all", None))


def test_a_key_that_holds_what_stands_between_dimensions_is_named() -> None:
    by = dg.MultiPartitionsDefinition({"day": DAYS, "city": CITIES})
    city = dg.MultiToSingleDimensionPartitionMapping("city")
    sales = asset("core/sales", mapped("raw/visits", city), by=by, freshness_policy=lag(minutes=30))
    simulation = play([source("visits", CITIES), sales, *healthy()])
    simulation.add_keys("cities", "oslo|east", "rome", at=simulation.time(minutes=1))
    for partition in ("oslo|east", "rome"):
        simulation.arrive("raw/visits", partition, at=simulation.time(minutes=2))
    simulation.arrive("raw/healthy", DAY, at=simulation.time(minutes=2))
    simulation.run(hours=2)
    assert {str(partition).split("|")[0] for partition in built(simulation, "core/sales")} == {"rome"}
    assert "the city 'oslo|east' contains '|'" in simulation.plan().set_aside[("core/sales", "oslo|east")]
    keeps_the_pair(simulation)
    simulation.remove_key("cities", "oslo|east", at=simulation.time(hours=2))
    simulation.run(minutes=5)
    assert not simulation.plan().aside("core/sales")


@pytest.mark.parametrize("restarts", [False, True])
def test_a_key_that_was_removed_is_no_complaint_for_ever(restarts: bool) -> None:
    visits = asset("core/visits", "raw/visits", by=CITIES, freshness_policy=lag(minutes=30))
    simulation = play([source("visits", CITIES), visits])
    simulation.add_keys("cities", "oslo", "rome", at=simulation.time(minutes=1))
    simulation.arrive("raw/visits", "oslo", at=simulation.time(minutes=2))
    simulation.fail("core/visits", "oslo", times=99)
    simulation.remove_key("cities", "oslo", at=simulation.time(hours=1))
    simulation.run(hours=2)
    if restarts:
        with simulation.clock.frozen():
            simulation._engine().follower.save(simulation.instance)
        simulation.restart(at=simulation.time(hours=2))
    simulation.run(hours=1)
    assert simulation.plan().aside("core/visits") == {}


def test_a_feed_by_region_is_asked_for_when_a_file_of_it_comes() -> None:
    columns = {"region": "string", "id": "bigint"} | LINEAGE
    table = Table("core.stock", columns, row_key=("region", "id"), partitioned_by=ByKey("region"), comment="A thing")
    feed = Feed("stock", "stock/", Grain.NONE, {"id": "bigint"}, required=("id",), keys={"region": ["eu", "us"]})
    assets = [*feed_assets(feed, table, partitions_def=REGIONS, **ASAP), *healthy()]
    simulation = Simulation(build_definitions(load_settings(), assets, [feed], [table]), start=START)
    simulation.arrive("raw/stock", "us", at=simulation.time(minutes=2))
    simulation.arrive("raw/healthy", DAY, at=simulation.time(minutes=2))
    simulation.arrive("raw/stock", "us", at=simulation.time(hours=1))
    simulation.run(hours=2)
    assert built(simulation, "core/stock") == ["us", "us"]
    assert simulation.tables.fresh(("core/stock", "us"))
    keeps_the_pair(simulation)
