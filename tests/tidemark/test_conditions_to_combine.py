"""Conditions beside the contract, each on a simulated platform."""

from typing import Any

import dagster as dg
import pytest

from dagster_tidemark.conditions_to_combine import ConditionRefused, between, check_passed, every, updated
from dagster_tidemark.engine.condition import derived
from dagster_tidemark.simulation.simulator import Simulation
from tests.tidemark.planner.shapes.playing import asked, play
from tests.tidemark.toy_graph import ASAP, DAYS, asset, lag, source

DAY = "2026-10-05"  # a Monday, the first day of each simulation


def hours_of(simulation: Simulation, name: str) -> list[int]:
    """Whole hours from the start to the request of each run of an asset."""
    start = simulation.time()
    return [int((run.created_at - start) / 3600) for run in simulation.runs_of(name)]


def two_sources(condition: Any, by: Any = None, **more: Any) -> Simulation:
    return play(
        [
            source("a", by),
            source("b", by),
            asset("core/a", "raw/a", by=by, **ASAP),
            asset("core/b", "raw/b", by=by, **ASAP),
            asset("core/x", "core/a", "core/b", by=by, automation_condition=condition, **more),
        ],
        own_every=900,
    )


def test_combined_updated_conditions_run_after_any_or_all_inputs() -> None:
    for condition, wanted in [
        (updated("core/a") | updated("core/b"), [1, 3, 5]),
        (updated("core/a") & updated("core/b"), [3]),
    ]:
        simulation = two_sources(condition)
        for hour, name in ((1, "a"), (3, "b"), (5, "a")):
            simulation.arrive(f"raw/{name}", at=simulation.time(hours=hour), version=str(hour))
        simulation.run(hours=6)
        assert hours_of(simulation, "core/x") == wanted, wanted


@pytest.mark.parametrize("by", [None, DAYS], ids=["unpartitioned", "by day"])
def test_updated_conditions_of_all_inputs_wait_for_each_of_them_again_after_a_run(by: Any) -> None:
    simulation = two_sources(updated("core/a") & updated("core/b"), by=by)
    for hour, name in ((1, "a"), (2, "a"), (3, "b"), (5, "b"), (7, "a"), (9, "a"), (11, "b")):
        at = simulation.time(hours=hour)
        simulation.arrive(f"raw/{name}", None if by is None else DAY, at=at, version=str(hour))
    simulation.run(hours=12)
    assert hours_of(simulation, "core/x") == [3, 7, 11]


def test_updated_conditions_of_all_inputs_are_about_the_same_partition() -> None:
    simulation = two_sources(updated("core/a") & updated("core/b"), by=DAYS)
    for hour, name, day in ((1, "a", DAY), (25, "b", "2026-10-06"), (27, "b", DAY), (29, "a", "2026-10-06")):
        simulation.arrive(f"raw/{name}", day, at=simulation.time(hours=hour), version=str(hour))
    simulation.run(hours=31)
    assert hours_of(simulation, "core/x") == [27, 29]
    assert asked(simulation, "core/x") == [DAY, "2026-10-06"]


def test_update_of_any_input_outside_of_hours_is_remembered() -> None:
    condition = (updated("core/a") | updated("core/b")) & between("06:00", "22:00")
    simulation = two_sources(condition)
    for hour, name in ((1, "a"), (23, "b"), (47, "a")):
        simulation.arrive(f"raw/{name}", at=simulation.time(hours=hour), version=str(hour))
    simulation.run(hours=56)
    assert hours_of(simulation, "core/x") == [6, 30, 54]


def test_updates_during_a_run_are_remembered_until_the_next_request() -> None:
    reads = asset("core/x", "raw/a", "raw/b", automation_condition=updated("raw/a") & updated("raw/b"))
    hours = between("00:00", "00:07") | between("00:15", "00:30")
    opens = asset("core/y", "raw/a", automation_condition=updated("raw/a") & hours)
    simulation = play([source("a"), source("b"), reads, opens], own_every=30)
    for name in ("core/x", "core/y"):
        simulation.slow(name, seconds=300)
    for minute, name in ((1, "b"), (6, "a"), (8, "a"), (20, "b")):
        simulation.arrive(f"raw/{name}", at=simulation.time(minutes=minute), version=str(minute))
    simulation.run(minutes=25)
    start = simulation.time()
    asked = {x: [int((run.created_at - start) / 60) for run in simulation.runs_of(x)] for x in ("core/x", "core/y")}
    assert asked == {"core/x": [6, 20], "core/y": [6, 15]}
    assert simulation.tables.fresh(("core/x", None)) and simulation.tables.fresh(("core/y", None))


def test_update_between_a_request_and_the_next_evaluation_is_remembered() -> None:
    simulation = play([source("a"), asset("core/x", "raw/a", automation_condition=updated("raw/a"))], own_every=600)
    simulation.slow("core/x", seconds=300)  # it ends before the next evaluation, and has not seen the update
    for minute in (1, 12):
        simulation.arrive("raw/a", at=simulation.time(minutes=minute), version=str(minute))
    simulation.run(minutes=25)
    start = simulation.time()
    assert [int((run.created_at - start) / 60) for run in simulation.runs_of("core/x")] == [10, 20]
    assert simulation.tables.fresh(("core/x", None))


def test_older_run_never_overwrites_the_data_of_a_newer_one() -> None:
    simulation = play([source("a"), asset("core/x", "raw/a", automation_condition=updated("raw/a"))], own_every=30)
    simulation.slow("core/x", seconds=300)
    simulation.arrive("raw/a", at=simulation.time(minutes=1), version="1")
    simulation.arrive("raw/a", at=simulation.time(minutes=2), version="2")
    simulation.run(minutes=10)
    assert len(simulation.runs_of("core/x")) == 2
    assert simulation.tables.fresh(("core/x", None))


