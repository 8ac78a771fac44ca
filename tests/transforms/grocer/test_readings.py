"""core/readings."""

from pipelines.schemas.core import READINGS
from pipelines.transforms.readings import readings
from tests.transforms.conftest import MakeFrame
from tests.transforms.grocer.expect import assert_declared, at, rows_of


def test_last_sent_message_of_a_reading_replaces_the_others(messages: MakeFrame) -> None:
    result = readings(
        messages(
            {"message_id": "9", "sent_at": at(7, 31), "temperature_c": 9.0, "store_id": 2, "door_open": True},
            {"message_id": "1", "sent_at": at(7, 32), "temperature_c": 5.0, "door_open": None},
            {"message_id": "2", "sent_at": at(7, 30), "temperature_c": 7.0},
        )
    )
    assert_declared(result, READINGS)
    assert rows_of(result) == [(at(7), "a", 1, at(7, 30), 5.0, None, at(7, 32))]


def test_greatest_message_id_wins_among_messages_sent_at_once(messages: MakeFrame) -> None:
    result = readings(
        messages(
            {"message_id": "t/0/00000000000000000009", "temperature_c": 1.0},
            {"message_id": "t/0/00000000000000000010", "temperature_c": 2.0},
        )
    )
    assert [row.temperature_c for row in result.collect()] == [2.0]


def test_readings_of_different_sensors_and_times_are_kept_apart(messages: MakeFrame) -> None:
    result = readings(
        messages(
            {"message_id": "1"},
            {"message_id": "2", "device_id": "b"},
            {"message_id": "3", "hour": at(8), "read_at": at(8)},
            {"message_id": "4", "read_at": at(7, 30).replace(microsecond=1)},
        )
    )
    assert result.count() == 4


def test_readings_are_empty_without_messages(messages: MakeFrame) -> None:
    assert rows_of(readings(messages({}).limit(0))) == []
