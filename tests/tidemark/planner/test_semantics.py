"""What a declaration means, one test a rule, played on the simulator: arrivals, content, inputs, failures."""

from itertools import pairwise

import dagster as dg
import pytest

from dagster_tidemark.simulation.simulator import RunPace, Simulation
from tests.tidemark.toy_graph import ASAP, DAYS, HOURS, START, asset, lag, small, source, within

MONDAY, HOUR_7, HOUR_8 = "2026-10-05", "2026-10-05-07:00", "2026-10-05-08:00"
CORE, HOURLY, DAILY = "core/orders", "marts/hourly", "marts/daily"


def asap() -> list[object]:
    """Orders by the hour, sales by hour and day, all as soon as something is pending."""
    return [
        source("orders", HOURS),
        asset(CORE, "raw/orders", by=HOURS, freshness_policy=lag(minutes=5), **ASAP),
        asset(HOURLY, CORE, by=HOURS, freshness_policy=lag(minutes=5), **ASAP),
        asset(DAILY, within(CORE), by=DAYS, freshness_policy=lag(minutes=5), **ASAP),
    ]


def begin(assets: object = None, pace: RunPace | None = None, **more: object) -> Simulation:
    return Simulation(assets or asap(), start=START, pace=pace, **more)  # type: ignore[arg-type]


def all_fresh(simulation: Simulation) -> bool:
    return bool(simulation.tables.written) and all(map(simulation.tables.fresh, simulation.tables.written))


# Arrival


def test_repeated_arrival_of_the_same_version_causes_no_second_run() -> None:
    simulation = begin()
    for minute in (0, 10, 20):
        simulation.arrive("raw/orders", HOUR_7, at=simulation.time(hours=7, minutes=minute), version="v1")
    simulation.run(hours=8)
    assert len(simulation.runs_of(CORE)) == len(simulation.runs_of(DAILY)) == 1


def test_only_an_observation_of_another_version_causes_a_second_run() -> None:
    simulation = begin()
    for minute, version in ((0, "v1"), (10, "v1"), (20, "v2")):
        simulation.observe("raw/orders", HOUR_7, version, at=simulation.time(hours=7, minutes=minute))
    simulation.run(hours=7.3)
    assert len(simulation.runs_of(CORE)) == 1
    simulation.run(hours=1)
    assert len(simulation.runs_of(CORE)) == 2


def test_observation_with_an_older_listing_causes_no_second_run() -> None:
    simulation = begin()
    at = simulation.time(hours=7)
    simulation.observe("raw/orders", HOUR_7, "v2", at=at, listed_at=at)
    simulation.observe("raw/orders", HOUR_7, "v1", at=at + 600, listed_at=at - 1)
    simulation.run(hours=8)
    assert len(simulation.runs_of(CORE)) == 1


# Incorporated


def test_update_during_a_run_of_its_partition_is_loaded_afterwards() -> None:
    simulation = begin(pace=RunPace(step=60.0))
    simulation.arrive("raw/orders", HOUR_7, at=simulation.time(hours=7))
    simulation.arrive("raw/orders", HOUR_7, at=simulation.time(hours=7, seconds=30))
    simulation.run(hours=8)
    first, second = simulation.runs_of(CORE, HOUR_7)
    assert first.ended_at is not None and second.created_at >= first.committed[CORE]
    assert all_fresh(simulation)


def test_reader_in_a_joint_run_is_not_run_again() -> None:
    simulation = begin()
    simulation.arrive("raw/orders", HOUR_7, at=simulation.time(hours=7))
    simulation.run(hours=8)
    (joint,) = simulation.runs_of(HOURLY)
    assert joint.assets == (CORE, HOURLY)


def test_older_run_that_ends_last_is_followed_by_another_run() -> None:
    simulation = begin(small())
    at = simulation.time(hours=7)
    simulation.slow(CORE, HOUR_7, seconds=600)
    simulation.arrive("raw/orders", HOUR_7, at=at)
    simulation.arrive("raw/orders", HOUR_7, at=at + 60)
    simulation.request([CORE], [HOUR_7], at=at + 90)  # a person does not wait for the run under way
    simulation.run_until(at + 590)
    assert simulation.tables.fresh((CORE, HOUR_7))
    simulation.run_until(at + 620)
    assert not simulation.tables.fresh((CORE, HOUR_7)), "the older run wrote what it had read"
    simulation.run_until(at + 900)
    assert simulation.tables.fresh((CORE, HOUR_7))
    assert len(simulation.runs_of(CORE, HOUR_7)) == 3


