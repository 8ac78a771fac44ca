"""Partitions of time: windows from the definition, self-dependent days, the last partition, other zones."""

from datetime import datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import dagster as dg
import pytest
from dagster._core.definitions.partitions.mapping import UpstreamPartitionsResult

from dagster_tidemark.simulation.simulator import Simulation
from tests.tidemark.planner.shapes.playing import CITIES, REGIONS, asked, built, mapped, play, why_not
from tests.tidemark.toy_graph import ASAP, DAYS, HOURS, WITHIN, asset, lag, source, within

BERLIN = ZoneInfo("Europe/Berlin")


CRON_9 = dg.FreshnessPolicy.cron(deadline_cron="0 9 * * *", lower_bound_delta=timedelta(hours=1))
YESTERDAY = dg.TimeWindowPartitionMapping(start_offset=-1, end_offset=-1)


def cumulative(by: dg.PartitionsDefinition) -> list[Any]:
    """A table of which each day is made from the day before."""
    return [source("x", by), asset("total", "raw/x", mapped("total", YESTERDAY), by=by, **ASAP)]


def test_self_dependent_days_are_built_in_order_from_the_first() -> None:
    days = dg.DailyPartitionsDefinition("2026-10-01", end_offset=1)
    simulation = play(cumulative(days))
    for day in (3, 1, 2, 4):
        simulation.arrive("raw/x", f"2026-10-0{day}", at=simulation.time(minutes=day))
    simulation.run(hours=2)
    first = {partition: n for n, partition in reversed(list(enumerate(built(simulation, "total"))))}
    assert sorted(first, key=first.__getitem__) == [f"2026-10-0{day}" for day in range(1, 5)]
    assert all(simulation.tables.fresh(("total", day)) for day in first)


def test_late_file_of_the_first_self_dependent_day_rebuilds_all_days() -> None:
    days = dg.DailyPartitionsDefinition("2026-10-01", end_offset=1)
    simulation = play(cumulative(days))
    for day in range(1, 5):
        simulation.arrive("raw/x", f"2026-10-0{day}", at=simulation.time(minutes=day))
    simulation.arrive("raw/x", "2026-10-01", at=simulation.time(hours=3))
    simulation.run(hours=6)
    for day in range(1, 5):
        assert simulation.tables.fresh(("total", f"2026-10-0{day}"))
    assert len(asked(simulation, "total")) <= 16


@pytest.mark.timeout(120)
def test_eighteen_months_of_self_dependent_days_fail_no_sensor_tick() -> None:
    days = dg.DailyPartitionsDefinition("2025-04-01", end_offset=1)
    simulation = play(cumulative(days))
    simulation.outage(at=simulation.time(minutes=1), until=simulation.time(minutes=3))
    for day in days.get_partition_keys(current_time=simulation.start):
        simulation.arrive("raw/x", day, at=simulation.time(minutes=2))
    simulation.run(minutes=8)
    assert simulation.failed_ticks == []
    assert "2025-04-01" in built(simulation, "total")


def test_reader_of_the_last_partition_ignores_late_files_of_older_partitions() -> None:
    reads_last = mapped("core/x", dg.LastPartitionMapping())
    simulation = play(
        [source("x", DAYS), asset("core/x", "raw/x", by=DAYS, **ASAP), asset("model", reads_last, **ASAP)]
    )
    for day in ("2026-10-04", "2026-10-05"):
        simulation.arrive("raw/x", day, at=simulation.time(minutes=1))
    simulation.run(hours=1)
    before = len(built(simulation, "model"))
    assert before >= 1
    simulation.arrive("raw/x", "2026-10-02", at=simulation.time(hours=2))
    simulation.run(hours=2)
    assert len(built(simulation, "model")) == before
    simulation.arrive("raw/x", "2026-10-05", at=simulation.time(hours=4))
    simulation.run(hours=2)
    assert len(built(simulation, "model")) == before + 1


def test_last_partition_mapping_reads_the_last_existing_partition() -> None:
    reads_last = mapped("core/x", dg.LastPartitionMapping())
    simulation = play(
        [source("x", DAYS), asset("core/x", "raw/x", by=DAYS, **ASAP), asset("model", reads_last, **ASAP)]
    )
    simulation.arrive("raw/x", "2026-10-05", at=simulation.time(hours=1))
    simulation.arrive("raw/x", "2026-10-06", at=simulation.time(hours=25))
    simulation.run(hours=26)
    assert len(built(simulation, "model")) == 2


