"""A code location of 300 assets that are not Tidemark's, with and without a feed and a table of Tidemark's beside them.

`FOREIGN_WITH=tidemark` adds the two. Each asset of the location writes its name, partition and time to
`FOREIGN_FOLDER/built` when it is built. Belongs here: what the location declares. Does not belong here: what lands and
is compared (`tests.proof.test_foreign_location`).
"""

import os
import random
import time
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import dagster as dg
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from dagster_tidemark import LINEAGE, Feed, Grain, Table, extend, feed_assets, load_settings, shaped_as, table_asset

C = dg.AutomationCondition
ASSETS, ROOTS = 300, 6
DAYS = dg.DailyPartitionsDefinition("2026-11-02", end_offset=1)
HOURS = dg.HourlyPartitionsDefinition("2026-11-24-00:00", end_offset=1)
COUNTRIES = dg.StaticPartitionsDefinition(["dk", "se"])
CUSTOMERS = dg.DynamicPartitionsDefinition(name="customers")
PARTITIONS: Sequence[dg.PartitionsDefinition | None] = (
    None,
    DAYS,
    HOURS,
    COUNTRIES,
    dg.WeeklyPartitionsDefinition("2026-10-05", end_offset=1),
    dg.MultiPartitionsDefinition({"day": DAYS, "country": COUNTRIES}),
    CUSTOMERS,
)
CONDITIONS: Sequence[dg.AutomationCondition | None] = (
    C.eager(),
    C.on_missing(),
    C.on_cron("*/20 * * * *"),
    C.eager().without(~C.any_deps_missing()),
    None,
    C.newly_updated() | C.code_version_changed(),
    None,
)
TRIPS = Table(
    "core.trips", {"day": "date", "trip_id": "bigint"} | LINEAGE, partitioned_by="day", row_key=("day", "trip_id")
)
TRIPS_FEED = Feed("trips", "trips/", Grain.DAY, {"trip_id": "bigint"}, required=("trip_id",))
COUNTS = Table("marts.trip_counts", {"day": "date", "trips": "bigint"}, partitioned_by="day", row_key=("day",))


def folder() -> Path:
    """Where this location writes what it builds."""
    return Path(os.environ["FOREIGN_FOLDER"])


class Noted(dg.IOManager):
    """The location's own `io_manager`: keeps nothing but a line for each partition that was built."""

    def handle_output(self, context: dg.OutputContext, obj: Any) -> None:
        """Write a line of asset, partition and time."""
        keys = context.asset_partition_keys if context.has_asset_partitions else [""]
        with (folder() / "built").open("a") as lines:
            lines.writelines(f"{context.asset_key.to_user_string()}\t{key}\t{time.time():.3f}\n" for key in keys)

    def load_input(self, context: dg.InputContext) -> None:
        """Return nothing: no asset here looks at another's value."""


def their_assets(count: int = ASSETS, seed: int = 0) -> list[dg.AssetsDefinition | dg.AssetSpec]:
    """Make assets of every kind of partitions and condition; each depends on up to two that come before it."""
    chosen = random.Random(seed)
    made: list[Any] = [dg.AssetSpec(f"root_{number}", partitions_def=PARTITIONS[number]) for number in range(ROOTS)]
    for number in range(count - ROOTS):
        partitions = PARTITIONS[number % len(PARTITIONS)]
        like_it = [each for each in made if each.partitions_def == partitions]
        parents = chosen.sample(like_it, min(len(like_it), chosen.randint(1, 2)))

        @dg.asset(
            name=f"theirs_{number}",
            deps=parents,
            partitions_def=partitions,
            automation_condition=chosen.choice(CONDITIONS),
            code_version=chosen.choice(["1", None]),
            freshness_policy=dg.FreshnessPolicy.time_window(timedelta(hours=1)) if number % 3 == 0 else None,
            backfill_policy=dg.BackfillPolicy.single_run(),
        )
        def theirs() -> int:
            return 1

        made.append(theirs)
    return made


@dg.op
def nothing() -> None:
    """Do nothing."""


@dg.job
def their_job() -> None:
    """One step that does nothing."""
    nothing()


@dg.asset_sensor(asset_key=dg.AssetKey("root_0"), job=their_job, default_status=dg.DefaultSensorStatus.RUNNING)
def landing(context: dg.SensorEvaluationContext, event: dg.EventLogEntry) -> dg.RunRequest:
    """Ask for a run per update of a root; named as a sensor of ours would be without a prefix."""
    return dg.RunRequest(run_key=context.cursor)


def their_location() -> dg.Definitions:
    """Return the location as it is without us."""
    schedule = dg.ScheduleDefinition(
        "reconcile_all", job=their_job, cron_schedule="*/10 * * * *", default_status=dg.DefaultScheduleStatus.RUNNING
    )
    return dg.Definitions(
        assets=their_assets(),
        jobs=[their_job],
        schedules=[schedule],
        sensors=[
            landing,
            dg.AutomationConditionSensorDefinition(
                "theirs", target=dg.AssetSelection.all(), default_status=dg.DefaultSensorStatus.RUNNING
            ),
        ],
        resources={"io_manager": Noted()},
        executor=dg.multiprocess_executor.configured({"max_concurrent": 2}),
    )


@table_asset(COUNTS, ins={"trips": "core/trips"}, partitions=DAYS, fresh=timedelta(minutes=3), code_version="1")
def trip_counts(trips: DataFrame) -> DataFrame:
    """One row per day: its number of trips."""
    return shaped_as(trips.groupBy("day").agg(F.count("*").alias("trips")), COUNTS.columns)


def with_ours(theirs: dg.Definitions) -> dg.Definitions:
    """Add a feed, its table and a table with a contract."""
    ours = [trip_counts, *feed_assets(TRIPS_FEED, TRIPS, partitions_def=DAYS)]
    return extend(theirs, load_settings(), assets=ours, tables=[TRIPS, COUNTS], feeds=[TRIPS_FEED])


defs = with_ours(their_location()) if os.environ.get("FOREIGN_WITH") == "tidemark" else their_location()