# A materialization without a run


def test_reported_materialization_runs_the_readers_again() -> None:
    simulation = begin()
    simulation.arrive("raw/orders", HOUR_7, at=simulation.time(hours=7))
    simulation.report(CORE, HOUR_7, at=simulation.time(hours=8), content="by hand")
    simulation.run(hours=9)
    assert len(simulation.runs_of(DAILY)) == 2
    assert len(simulation.runs_of(CORE)) == 1


def test_reported_materialization_does_not_clear_pending_data_of_its_asset() -> None:
    simulation = begin()
    at = simulation.time(hours=7)
    simulation.fail(CORE, times=4)
    simulation.arrive("raw/orders", HOUR_7, at=at)
    simulation.report(CORE, HOUR_7, at=at + 30, content="by hand")
    simulation.run(hours=8)
    *failed, done = simulation.runs_of(CORE)
    first = simulation.runs_of(DAILY)[0]
    assert at + 60 < first.created_at < at + 300, "the file goes first, as long as the contract leaves time for it"
    assert first.created_at < done.created_at, "then what was reported goes without it"
    assert len(failed) == 4 and done.succeeded


def test_a_reported_materialization_of_an_external_asset_is_an_arrival() -> None:
    table = asset("marts/rates", "outside/rates", freshness_policy=lag(minutes=5), **ASAP)
    simulation = begin([dg.AssetSpec(dg.AssetKey(["outside", "rates"])), table])
    simulation.report("outside/rates", at=simulation.time(hours=7))
    simulation.report("outside/rates", at=simulation.time(hours=8))
    simulation.run(hours=9)
    assert len(simulation.runs_of("marts/rates")) == 2


# Pending


def test_late_hour_of_an_old_day_rebuilds_only_that_day() -> None:
    simulation = begin()
    for day in ("01", "02", "03"):
        simulation.arrive("raw/orders", f"2026-10-{day}-07:00", at=simulation.time(minutes=1))
    simulation.run(hours=1)
    before = len(simulation.runs)
    simulation.arrive("raw/orders", "2026-10-02-09:00", at=simulation.time(hours=2))
    simulation.run(hours=2)
    later = [(run.assets, run.partitions) for run in simulation.runs[before:]]
    assert later == [((CORE, HOURLY), ("2026-10-02-09:00",)), ((DAILY,), ("2026-10-02",))]


def test_every_partition_is_built_after_a_three_day_outage() -> None:
    simulation = begin(pace=RunPace(at_once=3))
    hours = [f"2026-10-{5 + n // 24:02}-{n % 24:02}:00" for n in range(74)]
    for n, hour in enumerate(hours):
        for minute in (10, 50):
            simulation.arrive("raw/orders", hour, at=simulation.time(hours=n, minutes=minute))
    simulation.outage(at=simulation.time(hours=1), until=simulation.time(hours=73))
    simulation.run(hours=75)
    assert {p for asset, p in simulation.tables.written if asset == CORE} == set(hours)
    assert {p for asset, p in simulation.tables.written if asset == DAILY} == {hour[:10] for hour in hours}
    assert all_fresh(simulation)
    after = [run for run in simulation.runs if run.created_at >= simulation.time(hours=73)]
    assert len(after) < 20, "as ranges, not one by one"


# Content


@pytest.mark.parametrize(("content", "consumers_ran"), [("the same", 1), (None, 2)])
def test_readers_run_only_if_the_content_of_their_input_differs(content: str | None, consumers_ran: int) -> None:
    def content_of(target: tuple[str, str | None], inputs: object, default: str) -> str:
        return content if content and target[0] == CORE else default

    simulation = begin(content=content_of)
    for minute in (0, 10):
        simulation.arrive("raw/orders", HOUR_7, at=simulation.time(hours=7, minutes=minute))
    simulation.run(hours=8)
    assert len(simulation.runs_of(CORE)) == 2
    assert len(simulation.runs_of(DAILY)) == consumers_ran


# AND