@pytest.mark.parametrize("mapping", [dg.LastPartitionMapping(), dg.AllPartitionMapping()], ids=["last", "all"])
def test_data_of_a_future_partition_is_built_only_after_it_begins(mapping: Any) -> None:
    simulation = play([source("x", DAYS), asset("model", mapped("raw/x", mapping), **ASAP)])
    simulation.arrive("raw/x", "2026-10-06", at=simulation.time(hours=1))
    simulation.arrive("raw/x", "2026-10-05", at=simulation.time(hours=2))  # a run that cannot see the other yet
    simulation.run(hours=23)
    before = len(simulation.runs)
    simulation.run(hours=2)
    assert len(simulation.runs) == before + 1


class Fortnight(dg.PartitionMapping):
    """A user's own: a day reads itself and the day two weeks before."""

    @property
    def description(self) -> str:
        return "itself, and two weeks before"

    def validate_partition_mapping(self, *args: Any, **kwargs: Any) -> None:
        """Any two definitions will do."""

    def get_upstream_mapped_partitions_result_for_partitions(
        self, downstream_partitions_subset: Any, downstream_partitions_def: Any, upstream_partitions_def: Any, *_: Any
    ) -> Any:
        keys = {
            shifted
            for key in downstream_partitions_subset.get_partition_keys()
            for days in (0, -14)
            if upstream_partitions_def.has_partition_key(shifted := _shifted(key, days))
        }
        return UpstreamPartitionsResult(
            partitions_subset=upstream_partitions_def.subset_with_partition_keys(keys),
            required_but_nonexistent_subset=upstream_partitions_def.empty_subset(),
        )

    def get_downstream_partitions_for_partitions(
        self, upstream_partitions_subset: Any, upstream_partitions_def: Any, downstream_partitions_def: Any, *_: Any
    ) -> Any:
        keys = {
            shifted
            for key in upstream_partitions_subset.get_partition_keys()
            for days in (0, 14)
            if downstream_partitions_def.has_partition_key(shifted := _shifted(key, days))
        }
        return downstream_partitions_def.subset_with_partition_keys(keys)


def _shifted(day: str, days: int) -> str:
    return f"{datetime.fromisoformat(day) + timedelta(days=days):%Y-%m-%d}"


@pytest.mark.filterwarnings("ignore:Non-built-in PartitionMappings")
def test_custom_partition_mapping_propagates_late_data() -> None:
    days = dg.DailyPartitionsDefinition("2026-09-01", end_offset=1)
    simulation = play([source("x", days), asset("core/x", mapped("raw/x", Fortnight()), by=days, **ASAP)])
    for minute, day in ((1, "2026-10-05"), (60, "2026-09-21"), (120, "2026-09-20")):
        simulation.arrive("raw/x", day, at=simulation.time(minutes=minute))
    simulation.run(hours=3)
    assert built(simulation, "core/x").count("2026-10-05") == 2
    assert simulation.tables.fresh(("core/x", "2026-10-05"))


def test_weekday_without_data_is_not_built_within_a_range() -> None:
    weekdays = dg.TimeWindowPartitionsDefinition(
        cron_schedule="0 0 * * 1-5", start="2026-08-07", fmt="%Y-%m-%d", end_offset=1
    )
    simulation = play([source("x", weekdays), asset("core/x", "raw/x", by=weekdays, **ASAP)])
    every = weekdays.get_partition_keys(current_time=simulation.start)
    meant = [day for day in every if datetime.fromisoformat(day).weekday() != 0]
    simulation.outage(at=simulation.time(minutes=1), until=simulation.time(minutes=3))
    for day in meant:
        simulation.arrive("raw/x", day, at=simulation.time(minutes=2))
    simulation.run(hours=2)
    assert sorted(map(str, asked(simulation, "core/x"))) == meant


@pytest.mark.parametrize(
    ("by", "partition", "built_from"),
    [
        (dg.MonthlyPartitionsDefinition("2026-01-01"), "2026-09-01", timedelta()),
        (
            dg.TimeWindowPartitionsDefinition(
                cron_schedule="*/15 * * * *", start="2026-10-04-00:00", fmt="%Y-%m-%d-%H:%M"
            ),
            "2026-10-05-00:15",
            timedelta(minutes=30),
        ),
        (
            dg.TimeWindowPartitionsDefinition(cron_schedule="0 0 * * *", start="20261001", fmt="%Y%m%d"),
            "20261004",
            timedelta(),
        ),
        (dg.DailyPartitionsDefinition("2026-10-01", timezone="Europe/Berlin"), "2026-10-04", timedelta()),
    ],
    ids=["months", "15 minutes", "a format of its own", "Berlin"],
)
def test_time_partition_of_any_grain_is_built_as_soon_as_it_exists(
    by: dg.PartitionsDefinition, partition: str, built_from: timedelta
) -> None:
    simulation = play([source("x", by), asset("core/x", "raw/x", by=by, **ASAP)])
    simulation.arrive("raw/x", partition, at=simulation.time(minutes=20))
    simulation.run(hours=2)
    (run,) = simulation.runs_of("core/x")
    assert run.of["core/x"] == [partition]
    earliest = max(simulation.time(minutes=20), simulation.time() + built_from.total_seconds())
    assert earliest <= run.created_at <= earliest + 30
    assert simulation.for_nothing == []


