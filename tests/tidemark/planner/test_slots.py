"""Many tables and few slots: the order of builds, and the runs in the queue."""

from datetime import timedelta
from typing import Any

import dagster as dg
import pytest

from dagster_tidemark.asset_graph.planner_graph import graph_of
from dagster_tidemark.engine.condition import derived, with_automation
from dagster_tidemark.planner.admission import Admission, priority, priority_of
from dagster_tidemark.planner.contracts import CronContract, LagContract
from dagster_tidemark.planner.decisions import Asked, Decision, Request, State
from dagster_tidemark.planner.graph import Graph, Input, Node
from dagster_tidemark.planner.history import History
from dagster_tidemark.planner.run_durations import RunDurations
from dagster_tidemark.simulation.instance import simulated_instance
from dagster_tidemark.simulation.run import RunPace
from dagster_tidemark.simulation.simulator import Simulation
from tests.tidemark.toy_graph import HOURS, START, asset, lag, source


def table(name: str, **within: float) -> dg.AssetsDefinition:
    """Return a table that reads the only source, promised within a time."""

    @dg.asset(
        name=name,
        deps=[dg.AssetSpec("source")],
        freshness_policy=dg.FreshnessPolicy.time_window(fail_window=timedelta(**within)),
    )
    def built() -> None: ...

    return built


def location(bulk: dict[str, float], count: int, urgent: dict[str, float]) -> list[Any]:
    tables = [table(f"bulk_{number:03}", **bulk) for number in range(count)]
    return [dg.AssetSpec("source"), *with_automation([*tables, table("urgent", **urgent)])]


def waits(simulation: Simulation, asset: str) -> list[float]:
    """Return the seconds from each arrival to the end of a build that began after it."""
    built = sorted((run.began[asset], run.committed[asset]) for run in simulation.runs if asset in run.committed)
    return [min(end for begin, end in built if begin >= at) - at for at, _ in simulation.arrivals]


def test_table_with_a_5_minute_contract_is_in_time_beside_looser_ones() -> None:
    tables = location({"hours": 1}, 40, {"minutes": 5})
    simulation = Simulation(tables, start=START, pace=RunPace(step=90.0, at_once=3))
    for minutes in (1, 120):
        simulation.arrive("source", at=simulation.time(minutes=minutes))
    simulation.run(hours=4)
    assert max(waits(simulation, "urgent")) <= 300
    assert max(max(waits(simulation, f"bulk_{number:03}")) for number in range(40)) <= 3600


def with_condition(condition: Any, count: int) -> list[Any]:
    """Return tables with an hour and a condition of their own, and one with five minutes."""
    bulk = [
        table(f"bulk_{n:03}", hours=1).map_asset_specs(lambda s: s.replace_attributes(automation_condition=condition))
        for n in range(count)
    ]
    return [dg.AssetSpec("source"), *with_automation([*bulk, table("urgent", minutes=5)])]


def test_tables_with_custom_conditions_wait_for_a_run_slot_like_others() -> None:
    condition = derived() & ~dg.AutomationCondition.in_progress()
    pace = RunPace(step=90.0, at_once=2)
    simulation = Simulation(with_condition(condition, 12), start=START, pace=pace, own_every=15)
    for minutes in (1, 12):
        simulation.arrive("source", at=simulation.time(minutes=minutes))
    simulation.run(minutes=45)
    at_once = [sum(r.created_at <= at < (r.ended_at or at + 1) for r in simulation.runs) for at in moments(simulation)]
    assert max(at_once) <= 6, "two runs a slot, and a few that one look offers"
    assert max(waits(simulation, "urgent")) <= 300
    assert all(simulation.runs_of(f"bulk_{number:03}")[-1].succeeded for number in range(12))


def test_table_with_a_momentary_condition_does_not_wait_for_a_slot() -> None:
    condition = derived() & dg.AutomationCondition.cron_tick_passed("20 0 * * *")
    pace = RunPace(step=90.0, at_once=1)
    simulation = Simulation(with_condition(condition, 8), start=START, pace=pace, own_every=15)
    simulation.arrive("source", at=simulation.time(minutes=1))
    simulation.run(minutes=25)
    asked = {run.assets[0] for run in simulation.runs}
    assert asked == {"urgent", *(f"bulk_{number:03}" for number in range(8))}, "the next tick would be a day later"


