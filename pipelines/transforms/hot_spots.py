"""Hot spots: how long each sensor was above the limit in each hour.

Belongs here: computations on the validity time of readings. Does not belong here: the alert rule (`cold_chain.py`).
"""

from collections.abc import Collection
from datetime import datetime

from dagster_tidemark import shaped_as
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from pipelines.schemas.marts import HOT_SPOTS

LIMIT_C = 8.0
HOLDS_MINUTES = 15


def hot_spots(readings: DataFrame, *, hours: Collection[datetime]) -> DataFrame:
    """Return one row per sensor and hour with a valid reading: seconds above 8.0 C, and the highest reading.

    A reading is valid until the sensor's next one, for at most 15 minutes. Each hour counts the part of that time
    within the hour. So the last reading of the previous hour may count too, and may be the maximum, even if the hour
    has no reading of its own. Time without a valid reading is not counted. If a sensor moved within the hour, its
    whole hour counts for its last store: a sensor has one row per hour.

    Args:
        readings: core/readings of `hours` and of the hour before each.
        hours: Starts of the hours in the result, with a time zone.
    """
    of_sensor = Window.partitionBy("device_id").orderBy("read_at")
    longest = F.col("read_at") + F.make_dt_interval(mins=F.lit(HOLDS_MINUTES))
    # The last reading has no next one: least() ignores nulls.
    held = readings.withColumn("until", F.least(F.lead("read_at").over(of_sensor), longest))
    hour = F.make_dt_interval(hours=F.lit(1))
    touched = held.withColumn("hour", F.explode(F.array(F.col("hour"), F.col("hour") + hour)))
    begins = F.unix_micros(F.greatest("read_at", "hour"))
    ends = F.unix_micros(F.least(F.col("until"), F.col("hour") + hour))
    parts = touched.withColumn("microseconds", ends - begins).where(F.col("microseconds") > 0)
    is_above = F.col("temperature_c") > LIMIT_C
    found = (
        parts.where(F.col("hour").isin(sorted(hours)))
        .groupBy("hour", "device_id")
        .agg(
            F.max_by("store_id", "read_at").alias("store_id"),
            # Integers until the end: a sum of doubles depends on row order, and a different last digit is a change.
            (F.sum(F.when(is_above, F.col("microseconds")).otherwise(0)) / 1e6).alias("seconds_above_limit"),
            F.max("temperature_c").alias("max_temperature_c"),
        )
    )
    return shaped_as(found, HOT_SPOTS.columns)
