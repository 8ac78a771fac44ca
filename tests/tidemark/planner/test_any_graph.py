"""Graphs of other shapes than the grocer's, on the pure planner: one test a rule."""

import time as clock
from typing import Any

from dagster_tidemark.planner.contracts import CronContract, LagContract, Window
from dagster_tidemark.planner.decisions import Asked, State
from dagster_tidemark.planner.event_records import Outcome
from dagster_tidemark.planner.graph import Graph, Input, Moment, Node
from tests.tidemark.world import World, same

HOUR = LagContract(3600)
DAY0 = 1_790_000_000 // 86_400


def day(number: int) -> str:
    return f"d{number:04}"


def number(partition: str | None) -> int:
    return int(str(partition)[1:])


def window(partition: str | None) -> Window:
    start = (DAY0 - 2000 + number(partition)) * 86_400.0
    return Window(start, start + 86_400)


def daily(key: str, *inputs: Input, **more: Any) -> Node:
    return Node(key, inputs, number, window=window, partitioned=True, **more)


def before(partition: str | None) -> list[str | None]:
    return [day(number(partition) - 1)] if number(partition) else []


def following(partition: str | None) -> list[str | None]:
    return [day(number(partition) + 1)]


RAW = daily("raw", automated=False, source=True)
RAW_TABLE = Node("raw_table", automated=False, source=True)
ITSELF = Input("total", before, following)


def world(*nodes: Node, moment: Moment | None = None) -> World:
    graph = Graph({node.key: node for node in nodes}, moment or Moment())
    graph.moment.moves_to(1_790_000_000.0)
    return World(graph)


def raises(_: str | None) -> list[str | None]:
    raise ValueError("no such region")


# One bad thing harms only itself


def test_mapping_that_raises_sets_aside_only_its_own_asset() -> None:
    bad = daily("bad", Input("raw", raises, same), asap=True)
    worse = daily("worse", Input("raw", same, raises), asap=True)
    w = world(RAW, bad, worse, daily("good", Input("raw", same, same), asap=True))
    w.arrive(day(1), "v1", key="raw")
    plan = w.plan()
    assert {t for r in plan.requests for t in r.targets} == {("good", day(1))}
    assert "no such region" in plan.set_aside[("bad", day(1))]
    assert "no such region" in plan.set_aside[("worse", None)]


def test_mapping_that_raises_for_one_partition_leaves_the_others_requested() -> None:
    def some(partition: str | None) -> list[str | None]:
        return raises(partition) if partition == day(2) else [partition]

    w = world(RAW, daily("table", Input("raw", some, same), asap=True))
    for n in (1, 2, 3):
        w.arrive(day(n), "v1", key="raw")
    assert w.due() == {("table", day(1)), ("table", day(3))}
    assert set(w.plan().set_aside) == {("table", day(2))}


def test_mapping_that_raised_temporarily_is_retried_without_an_event() -> None:
    broken = [True]

    def passing(partition: str | None) -> list[str | None]:
        return raises(partition) if broken else [partition]

    w = world(RAW, daily("table", Input("raw", passing, same), asap=True))
    w.arrive(day(1), "v1", key="raw")
    assert w.due() == set()
    broken.clear()
    w.now += 60
    assert w.due() == {("table", day(1))} and not w.plan().set_aside


def test_interrupted_planning_pass_loses_no_decisions() -> None:
    w = world(RAW, daily("table", Input("raw", same, same), asap=True))
    for n in range(1500):
        w.arrive(day(n), "v1", key="raw")
    assert w.planner.plan(w.now, stop=lambda: True).catching_up
    while w.planner.plan(w.now, stop=lambda: True).catching_up:
        pass
    assert len(w.plan().decisions) == 1500


# Partitions that no event names


def test_planner_requests_days_of_an_unpartitioned_input_once_it_has_data() -> None:
    keys = [day(n) for n in (1, 2, 3)]
    table = Input("raw_table", lambda _: [None], None, broad=True)
    w = world(RAW_TABLE, daily("days", table, keys=lambda: tuple(keys), contract=HOUR))
    assert w.due() == set()
    w.arrive(None, "v1", key="raw_table")
    assert w.due() == {("days", k) for k in keys}
    w.run_all()
    keys.append(day(4))
    w.now += 60
    assert w.due() == {("days", day(4))}


def test_partitions_without_inputs_are_built_after_their_window_ends() -> None:
    over, open_ = day(1999), day(2000)
    w = world(daily("made", keys=lambda: [over, open_], asap=True))
    assert w.due() == {("made", over)}
    w.run_all()
    w.now = window(open_).end
    assert w.due() == {("made", open_)}
    w.run_all()
    assert w.plan().decisions == {}


def test_unpartitioned_asset_without_inputs_is_built_for_its_reader() -> None:
    w = world(Node("config"), Node("table", [Input("config", lambda _: [None], lambda _: [None])], asap=True))
    w.run_all()
    assert set(w.history.facts.builds()) == {("config", None), ("table", None)}


