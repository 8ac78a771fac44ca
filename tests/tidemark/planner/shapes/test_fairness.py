"""Nothing starves, nothing is asked for too often, and what one tick costs does not grow with the square."""

from datetime import timedelta
from typing import Any

import dagster as dg
import pytest
from dagster._core.storage.tags import ASSET_PARTITION_RANGE_END_TAG, ASSET_PARTITION_RANGE_START_TAG

from dagster_tidemark.simulation.simulator import RunFate, RunPace
from tests.tidemark.planner.shapes.playing import asked, built, play
from tests.tidemark.ticks import Location
from tests.tidemark.toy_graph import ASAP, DAYS, HOURS, asset, lag, source, within

DAY = "2026-10-05"


def stream(simulation: Any, *, every: float, hours: float, partition: str | None = None) -> None:
    for n in range(int(hours * 3600 / every)):
        at = simulation.time(seconds=n * every + 1)
        simulation.arrive("raw/x", partition or f"{DAY}-{int(n * every // 3600):02}:00", at=at)


def test_continuous_stream_does_not_starve_the_readers_of_its_table() -> None:
    simulation = play(
        [
            source("x", HOURS),
            asset("core/x", "raw/x", by=HOURS, **ASAP),
            asset("day", within("core/x"), by=DAYS, **ASAP),
        ],
        pace=RunPace(step=20.0),
    )
    stream(simulation, every=10.0, hours=1)
    simulation.run(hours=1)
    times = [run.committed["day"] for run in simulation.runs_of("day") if "day" in run.committed]
    gaps = [b - a for a, b in zip([simulation.time(), *times], [*times, simulation.clock.now], strict=True)]
    assert max(gaps) < 10 * 60, f"{len(times)} runs, the longest pause {max(gaps):.0f} s"


def test_reader_of_a_continuous_stream_is_built_within_its_lag_contract() -> None:
    simulation = play(
        [
            source("x", HOURS),
            asset("core/x", "raw/x", by=HOURS, **ASAP),
            asset("day", within("core/x"), by=DAYS, freshness_policy=lag(minutes=20)),
        ],
        pace=RunPace(step=20.0),
    )
    stream(simulation, every=10.0, hours=1)
    simulation.run(hours=1)
    times = [simulation.time(), *(run.committed["day"] for run in simulation.runs_of("day") if "day" in run.committed)]
    gaps = [b - a for a, b in zip(times, [*times[1:], simulation.clock.now], strict=True)]
    assert max(gaps) < 21 * 60, f"{len(times)} runs, the longest pause {max(gaps):.0f} s"


@pytest.mark.parametrize("pace", [{}, {"tidemark/pace": "asap"}])
def test_asset_waits_for_a_blocked_input_only_while_its_readers_contract_allows(pace: dict[str, str]) -> None:
    simulation = play(
        [
            *(source(name, DAYS) for name in ("x", "y")),
            asset("blocked", "raw/x", by=DAYS, **ASAP),
            asset("between", "raw/y", "blocked", by=DAYS, freshness_policy=lag(hours=20)),
            asset("strict", "between", by=DAYS, freshness_policy=lag(minutes=30), tags=pace),
        ],
        reads=lambda target: [("raw/y", target[1])],
    )
    for name in ("raw/x", "raw/y"):
        simulation.arrive(name, DAY, at=simulation.time(minutes=1))
    simulation.run(hours=1)
    simulation.fail("blocked", times=100)
    for name in ("raw/x", "raw/y"):
        simulation.arrive(name, DAY, at=simulation.time(minutes=70))
    simulation.run(hours=2)
    committed = [run.committed["strict"] for run in simulation.runs_of("strict") if "strict" in run.committed]
    assert [at for at in committed if simulation.time(minutes=70) < at <= simulation.time(minutes=100)]


def test_new_data_ends_the_retry_pause_and_resets_the_attempt_count() -> None:
    simulation = play([source("x", DAYS), asset("core/x", "raw/x", by=DAYS, **ASAP)])
    simulation.fail("core/x", times=6)
    simulation.arrive("raw/x", DAY, at=simulation.time(minutes=1))
    simulation.run(minutes=20)  # tried after 1, 2, 4, 8 min; the next pause is 16 min
    failures = len(simulation.runs)
    assert failures == 5
    simulation.arrive("raw/x", DAY, at=simulation.time(minutes=21))
    simulation.run(minutes=4)
    assert len(simulation.runs) >= failures + 2, "at once, and again after the shortest pause"
    assert simulation.tables.fresh(("core/x", DAY))


