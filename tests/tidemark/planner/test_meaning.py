"""What a declaration means, one test a rule, on the pure planner; `test_semantics.py` plays them."""

from dataclasses import replace
from typing import Any

import pytest

from dagster_tidemark.planner.contracts import CronContract, FreshnessStatus, LagContract
from dagster_tidemark.planner.decisions import Asked, State
from dagster_tidemark.planner.graph import Graph, Input, Node
from tests.tidemark.world import World, day_of, day_window, hour_window, hours_of, ordinal, same, time

D20, H7, H8 = "2026-09-20", "2026-09-20-07:00", "2026-09-20-08:00"
CORE, PRICES, HOURLY, DAILY, MODEL, FORECAST = "core/orders", "core/prices", "hourly", "daily", "model", "forecast"
HOUR, DAY = LagContract(3600), LagContract(86_400)
NINE = CronContract("0 9 * * *", 1800)
MARGIN, LEAD = 12.0, 60.0


def hourly(key: str, *inputs: Input, **more: Any) -> Node:
    return Node(key, inputs, ordinal, window=hour_window, partitioned=True, code_version="1", **more)


def daily(key: str, *inputs: Input, **more: Any) -> Node:
    return Node(
        key, inputs, lambda d: ordinal(f"{d}-00") // 24, window=day_window, partitioned=True, code_version="1", **more
    )


def single(key: str, *inputs: Input, **more: Any) -> Node:
    return Node(key, inputs, code_version="1", **more)


def reads(key: str, **more: Any) -> Input:
    return Input(key, same, same, **more)


def whole(key: str, **more: Any) -> Input:
    """The one partition there is."""
    return Input(key, lambda _: [None], None, **more)


def every(key: str, **more: Any) -> Input:
    """All partitions, whole."""
    return Input(key, None, lambda _: [None], **more)


def within(key: str, **more: Any) -> Input:
    return Input(key, hours_of, day_of, **more)


def hours_within(key: str) -> Input:
    """A day's partition, read by its hours."""
    return Input(key, day_of, hours_of)


RAW = Node("raw/orders", window=hour_window, partitioned=True, automated=False)
RAW_PRICES = Node("raw/prices", window=day_window, partitioned=True, automated=False)
RAW_CUSTOMERS = Node("raw/customers", automated=False)
CORE_ASAP = hourly(CORE, reads("raw/orders"), contract=LagContract(300), asap=True)
CORE_PULLED = hourly(CORE, reads("raw/orders"))


def world(*nodes: Node, now: str = "2026-09-20 07:10") -> World:
    return World(Graph({node.key: node for node in nodes}), now=time(now))


def bumped(given: World, key: str, version: str) -> Graph:
    return Graph({**given.graph.nodes, key: replace(given.graph.nodes[key], code_version=version)})


# Arrival


def test_only_a_new_data_version_counts_as_an_arrival() -> None:
    w = world(RAW, CORE_ASAP)
    w.arrive(H7, "v1")
    w.run_all()
    w.arrive(H7, "v1")
    assert w.plan().decisions == {}
    w.arrive(H7, "v2")
    assert w.due() == {(CORE, H7)}


def test_observation_of_an_older_listing_is_not_an_arrival() -> None:
    w = world(RAW, CORE_ASAP)
    w.arrive(H7, "v2", listed_at=w.now)
    w.run_all()
    w.arrive(H7, "v1", listed_at=w.now - 1)
    assert w.plan().decisions == {}


def test_lag_counts_from_the_oldest_arrival_that_is_not_contained() -> None:
    w = world(RAW, CORE_PULLED, hourly(HOURLY, reads(CORE), contract=HOUR))
    w.arrive(H7, "v1")
    w.now += 600
    w.arrive(H7, "v2")
    first = time("2026-09-20 07:10")
    decision = w.of(HOURLY, H7)
    assert decision.oldest_arrival == first and decision.lag(w.now) == 600
    assert decision.deadline == first + 3600


# Incorporated


