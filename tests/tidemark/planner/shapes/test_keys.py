"""Partitions by key: dynamic, static, of several dimensions, and what makes those due that no input names."""

from typing import Any

import dagster as dg
import pytest

from dagster_tidemark import LINEAGE, ByKey, Feed, Grain, Table, build_definitions, feed_assets, load_settings
from dagster_tidemark.simulation.simulator import Simulation
from tests.tidemark.planner.shapes.playing import (
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
from tests.tidemark.toy_graph import ASAP, DAYS, asset, lag, source

DAY = "2026-10-05"
DAY_AND_REGION = dg.MultiPartitionsDefinition({"day": DAYS, "region": REGIONS})
DAY_AND_CITY = dg.MultiPartitionsDefinition({"day": DAYS, "city": CITIES})
OF_THE_DAY = dg.MultiToSingleDimensionPartitionMapping("day")


def cities() -> list[Any]:
    return [source("visits", CITIES), asset("core/visits", "raw/visits", by=CITIES, freshness_policy=lag(minutes=30))]


def test_dynamic_partition_removed_while_pending_is_no_longer_requested_or_breached() -> None:
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


def test_dynamic_partition_is_built_once_its_key_exists() -> None:
    simulation = play([*cities(), *healthy()])
    simulation.arrive("raw/visits", "oslo", at=simulation.time(minutes=2))
    simulation.arrive("raw/healthy", DAY, at=simulation.time(minutes=2))
    simulation.run(hours=1)
    assert asked(simulation, "core/visits") == []
    simulation.add_keys("cities", "oslo", at=simulation.time(hours=1))
    simulation.run(hours=2)
    assert built(simulation, "core/visits") == ["oslo"]
    keeps_the_pair(simulation)


def test_dynamic_partition_built_manually_when_added_is_not_requested_again() -> None:
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


def test_removed_dynamic_partition_that_is_added_again_is_built() -> None:
    simulation = play(cities())
    simulation.add_keys("cities", "oslo", at=simulation.time(minutes=1))
    simulation.arrive("raw/visits", "oslo", at=simulation.time(minutes=2))
    simulation.remove_key("cities", "oslo", at=simulation.time(minutes=3))
    simulation.add_keys("cities", "oslo", at=simulation.time(hours=2))
    simulation.run(hours=3)
    assert built(simulation, "core/visits") == ["oslo"]


def test_four_adjacent_multi_partitions_are_built_once_each() -> None:
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


def test_multi_partition_with_early_data_is_built_when_its_day_begins() -> None:
    simulation = play([source("sales", DAY_AND_REGION), asset("core/sales", "raw/sales", by=DAY_AND_REGION, **ASAP)])
    simulation.arrive("raw/sales", "2026-10-06|us", at=simulation.time(hours=20))
    simulation.run(hours=25)
    (run,) = simulation.runs
    assert run.partitions == ("2026-10-06|us",)
    assert simulation.time(hours=24) <= run.created_at <= simulation.time(hours=24.1)


def test_ranges_of_multi_partitions_contain_exactly_the_keys_with_data() -> None:
    simulation = play([source("sales", DAY_AND_REGION), asset("core/sales", "raw/sales", by=DAY_AND_REGION, **ASAP)])
    meant = [f"2026-10-0{day}|{region}" for day in range(1, 6) for region in ("eu", "us") if (day, region) != (3, "us")]
    simulation.outage(at=simulation.time(minutes=1), until=simulation.time(minutes=5))
    for key in meant:
        simulation.arrive("raw/sales", key, at=simulation.time(minutes=2))
    simulation.run(hours=1)
    assert sorted(map(str, asked(simulation, "core/sales"))) == meant


def test_multi_partitions_of_days_and_dynamic_keys_are_built_for_existing_keys() -> None:
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


def test_static_partitions_of_an_unpartitioned_input_are_built_when_it_has_data() -> None:
    simulation = play([source("rates"), asset("core/rates", "raw/rates", by=REGIONS, freshness_policy=lag(minutes=30))])
    simulation.arrive("raw/rates", at=simulation.time(minutes=5))
    simulation.run(hours=1)
    assert sorted(map(str, built(simulation, "core/rates"))) == ["eu", "us"]


def test_days_of_an_unpartitioned_input_are_built_when_it_has_data() -> None:
    some_days = dg.DailyPartitionsDefinition("2026-10-01", end_offset=1)
    simulation = play(
        [source("rates"), asset("core/rates", "raw/rates", by=some_days, freshness_policy=lag(minutes=30))]
    )
    simulation.arrive("raw/rates", at=simulation.time(minutes=5))
    simulation.run(hours=1)
    assert sorted(map(str, built(simulation, "core/rates"))) == [f"2026-10-0{day}" for day in range(1, 6)]
    simulation.run(hours=24)
    assert "2026-10-06" in built(simulation, "core/rates"), "and a day that begins later, when it begins"


def test_static_partitions_of_an_asset_without_inputs_are_built() -> None:
    simulation = play([asset("core/calendar", by=REGIONS, freshness_policy=lag(hours=1))])
    simulation.run(hours=3)
    assert sorted(map(str, built(simulation, "core/calendar"))) == ["eu", "us"]


def test_table_with_all_partitions_mapping_reads_dynamic_partitions() -> None:
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


def test_partition_key_with_wrong_dimensions_is_set_aside() -> None:
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


def test_data_of_a_dynamic_partition_added_later_causes_another_run() -> None:
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


def test_dynamic_key_that_contains_the_dimension_separator_is_set_aside_until_removed() -> None:
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
def test_removed_dynamic_partition_is_not_reported_as_set_aside(restarts: bool) -> None:
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


def test_feed_by_region_is_requested_when_one_of_its_files_arrives() -> None:
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
