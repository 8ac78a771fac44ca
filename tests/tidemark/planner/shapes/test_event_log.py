"""What the event log can hold or lose: deleted runs, wipes, bare observations, clocks that are set, stuck runs."""

from datetime import datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import dagster as dg
import pytest

from dagster_tidemark.simulation.simulator import RunPace, Simulation
from tests.tidemark.planner.shapes.playing import CITIES, asked, built, healthy, keeps_the_pair, play
from tests.tidemark.toy_graph import ASAP, DAYS, asset, lag, source

DAY = "2026-10-05"


def days_of_x(**more: Any) -> list[Any]:
    return [source("x", DAYS), asset("core/x", "raw/x", by=DAYS, **{**ASAP, **more})]


def test_observation_after_the_clock_is_set_back_counts_as_new_data() -> None:
    simulation = play(days_of_x())
    simulation.tell("raw/x", DAY, "v1", at=simulation.time(hours=1))
    simulation.step_clock(-600, at=simulation.time(hours=1, minutes=1))
    simulation.tell("raw/x", DAY, "v2", at=simulation.time(hours=1, minutes=4))
    simulation.run(hours=2)
    assert len(built(simulation, "core/x")) == 2
    assert simulation.tables.fresh(("core/x", DAY))


@pytest.mark.parametrize("hours", [-1 / 6, 24], ids=["ten minutes back", "a day ahead"])
def test_data_that_arrives_after_a_clock_step_is_built_as_usual(hours: float) -> None:
    simulation = play([*days_of_x(), *healthy()])
    simulation.arrive("raw/x", DAY, at=simulation.time(minutes=30))
    simulation.step_clock(hours * 3600, at=simulation.time(hours=1))
    simulation.arrive("raw/x", DAY, at=simulation.time(hours=1.5))
    simulation.arrive("raw/healthy", DAY, at=simulation.time(hours=1.5))
    simulation.run(hours=4)
    assert len(asked(simulation, "core/x")) == 2
    assert simulation.tables.fresh(("core/x", DAY))
    keeps_the_pair(simulation)


def test_first_code_version_of_an_asset_built_without_one_causes_no_rebuild() -> None:
    simulation = play(days_of_x(code_version=None))
    for day in (DAY, "2026-10-04"):
        simulation.arrive("raw/x", day, at=simulation.time(minutes=5))
    simulation.run(hours=1)
    before = len(simulation.runs)
    simulation.deploy(days_of_x(code_version="1"), at=simulation.time(hours=1))
    simulation.run(hours=3)
    assert len(simulation.runs) == before
    simulation.deploy(days_of_x(code_version="2"), at=simulation.time(hours=4))
    simulation.run(hours=3)
    assert {p for run in simulation.runs[before:] for p in run.partitions} <= {DAY, "2026-10-04"}


@pytest.mark.parametrize("then", ["nothing", "a restart"])
def test_deleting_old_runs_causes_no_new_runs(then: str) -> None:
    simulation = play([*days_of_x(), asset("mart", "core/x", by=DAYS, freshness_policy=lag(minutes=20))])
    for n in range(1, 6):
        simulation.arrive("raw/x", f"2026-10-0{n}", at=simulation.time(minutes=n))
    simulation.run(hours=2)
    before = len(simulation.runs)
    for name in ("core/x", "mart"):
        simulation.delete_runs(name, at=simulation.time(hours=2))
    if then != "nothing":
        simulation.restart(at=simulation.time(hours=3))
    simulation.run(hours=6)
    assert len(simulation.runs) == before
    simulation.arrive("raw/x", DAY, at=simulation.time(hours=9))
    simulation.run(hours=2)
    assert simulation.tables.fresh(("mart", DAY))
    assert {p for run in simulation.runs[before:] for p in run.partitions} == {DAY}


def test_wiped_materializations_of_an_asset_are_built_again() -> None:
    simulation = play(days_of_x())
    simulation.arrive("raw/x", DAY, at=simulation.time(minutes=1))
    simulation.run(hours=1)
    simulation.wipe("core/x", at=simulation.time(hours=1))
    simulation.run(hours=1)
    assert built(simulation, "core/x") == [DAY, DAY]


def test_wipe_of_100_assets_is_detected_within_a_minute() -> None:
    names = [f"core/t{n}" for n in range(100)]
    simulation = play(
        [source("x"), *(asset(name, "raw/x", **ASAP) for name in names)], pace=RunPace(step=1.0, at_once=50)
    )
    simulation.arrive("raw/x", at=simulation.time(minutes=1))
    simulation.run(hours=1)
    assert all(built(simulation, name) for name in names)
    for name in names:
        simulation.wipe(name, at=simulation.time(hours=1))
    simulation.run(minutes=1.2)
    pending = simulation.plan().decisions
    unnoticed = [name for name in names if (name, None) not in pending and len(asked(simulation, name)) < 2]
    assert unnoticed == []


def test_observation_without_a_data_version_counts_as_new_data() -> None:
    simulation = play(days_of_x())
    for hour in (1, 2):
        simulation.tell("raw/x", DAY, None, at=simulation.time(hours=hour))
    simulation.run(hours=3)
    assert built(simulation, "core/x") == [DAY, DAY]