def test_data_before_run_creation_is_contained_and_later_data_is_pending() -> None:
    w = world(RAW, CORE_ASAP)
    w.arrive(H7, "v1")
    w.start("r", (CORE, H7))
    w.now += 30
    w.arrive(H7, "v2")
    w.build("r", (CORE, H7))
    w.end("r")
    assert w.of(CORE, H7).oldest_arrival == w.now


def test_older_run_that_ends_last_makes_newer_arrivals_pending_again() -> None:
    w = world(RAW, CORE_ASAP)
    w.arrive(H7, "v1")
    w.start("old", (CORE, H7))
    w.now += 30
    w.arrive(H7, "v2")
    lost = w.now
    w.made(CORE, H7)
    w.now += 30
    w.arrive(H7, "v3")
    w.made(CORE, H7)
    assert w.plan().decisions == {}
    w.build("old", (CORE, H7))
    w.end("old")
    assert w.of(CORE, H7).oldest_arrival == lost, "both newer changes are pending again"


def test_reader_contains_the_output_of_its_own_run() -> None:
    w = world(RAW, CORE_PULLED, hourly(HOURLY, reads(CORE, joinable=True), contract=HOUR, asap=True))
    w.arrive(H7, "v1")
    assert [r.assets for r in w.plan().requests] == [(CORE, HOURLY)]
    w.start("r", (CORE, H7), (HOURLY, H7))
    w.build("r", (CORE, H7)), w.build("r", (HOURLY, H7))
    w.end("r")
    assert w.plan().decisions == {}


# A materialization without a run


def test_reported_materialization_is_a_change_for_readers_and_clears_no_arrival() -> None:
    w = world(RAW, CORE_ASAP, daily(DAILY, within(CORE), contract=DAY, asap=True))
    w.arrive(H7, "v1")
    w.run_all()
    w.now += 60
    w.history.materialized((CORE, H7), id=w.next(), run_id=None, as_of=None, version="by hand", at=w.now)
    assert w.due() == {(DAILY, D20)} and w.of(DAILY, D20).oldest_arrival == w.now
    w.arrive(H7, "v2")
    w.history.materialized((CORE, H7), id=w.next(), run_id=None, as_of=None, version="again", at=w.now)
    assert (CORE, H7) in w.due()


# Pending


def test_pending_data_is_propagated_downstream_before_the_first_build() -> None:
    w = world(RAW, CORE_PULLED, hourly(HOURLY, reads(CORE), contract=HOUR), daily(DAILY, within(HOURLY), contract=DAY))
    w.arrive(H7, "v1")
    assert w.of(DAILY, D20).oldest_arrival == w.of(HOURLY, H7).oldest_arrival == w.now


def test_lag_of_a_new_partition_starts_when_its_last_input_has_data() -> None:
    stats = daily("stats", within(CORE), whole("core/customers"), contract=LagContract(1800))
    w = world(RAW, RAW_CUSTOMERS, CORE_ASAP, single("core/customers", whole("raw/customers")), stats)
    w.now = time("2026-09-01 00:00")
    w.arrive(None, "c1", key="raw/customers")
    w.made("core/customers", None)
    w.now = time("2026-09-20 07:10")
    w.arrive(H7, "v1")
    w.made(CORE, H7)
    decision = w.of("stats", D20)
    assert decision.oldest_arrival == w.now, "a customers file of three weeks ago makes no new day late"
    assert decision.state is State.NOT_DUE


def test_new_partition_is_due_when_its_window_ends_despite_its_contract() -> None:
    w = world(RAW, CORE_ASAP, daily(DAILY, within(CORE), contract=DAY))
    w.arrive(H7, "v1")
    w.made(CORE, H7)
    assert w.state(DAILY, D20) is State.NOT_DUE
    w.now = time("2026-09-21 00:00")
    assert w.due() == {(DAILY, D20)}


def test_built_partition_is_not_due_when_its_window_ends() -> None:
    w = world(RAW, CORE_ASAP, daily(DAILY, within(CORE), contract=DAY))
    w.arrive(H7, "v1")
    w.made(CORE, H7)
    w.made(DAILY, D20)
    w.arrive(H8, "v1")
    w.made(CORE, H8)
    w.now = time("2026-09-21 00:00")
    assert w.state(DAILY, D20) is State.NOT_DUE


