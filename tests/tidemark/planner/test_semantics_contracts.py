"""What a contract means, one test a rule, played on the simulator: deadlines, pull, special inputs, code."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import dagster as dg
import pytest

from dagster_tidemark.engine.condition import with_automation
from dagster_tidemark.settings import Settings
from dagster_tidemark.simulation.simulator import RunPace, Simulation
from tests.tidemark.toy_graph import ASAP, DAYS, HOURS, START, asset, lag, small, source, within

MONDAY, HOUR_3, HOUR_7 = "2026-10-05", "2026-10-05-03:00", "2026-10-05-07:00"
CORE, HOURLY, DAILY, REPORT = "core/orders", "marts/hourly", "marts/daily", "marts/report"
NINE = dg.FreshnessPolicy.cron(deadline_cron="0 9 * * *", lower_bound_delta=timedelta(minutes=30))


def begin(assets: Any, **more: Any) -> Simulation:
    return Simulation(assets, start=START, **more)


def fed(simulation: Simulation, hour: str, *moments: float) -> Simulation:
    for at in moments:
        simulation.arrive("raw/orders", hour, at=at)
    return simulation


def core(**more: Any) -> list[Any]:
    return [source("orders", HOURS), asset(CORE, "raw/orders", by=HOURS, **more)]


def reading(name: str, metadata: dict[str, Any], *inputs: str, **more: Any) -> dg.AssetsDefinition:
    """An asset with an input that has metadata, and others."""
    ins = {"special": dg.AssetIn(dg.AssetKey.from_user_string(inputs[0]), metadata=metadata)}
    deps = [
        dg.AssetDep(dg.AssetKey.from_user_string(key), partition_mapping=more.pop("mapping", None))
        for key in inputs[1:]
    ]
    settings = {"code_version": "1", "backfill_policy": dg.BackfillPolicy.single_run()} | more

    @dg.asset(key=dg.AssetKey.from_user_string(name), ins=ins, deps=deps, **settings)
    def _body(special: object) -> None:
        raise NotImplementedError

    return _body


# Lag contracts


def test_lag_contract_is_served_by_one_run_as_late_as_possible() -> None:
    simulation = begin(small())
    at = simulation.time(hours=7)
    fed(simulation, HOUR_7, *(at + 60 * minute for minute in range(0, 55, 5)))
    simulation.run(hours=9)
    (run,) = simulation.runs_of(HOURLY)
    assert at + 3000 < run.created_at < run.committed[HOURLY] < at + 3600


def test_time_for_a_second_attempt_remains_before_the_deadline() -> None:
    simulation = begin(small())
    at = simulation.time(hours=7)
    simulation.fail(HOURLY)
    fed(simulation, HOUR_7, at)
    simulation.run(hours=9)
    failed, good = simulation.runs_of(HOURLY)
    assert not failed.succeeded and good.committed[HOURLY] < at + 3600


def test_unbuilt_partition_of_an_ended_window_is_built_when_its_inputs_arrive() -> None:
    simulation = begin(small())
    at = simulation.time(hours=7)
    fed(simulation, HOUR_3, at)
    simulation.run(hours=8)
    (run,) = simulation.runs_of(HOURLY)
    assert run.created_at < at + 10


def test_late_file_of_a_built_partition_waits_for_its_contract() -> None:
    simulation = begin(small())
    at = simulation.time(hours=9)
    fed(simulation, HOUR_3, simulation.time(hours=7), at)
    simulation.run(hours=11)
    _, late = simulation.runs_of(HOURLY)
    assert at + 3000 < late.created_at < late.committed[HOURLY] < at + 3600


def test_lag_of_an_unbuilt_partition_starts_with_its_last_required_input() -> None:
    customers = [source("customers"), asset("core/customers", "raw/customers", **ASAP)]
    stats = asset("marts/stats", within(CORE), "core/customers", by=DAYS, freshness_policy=lag(hours=2))
    simulation = begin([*core(**ASAP), *customers, stats])
    simulation.arrive("raw/customers", at=simulation.time(minutes=1))  # hours before the day's first order
    at = simulation.time(hours=7)
    fed(simulation, HOUR_7, at)
    simulation.run(hours=12)
    (run,) = simulation.runs_of("marts/stats")
    assert at + 6600 < run.created_at < at + 7200


def test_lag_is_measured_from_the_sources_at_any_depth() -> None:
    deep = [asset("a/one", CORE, by=HOURS), asset("b/two", "a/one", by=HOURS)]
    top = asset("c/three", within("b/two"), by=DAYS, freshness_policy=lag(minutes=60))
    simulation = begin([*core(**ASAP), *deep, top])
    at = simulation.time(hours=7)
    fed(simulation, HOUR_7, at, at + 1800)
    simulation.run(hours=10)
    first = simulation.runs_of("c/three")[0]
    assert at + 2400 < first.created_at < first.committed["c/three"] < at + 3600


# Pull


def test_asset_without_a_contract_runs_for_its_strictest_reader() -> None:
    hourly = asset(HOURLY, CORE, by=HOURS, freshness_policy=lag(minutes=60))
    daily = asset(DAILY, within(CORE), by=DAYS, freshness_policy=lag(hours=24))
    simulation = begin([*core(), hourly, daily])
    at = simulation.time(hours=7)
    fed(simulation, HOUR_7, *(at + 60 * minute for minute in range(0, 55, 5)))
    simulation.run(hours=9)
    (run,) = simulation.runs_of(CORE)
    assert run.assets == (CORE, HOURLY), "what has the same partitions goes along"
    assert at + 3000 < run.created_at


def test_asset_without_a_reader_is_not_run_and_reports_no_consumer() -> None:
    simulation = begin(core())
    fed(simulation, HOUR_7, simulation.time(hours=7))
    simulation.run(hours=60)
    assert simulation.runs == []
    assert "no consumer" in simulation.plan().waiting[(CORE, HOUR_7)]


def test_input_of_another_grain_runs_first_and_its_reader_is_in_time() -> None:
    daily = asset(DAILY, within(CORE), by=DAYS, freshness_policy=lag(minutes=60))
    simulation = begin([*core(), daily])
    at = simulation.time(hours=7)
    simulation.slow(CORE, seconds=170)  # longer than anything that is known of it
    fed(simulation, HOUR_7, at, at + 600)
    simulation.run(hours=9)
    (first,), (second,) = simulation.runs_of(CORE), simulation.runs_of(DAILY)
    assert first.committed[CORE] <= second.created_at < second.committed[DAILY] < at + 3600
    assert first.created_at > at + 2400


def test_pace_asap_runs_at_once_regardless_of_the_contract() -> None:
    simulation = begin(core(freshness_policy=lag(hours=24), **ASAP))
    at = simulation.time(hours=7)
    fed(simulation, HOUR_7, at, at + 600)
    simulation.run(hours=8)
    assert [run.created_at - at for run in simulation.runs_of(CORE)] == pytest.approx([1.0, 601.0])


# Cron contracts


def report() -> list[Any]:
    return [*core(**ASAP), asset(REPORT, within(CORE), by=DAYS, freshness_policy=NINE)]


def test_report_is_requested_at_the_lower_bound_and_not_before() -> None:
    simulation = begin(report())
    fed(simulation, HOUR_7, simulation.time(hours=7))
    fed(simulation, "2026-10-05-23:00", simulation.time(days=1, hours=8.49))
    simulation.run(days=1, hours=12)
    (run,) = simulation.runs_of(REPORT, MONDAY)
    assert simulation.time(days=1, hours=8.5) <= run.created_at < simulation.time(days=1, hours=8.6)


def test_report_includes_late_data_once_with_the_next_cron_tick() -> None:
    simulation = begin(report())
    fed(simulation, HOUR_7, simulation.time(hours=7))
    for hours in (8.6, 11, 20):
        fed(simulation, HOUR_7, simulation.time(days=1, hours=hours))
    simulation.run(days=3)
    first, second = simulation.runs_of(REPORT, MONDAY)
    assert first.created_at < simulation.time(days=1, hours=8.6)
    assert (
        simulation.time(days=2, hours=8.5)
        <= second.created_at
        < second.committed[REPORT]
        < simulation.time(days=2, hours=9)
    )


def test_report_includes_a_file_weeks_late_with_the_next_cron_tick() -> None:
    simulation = begin(report())
    fed(simulation, HOUR_7, simulation.time(hours=7), simulation.time(days=15, hours=12))
    simulation.run(days=17)
    _, late = simulation.runs_of(REPORT, MONDAY)
    assert simulation.time(days=16, hours=8.5) <= late.created_at < simulation.time(days=16, hours=9)


def test_unbuilt_report_past_its_cron_tick_is_due_at_once() -> None:
    simulation = begin(report())
    at = simulation.time(days=3, hours=15)
    fed(simulation, HOUR_7, at)
    simulation.run(days=4)
    (run,) = simulation.runs_of(REPORT, MONDAY)
    assert run.created_at < at + 60


def test_slow_report_starts_before_the_lower_bound_and_meets_its_deadline() -> None:
    simulation = begin(report(), pace=RunPace(step={REPORT: 2400.0, CORE: 20.0}))
    for day in range(3):
        fed(simulation, f"2026-10-{5 + day:02}-07:00", simulation.time(days=day, hours=7))
    simulation.run(days=3, hours=12)
    learned = simulation.runs_of(REPORT, "2026-10-07")[0]
    assert learned.created_at < simulation.time(days=3, hours=8.5), "it takes forty minutes, as the days before showed"
    assert learned.committed[REPORT] < simulation.time(days=3, hours=9)


# Inputs


def test_use_latest_input_must_exist_but_never_makes_its_reader_due() -> None:
    model = [source("weights"), asset("ml/model", "raw/weights", **ASAP)]
    forecast = reading(
        "ml/forecast",
        {"use_latest": True},
        "ml/model",
        CORE,
        partitions_def=DAYS,
        mapping=within(CORE).partition_mapping,
        freshness_policy=lag(minutes=10),
    )
    simulation = begin(with_automation([*core(**ASAP), *model, forecast]))
    fed(simulation, HOUR_7, simulation.time(hours=7))
    simulation.run(hours=8)
    assert simulation.runs_of("ml/forecast") == [], "there is no model yet"
    for hours in (8.5, 9, 10):
        simulation.arrive("raw/weights", at=simulation.time(hours=hours))
    simulation.run(hours=4)
    assert len(simulation.runs_of("ml/model")) == 3
    assert len(simulation.runs_of("ml/forecast")) == 1


def test_rippling_input_makes_only_the_last_days_stale() -> None:
    customers = [source("customers"), asset("core/customers", "raw/customers", **ASAP)]
    stats = reading(
        "marts/stats",
        {"ripple_days": 3},
        "core/customers",
        CORE,
        partitions_def=DAYS,
        mapping=within(CORE).partition_mapping,
        freshness_policy=lag(minutes=10),
    )
    simulation = begin(with_automation([*core(**ASAP), *customers, stats]))
    simulation.arrive("raw/customers", at=simulation.time(minutes=1))
    for day in range(6):
        fed(simulation, f"2026-10-{5 + day:02}-00:00", simulation.time(days=day, minutes=10))
    simulation.run(days=5, hours=2)
    before = len(simulation.runs)
    simulation.arrive("raw/customers", at=simulation.time(days=5, hours=3))
    simulation.run(hours=3)
    again = {p for run in simulation.runs[before:] if "marts/stats" in run.assets for p in run.partitions}
    assert again == {"2026-10-08", "2026-10-09", "2026-10-10"}


# Code


def bumped(name: str) -> list[Any]:
    """The small graph with another version of one asset's code."""
    hourly = asset(
        HOURLY, CORE, by=HOURS, freshness_policy=lag(minutes=60), code_version="2" if name == HOURLY else "1"
    )
    daily = asset(DAILY, within(CORE), by=DAYS, freshness_policy=lag(hours=24))
    return [*core(freshness_policy=lag(minutes=5), code_version="2" if name == CORE else "1", **ASAP), hourly, daily]