def test_observations_after_the_end_date_of_a_partitions_definition_are_set_aside() -> None:
    ended = dg.DailyPartitionsDefinition("2026-09-28", end_date="2026-10-04")
    simulation = play([source("x", ended), asset("core/x", "raw/x", by=ended, **ASAP), *healthy()])
    for day in ("2026-10-03", "2026-10-04", "2026-10-05"):
        simulation.arrive("raw/x", day, at=simulation.time(minutes=1))
    simulation.arrive("raw/healthy", DAY, at=simulation.time(minutes=2))
    simulation.run(hours=30)
    assert asked(simulation, "core/x") == ["2026-10-03"]
    assert {("raw/x", "2026-10-04"), ("raw/x", "2026-10-05")} <= set(simulation.plan().set_aside)
    keeps_the_pair(simulation)


def test_run_stuck_in_queue_is_not_requested_again_and_breaches_its_contract() -> None:
    simulation = play([*days_of_x(freshness_policy=lag(minutes=10)), *healthy()])
    simulation.hold_in_queue("core/x", at=simulation.time(), until=simulation.time(hours=3))
    simulation.arrive("raw/x", DAY, at=simulation.time(minutes=1))
    simulation.arrive("raw/healthy", DAY, at=simulation.time(minutes=1))
    simulation.run(hours=2)
    assert len(simulation.runs_of("core/x")) == 1
    assert simulation.standings()["core/x"].verdict == "breached"
    simulation.run(hours=2)
    assert built(simulation, "core/x") == [DAY]
    keeps_the_pair(simulation)


def test_canceled_run_and_overlapping_manual_backfill_leave_the_table_up_to_date() -> None:
    simulation = play(days_of_x())
    simulation.slow("core/x", seconds=600.0)
    simulation.arrive("raw/x", DAY, at=simulation.time(minutes=1))
    simulation.cancel("core/x", at=simulation.time(minutes=5))
    for n in range(1, 6):
        simulation.request(["core/x"], [f"2026-10-0{n}"], at=simulation.time(minutes=90))
    simulation.arrive("raw/x", DAY, at=simulation.time(minutes=90))
    simulation.run(hours=4)
    assert simulation.tables.fresh(("core/x", DAY))
    assert len(simulation.runs_of("core/x", DAY)) <= 4


def test_manual_backfill_of_pending_partitions_causes_no_second_run() -> None:
    simulation = play(days_of_x(freshness_policy=lag(hours=2), tags={}))
    for n in range(1, 6):
        simulation.arrive("raw/x", f"2026-10-0{n}", at=simulation.time(minutes=n))
    simulation.request(["core/x"], [f"2026-10-0{n}" for n in range(1, 6)], at=simulation.time(minutes=30))
    simulation.run(hours=6)
    runs = [run for run in simulation.runs if run.created_at > simulation.time(minutes=20)]
    assert len(runs) <= 2
    assert all(simulation.tables.fresh(("core/x", f"2026-10-0{n}")) for n in range(1, 6))


def test_table_of_another_code_location_is_read_as_a_source() -> None:
    theirs = dg.AssetKey(["theirs", "x"])
    simulation = play([asset("core/x", dg.AssetDep(theirs), by=DAYS, **ASAP), *healthy()])
    simulation.report("theirs/x", at=simulation.time(minutes=5), content="1")
    simulation.arrive("raw/healthy", DAY, at=simulation.time(minutes=1))
    simulation.run(hours=1)
    keeps_the_pair(simulation)
    assert DAY in built(simulation, "core/x")


def test_restart_builds_existing_dynamic_partitions_and_ignores_removed_ones() -> None:
    simulation = play([source("x", CITIES), asset("core/x", "raw/x", by=CITIES, **ASAP), *healthy()])
    simulation.add_keys("cities", "oslo", "rome", at=simulation.time(minutes=1))
    for city in ("oslo", "rome"):
        simulation.arrive("raw/x", city, at=simulation.time(minutes=2))
    simulation.run(hours=1)
    simulation.remove_key("cities", "oslo", at=simulation.time(hours=1))
    simulation.restart(at=simulation.time(hours=1, minutes=1))
    for target, partition in (("raw/x", "rome"), ("raw/x", "oslo"), ("raw/healthy", DAY)):
        simulation.arrive(target, partition, at=simulation.time(hours=1, minutes=2))
    simulation.run(hours=1)
    assert built(simulation, "core/x").count("rome") == 2
    assert built(simulation, "core/x").count("oslo") == 1
    assert simulation.for_nothing == []
    keeps_the_pair(simulation)


def test_daily_cron_contract_is_met_across_a_daylight_saving_change() -> None:
    days = dg.DailyPartitionsDefinition("2026-10-20", timezone="Europe/Berlin", end_offset=1)
    nine = dg.FreshnessPolicy.cron("0 9 * * *", timedelta(minutes=30), timezone="Europe/Berlin")
    start = datetime(2026, 10, 24, tzinfo=ZoneInfo("Europe/Berlin"))
    simulation = Simulation([source("x", days), asset("core/x", "raw/x", by=days, freshness_policy=nine)], start=start)
    for n in range(3):
        simulation.arrive("raw/x", f"2026-10-{24 + n}", at=simulation.time(days=n, hours=12))
    simulation.run(days=3, hours=12)
    assert simulation.standings()["core/x"].verdict == "met"
    for n in range(2):
        nine_o_clock = datetime(2026, 10, 25 + n, 9, tzinfo=ZoneInfo("Europe/Berlin")).timestamp()
        (run,) = simulation.runs_of("core/x", f"2026-10-{24 + n}")
        assert nine_o_clock - 1800 <= run.created_at < nine_o_clock
