"""Verdicts that were stuck or false: hours without data, feeds that begin, hours that begin, silent sources."""

from datetime import timedelta
from typing import Any

import dagster as dg
import pytest

from dagster_tidemark.simulation.simulator import RunPace, Simulation
from tests.tidemark.planner.shapes.playing import built, play
from tests.tidemark.toy_graph import ASAP, DAYS, HOURS, START, asset, lag, source, within

DAY = "2026-10-05"
HOUR, EMPTY = "2026-10-05-01:00", "2026-10-05-02:00"
NINE = dg.FreshnessPolicy.cron("0 9 * * *", timedelta(minutes=30))


def verdicts(simulation: Simulation) -> dict[str, str]:
    return {key: str(standing.verdict) for key, standing in simulation.standings().items()}


@pytest.mark.parametrize("by", ["hours", "days"])
def test_hour_built_manually_without_data_breaches_no_contract(by: str) -> None:
    reader = asset("mart", "core/x", by=HOURS) if by == "hours" else asset("mart", within("core/x"), by=DAYS)
    tables: list[Any] = [
        source("x", HOURS),
        source("prices"),
        asset("core/x", "raw/x", "raw/prices", by=HOURS, freshness_policy=lag(minutes=10), **ASAP),
        reader.map_asset_specs(lambda spec: spec.replace_attributes(freshness_policy=lag(minutes=30))),
    ]
    simulation = play(tables)
    simulation.arrive("raw/prices", at=simulation.time(minutes=5))
    simulation.arrive("raw/x", HOUR, at=simulation.time(hours=1, minutes=5))
    simulation.request(["core/x"], [EMPTY], at=simulation.time(hours=2, minutes=10))
    simulation.arrive("raw/prices", at=simulation.time(hours=4))
    simulation.run(hours=8)
    assert built(simulation, "core/x").count(HOUR) == 2
    assert verdicts(simulation) == {"core/x": "met", "mart": "met"}
    assert ("core/x", EMPTY) not in simulation.plan().decisions
    simulation.arrive("raw/x", EMPTY, at=simulation.time(hours=8))
    simulation.run(hours=1)
    assert built(simulation, "core/x").count(EMPTY) == 2, "once it has data, it is built with it"
    assert verdicts(simulation) == {"core/x": "met", "mart": "met"}


@pytest.mark.parametrize("first_data_at", [3, 11])
def test_day_before_the_first_data_of_a_feed_is_not_breached(first_data_at: float) -> None:
    tables = [source("x", DAYS), asset("report", "raw/x", by=DAYS, freshness_policy=NINE)]
    simulation = Simulation(tables, start=START + timedelta(hours=2))
    simulation.standings()  # the contracts are judged from now on
    simulation.arrive("raw/x", DAY, at=simulation.time(hours=first_data_at - 2))
    for hours in (8, 4, 24, 24):
        simulation.run(hours=hours)
        judged = simulation.standings()["report"]
        assert judged.partition != "2026-10-04" or simulation.moment() < START + timedelta(hours=first_data_at), judged
    assert simulation.standings()["report"].partition == "2026-10-06", "the days after it are promised"


def test_missing_day_is_breached_if_the_feed_has_older_days() -> None:
    tables = [source("x", DAYS), asset("report", "raw/x", by=DAYS, freshness_policy=NINE)]
    simulation = Simulation(tables, start=START + timedelta(hours=2))
    simulation.standings()
    simulation.arrive("raw/x", "2026-10-03", at=simulation.time(minutes=5))
    simulation.run(hours=8)
    assert (verdicts(simulation)["report"], simulation.standings()["report"].partition) == ("breached", "2026-10-04")


def test_new_hour_does_not_breach_tables_that_hold_its_data() -> None:
    above, tables = "raw/x", [source("x", HOURS)]
    for n in range(6):
        by, read = (HOURS, above) if n % 2 == 0 else (DAYS, above)
        above = f"t{n}"
        tables.append(asset(above, read if n == 0 else within(read), by=by, freshness_policy=lag(minutes=10), **ASAP))
    simulation = Simulation(tables, start=START, pace=RunPace(step=5.0, at_once=8))
    for hour in range(3):
        simulation.arrive("raw/x", f"{DAY}-{hour:02d}:00", at=simulation.time(hours=hour, minutes=5))
    simulation.run(hours=2, minutes=59, seconds=50)
    for _ in range(15):
        assert set(verdicts(simulation).values()) == {"met"}
        simulation.run(seconds=10)
    assert any(run.of.get("t4") == ["2026-10-05-03:00"] for run in simulation.runs), "an hour did begin"


def test_table_with_a_source_without_any_data_is_breached_and_reports_it() -> None:
    names = [f"s{n:02d}" for n in range(30)]
    reads = [f"raw/{name}" for name in names]
    simulation = play(
        [*(source(name, DAYS) for name in names), asset("mart", *reads, by=DAYS, freshness_policy=lag(hours=1))]
    )
    for name in names[:-1]:
        simulation.arrive(f"raw/{name}", "2026-10-04", at=simulation.time(minutes=5))
    simulation.run(minutes=50)
    assert verdicts(simulation) == {"mart": "met"}
    simulation.run(hours=5)
    judged = simulation.standings()["mart"]
    assert (str(judged.verdict), judged.partition) == ("breached", "2026-10-04")
    assert "no data: raw/s29" in judged.reason and "raw/s00" not in judged.reason
    simulation.arrive("raw/s29", "2026-10-04", at=simulation.time(hours=7))
    simulation.run(hours=3)
    assert verdicts(simulation) == {"mart": "met"}