def test_new_code_rebuilds_only_partitions_that_were_built() -> None:
    simulation = begin(small())
    for hour in (1, 3, 5):
        fed(simulation, f"2026-10-05-{hour:02}:00", simulation.time(hours=hour, minutes=1))
    simulation.run(hours=7)
    before = len(simulation.runs)
    simulation.deploy(bumped(CORE), at=simulation.time(hours=7))
    simulation.run(hours=6)
    rebuilt = [run for run in simulation.runs[before:] if CORE in run.assets]
    assert sorted(p or "" for run in rebuilt for p in run.partitions) == [f"2026-10-05-{h:02}:00" for h in (1, 3, 5)]
    assert all(run.tags.get("tidemark/rebuild") and run.tags["dagster/priority"] == "-10" for run in rebuilt)
    assert all(map(simulation.tables.fresh, simulation.tables.written)), "and everything downstream of it"


def test_a_rebuild_with_the_same_content_stops_the_cascade() -> None:
    contents: Callable[..., str] = lambda target, inputs, default: repr(sorted(inputs.items(), key=repr))  # noqa: E731
    simulation = begin(small(), content=contents)
    fed(simulation, HOUR_3, simulation.time(hours=3))
    simulation.run(hours=7)
    before = len(simulation.runs)
    simulation.deploy(bumped(CORE), at=simulation.time(hours=7))
    simulation.run(hours=6)
    assert [(run.assets, run.partitions) for run in simulation.runs[before:]] == [((CORE,), (HOUR_3,))]


