"""Contracts that cannot be kept are named in `plan`, in the rows of `status`, and once in the sensor's log."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import dagster as dg
import pytest

from dagster_tidemark import ExpectedArrival
from dagster_tidemark.asset_graph.declarations import declare_promises
from dagster_tidemark.asset_graph.planner_graph import graph_of
from dagster_tidemark.cli.contract_rows import rows
from dagster_tidemark.engine.code_plan import plan_of
from dagster_tidemark.engine.unkept import UnkeptContracts
from dagster_tidemark.planner.run_durations import RunDurations
from dagster_tidemark.simulation.simulator import RunPace, Simulation
from tests.tidemark.toy_graph import DAYS, HOURS, START, asset, lag, source, within

HERE = "tests of unkept contracts"
FIVE = dg.FreshnessPolicy.cron(deadline_cron="0 5 * * *", lower_bound_delta=timedelta(minutes=30))
SLOW = "promised within 1 min, usual runs take 2 min: core/orders 2 min"


@pytest.fixture(autouse=True)
def promises() -> Iterator[None]:
    # The data of the hour from 23:00 is expected by 06:00, an hour after the report is due.
    declare_promises(HERE, [ExpectedArrival(source="raw/orders", by="06:00").promise])
    yield
    declare_promises(HERE, [])


def location() -> list[Any]:
    return [
        source("orders", HOURS),
        asset("core/orders", "raw/orders", by=HOURS, freshness_policy=lag(minutes=1)),
        asset("marts/report", within("core/orders"), by=DAYS, freshness_policy=FIVE),
    ]


@pytest.fixture
def simulation() -> Simulation:
    made = Simulation(location(), start=START, pace=RunPace(step=120.0))
    made.arrive("raw/orders", "2026-10-05-01:00", at=made.time(hours=2))
    made.run(hours=3)
    return made


def test_plan_and_status_name_contracts_that_cannot_be_kept(simulation: Simulation) -> None:
    with simulation.clock.frozen():
        plan = plan_of(dg.Definitions(location()), simulation.instance, contract_scale=1.0)
        found = {row.asset: row.infeasible for row in rows(simulation.instance, simulation.asset_graph)}
    launched = SLOW.replace("2 min", "2 min 2 s")  # a run takes its launch, too
    assert f"core/orders: its contract cannot be kept: {launched}" in plan.warnings
    assert found["core/orders"] == launched
    late = "but raw/orders is expected by 06:00, and usual runs take 2 min 2 s: late in"
    assert late in found["marts/report"] and "first by 1 h 2 min for 2026-10-06 05:00:00 UTC" in found["marts/report"]
    assert any(late in warning for warning in plan.warnings)


def test_each_contract_that_cannot_be_kept_is_logged_once_after_a_load() -> None:
    assets = dg.Definitions(location()).resolve_asset_graph()
    graph, durations = graph_of(assets), RunDurations()
    now = START.timestamp()
    unkept = UnkeptContracts()
    assert set(unkept.look(assets, graph, durations, 2, now)) == {"marts/report"}
    (line,) = unkept.news()
    assert line.startswith("marts/report: its contract cannot be kept: promised by 0 5 * * *")
    unkept.look(assets, graph, durations, 2, now + 30)
    assert unkept.news() == []
    durations.add({"core/orders": 1}, 120.0)
    assert "core/orders" not in unkept.look(assets, graph, durations, 2, now + 59), "compared once a minute"
    unkept.look(assets, graph, durations, 2, now + 61)
    assert unkept.news() == [f"core/orders: its contract cannot be kept: {SLOW}"]