# Content version


def test_rebuild_is_a_change_for_readers_only_if_the_content_differs() -> None:
    w = world(RAW, CORE_ASAP, daily(DAILY, within(CORE), contract=DAY, asap=True))
    w.arrive(H7, "v1")
    w.made(CORE, H7, content="a")
    w.made(DAILY, D20)
    w.arrive(H7, "v2")
    w.made(CORE, H7, content="a")
    assert w.plan().decisions == {}
    w.arrive(H7, "v3")
    w.made(CORE, H7, content="b")
    assert w.due() == {(DAILY, D20)}


def test_change_carries_the_oldest_arrival_that_it_newly_contains() -> None:
    w = world(RAW, CORE_ASAP, daily(DAILY, within(CORE), contract=DAY))
    w.arrive(H7, "v1")
    w.made(CORE, H7)
    w.made(DAILY, D20)
    w.now += 600
    w.arrive(H7, "v2")
    oldest = w.now
    w.now += 600
    w.arrive(H7, "v3")
    w.made(CORE, H7)
    assert w.of(DAILY, D20).oldest_arrival == oldest


# Contracts on lag, and what they cost


def test_run_is_requested_as_late_as_its_deadline_allows() -> None:
    w = world(RAW, CORE_ASAP, hourly(HOURLY, reads(CORE), contract=HOUR))
    w.arrive(H7, "v1")
    w.made(CORE, H7)
    w.made(HOURLY, H7)
    w.now += 60
    arrived = w.now
    w.arrive(H7, "v2")
    w.made(CORE, H7)
    asked = arrived + 3600 - 10 - (10 + 60) - MARGIN  # the lead is the measured 10 s
    assert w.of(HOURLY, H7).due_at == asked
    w.now = asked - 1
    assert w.state(HOURLY, H7) is State.NOT_DUE
    w.now = asked
    assert w.due() == {(HOURLY, H7)}


def test_expected_duration_is_the_longest_of_20_runs_without_one_outlier() -> None:
    w = world(RAW, CORE_ASAP)
    assert w.history.durations.of_run(CORE) == LEAD
    w.arrive(H7, "v1")
    w.made(CORE, H7, seconds=300)
    for _ in range(19):
        w.made(CORE, H7, seconds=5)
    assert w.history.durations.of_run(CORE) == 10, "one run that hung: twice the second longest"
    w.made(CORE, H7, seconds=7)
    assert w.history.durations.of_run(CORE) == 7
    w.made(CORE, H7, seconds=290)
    w.made(CORE, H7, seconds=300)
    assert w.history.durations.of_run(CORE) == 300, "two that are slow are no outlier"
    w.made(CORE, *hours_of(D20)[:9], seconds=900)
    assert w.history.durations.of_run(CORE) == 300, "a range says nothing of how long one takes"
    assert w.history.durations.of_partition(CORE) == 100


def test_expected_duration_of_an_asset_that_was_only_built_in_ranges_is_that_of_the_latest_range() -> None:
    w = world(RAW, CORE_ASAP)
    w.arrive(H7, "v1")
    w.made(CORE, *hours_of(D20)[:9], seconds=900)
    assert w.history.durations.of_run(CORE) == 900
    w.made(CORE, H7, seconds=5)
    assert w.history.durations.of_run(CORE) == 5


def test_contract_state_depends_on_the_deadline_and_not_the_request_time() -> None:
    w = world(RAW, CORE_ASAP, hourly(HOURLY, reads(CORE), contract=LagContract(3600, warn=1800)))
    w.arrive(H7, "v1")
    decision = w.of(HOURLY, H7)
    arrived = w.now
    assert decision.verdict(arrived + 1800) is FreshnessStatus.MET
    assert decision.verdict(arrived + 1801) is FreshnessStatus.AT_RISK
    assert decision.due_at == arrived + 3000 and decision.verdict(arrived + 3500) is FreshnessStatus.AT_RISK
    assert decision.verdict(arrived + 3601) is FreshnessStatus.BREACHED


# Contracts on a deadline