def test_dynamic_partitions_are_requested_when_added_and_dropped_when_removed() -> None:
    moment = Moment()

    def there(partition: str | None) -> bool:
        return partition in moment.dynamic.get("customers", ())

    keys: Any = {
        "partitioned": True,
        "dynamic": lambda partition: frozenset({("customers", partition)}),
        "exists": there,
        "keys": lambda: moment.dynamic.get("customers", ()),
    }
    source = Node("raw", automated=False, source=True, partitioned=True)  # its keys are there whatever people do
    table = Node("table", [Input("raw", same, same)], str, contract=HOUR, **keys)
    w = world(source, table, moment=moment)
    w.arrive("ann", "v1", key="raw")
    assert w.due() == set()
    moment.moves_to(w.now, {"customers": ["ann", "bob"]})
    assert w.due() == {("table", "ann")}
    moment.moves_to(w.now, {"customers": ["bob"]})
    assert w.plan().decisions == {}


# Tables made from their own past


def cumulative(**more: Any) -> World:
    return world(RAW, daily("total", Input("raw", same, same), ITSELF, **more))


def test_cumulative_table_is_built_in_order_from_the_first_day_with_data() -> None:
    w = cumulative(asap=True)
    for n in (7, 5, 6):
        w.arrive(day(n), "v1", key="raw")
    order = []
    for _ in range(3):
        (request,) = w.plan().requests
        order += request.partitions
        w.made("total", *request.partitions)
    assert order == [day(5), day(6), day(7)] and w.plan().decisions == {}


def test_cumulative_table_includes_days_without_data_and_is_rebuilt_after_late_files() -> None:
    w = cumulative(asap=True)
    for n in (5, 8):
        w.arrive(day(n), "v1", key="raw")
    w.run_all()
    assert {p for _, p in w.history.facts.builds()} == {day(n) for n in (5, 6, 7, 8)}
    w.arrive(day(3), "v1", key="raw")
    w.run_all()
    assert {p for _, p in w.history.facts.builds()} == {day(n) for n in range(3, 9)}
    built = w.history.facts.builds()
    assert built[("total", day(8))].as_of > built[("total", day(3))].id


def test_600_days_of_a_cumulative_table_are_planned_without_recursion() -> None:
    for contract in (HOUR, CronContract("0 9 * * *", 1800)):
        w = cumulative(contract=contract)
        for n in range(600):
            w.arrive(day(n), "v1", key="raw")
        begun = clock.process_time()
        assert w.due() == {("total", day(0))}
        assert clock.process_time() - begun < 5


# Cost


def test_planning_time_grows_linearly_with_the_number_of_daily_partitions() -> None:
    def seconds(days: int) -> float:
        every = Input("features", None, lambda _: [None])
        whole = Input("model", lambda _: [None], None, broad=True)
        features = daily("features", Input("raw", same, same))
        scores = daily("scores", Input("features", same, same), whole, contract=HOUR)
        w = world(RAW, features, Node("model", [every]), scores)
        for n in range(days):
            w.arrive(day(n), "v1", key="raw")
            w.now += 1
        begun = clock.process_time()
        assert len(w.plan().decisions) == 2 * days + 1
        return clock.process_time() - begun

    few, many = (min(seconds(days) for _ in range(3)) for days in (400, 1600))
    assert many < 10 * few


# Fairness


def test_continuous_stream_does_not_starve_a_reader_with_pace_asap() -> None:
    mart = daily("mart", Input("core", same, same), asap=True)
    w = world(RAW, daily("core", Input("raw", same, same), asap=True), mart)
    w.arrive(day(1), "v1", key="raw")
    w.made("core", day(1)), w.made("mart", day(1))
    w.arrive(day(1), "v2", key="raw")
    w.now += 1
    w.start("r1", ("core", day(1)))
    w.now += 10
    w.arrive(day(1), "v3", key="raw")
    w.build("r1", ("core", day(1))), w.end("r1")
    assert ("mart", day(1)) in w.due()


def test_planner_limits_the_retry_rate_of_a_failing_table_under_a_stream() -> None:
    w = world(RAW, daily("core", Input("raw", same, same), asap=True))
    tries = 0
    for second in range(0, 3600, 10):
        w.arrive(day(1), f"v{second}", key="raw")
        if w.due():
            tries += 1
            w.fail("core", day(1))
        w.now += 10
    assert 20 <= tries <= 60


def test_attempt_count_is_reset_by_new_data() -> None:
    w = world(RAW, daily("core", Input("raw", same, same), asap=True))
    w.arrive(day(1), "v1", key="raw")
    for _ in range(5):
        w.fail("core", day(1))
    w.arrive(day(1), "v2", key="raw")
    w.fail("core", day(1))
    assert w.of("core", day(1)).attempts == 1


def test_lost_run_does_not_count_as_an_attempt_of_the_partition() -> None:
    w = world(RAW, daily("core", Input("raw", same, same), asap=True))
    w.arrive(day(1), "v1", key="raw")
    w.start("lost", ("core", day(1)))
    w.history.ended("lost", at=w.now, outcome=Outcome.LOST)
    assert w.due() == {("core", day(1))} and w.of("core", day(1)).attempts == 0