def test_run_that_died_with_the_platform_is_retried_without_a_longer_pause() -> None:
    for how in (RunFate.DIES, RunFate.NEVER_BEGINS):
        simulation = play([source("x", DAYS), asset("core/x", "raw/x", by=DAYS, **ASAP)])
        simulation.fail("core/x", how=how, times=4)
        simulation.arrive("raw/x", DAY, at=simulation.time(minutes=1))
        simulation.run(hours=1)
        assert built(simulation, "core/x") == [DAY]
        ended = [run.ended_at for run in simulation.runs]
        pauses = [run.created_at - end for run, end in zip(simulation.runs[1:], ended, strict=False) if end]
        assert max(pauses) <= 130, f"{how}: {pauses}"


def test_runs_ended_by_an_outage_are_retried_as_soon_as_it_ends() -> None:
    simulation = play([source("x", DAYS), asset("core/x", "raw/x", by=DAYS, **ASAP)], pace=RunPace(step=600.0))
    simulation.arrive("raw/x", DAY, at=simulation.time(minutes=1))
    for hour in (0.05, 0.3, 0.5):
        simulation.outage(at=simulation.time(hours=hour), until=simulation.time(hours=hour + 0.1))
    simulation.run(hours=1)
    up = [simulation.time(hours=hour + 0.1) for hour in (0.05, 0.3, 0.5)]
    tried = [run.created_at for run in simulation.runs[1:]]
    assert len(tried) == 3
    assert all(again - at < 60 for at, again in zip(up, tried, strict=True))


def test_breach_of_a_missing_partition_lasts_until_it_is_built() -> None:
    nine = dg.FreshnessPolicy.cron(deadline_cron="0 9 * * *", lower_bound_delta=timedelta(minutes=30))
    simulation = play([source("x", DAYS), asset("core/x", "raw/x", by=DAYS, freshness_policy=nine)])
    for n in range(10):
        if n != 1:  # the data of one day never comes
            simulation.arrive("raw/x", f"2026-10-{5 + n:02}", at=simulation.time(days=n, hours=12))
    simulation.run(days=9, hours=10)
    standing = simulation.standings()["core/x"]
    assert (standing.verdict, standing.partition) == ("breached", "2026-10-06")
    simulation.arrive("raw/x", "2026-10-06", at=simulation.time(days=9, hours=11))
    simulation.run(hours=3)
    assert simulation.standings()["core/x"].verdict == "met"


def test_one_slow_run_does_not_make_later_runs_start_early() -> None:
    simulation = play(
        [source("x", DAYS), asset("core/x", "raw/x", by=DAYS, freshness_policy=lag(hours=2))], pace=RunPace(step=20.0)
    )
    simulation.slow("core/x", seconds=3600.0)
    for n in range(12):
        simulation.arrive("raw/x", DAY, at=simulation.time(hours=3 * n, minutes=1))
        simulation.arrive("raw/x", DAY, at=simulation.time(hours=3 * n, minutes=70))
    simulation.run(hours=38)
    assert len(asked(simulation, "core/x")) <= 16, "two arrivals within one contract are one run"


def test_failing_table_under_a_continuous_stream_is_retried_at_a_limited_rate() -> None:
    simulation = play([source("x", DAYS), asset("core/x", "raw/x", by=DAYS, **ASAP)], pace=RunPace(step=8.0))
    simulation.fail("core/x", times=10_000)
    stream(simulation, every=10.0, hours=0.5, partition=DAY)
    simulation.run(hours=0.5)
    assert 3 <= len(simulation.runs) <= 65, f"{len(simulation.runs)} failing runs in half an hour"


def test_manual_backfill_does_not_delay_new_partitions() -> None:
    days = dg.DailyPartitionsDefinition("2026-08-01", end_offset=1)
    simulation = play(
        [
            source("x", days),
            asset("core/x", "raw/x", by=days, backfill_policy=None, freshness_policy=lag(minutes=20)),
        ]
    )
    for n in range(1, 31):
        simulation.arrive("raw/x", f"2026-08-{n:02}", at=simulation.time(minutes=1))
    simulation.run(hours=4)
    old = [f"2026-08-{n:02}" for n in range(1, 31)]
    for day in old:
        simulation.request(["core/x"], [day], at=simulation.time(hours=4))
    simulation.slow("core/x", seconds=300, times=30)
    simulation.arrive("raw/x", DAY, at=simulation.time(hours=4, minutes=1))
    simulation.run(minutes=18)
    assert any(DAY in run.partitions for run in simulation.runs), "asked for, whoever else asked for what"