def test_stale_code_does_not_delay_new_data_and_one_run_clears_both() -> None:
    simulation = begin(small())
    fed(simulation, HOUR_3, simulation.time(hours=3))
    simulation.run(hours=7)
    before = len(simulation.runs)
    at = simulation.time(hours=7)
    simulation.deploy(bumped(CORE), at=at)
    fed(simulation, HOUR_3, at - 0.9)  # noticed by the new code
    simulation.run(hours=1)
    (run,) = [run for run in simulation.runs[before:] if CORE in run.assets]
    assert run.created_at <= at + 5 and "tidemark/rebuild" not in run.tags


# Scale


def test_contract_scale_shortens_lag_windows_but_not_a_time_of_day() -> None:
    late = asset(REPORT, within(CORE), by=DAYS, freshness_policy=NINE)
    simulation = begin([*small(), late], settings=Settings(contract_scale=0.1))
    at = simulation.time(hours=7)
    fed(simulation, HOUR_7, at)
    simulation.run(days=2)
    (hourly,) = simulation.runs_of(HOURLY)
    assert at + 180 < hourly.created_at < hourly.committed[HOURLY] < at + 360
    (nine,) = simulation.runs_of(REPORT)
    assert nine.created_at >= simulation.time(days=1, hours=8.5)


# Partitions of other kinds, and none


def test_static_partitions_with_a_lag_contract_are_built_in_time() -> None:
    shops = dg.StaticPartitionsDefinition(["north", "south"])
    simulation = begin(
        [source("shops", shops), asset("marts/shops", "raw/shops", by=shops, freshness_policy=lag(minutes=10))]
    )
    at = simulation.time(hours=7)
    simulation.arrive("raw/shops", "south", at=at)
    simulation.run(hours=8)
    (run,) = simulation.runs
    assert run.partitions == ("south",) and run.committed["marts/shops"] < at + 600


def test_a_wiped_table_is_built_again() -> None:
    simulation = begin(small(), every_tick=True)
    yesterday = "2026-10-04-23:00"
    fed(simulation, yesterday, simulation.time(minutes=1))
    simulation.wipe(HOURLY, at=simulation.time(minutes=4))
    simulation.run(minutes=8)
    first, again = simulation.runs_of(HOURLY, yesterday)
    assert first.ended_at and first.ended_at < simulation.time(minutes=4) <= again.created_at and again.succeeded
    assert len(simulation.runs_of(CORE, yesterday)) == 1