def test_monthly_partition_is_built_only_after_the_month_ends() -> None:
    months = dg.MonthlyPartitionsDefinition("2026-01-01")
    graph = [source("x", months), asset("core/x", "raw/x", by=months, **ASAP)]
    simulation = Simulation(graph, start=datetime(2026, 3, 31, 12, tzinfo=ZoneInfo("UTC")))
    simulation.arrive("raw/x", "2026-03-01", at=simulation.time(minutes=5))
    simulation.run(hours=14)
    (run,) = simulation.runs_of("core/x")
    assert simulation.time(hours=12) <= run.created_at <= simulation.time(hours=12.1)


def test_days_of_another_time_zone_over_utc_hours_are_right_or_refused() -> None:
    days = dg.DailyPartitionsDefinition("2026-10-20", timezone="Europe/Berlin", end_offset=1)
    start = datetime(2026, 10, 24, 20, tzinfo=ZoneInfo("UTC"))
    daily = asset("day", mapped("core/x", WITHIN), by=days, freshness_policy=lag(hours=2))
    simulation = Simulation([source("x", HOURS), asset("core/x", "raw/x", by=HOURS, **ASAP), daily], start=start)
    hours = [start + timedelta(hours=n) for n in range(30)]
    for hour in hours:
        simulation.arrive("raw/x", f"{hour:%Y-%m-%d-%H:00}", at=(hour + timedelta(minutes=30)).timestamp())
    simulation.run(hours=34)
    assert simulation.failed_ticks == []
    assert len(built(simulation, "core/x")) == len(hours)
    if not why_not(simulation, "day"):
        for day in {f"{hour.astimezone(BERLIN):%Y-%m-%d}" for hour in hours}:
            assert simulation.tables.fresh(("day", day)), day


def test_early_data_of_a_future_hour_rebuilds_its_day_when_it_begins() -> None:
    finer = dg.TimeWindowPartitionMapping(allow_nonexistent_upstream_partitions=True)
    simulation = play(
        [source("x", HOURS), asset("daily", mapped("raw/x", finer), by=DAYS, **ASAP)],
        reads=lambda target: [("raw/x", hour) for hour in _begun(simulation) if hour.startswith(str(target[1]))],
    )
    simulation.arrive("raw/x", "2026-10-05-00:00", at=simulation.time(minutes=5))
    simulation.arrive("raw/x", "2026-10-05-01:00", at=simulation.time(minutes=30))
    simulation.run(minutes=50)
    assert built(simulation, "daily") == ["2026-10-05"], "of the hour that has begun"
    simulation.run(minutes=30)
    assert built(simulation, "daily") == ["2026-10-05", "2026-10-05"]
    assert simulation.tables.fresh(("daily", "2026-10-05"))


def _begun(simulation: Simulation) -> list[str]:
    return HOURS.get_partition_keys(current_time=simulation.moment())


def test_self_dependent_table_begins_with_the_first_day_with_complete_data() -> None:
    by = dg.DailyPartitionsDefinition("2026-10-01", end_offset=1)
    simulation = play(
        [
            source("x", by),
            source("y", by),
            asset("total", "raw/x", "raw/y", mapped("total", YESTERDAY), by=by, **ASAP),
        ]
    )
    for name, day in (("x", 1), ("x", 2), ("y", 2), ("y", 3), ("x", 4), ("y", 4)):
        simulation.arrive(f"raw/{name}", f"2026-10-0{day}", at=simulation.time(minutes=day))
    simulation.run(hours=1)
    days = ["2026-10-02", "2026-10-03", "2026-10-04"]
    assert sorted(set(map(str, built(simulation, "total")))) == days, "the third is made of its past and what it has"
    assert all(simulation.tables.fresh(("total", day)) for day in days)