def test_many_single_partition_runs_start_early_enough_for_the_deadline() -> None:
    hours = dg.HourlyPartitionsDefinition("2026-10-03-18:00", end_offset=1)
    single = asset("core/x", "raw/x", by=hours, backfill_policy=None, freshness_policy=lag(minutes=20))
    simulation = play([source("x"), single], pace=RunPace(step=60.0, at_once=4))
    simulation.arrive("raw/x", at=simulation.time(minutes=5))
    simulation.run(hours=2)
    simulation.arrive("raw/x", at=simulation.time(minutes=125))
    simulation.run(hours=2)
    late = [run for run in simulation.runs_of("core/x") if run.created_at > simulation.time(minutes=125)]
    again = [run for run in late if str(run.of["core/x"][0]) < "2026-10-05-02:00"]
    assert len(again) >= 30
    assert max(run.committed["core/x"] for run in again) <= simulation.time(minutes=145)


def test_unavailable_input_of_many_partitions_makes_none_of_them_run_early() -> None:
    """Asked for before they are due, as all of them are due together, they would find nothing new."""
    hours = dg.HourlyPartitionsDefinition("2026-10-03-18:00", end_offset=1)
    simulation = play(
        [
            source("x"),
            asset("blocked", "raw/x", **ASAP),
            asset("core/x", "blocked", by=hours, backfill_policy=None, freshness_policy=lag(minutes=20)),
        ],
        pace=RunPace(step=60.0, at_once=4),
        reads=lambda target: [("blocked", None)] if target[0] == "core/x" else [("raw/x", None)],
    )

    def committed() -> int:
        return len([run for run in simulation.runs_of("core/x") if "core/x" in run.committed])

    simulation.arrive("raw/x", at=simulation.time(minutes=1))
    simulation.run(hours=1, minutes=25)
    before = committed()
    assert before
    simulation.fail("blocked", times=100)
    simulation.arrive("raw/x", at=simulation.time(hours=1, minutes=26))
    simulation.run(minutes=33)
    assert committed() == before


def test_stuck_runs_of_old_partitions_do_not_delay_new_partitions() -> None:
    days = dg.DailyPartitionsDefinition("2026-09-01", end_offset=1)
    simulation = play([source("x", days), asset("core/x", "raw/x", by=days, backfill_policy=None, **ASAP)])
    simulation.hold_in_queue("core/x", at=simulation.time(), until=simulation.time(days=30))
    for n in range(8):
        simulation.arrive("raw/x", f"2026-09-{20 + n:02}", at=simulation.time(minutes=2 * n + 1))
    simulation.run(hours=3)
    assert len(simulation.runs) == 8
    simulation.arrive("raw/x", DAY, at=simulation.time(hours=3))
    simulation.arrive("raw/x", "2026-09-19", at=simulation.time(hours=3))
    simulation.run(minutes=5)
    assert simulation.runs_of("core/x", DAY)
    (older,) = simulation.plan().of("core/x")[-1:]
    assert (older.partition, older.reason) == ("2026-09-19", "newer partitions first, 9 of them under way")


@pytest.mark.parametrize(
    ("policy", "runs"), [(dg.BackfillPolicy.single_run(), 1), (dg.BackfillPolicy.multi_run(50), 6)]
)
def test_many_partitions_of_a_custom_condition_are_requested_as_ranges(policy: dg.BackfillPolicy, runs: int) -> None:
    many = dg.StaticPartitionsDefinition([f"k{n}" for n in range(300)])
    eager = dg.AutomationCondition.eager()
    table = asset("core/x", "raw/x", by=many, automation_condition=eager, backfill_policy=policy)
    with dg.DagsterInstance.ephemeral() as instance:
        location = Location(instance, [source("x"), table])
        location.tick()
        location.observe("raw/x", None, version="2")
        asked_for = location.tick().requests
        assert len(asked_for) == runs
        first, last = ASSET_PARTITION_RANGE_START_TAG, ASSET_PARTITION_RANGE_END_TAG
        keys = list(many.get_partition_keys())
        spans = [(keys.index(run.tags[first]), keys.index(run.tags[last])) for run in asked_for]
        assert sorted(n for start, end in spans for n in range(start, end + 1)) == list(range(300))
        assert location.tick().requests == []
