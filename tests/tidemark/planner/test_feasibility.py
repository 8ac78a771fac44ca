"""Contracts that cannot be kept: by learned durations, by promises of inputs, by slots."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from dagster_tidemark.planner.contracts import CronContract, InputPromise, LagContract, Window
from dagster_tidemark.planner.feasibility import Obstacle, in_words, infeasible
from dagster_tidemark.planner.graph import Graph, Input, Node
from dagster_tidemark.planner.run_durations import RunDurations
from dagster_tidemark.sources.feed import Partition
from tests.tidemark.planner.numbered_days import DAY, day, days

HOUR = 3600.0


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
    assert infeasible(graph(), durations(core_a=50, marts_a=90)) == {}
    assert infeasible(graph(), durations(core_a=50, marts_a=260)) == {
        "marts/a": {
            Obstacle.TOO_SLOW: "promised within 5 min, usual runs take 5 min 10 s: core/a 50 s, marts/a 4 min 20 s"
        }
    }


def test_joinable_tables_count_as_one_run_in_the_feasibility_check() -> None:
    assert set(infeasible(graph(joinable=True), durations(core_a=200, marts_a=200))) == {"marts/daily"}
    late = infeasible(graph(joinable=True), durations(core_a=310, marts_a=310))
    assert set(late) == {"core/a", "marts/a", "marts/daily"}


def test_contract_with_unknown_run_durations_is_not_reported_as_infeasible() -> None:
    assert infeasible(graph(), RunDurations()) == {}


def test_cron_contract_shorter_than_the_usual_runs_is_reported_with_its_bound() -> None:
    found = infeasible(graph(), durations(core_a=50, marts_daily=20))
    assert in_words(found["marts/daily"]) == (
        "promised by 0 9 * * *, what arrived 1 min before, usual runs take 1 min 10 s: core/a 50 s, marts/daily 20 s"
    )


def test_input_of_which_only_the_latest_state_is_read_does_not_lengthen_the_chain() -> None:
    model = Node("ml/model", [Input("raw/a", None, None)])
    reads = [Input("raw/a", None, None), Input("ml/model", None, None, use_latest=True)]
    nodes = [Node("raw/a", source=True), model, Node("ml/scores", reads, contract=LagContract(300.0))]
    assert infeasible(Graph({node.key: node for node in nodes}), durations(ml_model=7200, ml_scores=60)) == {}


def report(schedule: str, *promises: InputPromise, **more: bool) -> Graph:
    """A report of each day, promised by a time of the next day."""
    raw = Node("raw/a", source=True, automated=False, partitioned=True, window=day, promises=promises)
    reads = [Input("raw/a", lambda p: [p], lambda p: [p], **more)]
    made = Node("marts/r", reads, partitioned=True, window=day, contract=CronContract(schedule, 1800.0))
    return Graph({"raw/a": raw, "marts/r": made})


def by(hours: float) -> InputPromise:
    return InputPromise("raw/a", "expected by then", lambda window: window.end + hours * HOUR)


def test_deadline_earlier_than_an_input_is_expected_is_reported_with_both_times() -> None:
    assert infeasible(report("0 7 * * *", by(6)), RunDurations(), windows=days) == {}
    found = infeasible(report("0 5 * * *", by(6)), RunDurations(), windows=days)
    assert found["marts/r"][Obstacle.INPUT_LATER] == (
        "promised by 0 5 * * *, what arrived 30 min before, but raw/a is expected by then: late in 8 of the next 8 "
        "windows, first by 1 h for 1970-01-02 05:00:00 UTC"
    )


def test_due_time_of_a_window_is_computed_once_for_all_reports_of_it() -> None:
    asked: list[Window] = []

    def due(window: Window) -> float:
        asked.append(window)
        return window.end + 6 * HOUR

    made = report("0 5 * * *", InputPromise("raw/a", "expected by then", due))
    nodes = {**made.nodes, **{f"marts/r{n}": replace(made.nodes["marts/r"], key=f"marts/r{n}") for n in range(20)}}
    assert len(infeasible(Graph(nodes), RunDurations(), windows=days)) == 21
    assert len(asked) == 8


def by_city(*promised: str, reads: Callable[[str], Sequence[str]], inner: bool = False) -> dict[str, str]:
    """Return why the report of each city and day by 5:00 cannot be kept, if some cities deliver by 6:00."""
    promise = replace(by(6), is_about=lambda p: str(p).split("|")[0] in promised)

    def _window(partition: Partition) -> Window | None:
        return day(str(partition).split("|")[1])

    def _windows(asset: str, after: float, until: float) -> list[Partition]:
        return [f"{city}|{p}" for city in ("oslo", "rome") for p in days(asset, after, until)]

    way = lambda p: reads(str(p))  # noqa: E731
    nodes = {
        "raw/a": Node("raw/a", source=True, automated=False, partitioned=True, window=_window, promises=(promise,)),
        "core/a": Node("core/a", [Input("raw/a", way, way)], partitioned=True, window=_window),
    }
    inputs = [Input("core/a", lambda p: [p], lambda p: [p])] if inner else [Input("raw/a", way, way)]
    contract = CronContract("0 5 * * *", 1800.0)
    nodes["marts/r"] = Node("marts/r", inputs, partitioned=True, window=_window, contract=contract)
    return {key: in_words(why) for key, why in infeasible(Graph(nodes), RunDurations(), windows=_windows).items()}


@pytest.mark.parametrize("inner", [False, True])
def test_only_partitions_with_a_promised_key_are_compared_with_the_promise(inner: bool) -> None:
    assert "late in 8 of the next 8 windows" in by_city("rome", reads=lambda p: [p], inner=inner)["marts/r"]
    assert by_city("bern", reads=lambda p: [p], inner=inner) == {}, "no city of the source"

    def _of_oslo(partition: str) -> list[str]:
        return [f"oslo|{partition.split('|')[1]}"]

    assert by_city("rome", reads=_of_oslo, inner=inner) == {}, "no report reads the promised city"


def test_deadline_too_short_after_the_arrival_for_the_usual_runs_is_reported() -> None:
    late = infeasible(report("30 6 * * *", by(6.2)), durations(marts_r=1750), windows=days)
    assert "and usual runs take 29 min 10 s" in in_words(late["marts/r"])
    assert "first by 11 min 10 s" in in_words(late["marts/r"])
    assert infeasible(report("30 6 * * *", by(6.2)), durations(marts_r=1000), windows=days) == {}


def test_windows_without_a_promise_and_optional_inputs_are_not_compared() -> None:
    every_other = InputPromise(
        "raw/a", "expected on even days", lambda w: w.end + 6 * HOUR if w.start % (2 * DAY) == 0 else None
    )
    found = infeasible(report("0 5 * * *", every_other), RunDurations(), windows=days)
    assert "late in 4 of the next 4 windows" in in_words(found["marts/r"])
    assert infeasible(report("0 5 * * *", by(6), optional=True), RunDurations(), windows=days) == {}


def test_deadline_earlier_than_the_contract_of_an_external_table_is_reported() -> None:
    made = report("0 5 * * *")
    nodes = dict(made.nodes)
    external = Node("raw/a", source=True, automated=False, partitioned=True, window=day)
    nodes["raw/a"] = replace(external, contract=CronContract("0 6 * * *", 0.0))
    found = infeasible(Graph(nodes), RunDurations(), windows=days)
    assert "but raw/a is promised by 0 6 * * *: late in 8 of the next 8" in in_words(found["marts/r"])


def many(count: int, contract: LagContract | CronContract, *, joinable: bool = False) -> Graph:
    reads = [Input("core/a", None, None, joinable=joinable)]
    tables = [Node(f"marts/t{n}", reads, contract=contract) for n in range(count)]
    core = Node("core/a", [Input("raw/a", None, None)])
    return Graph({n.key: n for n in (Node("raw/a", source=True, automated=False), core, *tables)})


def test_more_runs_due_by_an_arrival_than_slots_can_run_are_reported_with_numbers() -> None:
    slow = durations(core_a=60, **{f"marts_t{n}": 120.0 for n in range(6)})
    assert infeasible(many(6, LagContract(600.0)), slow, slots=2) == {}
    found = infeasible(many(6, LagContract(300.0)), slow, slots=2)
    assert set(found) == {f"marts/t{n}" for n in range(6)}
    assert in_words(found["marts/t0"]).startswith(
        "7 runs are due together when data arrives in raw/a and take 13 min, but 2 slots have 10 min within 5 min: "
        "marts/t0 2 min"
    )
    assert "and 4 more" in in_words(found["marts/t0"])
    assert infeasible(many(6, LagContract(300.0)), slow) == {}, "without a limit there are slots for all"


def test_joinable_tables_take_one_slot_together() -> None:
    slow = durations(core_a=120, **{f"marts_t{n}": 120.0 for n in range(6)})
    assert infeasible(many(6, LagContract(300.0), joinable=True), slow, slots=2) == {}


def test_more_runs_due_at_a_time_of_day_than_slots_can_run_are_reported() -> None:
    slow = durations(**{f"marts_t{n}": 900.0 for n in range(5)})
    found = infeasible(many(5, CronContract("0 9 * * *", 1800.0)), slow, slots=2)
    assert "5 runs are due together by 0 9 * * * and take 1 h 15 min, but 2 slots have 1 h within 30 min" in in_words(
        found["marts/t3"]
    )
    assert infeasible(many(4, CronContract("0 9 * * *", 1800.0)), slow, slots=2) == {}