@pytest.mark.parametrize("lost", ["never built", "wiped"])
def test_use_latest_input_is_built_only_if_its_reader_finds_it_missing(lost: str) -> None:
    rates = dg.AssetDep("rates", metadata={"use_latest": True})
    simulation = play(
        [
            source("x", DAYS),
            source("rates"),
            asset("rates", "raw/rates"),
            asset("priced", "raw/x", rates, by=DAYS, **ASAP),
        ]
    )
    simulation.arrive("raw/rates", at=simulation.time(minutes=1))
    simulation.arrive("raw/x", "2026-10-05", at=simulation.time(minutes=2))
    simulation.run(hours=1)
    assert len(built(simulation, "rates")) == len(built(simulation, "priced")) == 1
    simulation.arrive("raw/rates", at=simulation.time(hours=1))
    simulation.run(hours=1)
    assert len(simulation.runs) == 2, "a change of it is no reason to run"
    if lost == "wiped":
        simulation.wipe("rates", at=simulation.time(hours=2))
    simulation.arrive("raw/x", "2026-10-05", at=simulation.time(hours=2.1))
    simulation.run(hours=1)
    assert len(built(simulation, "rates")) == (2 if lost == "wiped" else 1)
    assert len(built(simulation, "priced")) == 2


@pytest.mark.parametrize(("offset", "policy"), [(-1, CRON_9), (0, lag(hours=1))])
def test_contract_of_a_partition_is_not_breached_before_it_exists(offset: int, policy: dg.FreshnessPolicy) -> None:
    days = dg.DailyPartitionsDefinition("2026-09-28", end_offset=offset)
    simulation = play([source("x", HOURS), asset("core/x", within("raw/x"), by=days, freshness_policy=policy)])
    verdicts = set()
    simulation.arrive("raw/x", "2026-10-04-23:00", at=simulation.time(minutes=1))
    for hour in range(24):
        simulation.arrive("raw/x", f"2026-10-05-{hour:02}:00", at=simulation.time(hours=hour + 0.5))
    simulation.run(hours=23.9)
    for minutes in (*[0.2] * 60, *[10] * 300):  # closely about midnight
        simulation.run(minutes=minutes)
        verdicts.add(simulation.standings()["core/x"].verdict)
    assert verdicts == {"met"}
    assert "2026-10-05" in built(simulation, "core/x")


def test_hourly_partitions_are_not_requested_early_in_a_daylight_saving_night() -> None:
    hours = dg.HourlyPartitionsDefinition("2026-10-24-00:00", timezone="Europe/Berlin", end_offset=1)
    hourly = dg.FreshnessPolicy.cron("0 * * * *", timedelta(minutes=2), timezone="Europe/Berlin")
    start = datetime(2026, 10, 25, tzinfo=ZoneInfo("Europe/Berlin"))
    simulation = Simulation(
        [source("x", hours), asset("core/x", "raw/x", by=hours, freshness_policy=hourly)], start=start
    )
    keys = hours.get_partition_keys(start + timedelta(hours=8))
    begins = {key: hours.start_time_for_partition_key(key).timestamp() for key in keys}
    for key, at in begins.items():
        if at >= simulation.time():
            simulation.arrive("raw/x", key, at=at + 300)
    while simulation.clock.now < simulation.time(hours=6):
        simulation.run(minutes=10)
        assert simulation.standings()["core/x"].verdict != "breached"
    runs = simulation.runs_of("core/x")
    assert len(runs) >= 5
    assert all(run.created_at >= begins[str(p)] + 3600 - 120 for run in runs for p in run.partitions)


@pytest.mark.parametrize("kind", ["static", "added later", "two times"])
def test_cron_contract_applies_to_partitions_without_a_time_window(kind: str) -> None:
    months = dg.MonthlyPartitionsDefinition("2026-08-01", end_offset=1)
    by = {
        "static": REGIONS,
        "added later": CITIES,
        "two times": dg.MultiPartitionsDefinition({"day": DAYS, "month": months}),
    }[kind]
    simulation = play([source("x", by), asset("core/x", "raw/x", by=by, freshness_policy=CRON_9)])
    simulation.run(hours=1)
    assert simulation.standings()["core/x"].verdict in ("met", "not judged")
    simulation.add_keys("cities", "oslo", at=simulation.time(days=2))
    simulation.run(days=2)
    standing = simulation.standings()["core/x"]
    if kind == "static":
        assert (standing.verdict, standing.partition) == ("breached", "eu")
    elif kind == "added later":
        assert standing.verdict == "met", "it was not there when it was nine"
        simulation.run(days=1)
        assert simulation.standings()["core/x"].verdict == "breached"
        simulation.remove_key("cities", "oslo", at=simulation.clock.now)
        simulation.run(hours=1)
        assert simulation.standings()["core/x"].verdict == "met"
    else:
        assert standing.verdict == "not judged" and "two time dimensions" in standing.reason
