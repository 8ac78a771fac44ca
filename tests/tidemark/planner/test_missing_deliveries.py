"""Readers that wait for a missing delivery of an input, or are built without it and say so."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import dagster as dg
import pytest

from dagster_tidemark import ExpectedArrival
from dagster_tidemark.asset_graph.declarations import declare_promises
from dagster_tidemark.engine.missing_inputs import WITHOUT, missing_metadata
from dagster_tidemark.planner.contracts import FreshnessStatus, InputPromise, Window
from dagster_tidemark.planner.decisions import State
from dagster_tidemark.planner.deliveries import DueDeliveries, OnMissing
from dagster_tidemark.planner.graph import Graph, Input, Node
from dagster_tidemark.planner.history import History
from dagster_tidemark.planner.staleness import PendingWork
from dagster_tidemark.simulation.simulator import Simulation
from dagster_tidemark.sources.listing import NO_FILES
from dagster_tidemark.tags import MISSING
from tests.tidemark.toy_graph import DAYS, HOURS, START, asset, lag, source

HERE = "tests of missing deliveries"
BY_SIX = ExpectedArrival(source="raw/prices", by="06:00", grace=timedelta(minutes=10))


@pytest.fixture(autouse=True)
def promises() -> Iterator[None]:
    declare_promises(HERE, [BY_SIX.promise])
    yield
    declare_promises(HERE, [])


def location(on_missing: str | None) -> list[Any]:
    """Sales by the hour read all prices so far, which come once a day, by way of a table."""
    metadata = {"on_missing": on_missing} if on_missing else {}
    prices = dg.AssetDep(dg.AssetKey(["core", "prices"]), partition_mapping=dg.AllPartitionMapping(), metadata=metadata)
    return [
        source("orders", HOURS),
        source("prices", DAYS),
        asset("core/prices", "raw/prices", by=DAYS),
        asset("marts/sales", "raw/orders", prices, by=HOURS, freshness_policy=lag(minutes=30)),
    ]


def simulated(on_missing: str | None) -> Simulation:
    """Prices of the fifth come in time, prices of the sixth four hours late; orders come at seven on both mornings."""
    simulation = Simulation(location(on_missing), start=START)
    simulation.arrive("raw/prices", "2026-10-05", at=simulation.time(hours=20))
    simulation.arrive("raw/orders", "2026-10-06-06:00", at=simulation.time(days=1, hours=7))
    simulation.arrive("raw/orders", "2026-10-07-06:00", at=simulation.time(days=2, hours=7))
    simulation.arrive("raw/prices", "2026-10-06", at=simulation.time(days=2, hours=10))
    return simulation


@pytest.mark.parametrize(("within", "longest"), [(1, 7), (15, 15), (60, 60)])
def test_missing_delivery_is_found_however_late_after_its_window_it_is_due(within: int, longest: int) -> None:
    day = 86_400.0
    promise = InputPromise("raw/a", "expected then", lambda window: window.end + within * day, longest * day)
    raw = Node(
        "raw/a",
        source=True,
        automated=False,
        partitioned=True,
        promises=(promise,),
        keys=lambda: [str(n) for n in range(100)],
        window=lambda p: Window(int(str(p)) * day, (int(str(p)) + 1) * day),
        order=lambda p: int(str(p)),
    )
    graph = Graph({"raw/a": raw, "core/a": Node("core/a", [Input("raw/a", None, None, on_missing="wait")])})
    history = History(graph, first_seen={"raw/a": 0.0})
    due = DueDeliveries(graph, history, PendingWork(graph, history), now=100 * day)
    found = due.lacking(graph.nodes["core/a"], None, OnMissing.WAIT)
    assert [each.due_at / day for each in found] == list(range(93, 101))


@pytest.mark.parametrize(
    ("version", "is_there"),
    [
        (NO_FILES, False),
        (f"{NO_FILES}-misplaced-37df3886", False),
        (f"{NO_FILES}-accepted", True),
        (f"{NO_FILES}-expired", True),
        ("v1", True),
    ],
)
def test_delivery_whose_folder_has_no_data_is_missing(version: str, is_there: bool) -> None:
    simulation = Simulation(location("wait"), start=START)
    simulation.arrive("raw/prices", "2026-10-05", at=simulation.time(hours=20))
    simulation.arrive("raw/prices", "2026-10-06", at=simulation.time(days=1, hours=20), version=version)
    simulation.arrive("raw/orders", "2026-10-07-06:00", at=simulation.time(days=2, hours=7))
    simulation.run(days=2, hours=8)
    assert [run.partitions for run in simulation.runs_of("marts/sales")] == (
        [("2026-10-07-06:00",)] if is_there else []
    )


@pytest.mark.parametrize(("dimensions", "looks"), [(1, 16), (2, 5000)])
def test_due_deliveries_are_found_without_a_look_at_all_partitions(dimensions: int, looks: int) -> None:
    day, looked, last = 86_400.0, list[str](), 4999

    def window(partition: str | None) -> Window:
        looked.append(str(partition))
        return Window(int(str(partition)) * day, (int(str(partition)) + 1) * day)

    promise = InputPromise("raw/a", "expected at once", lambda window: window.end)
    nodes = (
        Node(
            "raw/a",
            source=True,
            automated=False,
            partitioned=True,
            promises=(promise,),
            keys=lambda: [str(n) for n in range(last + 1)],
            window=window,
            order=lambda p: int(str(p)) if dimensions == 1 else (int(str(p)), 0),
        ),
        Node("core/a", [Input("raw/a", None, None, on_missing="wait")]),
    )
    graph = Graph({node.key: node for node in nodes})
    history = History(graph, first_seen={"raw/a": 0.0})
    due = DueDeliveries(graph, history, PendingWork(graph, history), now=(last + 1) * day)
    found = due.lacking(graph.nodes["core/a"], None, OnMissing.WAIT)
    assert [each.source[1] for each in found] == [str(n) for n in range(last - 7, last + 1)]
    assert len(looked) == looks


def test_reader_waits_for_a_missing_delivery_and_the_contract_names_it() -> None:
    simulation = simulated("wait")
    simulation.run(days=2, hours=8)
    assert [run.partitions for run in simulation.runs_of("marts/sales")] == [("2026-10-06-06:00",)]
    decision = simulation.plan().decisions["marts/sales", "2026-10-07-06:00"]
    assert decision.state is State.AWAITED
    assert decision.reason == "raw/prices 2026-10-06 (expected by 06:00)"
    standing = simulation.standings()["marts/sales"]
    assert standing.verdict is FreshnessStatus.BREACHED
    assert "waiting for a delivery: raw/prices 2026-10-06 (expected by 06:00)" in standing.reason
    simulation.run(hours=3)
    (run,) = simulation.runs_of("marts/sales", "2026-10-07-06:00")
    assert run.succeeded and simulation.time(days=2, hours=10) < run.created_at
    assert simulation.standings()["marts/sales"].verdict is FreshnessStatus.MET
    assert simulation.failed_ticks == []


def test_reader_is_built_without_a_missing_delivery_and_its_run_names_it() -> None:
    simulation = simulated("build")
    simulation.run(days=2, hours=8)
    (run,) = simulation.runs_of("marts/sales", "2026-10-07-06:00")
    assert run.tags[MISSING] == "marts/sales: raw/prices 2026-10-06 (expected by 06:00)"
    assert missing_metadata(run.tags, "marts/sales") == {WITHOUT: "raw/prices 2026-10-06 (expected by 06:00)"}
    (before,) = simulation.runs_of("marts/sales", "2026-10-06-06:00")
    assert MISSING not in before.tags and missing_metadata(before.tags, "marts/sales") == {}
    simulation.run(hours=3)
    again = simulation.runs_of("marts/sales", "2026-10-07-06:00")[-1]
    assert again is not run and MISSING not in again.tags, "it is built again when the delivery arrives"


def test_reader_without_a_declaration_is_built_as_before() -> None:
    simulation = simulated(None)
    simulation.run(days=2, hours=8)
    (run,) = simulation.runs_of("marts/sales", "2026-10-07-06:00")
    assert MISSING not in run.tags


def test_delivery_that_is_not_due_yet_is_not_missing() -> None:
    simulation = Simulation(location("wait"), start=START)
    simulation.arrive("raw/prices", "2026-10-05", at=simulation.time(hours=20))
    simulation.arrive("raw/orders", "2026-10-07-04:00", at=simulation.time(days=2, hours=5))
    simulation.run(days=2, hours=5, minutes=50)
    assert [run.partitions for run in simulation.runs_of("marts/sales")] == [("2026-10-07-04:00",)]


def test_reader_stops_waiting_after_seven_days() -> None:
    simulation = Simulation(location("wait"), start=START)
    simulation.arrive("raw/prices", "2026-10-05", at=simulation.time(hours=20))
    for day in range(7, 16):
        simulation.arrive("raw/prices", f"2026-10-{day:02}", at=simulation.time(days=day - 5, hours=20))
    simulation.arrive("raw/orders", "2026-10-07-06:00", at=simulation.time(days=2, hours=7))
    simulation.run(days=9, hours=5)
    assert simulation.runs_of("marts/sales") == []
    simulation.run(hours=2)
    assert [run.partitions for run in simulation.runs_of("marts/sales")] == [("2026-10-07-06:00",)]


def test_unknown_value_of_on_missing_sets_the_reader_aside() -> None:
    refused = Simulation(location("hope"), start=START).graph.nodes["marts/sales"].refused
    assert "on_missing='hope' of core/prices: expected 'wait' or 'build'" in refused
