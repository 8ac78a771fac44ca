"""A code location of two assets on the project's own automation, whose runs wait and fail when a test wants it.

Numbers land, an hour each; `core/numbers` takes them over and `marts/days` lines up those of a day. Files in the room
say what the next run does: while `closed/<asset>@<partition>` is there it waits after it has read its input, and if
`broken/<asset>@<partition>` is there it then fails.
"""

import os
import time
from collections.abc import Callable
from pathlib import Path

import dagster as dg

from dagster_tidemark.engine.condition import derived
from dagster_tidemark.planner import run_retries
from dagster_tidemark.sensors.automation import automation_sensor
from dagster_tidemark.sensors.catch_up import catch_up_sensor
from dagster_tidemark.sensors.scope import LocationScope
from dagster_tidemark.settings import load_settings
from dagster_tidemark.tags import CONTENT

ROOM = Path(os.environ["TOY_ROOM"])
HOURS = dg.HourlyPartitionsDefinition("2026-11-02-00:00", end_offset=1)
DAYS = dg.DailyPartitionsDefinition("2026-11-02", end_offset=1)
WITHIN = dg.TimeWindowPartitionMapping(allow_nonexistent_upstream_partitions=True)

# A minute is the smallest pause there is; a test has no minute for each failure. Only the daemon loads this.
run_retries.FIRST_PAUSE = 8.0


@dg.observable_source_asset(key=["raw", "numbers"], partitions_def=HOURS)
def raw_numbers() -> dg.DataVersionsByPartition:
    """What landed; the test reports it, as the landing sensor does."""
    return dg.DataVersionsByPartition({})


@dg.asset(
    key=["core", "numbers"],
    deps=[["raw", "numbers"]],
    partitions_def=HOURS,
    automation_condition=derived(),
    tags={"tidemark/pace": "asap"},
    backfill_policy=dg.BackfillPolicy.single_run(),
)
def core_numbers(context: dg.AssetExecutionContext) -> None:
    """The number of an hour."""
    for hour in context.partition_keys:
        _make(context, hour, lambda hour=hour: (ROOM / "landed" / hour).read_text())


@dg.asset(
    key=["marts", "days"],
    deps=[dg.AssetDep(["core", "numbers"], partition_mapping=WITHIN)],
    partitions_def=DAYS,
    automation_condition=derived(),
    tags={"tidemark/pace": "asap"},
    backfill_policy=dg.BackfillPolicy.single_run(),
)
def days(context: dg.AssetExecutionContext) -> None:
    """The numbers of a day, in the order of its hours."""
    for day in context.partition_keys:
        _make(context, day, lambda day=day: _numbers_of(day))


def _numbers_of(day: str) -> str:
    return " ".join(path.read_text() for path in sorted((ROOM / "made").glob(f"core.numbers@{day}-*")))


def _make(context: dg.AssetExecutionContext, partition: str, read: Callable[[], str]) -> None:
    name = f"{'.'.join(context.asset_key.path)}@{partition}"
    value = read()
    (ROOM / "inside" / name).write_text(value)
    deadline = time.monotonic() + 60
    while (ROOM / "closed" / name).exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    if (ROOM / "broken" / name).exists():
        raise dg.Failure(f"{name} is broken")
    (ROOM / "made" / name).write_text(value)
    context.add_asset_metadata({CONTENT: value}, partition_key=partition)


SETTINGS = load_settings()
defs = dg.Definitions(
    assets=[raw_numbers, core_numbers, days],
    sensors=[automation_sensor(SETTINGS), catch_up_sensor(LocationScope(settings=SETTINGS))],
    executor=dg.in_process_executor,
)