def test_between_condition_delays_changed_data_until_its_time_of_day() -> None:
    condition = derived() & between("06:00", "22:00", timezone="Europe/Berlin")  # 4:00 to 20:00 in UTC
    simulation = play(
        [source("a", DAYS), asset("core/x", "raw/a", by=DAYS, automation_condition=condition, **ASAP)], own_every=900
    )
    for hour in (1, 10, 21):
        simulation.arrive("raw/a", DAY, at=simulation.time(hours=hour), version=str(hour))
    simulation.run(hours=30)
    assert hours_of(simulation, "core/x") == [4, 10, 28]


def test_updated_or_every_condition_runs_on_change_or_on_friday() -> None:
    condition = updated("core/a") | every("0 6 * * 5")
    x = asset("core/x", "core/a", automation_condition=condition)
    simulation = play([source("a"), asset("core/a", "raw/a", **ASAP), x], own_every=3_600)
    simulation.arrive("raw/a", at=simulation.time(hours=70))
    simulation.run(days=4, hours=9)
    assert hours_of(simulation, "core/x") == [71, 4 * 24 + 6]


def test_updated_and_every_condition_waits_for_both_input_and_time() -> None:
    simulation = two_sources(updated("core/a") & every("0 6 * * *"))
    simulation.arrive("raw/a", at=simulation.time(hours=10))
    simulation.arrive("raw/b", at=simulation.time(hours=11))
    simulation.run(hours=20)
    # The time of the first day has passed; the data waits for no further one, as both are remembered.
    assert hours_of(simulation, "core/x") == [10]


def test_check_passed_condition_runs_the_reader_only_after_the_check_passes() -> None:
    @dg.asset_check(asset=dg.AssetKey(["core", "a"]), name="complete")
    def complete() -> dg.AssetCheckResult:
        raise NotImplementedError

    condition = derived() & check_passed("core/a", "complete")
    simulation = play(
        [
            source("a"),
            asset("core/a", "raw/a", **ASAP),
            asset("core/x", "core/a", automation_condition=condition, freshness_policy=lag(minutes=30), **ASAP),
        ],
        [complete],
        own_every=60,
    )
    simulation.fail_check("core/a", "complete", times=1)
    simulation.arrive("raw/a", at=simulation.time(minutes=55), version="1")
    simulation.arrive("raw/a", at=simulation.time(minutes=65), version="2")
    simulation.run(minutes=75)
    assert hours_of(simulation, "core/x") == [1]


def test_reader_of_a_table_whose_condition_refuses_is_breached_with_the_reason_until_a_deploy_removes_it() -> None:
    def _graph(condition: Any) -> list[Any]:
        x = asset("core/x", "raw/a", automation_condition=condition)
        return [source("a"), x, asset("marts/y", "core/x", freshness_policy=lag(minutes=10))]

    simulation = play(_graph(derived() & between("12:00", "13:00")), own_every=60)
    simulation.arrive("raw/a", at=simulation.time(minutes=1))
    simulation.run(minutes=12)
    assert simulation.standings()["marts/y"].reason == (
        "marts/y waiting for input: core/x; core/x: due, if its own condition says so; "
        "promised for 2026-10-05 00:11:00 UTC"
    )
    simulation.deploy(dg.Definitions(assets=_graph(derived())), at=simulation.time(minutes=13))
    simulation.run(minutes=5)
    assert simulation.tables.fresh(("marts/y", None))


def test_update_is_remembered_by_a_condition_whose_hours_a_deploy_changes() -> None:
    def _graph(start: str) -> list[Any]:
        return [source("a"), asset("core/x", "raw/a", automation_condition=updated("raw/a") & between(start, "01:00"))]

    simulation = play(_graph("00:30"), own_every=60)
    simulation.arrive("raw/a", at=simulation.time(minutes=1))
    simulation.deploy(dg.Definitions(assets=_graph("00:05")), at=simulation.time(minutes=8))
    simulation.run(minutes=12)
    assert [int((run.created_at - simulation.time()) / 60) for run in simulation.runs_of("core/x")] == [8]


def test_every_condition_requests_the_latest_time_partition() -> None:
    simulation = play(
        [source("a", DAYS), asset("core/x", "raw/a", by=DAYS, automation_condition=every("0 6 * * *"))], own_every=900
    )
    simulation.run(hours=33)
    assert asked(simulation, "core/x") == [DAY, "2026-10-06"]


@pytest.mark.parametrize(
    ("declare", "why"),
    [
        (lambda: updated(), "expected the key of at least one input"),
        (lambda: between("6"), "expected a time of day such as 06:00, found '6'"),
        (lambda: between("06:00", "08:00+02:00"), "it has an offset"),
        (lambda: between("06:00", "06:00"), "expected two different times"),
        (lambda: between("06:00", timezone="Berlin"), "expected a time zone such as Europe/Berlin, found 'Berlin'"),
    ],
)
def test_invalid_conditions_are_refused(declare: Any, why: str) -> None:
    with pytest.raises(ConditionRefused, match=why):
        declare()


def test_between_condition_over_midnight_is_open_at_night() -> None:
    condition = derived() & between("22:00", "02:00")
    simulation = play([source("a"), asset("core/x", "raw/a", automation_condition=condition, **ASAP)], own_every=900)
    simulation.arrive("raw/a", at=simulation.time(hours=3), version="1")
    simulation.arrive("raw/a", at=simulation.time(hours=25), version="2")
    simulation.run(hours=27)
    assert hours_of(simulation, "core/x") == [22, 25]
