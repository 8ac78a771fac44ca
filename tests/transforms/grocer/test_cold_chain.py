"""The rule too_warm, on the readings of one sensor."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from pipelines.transforms.cold_chain import TOO_WARM, too_warm

NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)


def read(*readings: tuple[float, float]) -> list[dict[str, Any]]:
    """Readings from minutes after noon and degrees."""
    return [
        {"device_id": "a", "store_id": 7, "read_at": NOON + timedelta(minutes=minute), "temperature_c": degrees}
        for minute, degrees in readings
    ]


def found(*readings: tuple[float, float]) -> list[tuple[float, float]]:
    """First and last minute of each episode."""

    def minute(at: datetime) -> float:
        return round((at - NOON).total_seconds() / 60, 2)

    return [(minute(episode.started_at), minute(episode.last_at)) for episode in too_warm(read(*readings))]


@pytest.mark.parametrize(
    ("readings", "episodes"),
    [
        ([], []),
        ([(0, 9)], []),
        ([(0, 9), (10, 9)], [(0, 10)]),
        ([(0, 9), (9.99, 9)], []),  # not 10 minutes
        ([(0, 8.1), (10, 6)], [(0, 10)]),  # 6.0 belongs to it
        ([(0, 8), (5, 8), (10, 8)], []),  # 8.0 is not above
        ([(0, 7), (5, 8.1), (12, 7), (15, 6)], [(5, 15)]),  # starts with the first above, not with the first warm one
        ([(0, 9), (5, 5.9), (10, 9), (19, 9)], []),  # two, each too short
        ([(0, 9), (10, 9), (11, 5.9), (12, 7), (22, 7)], [(0, 10)]),  # what is warm afterwards starts none
        ([(0, 9), (15, 7), (30, 9)], [(0, 30)]),  # 15 minutes of silence are not too long
        ([(0, 9), (10, 9), (25.01, 9), (36, 9)], [(0, 10), (25.01, 36)]),
        ([(0, 9), (10, 9), (25.01, 7), (36, 7)], [(0, 10)]),
        ([(0, 9), (10, 9), (20, 5), (21, 9), (31, 9)], [(0, 10), (21, 31)]),
    ],
)
def test_too_warm_rule_finds_the_expected_episodes(
    readings: Sequence[tuple[float, float]], episodes: list[tuple[float, float]]
) -> None:
    assert found(*readings) == episodes


def test_too_warm_episode_belongs_to_the_store_of_its_start() -> None:
    readings = read((0, 9), (5, 9), (12, 9))
    readings[1]["store_id"] = readings[2]["store_id"] = 8
    (episode,) = too_warm(readings)
    assert episode.facts == {"store_id": 7}


def test_too_warm_rule_attributes_match_how_episodes_end() -> None:
    warm, cool = read((0, 6.0), (1, 5.9))
    assert not TOO_WARM.closes(warm) and TOO_WARM.closes(cool)
    assert found((0, 9), (10 + TOO_WARM.silence.total_seconds() / 60, 9)) == []
    assert TOO_WARM.episodes(read((0, 9), (10, 9))) == list(too_warm(read((0, 9), (10, 9))))