def test_up_to_date_partition_of_a_lost_run_is_requested_again() -> None:
    w = world(RAW, daily("core", Input("raw", same, same), asap=True))
    w.arrive(day(1), "v1", key="raw")
    w.made("core", day(1))
    w.start("by-hand", ("core", day(1)))
    w.history.ended("by-hand", at=w.now, outcome=Outcome.LOST, by_person=True)
    (request,) = w.plan().requests
    assert request.rebuild and request.partitions == (day(1),)
    w.run_all()
    assert w.plan().decisions == {}


def test_successful_run_without_output_contains_the_data_it_read() -> None:
    w = world(RAW, daily("core", Input("raw", same, same), asap=True))
    w.arrive(day(1), "v1", key="raw")
    w.start("nothing", ("core", day(1)))
    w.history.ended("nothing", at=w.now, outcome=Outcome.SUCCEEDED, seconds=3.0)
    assert w.plan().decisions == {}
    w.arrive(day(1), "v2", key="raw")
    assert w.due() == {("core", day(1))}


# Blocking checks


def test_failed_blocking_check_blocks_readers_until_it_passes_or_a_rebuild_passes() -> None:
    core = daily("core", Input("raw", same, same), asap=True, blocking=frozenset({"sane"}))
    w = world(RAW, core, daily("mart", Input("core", same, same), asap=True))

    def build(n: int, *, sane: bool) -> None:
        w.arrive(day(n), f"v{w.id}", key="raw")
        run = f"run {w.id}"
        w.start(run, ("core", day(n)))
        w.build(run, ("core", day(n)))
        w.history.checked(("core", None), "sane", id=w.next(), passed=sane, run_id=run)
        w.history.ended(run, at=w.now, outcome=Outcome.SUCCEEDED if sane else Outcome.FAILED)

    build(1, sane=False), build(2, sane=True)
    assert w.due() == {("mart", day(2))}
    assert w.state("mart", day(1)) is State.BLOCKED and "sane" in w.of("mart", day(1)).reason
    w.history.checked(("core", None), "sane", id=w.next(), passed=True, run_id=None)
    assert ("mart", day(1)) in w.due()
    w.run_all()
    build(1, sane=False)
    assert w.due() == set()
    build(1, sane=True)
    assert w.due() == {("mart", day(1))}


# Runs


def test_single_partition_runs_are_not_ranges_and_do_not_flood_the_queue() -> None:
    w = world(RAW, daily("core", Input("raw", same, same), asap=True, most=1))
    for n in range(40):
        w.arrive(day(n), "v1", key="raw")
    requests = w.plan().requests
    assert all(not r.as_range and len(r.partitions) == 1 for r in requests) and len(requests) == 8
    w.start("r", *(t for r in requests for t in r.targets))
    assert w.plan().requests == []


def test_partition_range_is_split_by_the_backfill_policy() -> None:
    w = world(RAW, daily("core", Input("raw", same, same), asap=True, most=5))
    for n in range(12):
        w.arrive(day(n), "v1", key="raw")
    assert sorted(len(r.partitions) for r in w.plan().requests) == [2, 5, 5]


def test_multi_asset_outputs_share_one_run_and_are_held_until_it_ends() -> None:
    both = frozenset({"left", "right"})
    left = daily("left", Input("raw", same, same), asap=True, together=both)
    right = daily("right", Input("raw", same, same), together=both)
    w = world(RAW, left, right)
    w.arrive(day(1), "v1", key="raw")
    assert [r.assets for r in w.plan().requests] == [("left", "right")]
    w.start("r", ("left", day(1)), ("right", day(1)))
    w.build("r", ("left", day(1)))
    assert w.plan().requests == []


def test_custom_automation_condition_also_applies_to_rebuilds() -> None:
    w = world(RAW, daily("core", Input("raw", same, same), asap=True, conditional=True, code_version="1"))
    for n in range(3):
        w.arrive(day(n), "v1", key="raw")
        w.made("core", day(n))
    w.deploy(Graph({"raw": RAW, "core": daily("core", Input("raw", same, same), conditional=True, code_version="2")}))
    requests = w.plan().requests
    assert len(requests) == 3 and all(r.conditional and not r.as_range for r in requests)


def test_unanswered_run_request_is_paused_and_reported() -> None:
    w = world(RAW, daily("core", Input("raw", same, same), asap=True))
    w.arrive(day(1), "v1", key="raw")
    plan = w.planner.plan(w.now, Asked(unanswered={("core", day(1)): (3, w.now + 120)}))
    assert plan.requests == [] and plan.decisions[("core", day(1))].state is State.UNANSWERED


def test_reader_is_rebuilt_for_a_change_it_missed_before_a_wipe() -> None:
    w = world(
        RAW, daily("core", Input("raw", same, same), asap=True), daily("mart", Input("core", same, same), contract=HOUR)
    )
    w.arrive(day(1), "v1", key="raw")
    w.made("core", day(1)), w.made("mart", day(1))
    w.arrive(day(1), "v2", key="raw")
    w.made("core", day(1), content="second")
    w.history.forget([("core", day(1))])
    w.made("core", day(1), content="second")
    w.now += 3600
    assert w.due() == {("mart", day(1))}
