"""Hot spots: for how long a sensor was above the limit, hour by hour.

Belongs here: readings over the time for which they hold. Does not belong here: when somebody has to act
(`cold_chain.py`).
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
    """One row per sensor and hour in which a reading of it holds: seconds above 8.0 C, and the highest reading.

    A reading holds until the sensor's next one, at most 15 minutes, and counts in each hour for the part that lies in
    it. So the last reading of the hour before may hold in an hour, also where that has no reading of its own; it is
    then among those that give the maximum. Where no reading holds nothing is known, and nothing counted. A sensor that
    was moved within the hour counts where it was last, with all of its hour: a sensor's hour is one row.

    Args:
        readings: core/readings of these hours and of the hour before each.
        hours: When the hours begin, with a time zone. Others are only there for what holds beyond their end.
    """
    of_sensor = Window.partitionBy("device_id").orderBy("read_at")
    longest = F.col("read_at") + F.make_dt_interval(mins=F.lit(HOLDS_MINUTES))
    # The last reading has no next one: least() passes over nulls.
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
            # Whole numbers until the end: sums of doubles depend on their order, and another last digit is a change.
            (F.sum(F.when(is_above, F.col("microseconds")).otherwise(0)) / 1e6).alias("seconds_above_limit"),
            F.max("temperature_c").alias("max_temperature_c"),
        )
    )
    return shaped_as(found, HOT_SPOTS.columns)