def nine_oclock() -> World:
    rollup = daily("rollup", within(CORE), contract=NINE)
    w = world(RAW, CORE_PULLED, rollup, now="2026-09-20 12:00")
    w.arrive(H7, "v1")
    return w


def test_cron_partition_is_requested_at_the_lower_bound_after_its_input() -> None:
    w = nine_oclock()
    w.now = time("2026-09-21 08:29:59")
    assert w.due() == set()
    w.now += 1
    assert w.due() == {(CORE, H7)} and w.of("rollup", D20).wait_for == ((CORE, H7),)
    w.run_all()
    assert w.history.facts.is_built(("rollup", D20))


def test_input_starts_before_the_lower_bound_only_if_runs_take_longer() -> None:
    w = nine_oclock()
    w.made(CORE, H7, seconds=20 * 60)
    w.made("rollup", D20, seconds=15 * 60)
    w.arrive(H7, "v2")
    path = 15 * 60 + MARGIN + 20 * 60 + MARGIN
    assert w.of(CORE, H7).due_at == time("2026-09-21 09:00") - path


def test_data_between_early_start_and_lower_bound_makes_input_due_again() -> None:
    w = nine_oclock()
    w.made(CORE, H7, seconds=20 * 60), w.made("rollup", D20, seconds=15 * 60)
    w.arrive(H7, "v2")
    w.now = w.of(CORE, H7).due_at or 0
    w.made(CORE, H7)
    w.now = time("2026-09-21 08:27")
    w.arrive(H7, "v3")
    assert (CORE, H7) in w.due()


def test_data_after_the_lower_bound_waits_for_the_next_cron_tick() -> None:
    w = nine_oclock()
    w.now = time("2026-09-21 08:30")
    w.run_all()
    w.now = time("2026-09-21 08:31")
    w.arrive(H7, "late")
    assert w.of("rollup", D20).deadline == time("2026-09-22 09:00")
    w.now = time("2026-09-22 08:29")
    w.arrive(H8, "later")
    assert w.due() == set()
    w.now = time("2026-09-22 08:30")
    assert w.due() == {(CORE, H7), (CORE, H8)}


def test_late_data_does_not_delay_a_run_that_waits_for_its_input() -> None:
    w = nine_oclock()
    w.now = time("2026-09-21 08:30")
    w.start("r", (CORE, H7))
    w.now += 30
    w.arrive(H7, "late")
    w.build("r", (CORE, H7))
    w.end("r")
    assert w.due() == {("rollup", D20)}


def test_new_partition_past_its_cron_tick_is_due_at_once() -> None:
    w = nine_oclock()
    w.now = time("2026-09-23 15:00")
    assert w.due() == {(CORE, H7)}


def test_partitions_older_than_the_first_evaluation_are_built_but_not_judged() -> None:
    w = world(RAW, CORE_PULLED, daily("rollup", within(CORE), contract=NINE), now="2026-09-25 12:00")
    w.arrive(H7, "v1")
    decision = w.of("rollup", D20)
    assert decision.deadline is None and decision.verdict(w.now) is FreshnessStatus.MET
    assert (CORE, H7) in w.due()


# Pull


def test_input_without_a_contract_is_due_for_its_strictest_reader() -> None:
    w = world(RAW, CORE_PULLED, hourly(HOURLY, reads(CORE), contract=HOUR), daily(DAILY, within(CORE), contract=DAY))
    w.arrive(H7, "v1")
    w.made(CORE, H7, seconds=LEAD), w.made(HOURLY, H7)
    w.arrive(H7, "v2")
    hourly_due = w.of(HOURLY, H7).due_at
    assert hourly_due is not None
    assert w.of(CORE, H7).due_at == hourly_due - LEAD - MARGIN and w.of(CORE, H7).due_for == HOURLY


def test_joinable_input_is_due_and_runs_with_its_reader() -> None:
    w = world(RAW, CORE_PULLED, hourly(HOURLY, reads(CORE, joinable=True), contract=HOUR))
    w.arrive(H7, "v1")
    w.made(CORE, H7), w.made(HOURLY, H7)
    w.arrive(H7, "v2")
    assert w.of(CORE, H7).due_at == w.of(HOURLY, H7).due_at
    w.now = w.of(HOURLY, H7).due_at or 0
    assert [r.assets for r in w.plan().requests] == [(CORE, HOURLY)]


