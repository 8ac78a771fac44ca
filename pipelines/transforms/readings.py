"""Readings: what the messages of the cold chain's sensors say, each reading once.

Belongs here: which of several messages about one reading counts. Does not belong here: what follows from readings
(`hot_spots.py`, `cold_chain.py`).
"""

from dagster_tidemark import shaped_as
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pipelines.schemas.core import READINGS

_SAID = ("store_id", "temperature_c", "door_open", "sent_at")


def readings(messages: DataFrame) -> DataFrame:
    """One row per reading of a sensor: hour, sensor and time.

    Of several messages about one reading the one that was sent last counts, however late it came; of those that were
    sent in the same millisecond the one with the greatest id.

    Args:
        messages: raw/readings of any number of hours.
    """
    said = messages.groupBy("hour", "device_id", "read_at").agg(
        F.max_by(F.struct(*_SAID), F.struct("sent_at", "message_id")).alias("said")
    )
    return shaped_as(said.select("hour", "device_id", "read_at", "said.*"), READINGS.columns)