@pytest.mark.parametrize(
    ("condition", "momentary"),
    [
        (derived() & ~dg.AutomationCondition.in_progress(), False),
        (
            derived() & ~dg.AutomationCondition.any_deps_missing() & dg.AutomationCondition.in_latest_time_window(),
            False,
        ),
        (derived() | dg.AutomationCondition.on_missing(), False),
        (derived() & dg.AutomationCondition.cron_tick_passed("0 1 * * *"), True),
        (derived() & dg.AutomationCondition.newly_updated(), True),
        (derived().newly_true(), True),
        ((derived() & dg.AutomationCondition.cron_tick_passed("@daily")) | dg.AutomationCondition.missing(), True),
    ],
)
def test_momentary_conditions_are_distinguished_from_lasting_ones(condition: Any, momentary: bool) -> None:
    own = asset("a", "raw/x", automation_condition=condition)
    graph = graph_of(dg.Definitions(assets=with_automation([source("x"), own])).resolve_asset_graph())
    assert graph.nodes["a"].momentary is momentary


def test_first_load_starts_with_the_tightest_contract_and_keeps_a_slot_free() -> None:
    """Each of 12 tables takes an hour for its history, and none delays the table with ten minutes."""
    tables: list[Any] = [
        source("orders", HOURS),
        *(asset(f"bulk_{n:02}", "raw/orders", by=HOURS, freshness_policy=lag(hours=6)) for n in range(12)),
        asset("urgent", "raw/orders", by=HOURS, freshness_policy=lag(minutes=10)),
    ]
    step = {f"bulk_{n:02}": 3600.0 for n in range(12)} | {"urgent": 20.0}
    simulation = Simulation(tables, start=START, pace=RunPace(step=step, each_more=0.0, at_once=3))
    days = [f"2026-10-0{day}-{hour:02}:00" for day in (3, 4) for hour in range(24)]
    for hour in days:
        simulation.arrive("raw/orders", hour, at=simulation.time(minutes=1))
    for minutes in (40, 100, 160):
        simulation.arrive("raw/orders", days[-1], at=simulation.time(minutes=minutes))
    simulation.run(hours=4)
    assert next(run.assets for run in simulation.runs if run.started_at) == ("urgent",)
    built = [(run.began["urgent"], run.committed["urgent"], run.partitions) for run in simulation.runs_of("urgent")]
    for at, (_, hour) in simulation.arrivals:
        done = min(end for begin, end, partitions in built if begin >= at and hour in partitions)
        assert done - at <= 600, f"data of {hour} waited {done - at} s"
    busy = [sum(r.started_at <= at < (r.ended_at or at + 1) for r in begun(simulation)) for at in moments(simulation)]
    assert max(busy) == 3
    long = [
        sum(r.started_at <= at < (r.ended_at or at + 1) for r in begun(simulation, "bulk"))
        for at in moments(simulation)
    ]
    assert max(long) == 2


def begun(simulation: Simulation, of: str = "") -> list[Any]:
    return [run for run in simulation.runs if run.started_at is not None and run.assets[0].startswith(of)]


def moments(simulation: Simulation) -> list[float]:
    return [run.started_at for run in begun(simulation)]


def test_tightest_contract_runs_next_with_a_single_slot() -> None:
    tables = location({"hours": 2}, 10, {"minutes": 20})
    simulation = Simulation(tables, start=START, pace=RunPace(step=120.0, at_once=1))
    simulation.arrive("source", at=simulation.time(minutes=1))
    simulation.arrive("source", at=simulation.time(minutes=10))
    simulation.run(hours=3)
    assert max(waits(simulation, "urgent")) <= 1200
    assert max(max(waits(simulation, f"bulk_{number:03}")) for number in range(10)) <= 7200


def test_manual_runs_do_not_prevent_automatic_run_requests() -> None:
    simulation = Simulation(location({"hours": 1}, 6, {"minutes": 30}), start=START, pace=RunPace(step=30.0, at_once=2))
    for _ in range(12):
        simulation.request(["bulk_000"], at=simulation.time(seconds=30))
    simulation.arrive("source", at=simulation.time(minutes=1))
    simulation.run(minutes=5)
    assert simulation.runs_of("urgent"), "it is in the queue, and passes the runs of people"
    assert simulation.runs_of("urgent")[0].tags["dagster/priority"] == "1"
    assert waits(simulation, "urgent")[0] <= 120