def test_nothing_runs_without_a_contract_of_the_asset_or_its_readers() -> None:
    w = world(RAW, CORE_PULLED, hourly(HOURLY, reads(CORE)), now="2026-09-21 12:00")
    w.arrive(H7, "v1")
    assert w.due() == set() and w.state(CORE, H7) is w.state(HOURLY, H7) is State.NO_CONSUMER


def test_constantly_changing_input_does_not_delay_its_reader() -> None:
    w = world(RAW, CORE_PULLED, daily(DAILY, within(CORE), contract=HOUR))
    w.arrive(H7, "v1")
    w.made(CORE, H7)
    w.made(DAILY, D20)
    w.arrive(H7, "v2")
    w.now = w.of(CORE, H7).due_at or 0
    w.made(CORE, H7)
    w.arrive(H7, "v3")
    w.now = w.of(DAILY, D20).due_at or 0
    assert w.due() == {(DAILY, D20)}, "its own contract does not need the third file yet"


def test_inputs_of_one_reader_are_due_together_despite_different_arrivals() -> None:
    margin = hourly("margin", reads(CORE), hours_within(PRICES), contract=LagContract(7200))
    w = world(RAW, RAW_PRICES, CORE_PULLED, daily(PRICES, reads("raw/prices")), margin)
    w.arrive(H7, "v1")
    w.arrive(D20, "p1", key="raw/prices")
    w.made(CORE, H7), w.made(PRICES, D20), w.made("margin", H7)
    w.now += 60
    w.arrive(H7, "v2")
    w.now += 1200
    w.arrive(D20, "p2", key="raw/prices")
    assert w.of(PRICES, D20).due_at == w.of(CORE, H7).due_at


# use_latest, ripple_days


def forecasting(**model: Any) -> World:
    features = daily("features", within(CORE))
    fitted = single(MODEL, every("features"), contract=CronContract("0 6 * * 1", 3600), **model)
    forecast = daily(FORECAST, reads("features"), whole(MODEL, use_latest=True), contract=NINE)
    w = world(RAW, CORE_PULLED, features, fitted, forecast, now="2026-09-20 12:00")
    w.arrive(H7, "v1")
    return w


def test_use_latest_input_must_exist_before_its_reader_runs() -> None:
    w = forecasting()
    assert w.state(FORECAST, D20) is State.NO_DATA and w.of(FORECAST, D20).wait_for == ((MODEL, None),)


def test_new_version_of_a_use_latest_input_makes_no_reader_stale() -> None:
    w = forecasting()
    for asset, partition in ((CORE, H7), ("features", D20), (MODEL, None), (FORECAST, D20)):
        w.made(asset, partition)
    w.made(MODEL, None, content="another")
    assert (FORECAST, D20) not in w.plan().decisions


def test_use_latest_input_gets_no_deadline_from_its_reader() -> None:
    w = forecasting()
    for asset, partition in ((CORE, H7), ("features", D20), (MODEL, None), (FORECAST, D20)):
        w.made(asset, partition)
    w.now = time("2026-09-22 12:00")
    w.arrive(H7, "v2")
    assert w.of(MODEL, None).due_for == MODEL and w.of(MODEL, None).due_at == time("2026-09-28 05:00")
    assert w.of("features", D20).due_for == FORECAST


def test_ripple_days_cover_the_last_built_days_even_when_run_late() -> None:
    stats = daily("stats", within(CORE), whole("core/customers", ripple_days=2), contract=DAY, asap=True)
    customers = single("core/customers", whole("raw/customers"))
    w = world(RAW, RAW_CUSTOMERS, CORE_ASAP, customers, stats, now="2026-09-21 12:00")
    w.arrive(None, "c1", key="raw/customers")
    w.made("core/customers", None)
    for day in ("18", "19", "20", "21"):
        w.arrive(f"2026-09-{day}-07:00", "v1")
        w.made(CORE, f"2026-09-{day}-07:00")
        w.made("stats", f"2026-09-{day}")
    w.arrive(None, "c2", key="raw/customers")
    reached = {("stats", "2026-09-20"), ("stats", "2026-09-21")}
    assert {t for t in w.plan().decisions if t[0] == "stats"} == reached
    w.now = time("2026-09-24 12:00")
    w.made("core/customers", None)
    assert w.due() == reached


