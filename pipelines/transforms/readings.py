"""Readings of the cold chain's sensors, deduplicated from their messages.

Belongs here: the choice between several messages about one reading. Does not belong here: computations on readings
(`hot_spots.py`, `cold_chain.py`).
"""

from dagster_tidemark import shaped_as
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pipelines.schemas.core import READINGS

_SAID = ("store_id", "temperature_c", "door_open", "sent_at")


def readings(messages: DataFrame) -> DataFrame:
    """Return one row per reading of a sensor: hour, sensor and time.

    If several messages describe one reading, the last one sent counts, whatever their order of arrival. If they were
    sent in the same millisecond, the greatest message id counts.

    Args:
        messages: raw/readings of any number of hours.
    """
    said = messages.groupBy("hour", "device_id", "read_at").agg(
        F.max_by(F.struct(*_SAID), F.struct("sent_at", "message_id")).alias("said")
    )
    return shaped_as(said.select("hour", "device_id", "read_at", "said.*"), READINGS.columns)