def test_all_due_runs_are_requested_at_once_without_a_run_queue() -> None:
    simulation = Simulation(
        location({"hours": 1}, 30, {"minutes": 5}),
        start=START,
        pace=RunPace(step=50.0, at_once=1000),
        instance=simulated_instance(),
    )
    simulation.arrive("source", at=simulation.time(minutes=1))
    simulation.run(minutes=2)
    assert len(simulation.runs) == 31


def test_queued_run_is_reported_as_queued_until_it_starts() -> None:
    simulation = Simulation(location({"hours": 1}, 2, {"hours": 1}), start=START, pace=RunPace(step=300.0, at_once=3))
    simulation.hold_in_queue("urgent", at=simulation.time(), until=simulation.time(minutes=10))
    simulation.arrive("source", at=simulation.time(minutes=1))
    simulation.run(minutes=2)
    states = {asset: decision.state for (asset, _), decision in simulation.plan().decisions.items()}
    assert states == {"bulk_000": State.RUNNING, "bulk_001": State.RUNNING, "urgent": State.QUEUED}
    assert simulation.standings()["urgent"].reason.startswith("urgent queued: first data of")
    simulation.run(minutes=9)
    assert simulation.plan().decisions["urgent", None].state is State.RUNNING


def test_run_queue_is_kept_short_while_a_tighter_contract_exists() -> None:
    nodes = {f"bulk_{n}": Node(f"bulk_{n}", contract=LagContract(3600)) for n in range(8)}
    urgent = Node("urgent", contract=LagContract(1800))
    for tighter in ({}, {"urgent": urgent}):
        graph = Graph(nodes | tighter)
        history = History(graph, durations=RunDurations(per_partition=dict.fromkeys(graph.nodes, 30.0)))
        decisions = {(key, None): Decision(key, None, State.REQUESTED, "", start_by=-float(key[-1])) for key in nodes}
        requests = [Request((key,), (None,)) for key in nodes]
        admission = Admission(graph, history, Asked(), slots=2, margin=12.0, now=-100.0)
        admitted, held = admission.of(requests, decisions)
        assert [request.assets[0] for request in admitted] == [f"bulk_{n}" for n in range(7, 3 if tighter else -1, -1)]
        assert {d.reason for d in held.values()} == ({"earlier deadlines first, 2 runs at once"} if tighter else set())
        if tighter:
            asked = Asked(runs=tuple(admitted))
            more = Admission(graph, history, asked, slots=2, margin=12.0, now=-100.0)
            assert more.of(requests[:4], decisions)[0] == [], "four are on their way"
            assert more.of([Request(("urgent",), (None,))], {})[0], "none of them keeps the urgent one waiting"


def test_late_runs_of_one_contract_start_with_the_earliest_deadline() -> None:
    nodes = {f"bulk_{n}": Node(f"bulk_{n}", contract=LagContract(3600)) for n in range(3)}
    graph = Graph(nodes | {"hour": Node("hour", contract=LagContract(1800))})
    history = History(graph, durations=RunDurations(per_partition=dict.fromkeys(graph.nodes, 30.0)))
    start_by = {"bulk_0": 80.0, "bulk_1": 70.0, "bulk_2": 60.0, "hour": 90.0}
    decisions = {(key, None): Decision(key, None, State.REQUESTED, "", start_by=at) for key, at in start_by.items()}
    requests = [Request((key,), (None,)) for key in graph.nodes]
    admitted, _ = Admission(graph, history, Asked(), slots=2, margin=12.0, now=100.0).of(requests, decisions)
    assert [request.assets[0] for request in admitted] == ["hour", "bulk_2", "bulk_1", "bulk_0"]