def two_sources(**of_y: Any) -> list[Any]:
    """Days of two sources, and a table that reads both; metadata of the second input is given."""
    y = dg.AssetDep(["raw", "y"], metadata=of_y)
    return [source("x", DAYS), source("y", DAYS), asset("mart", "raw/x", y, by=DAYS, freshness_policy=lag(hours=1))]


def test_day_without_data_of_a_required_source_is_breached_after_it_ends() -> None:
    simulation = play(two_sources())
    for day in ("2026-10-03", "2026-10-04", DAY):
        simulation.arrive("raw/x", day, at=simulation.time(minutes=5))
    simulation.arrive("raw/y", "2026-10-03", at=simulation.time(minutes=1))
    simulation.arrive("raw/y", "2026-10-04", at=simulation.time(minutes=1))
    simulation.run(hours=24, minutes=50)
    assert verdicts(simulation) == {"mart": "met"}, "until its day has ended, a source may still have data for it"
    simulation.run(minutes=20)
    judged = simulation.standings()["mart"]
    assert (str(judged.verdict), judged.partition) == ("breached", DAY)
    assert "no data: raw/y silent since 2026-10-05 00:01:00 UTC" in judged.reason and "raw/x" not in judged.reason
    simulation.arrive("raw/y", DAY, at=simulation.time(hours=26))
    simulation.run(hours=3)
    assert verdicts(simulation) == {"mart": "met"}


def test_optional_source_may_lack_a_day_and_its_late_data_is_built() -> None:
    simulation = play(two_sources(optional=True))
    simulation.arrive("raw/y", "2026-10-03", at=simulation.time(minutes=1))
    for day in ("2026-10-03", "2026-10-04"):
        simulation.arrive("raw/x", day, at=simulation.time(minutes=5))
    simulation.run(hours=6)
    assert sorted(built(simulation, "mart")) == ["2026-10-03", "2026-10-04"]
    assert verdicts(simulation) == {"mart": "met"}
    simulation.arrive("raw/y", "2026-10-04", at=simulation.time(hours=7))
    simulation.run(hours=2)
    assert built(simulation, "mart").count("2026-10-04") == 2 and verdicts(simulation) == {"mart": "met"}


def test_day_built_without_a_missing_hour_is_breached_and_reports_the_source() -> None:
    core = asset("core", "raw/x", "raw/y", by=HOURS)
    simulation = play(
        [source("x", HOURS), source("y", HOURS), core, asset("mart", within("core"), by=DAYS, freshness_policy=NINE)]
    )
    for hour in (HOUR, EMPTY):
        simulation.arrive("raw/x", hour, at=simulation.time(hours=3))
    simulation.arrive("raw/y", HOUR, at=simulation.time(hours=3))
    simulation.run(days=1, hours=8, minutes=50)
    assert set(built(simulation, "mart")) == {DAY} and verdicts(simulation) == {"mart": "met"}
    simulation.run(hours=2)
    judged = simulation.standings()["mart"]
    assert (str(judged.verdict), judged.partition) == ("breached", DAY)
    assert f"mart {DAY} lacks data that arrived for core {EMPTY} no data: raw/y silent since" in judged.reason


def test_partition_reported_as_materialized_manually_is_no_longer_breached() -> None:
    simulation = play(two_sources())
    simulation.arrive("raw/y", "2026-10-03", at=simulation.time(minutes=1))
    simulation.arrive("raw/x", "2026-10-04", at=simulation.time(minutes=5))
    simulation.run(hours=6)
    assert verdicts(simulation) == {"mart": "breached"}
    simulation.report("mart", "2026-10-04", at=simulation.time(hours=7))
    simulation.run(hours=2)
    assert verdicts(simulation) == {"mart": "met"}


def test_hour_without_orders_is_not_late_despite_daily_prices() -> None:
    hourly = asset("mart", "raw/x", within("raw/prices"), by=HOURS, freshness_policy=lag(minutes=30))
    simulation = play([source("x", HOURS), source("prices", DAYS), hourly])
    simulation.arrive("raw/prices", DAY, at=simulation.time(minutes=1))
    for hour in range(0, 12, 3):
        simulation.arrive("raw/x", f"{DAY}-{hour:02d}:00", at=simulation.time(hours=hour, minutes=20))
    for _ in range(14):
        simulation.run(hours=1)
        assert verdicts(simulation) == {"mart": "met"}, simulation.standings()["mart"].reason


def test_source_that_starts_later_does_not_breach_earlier_days() -> None:
    simulation = play(two_sources())
    for day in ("2026-10-01", "2026-10-02", "2026-10-03"):
        simulation.arrive("raw/x", day, at=simulation.time(minutes=5))
    simulation.arrive("raw/y", "2026-10-03", at=simulation.time(minutes=1))
    simulation.run(hours=6)
    assert verdicts(simulation) == {"mart": "met"}