def two_inputs() -> list[object]:
    stats = asset("marts/stats", within(CORE), "core/customers", by=DAYS, freshness_policy=lag(minutes=5), **ASAP)
    customers = asset("core/customers", "raw/customers", freshness_policy=lag(minutes=5), **ASAP)
    return [*asap(), source("customers"), customers, stats]


def test_reader_of_a_silent_required_input_is_not_requested_and_reports_it() -> None:
    simulation = begin(two_inputs())
    simulation.arrive("raw/orders", HOUR_7, at=simulation.time(hours=7))
    simulation.run(hours=8)
    assert simulation.runs_of("marts/stats") == []
    reason = simulation.plan().waiting[("marts/stats", MONDAY)]
    assert "no data" in reason and "customers" in reason
    simulation.arrive("raw/customers", at=simulation.time(hours=9))
    simulation.run(hours=2)
    assert len(simulation.runs_of("marts/stats", MONDAY)) == 1


def test_hour_without_data_does_not_block_its_day() -> None:
    simulation = begin()
    simulation.arrive("raw/orders", HOUR_8, at=simulation.time(hours=8))
    simulation.run(hours=9)
    assert len(simulation.runs_of(DAILY, MONDAY)) == 1


# Failure


def test_failed_run_is_retried_with_pauses_from_one_minute_to_one_hour() -> None:
    simulation = begin()
    simulation.fail(CORE, times=9)
    simulation.arrive("raw/orders", HOUR_7, at=simulation.time(hours=7))
    simulation.run(hours=14)
    tried = simulation.runs_of(CORE, HOUR_7)
    assert [run.succeeded for run in tried] == [False] * 9 + [True]
    pauses = [later.created_at - (run.ended_at or 0.0) for run, later in pairwise(tried)]
    wanted = [60, 120, 240, 480, 960, 1920, 3600, 3600, 3600]
    assert all(0 <= pause - want <= 5 for pause, want in zip(pauses, wanted, strict=True)), pauses
    assert all_fresh(simulation)


def test_new_data_ends_the_pause_after_a_failed_run() -> None:
    simulation = begin()
    simulation.fail(CORE, times=4)
    at = simulation.time(hours=7)
    simulation.arrive("raw/orders", HOUR_7, at=at)
    simulation.arrive("raw/orders", HOUR_7, at=at + 600)  # in the middle of a pause of eight minutes
    simulation.run(hours=8)
    fifth = simulation.runs_of(CORE, HOUR_7)[4]
    assert at + 600 < fifth.created_at < at + 610 and fifth.succeeded


def test_success_of_another_partition_ends_the_long_pauses_of_an_asset() -> None:
    simulation = begin()
    simulation.fail(CORE, HOUR_7, times=5)
    at = simulation.time(hours=8)
    simulation.arrive("raw/orders", HOUR_7, at=at)
    simulation.arrive("raw/orders", HOUR_8, at=at + 1200)  # the fifth attempt failed, the pause is sixteen minutes
    simulation.run(hours=9)
    sixth = simulation.runs_of(CORE, HOUR_7)[5]
    assert sixth.created_at < at + 1300 and sixth.succeeded


def test_manual_run_ends_the_pause_after_a_failure() -> None:
    simulation = begin()
    simulation.fail(CORE, times=5)
    at = simulation.time(hours=7)
    simulation.arrive("raw/orders", HOUR_7, at=at)
    simulation.request([CORE], [HOUR_7], at=at + 1200)
    simulation.run(hours=7.5)
    assert all_fresh(simulation)
    assert len(simulation.runs_of(CORE, HOUR_7)) == 6


# Restart, reload


def test_restarts_and_deploys_during_a_stream_lose_and_repeat_no_run() -> None:
    calm, disturbed = begin(), begin()
    for simulation in (calm, disturbed):
        for minute in range(0, 60, 10):
            simulation.arrive("raw/orders", HOUR_7, at=simulation.time(hours=7, minutes=minute))
    for second in range(0, 3600, 97):
        disturbed.restart(at=disturbed.time(hours=7, seconds=second))
    disturbed.deploy(asap(), at=disturbed.time(hours=7, minutes=30, seconds=5))  # type: ignore[arg-type]
    for simulation in (calm, disturbed):
        simulation.run(hours=9)
        assert all_fresh(simulation)
    assert [run.assets for run in disturbed.runs] == [run.assets for run in calm.runs]
