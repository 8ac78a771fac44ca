"""Lag contracts that cannot be kept, by learned durations."""

from dagster_tidemark.planner.contracts import CronContract, LagContract
from dagster_tidemark.planner.feasibility import infeasible
from dagster_tidemark.planner.graph import Graph, Input, Node
from dagster_tidemark.planner.run_durations import RunDurations


def graph(*, joinable: bool = False) -> Graph:
    reads = [Input("core/a", None, None, joinable=joinable)]
    return Graph(
        {
            "raw/a": Node("raw/a", source=True, contract=LagContract(1.0)),
            "core/a": Node("core/a", [Input("raw/a", None, None)], contract=LagContract(300.0)),
            "marts/a": Node("marts/a", reads, contract=LagContract(300.0)),
            "marts/daily": Node("marts/daily", reads, contract=CronContract("0 9 * * *", 60.0)),
        }
    )


def durations(**seconds: float) -> RunDurations:
    found = RunDurations()
    for asset, took in seconds.items():
        found.add({asset.replace("_", "/"): 1}, took)
    return found


def test_lag_contract_shorter_than_the_usual_runs_is_reported_with_durations() -> None:
    assert infeasible(graph(), durations(core_a=200, marts_a=90)) == {}
    assert infeasible(graph(), durations(core_a=200, marts_a=150)) == {
        "marts/a": "promised within 5 min, usual runs take 5 min 50 s: core/a 3 min 20 s, marts/a 2 min 30 s"
    }


def test_joinable_tables_count_as_one_run_in_the_feasibility_check() -> None:
    assert infeasible(graph(joinable=True), durations(core_a=200, marts_a=200)) == {}
    assert set(infeasible(graph(joinable=True), durations(core_a=310, marts_a=310))) == {"core/a", "marts/a"}


def test_contract_with_unknown_run_durations_is_not_reported_as_infeasible() -> None:
    assert infeasible(graph(), RunDurations()) == {}
