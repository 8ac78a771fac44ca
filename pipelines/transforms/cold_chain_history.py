"""The cold chain's alert rule over all sensors and all of history.

Belongs here: applying the rule to each sensor in Spark. Does not belong here: the rule (`cold_chain.py`).
"""

from collections.abc import Iterable, Iterator
from itertools import groupby, islice
from operator import itemgetter

import pyarrow as pa
from dagster_tidemark import shipped
from pyspark.sql import DataFrame

from pipelines.transforms.cold_chain import too_warm

_ROWS_AT_ONCE = 10_000
_UTC = pa.timestamp("us", "UTC")
_EPISODES = pa.schema({"device_id": pa.string(), "store_id": pa.int64(), "started_at": _UTC, "last_at": _UTC})


def episodes_too_warm(readings: DataFrame) -> DataFrame:
    """Return one row per episode worth an alert: sensor, store, first and last reading (`started_at`, `last_at`).

    A sensor's readings are streamed once in the order of time, and never all held in memory.

    Args:
        readings: core/readings.
    """
    read = readings.select("device_id", "store_id", "read_at", "temperature_c")
    by_sensor = read.repartition("device_id").sortWithinPartitions("device_id", "read_at")
    return by_sensor.mapInArrow(
        shipped(_episodes), "device_id string, store_id bigint, started_at timestamp, last_at timestamp"
    )


def _episodes(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    readings = (reading for batch in batches for reading in batch.to_pylist())
    found = (
        {"device_id": device_id, **episode.facts, "started_at": episode.started_at, "last_at": episode.last_at}
        for device_id, of_sensor in groupby(readings, key=itemgetter("device_id"))
        for episode in too_warm(of_sensor)
    )
    while rows := list(islice(found, _ROWS_AT_ONCE)):
        yield pa.RecordBatch.from_pylist(rows, _EPISODES)
