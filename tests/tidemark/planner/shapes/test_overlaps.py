"""Partitions and declarations that change while runs are queued or while a clock changes to winter time."""

from datetime import datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import dagster as dg

from dagster_tidemark.simulation.simulator import Simulation
from tests.tidemark.planner.shapes.playing import CITIES, built, mapped, play
from tests.tidemark.toy_graph import ASAP, DAYS, asset, lag, source, within

YESTERDAY, TODAY = "2026-10-04", "2026-10-05"
UTC = ZoneInfo("UTC")


def verdicts(simulation: Simulation) -> dict[str, str]:
    return {key: str(standing.verdict) for key, standing in simulation.standings().items()}


def test_dynamic_key_of_one_dimension_is_removed_and_added_again() -> None:
    both = dg.MultiPartitionsDefinition({"city": CITIES, "day": DAYS})
    of_day = mapped("c", dg.MultiToSingleDimensionPartitionMapping("day"))
    visits = [source("v", both), asset("c", "raw/v", by=both, **ASAP)]
    simulation = play([*visits, asset("d", of_day, by=DAYS, freshness_policy=lag(minutes=30))])
    simulation.add_keys("cities", "oslo", "rome", at=simulation.time(minutes=1))
    for city in ("oslo", "rome"):
        simulation.arrive("raw/v", f"{city}|{YESTERDAY}", at=simulation.time(minutes=5))
        simulation.arrive("raw/v", f"{city}|{TODAY}", at=simulation.time(hours=4))
    simulation.remove_key("cities", "oslo", at=simulation.time(hours=2))
    simulation.run(hours=6)
    assert f"oslo|{TODAY}" not in built(simulation, "c")
    assert verdicts(simulation) == {"d": "met"}
    simulation.add_keys("cities", "oslo", at=simulation.time(hours=7))
    simulation.run(hours=5)
    assert built(simulation, "c").count(f"oslo|{TODAY}") == built(simulation, "c").count(f"oslo|{YESTERDAY}") == 1
    assert verdicts(simulation) == {"d": "met"}
    assert simulation.failed_ticks == simulation.for_nothing == []


def regions(*keys: str) -> list[Any]:
    by = dg.StaticPartitionsDefinition(list(keys))
    return [source("x", by), asset("core/x", "raw/x", by=by, freshness_policy=lag(minutes=30), **ASAP)]


def test_static_key_that_a_deploy_removes_while_its_run_is_queued_is_forgotten() -> None:
    simulation = play(regions("a", "b"))
    simulation.hold_in_queue("core/x", at=simulation.time(), until=simulation.time(hours=1))
    simulation.arrive("raw/x", "b", at=simulation.time(minutes=5))
    simulation.deploy(regions("a"), at=simulation.time(minutes=30))
    simulation.run(hours=3)
    assert (simulation.failed_ticks, simulation.plan().decisions) == ([], {})
    assert verdicts(simulation) == {"core/x": "met"}


def test_local_day_of_25_hours_is_complete_and_met() -> None:
    hours = dg.HourlyPartitionsDefinition("2026-10-20-00:00", timezone="Europe/Berlin", end_offset=1)
    days = dg.DailyPartitionsDefinition("2026-10-20", timezone="Europe/Berlin", end_offset=1)
    daily = asset("d", within("h"), by=days, freshness_policy=lag(minutes=60))
    simulation = Simulation(
        [source("x", hours), asset("h", "raw/x", by=hours, **ASAP), daily], start=datetime(2026, 10, 24, 20, tzinfo=UTC)
    )
    known = hours.get_partition_keys(current_time=datetime(2026, 10, 26, 3, tzinfo=UTC))
    of_day = [key for key in known if key.startswith("2026-10-25")]
    assert len(of_day) == 25
    for number, key in enumerate(of_day):
        simulation.arrive("raw/x", key, at=datetime(2026, 10, 24, 23, tzinfo=UTC).timestamp() + 3600 * number)
    simulation.run(hours=36)
    assert sorted(set(map(str, built(simulation, "h")))) == sorted(of_day)
    assert simulation.tables.fresh(("d", "2026-10-25"))
    assert verdicts(simulation) == {"d": "met"}
    assert simulation.failed_ticks == simulation.for_nothing == []


def test_contract_by_a_time_of_day_that_exists_twice_is_kept() -> None:
    half_past_two = dg.FreshnessPolicy.cron("30 2 * * *", timedelta(minutes=30), timezone="Europe/Berlin")
    report = asset("r", "raw/x", by=DAYS, freshness_policy=half_past_two)
    simulation = Simulation([source("x", DAYS), report], start=datetime(2026, 10, 24, 12, tzinfo=UTC))
    simulation.standings()
    for day in range(23, 29):
        simulation.arrive("raw/x", f"2026-10-{day}", at=datetime(2026, 10, day, 23, 30, tzinfo=UTC).timestamp())
    for _ in range(96):
        simulation.run(hours=1)
        assert verdicts(simulation)["r"] != "breached", simulation.standings()
