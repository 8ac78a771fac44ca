"""A person at the UI: materialize one partition, a range, all; a backfill of a week; observe a source."""

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pytest

from tests.live.conftest import Judge, Loaded
from tests.live.ui import values
from tests.live.waiting import eventually
from tests.oracle import assert_same, download, expected_tables
from tests.sampling import sample

HOURS_OF_A_WEEK = 168
MIXED = ("core/orders", "marts/margin_hourly", "marts/executive_rollup")


@pytest.fixture(scope="module", autouse=True)
def backfills(loaded: Loaded) -> dict[str, str]:
    """Backfills of different tables, launched before all else: Dagster looks for new ones every 30 s only."""
    ui, first = loaded.platform.ui, loaded.days[0]
    day = [hour for hour in loaded.hours if hour.startswith(str(first))]
    days = [str(day) for day in loaded.days]
    week = [f"{first + timedelta(days=n // 24)}-{n % 24:02}:00" for n in range(HOURS_OF_A_WEEK)]
    return {
        "range": ui.backfill("marts/order_stats", partitions=days),
        "all": ui.backfill("marts/sales_daily"),
        "week": ui.backfill("marts/sales_hourly", partitions=week),
        "grains": ui.backfill(*MIXED, partitions=day),
    }


def test_unpartitioned_table_is_materialized_on_demand(loaded: Loaded, judge: Judge) -> None:
    ui = loaded.platform.ui
    run = ui.succeeded(ui.materialize("core/customers"))
    assert ui.materializations("core/customers")[0]["runId"] == run.id
    judge("core.customers")


@pytest.mark.parametrize("source", sample(["raw/orders", "raw/prices", "raw/customers"], "raw/orders"))
def test_observing_a_source_reports_the_version_the_sensor_reported(loaded: Loaded, source: str) -> None:
    ui = loaded.platform.ui
    before = versions(ui.observations(source))
    assert before
    run = ui.succeeded(ui.observe(source))
    after = ui.observations(source)
    assert versions(after) == before
    # Dagster writes one for a source without partitions, whatever was found.
    assert [event["partition"] for event in after if event["runId"] == run.id] in ([], [None])


def test_backfill_of_a_range_is_one_run(loaded: Loaded, judge: Judge, backfills: dict[str, str]) -> None:
    assert len(built_by_one_run(loaded, backfills["range"], "marts/order_stats")) == 3
    judge("marts.order_stats")


def test_backfill_of_all_partitions_is_one_run(loaded: Loaded, judge: Judge, backfills: dict[str, str]) -> None:
    built = built_by_one_run(loaded, backfills["all"], "marts/sales_daily")
    assert sorted(built) == loaded.platform.ui.partition_keys("marts/sales_daily")
    judge("marts.sales_daily")


def test_backfill_of_a_week_of_hours_is_one_run_and_commit(
    loaded: Loaded, judge: Judge, backfills: dict[str, str], note: Callable[[str], None]
) -> None:
    built = built_by_one_run(loaded, backfills["week"], "marts/sales_hourly", note)
    assert len(built) == HOURS_OF_A_WEEK
    assert len({values(event)["snapshot id"] for event in built.values()}) == 1
    assert {hour for hour, event in built.items() if values(event)["dagster/partition_row_count"]} == set(loaded.hours)
    judge("marts.sales_hourly")


def test_backfill_builds_assets_of_several_time_grains(
    loaded: Loaded, judge: Judge, backfills: dict[str, str], tmp_path: Path
) -> None:
    ui, day = loaded.platform.ui, str(loaded.days[0])
    _, runs = ui.backfilled(backfills["grains"])
    built = {asset: {e["partition"] for e in ui.materializations(asset) if e["runId"] in runs} for asset in MIXED}
    of_the_day = {hour for hour in loaded.hours if hour.startswith(day)}
    assert built == {"core/orders": of_the_day, "marts/margin_hourly": of_the_day, "marts/executive_rollup": {day}}
    judge("core.orders", "marts.margin_hourly")
    # Of the other days the rollup is due at nine: what is late there is not in it before.
    rollup = expected_tables(download(loaded.platform.s3, "landing", tmp_path)).tables["marts.executive_rollup"]
    is_first = pc.field("day") == loaded.days[0]
    found = loaded.platform.table("marts.executive_rollup").filter(is_first)
    assert_same("marts.executive_rollup", rollup.filter(is_first), found)


@pytest.mark.proof  # two minutes
def test_failed_backfill_partitions_are_retried(loaded: Loaded, judge: Judge) -> None:
    ui, days = loaded.platform.ui, [str(day) for day in loaded.days]
    backfill = ui.backfill("marts/sales_daily", partitions=days)

    def is_started() -> str:
        ids = {run["runId"] for run in ui.backfill_state(backfill)["runs"]}
        [run] = [run for run in ui.runs() if run.id in ids] or [None]
        assert run is not None and run.status == "STARTED", run
        return run.id

    ui.terminate(eventually(is_started, seconds=60, every=0.2))
    ui.backfilled(backfill, status="COMPLETED_FAILED")
    count, [again] = ui.backfilled(ui.backfill_what_failed(backfill))
    assert count == len(days)
    assert {e["partition"] for e in ui.materializations("marts/sales_daily") if e["runId"] == again} == set(days)
    judge("marts.sales_daily")


def test_materializing_unchanged_content_causes_no_further_runs(
    loaded: Loaded, judge: Judge, note: Callable[[str], None]
) -> None:
    platform, hour = loaded.platform, loaded.hours[len(loaded.hours) // 2]
    before = len(platform.ui.runs())
    run = platform.ui.succeeded(platform.ui.materialize("core/orders", hour))
    note(f"core/orders of one hour on demand: {run.seconds:.1f} s")
    newest = platform.ui.materializations("core/orders")[0]
    assert (newest["runId"], newest["partition"]) == (run.id, hour)
    assert values(newest)["dagster/partition_row_count"] == len(
        [row for row in hours(loaded, "core.orders") if row == hour]
    )
    platform.quiet()
    assert len(platform.ui.runs()) == before + 1
    judge()


def built_by_one_run(
    loaded: Loaded, backfill: str, asset: str, note: Callable[[str], None] | None = None
) -> dict[str, dict[str, Any]]:
    """Wait for a backfill; its materializations by partition, all of one run."""
    ui = loaded.platform.ui
    count, run_ids = ui.backfilled(backfill)
    assert len(run_ids) == 1
    if note:
        note(f"{asset}: a backfill of {count} partitions took one run of {ui.succeeded(run_ids[0]).seconds:.1f} s")
    built = {event["partition"]: event for event in ui.materializations(asset) if event["runId"] == run_ids[0]}
    assert len(built) == count
    return built


def versions(observations: list[dict[str, Any]]) -> dict[str | None, str]:
    """The latest data version of each partition, from observations with the newest first."""
    found = {}
    for event in reversed(observations):
        tags = {tag["key"]: tag["value"] for tag in event["tags"]}
        found[event["partition"]] = tags["dagster/data_version"]
    return found


def hours(loaded: Loaded, table: str) -> list[str]:
    """The partition key of every row."""
    return [f"{hour:%Y-%m-%d-%H:00}" for hour in loaded.platform.table(table)["hour"].to_pylist()]