# AND, every_input_changed


def test_partition_needs_every_input_but_not_every_hour_of_it() -> None:
    margin = daily("margin", within(CORE), reads(PRICES), contract=DAY)
    w = world(RAW, RAW_PRICES, CORE_ASAP, daily(PRICES, reads("raw/prices")), margin, now="2026-09-22 12:00")
    w.arrive(H7, "v1")
    w.made(CORE, H7)
    assert w.state("margin", D20) is State.NO_DATA and w.of("margin", D20).reason == PRICES
    w.arrive(D20, "p1", key="raw/prices")
    w.made(PRICES, D20)
    assert w.due() == {("margin", D20)}, "one hour of twenty-four is there"


def test_empty_observation_or_build_counts_as_present_data() -> None:
    w = world(RAW, CORE_ASAP, daily(DAILY, within(CORE), contract=DAY), now="2026-09-22 12:00")
    w.arrive(H7, "no files")
    w.made(CORE, H7, content="0 rows")
    assert w.due() == {(DAILY, D20)}


def test_requires_all_partition_waits_until_every_input_has_changed() -> None:
    offers = daily("offers", reads(PRICES), whole("core/customers"), contract=HOUR, requires_all=True)
    w = world(
        RAW_PRICES,
        RAW_CUSTOMERS,
        daily(PRICES, reads("raw/prices")),
        single("core/customers", whole("raw/customers")),
        offers,
    )
    w.arrive(D20, "p1", key="raw/prices"), w.arrive(None, "c1", key="raw/customers")
    w.made(PRICES, D20), w.made("core/customers", None), w.made("offers", D20)
    w.arrive(D20, "p2", key="raw/prices")
    w.made(PRICES, D20)
    w.now += 7200
    assert w.due() == set() and w.state("offers", D20) is State.INCOMPLETE
    assert w.of("offers", D20).reason == "core/customers" and w.of("offers", D20).deadline is None
    w.arrive(None, "c2", key="raw/customers")
    assert w.of("offers", D20).deadline == w.now + 3600, "the clock starts with the last of them"


# Pace


def test_pace_asap_is_due_at_once_and_its_contract_is_only_reported() -> None:
    w = world(RAW, CORE_ASAP)
    w.arrive(H7, "v1")
    assert w.due() == {(CORE, H7)} and w.of(CORE, H7).deadline == w.now + 300
    w.start("r", (CORE, H7))
    w.arrive(H7, "v2")
    assert w.due() == set() and w.state(CORE, H7) is State.RUNNING


# Failure


@pytest.mark.parametrize(("attempts", "pause"), [(1, 60), (2, 120), (3, 240), (6, 1920), (7, 3600), (30, 3600)])
def test_failed_partition_is_retried_after_growing_pauses_without_limit(attempts: int, pause: float) -> None:
    w = world(RAW, CORE_ASAP)
    w.arrive(H7, "v1")
    for _ in range(attempts):
        w.fail(CORE, H7)
    w.now += pause - 1
    assert w.state(CORE, H7) is State.BACKING_OFF
    w.now += 1
    assert w.due() == {(CORE, H7)}


def failed_often() -> World:
    w = world(RAW, CORE_ASAP)
    w.arrive(H7, "v1")
    for _ in range(5):
        w.fail(CORE, H7)
    assert w.state(CORE, H7) is State.BACKING_OFF
    return w


def test_retry_pause_ends_with_new_data() -> None:
    w = failed_often()
    w.arrive(H7, "v2")
    w.now += 60
    assert w.due() == {(CORE, H7)}


def test_retry_pause_ends_with_a_new_code_version() -> None:
    w = failed_often()
    w.deploy(bumped(w, CORE, "2"))
    assert w.due() == {(CORE, H7)}


