"""marts/hot_spots."""

import random
from datetime import UTC, datetime, timedelta
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from pipelines.schemas.core import READINGS
from pipelines.schemas.marts import HOT_SPOTS
from pipelines.schemas.raw import READINGS as MESSAGES
from pipelines.transforms.hot_spots import hot_spots
from pipelines.transforms.readings import readings as core_readings
from tests.oracle import assert_same, expected_of_messages
from tests.transforms.conftest import MakeFrame, frames_of
from tests.transforms.grocer.expect import assert_declared, at, rows_of


def of_hours(readings: DataFrame, *hours: int) -> DataFrame:
    return hot_spots(readings, hours=[at(hour).replace(tzinfo=UTC) for hour in hours])


def told(readings: DataFrame, *hours: int) -> list[tuple[object, ...]]:
    """Hour, seconds and maximum of one sensor."""
    rows = of_hours(readings, *hours).collect()
    return sorted((row["hour"].hour, row["seconds_above_limit"], row["max_temperature_c"]) for row in rows)


def test_reading_counts_until_the_next_one_or_15_minutes(readings: MakeFrame) -> None:
    result = of_hours(
        readings(
            {"read_at": at(7), "temperature_c": 9.0},  # 10 minutes
            {"read_at": at(7, 10), "temperature_c": 8.0},  # not above
            {"read_at": at(7, 20), "temperature_c": 8.5},  # 15 minutes
            {"read_at": at(7, 50), "temperature_c": -20.0},
            {"read_at": at(7, 30), "device_id": "b", "temperature_c": 30.0},
        ),
        7,
    )
    assert_declared(result, HOT_SPOTS)
    assert rows_of(result) == [(at(7), "a", 1, 1500.0, 9.0), (at(7), "b", 1, 900.0, 30.0)]


def test_hot_time_beyond_an_hour_counts_in_the_next(readings: MakeFrame) -> None:
    ends_at = at(8, 5) + timedelta(milliseconds=250)
    frame = readings({"read_at": at(7, 59), "temperature_c": 9.0}, {"read_at": ends_at, "temperature_c": 2.0})
    assert told(frame, 7, 8) == [(7, 60.0, 9.0), (8, 300.25, 9.0)]


def test_hour_without_readings_has_the_hot_time_of_the_previous_reading(readings: MakeFrame) -> None:
    assert told(readings({"read_at": at(7, 50), "temperature_c": 9.0}), 7, 8, 9) == [(7, 600.0, 9.0), (8, 300.0, 9.0)]
    assert told(readings({"read_at": at(7, 50), "temperature_c": 3.0}), 8) == [(8, 0.0, 3.0)]


def test_reading_that_ends_with_its_hour_does_not_count_in_the_next(readings: MakeFrame) -> None:
    assert told(readings({"read_at": at(7, 45), "temperature_c": 9.0}), 7, 8) == [(7, 900.0, 9.0)]
    followed = readings({"read_at": at(7, 55), "temperature_c": 9.0}, {"read_at": at(8), "temperature_c": 2.0})
    assert told(followed, 8) == [(8, 0.0, 2.0)]


def test_hot_spots_exclude_lookback_hours(readings: MakeFrame) -> None:
    frame = readings({"read_at": at(7)}, {"read_at": at(8)}, {"read_at": at(9)})
    assert [hour for hour, *_ in told(frame, 8)] == [8]


def test_moved_sensor_counts_in_its_last_store(readings: MakeFrame) -> None:
    frame = readings(
        {"read_at": at(7, 55), "store_id": 1, "temperature_c": 9.0},
        {"read_at": at(8, 20), "store_id": 3, "temperature_c": 9.0},
        {"read_at": at(8, 30), "store_id": 2, "temperature_c": 2.0},
    )
    assert rows_of(of_hours(frame, 7, 8)) == [(at(7), "a", 1, 300.0, 9.0), (at(8), "a", 2, 1200.0, 9.0)]


def test_readings_and_hot_spots_equal_those_computed_by_duckdb(spark: SparkSession) -> None:
    dice = random.Random(17)

    def message(number: int) -> dict[str, Any]:
        step = dice.choice((60, 7.5, 0.001))
        read_at = datetime(2026, 11, 20, 6, tzinfo=UTC) + timedelta(seconds=step * dice.randrange(400))
        return {
            "hour": read_at.replace(minute=0, second=0, microsecond=0),
            "device_id": dice.choice("abc"),
            "store_id": dice.randrange(3),
            "read_at": read_at,
            "temperature_c": dice.choice((5.5, 8.0, 8.1, 12.25)),
            "door_open": dice.choice((True, False, None)),
            "message_id": f"{dice.randrange(1000):03}/{number}",
            "sent_at": read_at + timedelta(seconds=dice.randrange(3)),
        }

    messages = frames_of(spark, MESSAGES, {})(*map(message, range(600)))
    expected = expected_of_messages(messages.toArrow())
    readings = core_readings(messages)
    assert 200 < expected["core.readings"].num_rows < 600
    assert_same(READINGS.name, expected["core.readings"], readings.toArrow())
    assert expected["marts.hot_spots"].num_rows > 15
    assert_same(HOT_SPOTS.name, expected["marts.hot_spots"], of_hours(readings, *range(6, 15)).toArrow())
