"""Texts for people: reasons that name the culprit, times with their zone, and refusals when a location loads."""

from datetime import timedelta
from typing import Any

import dagster as dg
import pytest

from dagster_tidemark.asset_graph.planner_graph import graph_of
from dagster_tidemark.engine.ui_reasons import label
from dagster_tidemark.planner.contract_status import told
from dagster_tidemark.planner.contracts import CronContract
from dagster_tidemark.simulation.simulator import RunPace, Simulation
from tests.tidemark.planner.shapes.playing import built, play
from tests.tidemark.toy_graph import ASAP, DAYS, START, asset, lag, source

DAY, YESTERDAY = "2026-10-05", "2026-10-04"
NINE = dg.FreshnessPolicy.cron("0 9 * * *", timedelta(minutes=30), timezone="Europe/Berlin")


def test_contract_reason_names_only_the_silent_one_of_many_sources() -> None:
    names = [f"s{n:02d}" for n in range(30)]
    report = asset("report", *(f"raw/{name}" for name in names), by=DAYS, freshness_policy=NINE)
    simulation = play([*(source(name, DAYS) for name in names), report])
    simulation.standings()
    for name in names:
        simulation.arrive(f"raw/{name}", "2026-10-03", at=simulation.time(minutes=5))
        if name != "s17":
            simulation.arrive(f"raw/{name}", YESTERDAY, at=simulation.time(minutes=10))
    simulation.arrive("raw/s17", "2026-10-02", at=simulation.time(hours=3))  # a late file of an old day is no sign
    simulation.run(hours=8)
    reason = simulation.standings()["report"].reason
    assert "raw/s17 silent since 2026-10-05 00:05:00 UTC" in reason
    assert "raw/s00" not in reason and "more" not in reason
    assert "promised for 2026-10-05 09:00:00 Europe/Berlin" in reason


def test_cron_deadline_is_shown_in_its_own_time_zone() -> None:
    assert told(CronContract("0 9 * * *", 0.0, "Europe/Berlin")) == "by 0 9 * * * Europe/Berlin"
    assert told(CronContract("0 9 * * *", 0.0)) == "by 0 9 * * *"
    simulation = play([source("x", DAYS), asset("report", "raw/x", by=DAYS, freshness_policy=NINE)])
    simulation.arrive("raw/x", YESTERDAY, at=simulation.time(minutes=5))
    simulation.run(hours=8)
    simulation.arrive("raw/x", YESTERDAY, at=simulation.time(hours=8))
    simulation.run(minutes=5)
    said = label(simulation.plan().decisions[("report", YESTERDAY)])
    assert said.startswith("due Tue 06 Oct 09:00 Europe/Berlin; starts 08:")


def test_waiting_partition_reports_that_its_input_failed() -> None:
    simulation = play([source("x", DAYS), asset("a", "raw/x", by=DAYS, **ASAP), asset("b", "a", by=DAYS, **ASAP)])
    simulation.fail("a", times=3)
    simulation.arrive("raw/x", DAY, at=simulation.time(minutes=1))
    simulation.run(minutes=2)
    assert "1 failed attempt, next at" in simulation.plan().decisions[("a", DAY)].reason
    simulation.run(minutes=4)
    decisions = simulation.plan().decisions
    assert f"a {DAY} (3 failed attempts, next at" in decisions[("b", DAY)].reason
    simulation.run(hours=1)
    assert built(simulation, "b") == [DAY]


def test_due_reason_names_only_another_asset() -> None:
    tables = [source("x", DAYS), asset("a", "raw/x", by=DAYS), asset("b", "a", by=DAYS, freshness_policy=lag(hours=2))]
    simulation = play(tables)
    simulation.arrive("raw/x", DAY, at=simulation.time(minutes=1))
    simulation.run(minutes=5)
    decisions = simulation.plan().decisions
    assert decisions[("a", DAY)].reason.endswith(" for b")
    assert " for b" not in decisions[("b", DAY)].reason


LORD_HOWE = "Australia/Lord_Howe"


@pytest.mark.parametrize(
    ("by", "said"),
    [
        (dg.HourlyPartitionsDefinition("2026-03-01-00:00", timezone=LORD_HOWE), "30 minutes"),
        (dg.StaticPartitionsDefinition(["eu", ""]), "empty key"),
    ],
)
def test_partitions_that_cannot_be_built_are_refused_when_the_location_loads(
    by: dg.PartitionsDefinition, said: str
) -> None:
    graph = graph_of(dg.Definitions(assets=[asset("bad", by=by), asset("good", by=DAYS)]).resolve_asset_graph())
    assert said in graph.nodes["bad"].refused
    assert not graph.nodes["good"].refused


@pytest.mark.parametrize(
    "by",
    [
        dg.DailyPartitionsDefinition("2026-03-01", timezone=LORD_HOWE),
        dg.HourlyPartitionsDefinition("2026-03-01-00:00", timezone="Europe/Berlin"),
        dg.TimeWindowPartitionsDefinition(
            cron_schedule="*/15 * * * *", start="2026-03-01-00:00", fmt="%Y-%m-%d-%H:%M", timezone="UTC"
        ),
    ],
)
def test_partitions_not_split_by_a_daylight_saving_change_are_supported(by: dg.PartitionsDefinition) -> None:
    assert not graph_of(dg.Definitions(assets=[asset("good", by=by)]).resolve_asset_graph()).nodes["good"].refused


@pytest.mark.parametrize("left", ["renamed", "removed"])
def test_deploy_can_remove_or_rename_a_table_with_a_run_in_progress(left: str) -> None:
    first: list[Any] = [source("x", DAYS), asset("a", "raw/x", by=DAYS, **ASAP), asset("b", "a", by=DAYS, **ASAP)]
    second = [*first[:2], *([asset("c", "a", by=DAYS, **ASAP)] if left == "renamed" else [])]
    simulation = Simulation(first, start=START, pace=RunPace(step=60.0))
    simulation.arrive("raw/x", DAY, at=simulation.time(minutes=1))
    simulation.deploy(second, at=simulation.time(minutes=1, seconds=30))
    simulation.run(hours=1)
    assert simulation.failed_ticks == []
    assert built(simulation, "a") == [DAY]
    assert built(simulation, "c") == ([DAY] if left == "renamed" else [])