def test_retry_pause_does_not_end_with_new_code_of_another_asset() -> None:
    w = failed_often()
    w.deploy(bumped(w, "raw/orders", "2"))
    assert w.state(CORE, H7) is State.BACKING_OFF


def test_retry_pause_is_reset_by_a_manual_run() -> None:
    w = failed_often()
    w.start("by hand", (CORE, H7))
    w.history.ended("by hand", at=w.now, by_person=True)
    assert w.of(CORE, H7).attempts == 1


def test_retry_pause_is_reset_by_a_success_of_another_partition() -> None:
    w = failed_often()
    w.made(CORE, H8)
    assert w.of(CORE, H7).attempts == 1


def test_reader_waits_for_a_failing_input_only_until_its_latest_start() -> None:
    w = world(RAW, CORE_ASAP, daily(DAILY, within(CORE), contract=HOUR))
    w.arrive(H7, "v1")
    w.made(CORE, H7), w.made(DAILY, D20)
    w.arrive(H7, "v2"), w.arrive(H8, "v1")
    w.made(CORE, H8)
    w.fail(CORE, H7)
    decision = w.of(DAILY, D20)
    w.now = (decision.due_at or 0) + 1
    w.fail(CORE, H7)
    assert w.state(DAILY, D20) is State.WAITING and w.of(DAILY, D20).wait_for == ((CORE, H7),)
    w.now = decision.latest_start or 0
    w.fail(CORE, H7)
    assert w.due() == {(DAILY, D20)}, "the hour that is there is not held up by the one that fails"
    w.made(DAILY, D20)
    assert w.state(DAILY, D20) is State.WAITING
    assert w.of(DAILY, D20).verdict(w.now + 3600) is FreshnessStatus.BREACHED


# Code


def rebuilt() -> World:
    w = world(RAW, CORE_ASAP, daily(DAILY, within(CORE), contract=DAY), now="2026-09-22 12:00")
    for hour in (H7, H8):
        w.arrive(hour, "v1")
        w.made(CORE, hour, content="1")
    w.made(DAILY, D20)
    w.deploy(bumped(w, CORE, "2"))
    return w


def test_new_code_version_makes_only_built_partitions_stale_without_adding_lag() -> None:
    w = rebuilt()
    w.arrive("2026-09-22-11:00", "v1")
    stale = {t for t, d in w.plan().decisions.items() if d.stale}
    assert stale == {(CORE, H7), (CORE, H8)}
    assert w.of(CORE, H7).lag(w.now + 9999) == 0 and w.of(CORE, H7).verdict(w.now + 9999) is FreshnessStatus.MET


def test_rebuild_proceeds_in_short_single_runs_from_the_newest_partition() -> None:
    w = rebuilt()
    assert [(r.partitions, r.as_range, r.rebuild) for r in w.plan().requests] == [((H7, H8), True, True)]
    w.history.durations.per_partition[CORE] = 60.0
    w.history.revision += 1
    (request,) = w.plan().requests
    assert request.partitions == (H8,), "a quarter of five minutes is one partition of a minute"
    assert w.planner.plan(w.now, Asked(rebuilding=True)).requests == []


def test_rebuild_continues_downstream_without_deadline_only_if_content_changes() -> None:
    w = rebuilt()
    w.made(CORE, H7, content="1")
    assert (DAILY, D20) not in {t for t, d in w.plan().decisions.items() if d.stale}
    w.made(CORE, H8, content="2")
    decision = w.of(DAILY, D20)
    assert "was rebuilt" in decision.stale and decision.oldest_arrival is None and decision.deadline is None
    assert [(r.assets, r.rebuild) for r in w.plan().requests] == [((DAILY,), True)]


def test_stale_partition_with_new_data_is_not_delayed_and_runs_once() -> None:
    w = rebuilt()
    w.arrive(H8, "v2")
    requests = {r.partitions: r.rebuild for r in w.plan().requests}
    assert requests == {(H8,): False, (H7,): True}
    w.made(CORE, H8, content="2")
    assert (CORE, H8) not in w.plan().decisions