@pytest.mark.parametrize("slots", [1, 2])
def test_long_runs_of_looser_contracts_block_no_run_from_the_queue(slots: int) -> None:
    """A slot is kept free for a table that runs at once. Bulk runs hold the others; ten minutes are not to wait."""
    nodes = {f"bulk_{n}": Node(f"bulk_{n}", contract=LagContract(21_600)) for n in range(3)}
    others = {
        "first": Node("first", contract=LagContract(600)),
        "now": Node("now", contract=LagContract(60), asap=True),
    }
    graph = Graph(nodes | others)
    history = History(graph, durations=RunDurations(per_partition=dict.fromkeys(graph.nodes, 120.0) | {"first": 12.0}))
    asked = Asked(runs=(Request(("bulk_0",), (None,)), Request(("bulk_1",), (None,))))
    admission = Admission(graph, history, asked, slots=slots, margin=12.0, now=0.0)
    admitted, _ = admission.of([Request(("bulk_2",), (None,)), Request(("first",), (None,))], {})
    assert [request.assets for request in admitted] == [("first",)]


def test_runs_of_one_tick_are_queued_in_the_order_of_the_plan() -> None:
    """Dagster collects what a tick asks for in sets."""
    tables = location({"hours": 1}, 30, {"minutes": 50})
    simulation = Simulation(tables, start=START, pace=RunPace(step=50.0, at_once=1000), instance=simulated_instance())
    for minutes in (1, 10):
        simulation.arrive("source", at=simulation.time(minutes=minutes))
    simulation.run(hours=2)
    bulk = [run.assets[0] for run in simulation.runs if run.created_at > simulation.time(minutes=15)]
    assert bulk == ["urgent", *(f"bulk_{number:03}" for number in range(30))]


def test_runs_held_in_the_queue_by_a_limit_block_others_temporarily() -> None:
    """Four tables write to one database, whose limit lets none of their runs begin."""
    simulation = Simulation(location({"hours": 2}, 8, {"minutes": 5}), start=START, pace=RunPace(step=20.0, at_once=2))
    for stuck in range(4):
        simulation.hold_in_queue(f"bulk_{stuck:03}", at=simulation.time(), until=simulation.time(hours=3))
    simulation.arrive("source", at=simulation.time(minutes=1))
    simulation.run(hours=2)
    assert {run.assets[0] for run in simulation.runs if run.succeeded} == {
        "urgent",
        *(f"bulk_{number:03}" for number in range(4, 8)),
    }
    assert max(max(waits(simulation, f"bulk_{number:03}")) for number in range(4, 8)) <= 7200


def test_run_of_unknown_length_is_held_for_a_tighter_contract_with_reason() -> None:
    simulation = Simulation(location({"hours": 1}, 8, {"minutes": 5}), start=START, pace=RunPace(step=50.0, at_once=3))
    simulation.arrive("source", at=simulation.time(minutes=1))
    simulation.run(minutes=1, seconds=30)
    decisions = simulation.plan().decisions
    assert decisions["urgent", None].state is State.RUNNING
    held = {d.reason for d in decisions.values() if d.state is State.THROTTLED}
    assert held == {"it may take long, and one of 3 slots is kept free for urgent"}


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [(60, 6), (300, 4), (600, 3), (1800, 1), (3600, 0), (6 * 3600, -3), (86_400, -5), (90 * 86_400, -9), (None, 0)],
)
def test_run_priority_follows_the_tightest_contract(seconds: float | None, expected: int) -> None:
    assert priority(seconds) == expected


def test_input_has_the_priority_of_its_tightest_reader_except_use_latest_readers() -> None:
    def _read(key: str, **settings: Any) -> Input:
        return Input(key, lambda p: [p], lambda p: [p], **settings)

    graph = Graph(
        {
            "raw": Node("raw", source=True),
            "core": Node("core", [_read("raw")], contract=LagContract(3600)),
            "model": Node("model", [_read("raw")], contract=CronContract("0 9 * * *", 7200)),
            "alerts": Node("alerts", [_read("core"), _read("model", use_latest=True)], contract=LagContract(300)),
            "now": Node("now", [_read("model")], contract=LagContract(86_400), asap=True),
            "free": Node("free", [_read("raw")]),
        }
    )
    assert graph.tightest == {"raw": 60, "core": 300, "model": 60, "alerts": 300, "now": 60}
    assert [priority_of(assets, graph) for assets in (["core"], ["free"], ["free", "core"])] == [4, 0, 4]
