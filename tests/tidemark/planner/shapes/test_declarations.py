"""Declarations that Dagster accepts: each has an answer, or is refused by its name."""

from datetime import timedelta
from typing import Any

import dagster as dg
import pytest

from tests.tidemark.planner.shapes.playing import (
    REGIONS,
    asked,
    built,
    healthy,
    keeps_the_pair,
    mapped,
    play,
    why_not,
)
from tests.tidemark.toy_graph import ASAP, DAYS, asset, lag, source

DAY = "2026-10-05"


@pytest.mark.parametrize("schedule", ["@daily", "0 9 * * *", "@hourly"])
def test_cron_contract_accepts_a_cron_alias(schedule: str) -> None:
    policy = dg.FreshnessPolicy.cron(deadline_cron=schedule, lower_bound_delta=timedelta(minutes=30))
    simulation = play([source("x", DAYS), asset("core/x", "raw/x", by=DAYS, freshness_policy=policy), *healthy()])
    simulation.arrive("raw/x", "2026-10-04", at=simulation.time(minutes=5))
    simulation.arrive("raw/healthy", DAY, at=simulation.time(minutes=5))
    simulation.run(hours=25)
    assert built(simulation, "core/x") == ["2026-10-04"]
    keeps_the_pair(simulation)


FORMATTED = dg.TimeWindowPartitionsDefinition(cron_schedule="0 0 * * *", start="20260928", fmt="%Y%m%d", end_offset=1)


@pytest.mark.parametrize(
    ("by", "days", "partition"),
    [(REGIONS, 3, "eu"), (FORMATTED, 3, "20261005"), (DAYS, "3", DAY), (DAYS, "many", DAY), (DAYS, -1, DAY)],
    ids=["regions", "days in a format of their own", "a number as text", "no number", "a negative number"],
)
def test_ripple_days_on_any_partitions_work_or_the_asset_is_refused(by: Any, days: Any, partition: str) -> None:
    rippling = dg.AssetDep(dg.AssetKey(["raw", "rates"]), metadata={"ripple_days": days})
    simulation = play([source("rates"), source("x", by), asset("core/x", "raw/x", rippling, by=by, **ASAP), *healthy()])
    simulation.arrive("raw/x", partition, at=simulation.time(minutes=5))
    for hour in (0.1, 2):
        simulation.arrive("raw/rates", at=simulation.time(hours=hour))
    simulation.arrive("raw/healthy", DAY, at=simulation.time(minutes=5))
    simulation.run(hours=4)
    keeps_the_pair(simulation)
    if not why_not(simulation, "core/x"):
        assert built(simulation, "core/x").count(partition) == 2


def test_partition_that_waits_for_the_stopped_catch_up_sensor_reports_it() -> None:
    simulation = play([source("x", DAYS), asset("core/x", "raw/x", by=DAYS, **ASAP), *healthy()])
    simulation.switch("catch_up", on=False, at=simulation.time(seconds=30))
    simulation.outage(at=simulation.time(minutes=1), until=simulation.time(minutes=3))
    for n in range(1, 6):
        simulation.arrive("raw/x", f"2026-10-0{n}", at=simulation.time(minutes=2))
    simulation.run(hours=2)
    plan = simulation.plan()
    left = plan.of("core/x")
    if left:  # or they were asked for one by one, which is as good
        assert {d.state for d in left} != {"requested"}
        assert all("catch_up" in f"{d.state}: {d.reason}" for d in left)
        simulation.switch("catch_up", on=True, at=simulation.time(hours=2))
        simulation.run(hours=1)
    assert len(set(built(simulation, "core/x"))) == 5


def test_partition_that_waits_for_the_stopped_automation_sensor_reports_it() -> None:
    simulation = play([source("x", DAYS), asset("core/x", "raw/x", by=DAYS, freshness_policy=lag(minutes=30))])
    simulation.switch("automation", on=False, at=simulation.time(seconds=30))
    simulation.arrive("raw/x", DAY, at=simulation.time(minutes=2))
    simulation.run(hours=2)
    (decision,) = simulation.plan().of("core/x")
    assert decision.state != "requested"
    assert "automation" in f"{decision.state}: {decision.reason}"
    assert simulation.standings()["core/x"].verdict == "breached"
    simulation.switch("automation", on=True, at=simulation.time(hours=2))
    simulation.run(minutes=5)
    assert built(simulation, "core/x") == [DAY]


TWO_DAYS = dg.DailyPartitionsDefinition("2026-10-04", end_offset=1)
DAY_AND_REGION = dg.MultiPartitionsDefinition({"day": TWO_DAYS, "region": REGIONS})
COMPASS = dg.StaticPartitionsDefinition(["north", "west"])
BY_COMPASS = dg.StaticPartitionMapping({"eu": "north", "us": "west"})
MAPPINGS = {
    "specific": (dg.SpecificPartitionsPartitionMapping(["eu"]), REGIONS, TWO_DAYS, "eu"),
    "static": (BY_COMPASS, REGIONS, COMPASS, "eu"),
    "multi to single": (dg.MultiToSingleDimensionPartitionMapping("day"), TWO_DAYS, DAY_AND_REGION, DAY),
    "identity": (dg.IdentityPartitionMapping(), REGIONS, REGIONS, "eu"),
}


@pytest.mark.parametrize("name", MAPPINGS)
def test_each_dagster_partition_mapping_propagates_a_change_to_the_readers(name: str) -> None:
    mapping, theirs, ours, changed = MAPPINGS[name]
    simulation = play([source("x", theirs), asset("core/x", mapped("raw/x", mapping), by=ours, **ASAP)])
    for hour in (0.1, 2):
        simulation.arrive("raw/x", changed, at=simulation.time(hours=hour))
    simulation.run(hours=4)
    assert simulation.failed_ticks == []
    found = built(simulation, "core/x")
    assert found and all(found.count(partition) == 2 for partition in set(found)), found
    assert all(simulation.tables.fresh(("core/x", partition)) for partition in set(found))


def test_time_window_mapping_with_offsets_requests_the_shifted_partitions() -> None:
    before = dg.TimeWindowPartitionMapping(start_offset=-2, end_offset=-1)
    simulation = play([source("x", DAYS), asset("core/x", mapped("raw/x", before), by=DAYS, **ASAP)])
    simulation.arrive("raw/x", "2026-10-03", at=simulation.time(minutes=5))
    simulation.run(hours=1)
    assert sorted(map(str, asked(simulation, "core/x"))) == ["2026-10-04", "2026-10-05"]