def test_new_data_is_built_on_stale_inputs_to_meet_the_contract() -> None:
    w = rebuilt()
    w.arrive("2026-09-20-09:00", "v1")
    w.made(CORE, "2026-09-20-09:00")
    w.now = w.of(DAILY, D20).due_at or 0
    assert (DAILY, D20) in w.due(), "two of its hours are stale, and that is no reason to be late"


def test_stale_reader_is_rebuilt_after_its_stale_inputs() -> None:
    w = rebuilt()
    w.deploy(bumped(w, DAILY, "2"))
    assert w.state(DAILY, D20) is State.WAITING and "its inputs are rebuilt first" in w.of(DAILY, D20).reason
    w.made(CORE, H7, content="1"), w.made(CORE, H8, content="1")
    assert w.due() == {(DAILY, D20)}


def test_model_waits_for_stale_inputs_and_its_readers_until_their_deadline() -> None:
    w = forecasting()
    for asset, partition in ((CORE, H7), ("features", D20), (MODEL, None), (FORECAST, D20)):
        w.made(asset, partition, content="1")
    w.now = time("2026-09-21 12:00")
    w.arrive("2026-09-21-07:00", "v1")
    w.made(CORE, "2026-09-21-07:00"), w.made("features", "2026-09-21", content="1")
    w.deploy(bumped(w, "features", "2"))
    w.made("features", "2026-09-21", content="2")
    w.now = time("2026-09-22 08:30")
    assert w.state(MODEL, None) in (State.NOT_DUE, State.WAITING)
    waiting = w.of(FORECAST, "2026-09-21")
    assert waiting.state is State.WAITING and "model is being refitted, 1 of 2" in waiting.reason.replace(
        f" {MODEL}", ""
    )
    w.now = waiting.latest_start or 0
    assert (FORECAST, "2026-09-21") in w.due()


def test_model_is_rebuilt_once_after_all_its_inputs_are_rebuilt() -> None:
    w = forecasting()
    for asset, partition in ((CORE, H7), ("features", D20), (MODEL, None), (FORECAST, D20)):
        w.made(asset, partition, content="1")
    w.deploy(bumped(w, CORE, "2"))
    w.made(CORE, H7, content="2")
    assert w.state(MODEL, None) is None, "not before its own inputs are"
    w.made("features", D20, content="2")
    assert [(r.assets, r.rebuild) for r in w.plan().requests] == [((MODEL,), True)]


def test_model_is_rebuilt_for_new_code_before_its_new_data_is_due() -> None:
    w = forecasting()
    for asset, partition in ((CORE, H7), ("features", D20), (MODEL, None), (FORECAST, D20)):
        w.made(asset, partition, content="1")
    w.now = time("2026-09-21 12:00")
    w.arrive("2026-09-21-07:00", "v1")
    w.made(CORE, "2026-09-21-07:00"), w.made("features", "2026-09-21", content="1")
    assert w.state(MODEL, None) is State.NOT_DUE
    w.deploy(bumped(w, MODEL, "2"))
    assert ((MODEL,), True) in [(r.assets, r.rebuild) for r in w.plan().requests]


# What cannot be


def test_invalid_partition_key_is_set_aside_with_the_reason_and_blocks_nothing() -> None:
    strange = replace(RAW, problem=lambda p: None if str(p).startswith("2026") else f"{p!r} is no hour")
    w = world(strange, CORE_ASAP)
    w.arrive("junk", "v1"), w.arrive(H7, "v1")
    assert w.due() == {(CORE, H7)}
    assert w.plan().set_aside == {("raw/orders", "junk"): "'junk' is no hour"}


def test_wiped_partition_is_rebuilt_and_identical_content_is_no_change() -> None:
    w = world(RAW, CORE_ASAP, daily(DAILY, within(CORE), contract=DAY, asap=True))
    w.arrive(H7, "v1")
    w.made(CORE, H7, content="1"), w.made(DAILY, D20)
    w.history.forget([(CORE, H7)])
    assert (CORE, H7) in w.due()
    w.made(CORE, H7, content="1")
    assert w.plan().decisions == {}
